/** Value of a field that the writer's schema lacks, from its default in the reader's schema. */

import type { AvroBranchDatum, AvroDatum, AvroRecordDatum } from '../../datum.ts';
import { doubleOf, type JsonNode, type JsonNumber, type JsonString } from '../../json/text.ts';
import { defaultBranch, FILL_DEPTH_MAX, FILL_VALUES_MAX, floatOfText, misfitOf } from '../syntax/default.ts';
import type { AvroField, AvroNode, AvroPrimitive } from '../syntax/tree.ts';
import { branchKey, isWrapped } from './branch.ts';
import { shownName } from './match.ts';

/** Reason why a field cannot be filled. */
export class NoDefault extends Error {}

export interface Fill {
  readonly value: unknown;
  /** Makes a new value, so that changes by one consumer stay with its event; absent for immutable
   *  values. */
  readonly make?: () => unknown;
}

export function fillOf(field: AvroField): Fill | NoDefault {
  const datum = fillDatum(field);
  if (datum instanceof NoDefault) return datum;
  const value = plainOf(datum, field.type);
  if (typeof value !== 'object' || value === null) return { value };
  return { value, make: () => plainOf(datum, field.type) };
}

/** Default of a field as explicit values: with the branch of each union. */
export function fillDatum(field: AvroField): AvroDatum | NoDefault {
  try {
    return new Filling().field(field, 0);
  } catch (thrown) {
    if (thrown instanceof NoDefault) return thrown;
    throw thrown;
  }
}

/** Value of a program, made anew: bytes and objects belong to the caller. */
function plainOf(datum: AvroDatum, type: AvroNode): unknown {
  switch (type.kind) {
    case 'union': {
      const { branch, value } = datum as AvroBranchDatum;
      const node = type.branches[branch] as AvroNode;
      const plain = plainOf(value, node);
      return plain !== null && isWrapped(type) ? { [branchKey(node)]: plain } : plain;
    }
    case 'array':
      return (datum as readonly AvroDatum[]).map((item) => plainOf(item, type.items));
    case 'map':
      return Object.fromEntries(
        [...(datum as ReadonlyMap<string, AvroDatum>)].map(([key, value]) => [
          key,
          plainOf(value, type.values),
        ]),
      );
    case 'record': {
      const { fields } = datum as AvroRecordDatum;
      return Object.fromEntries(
        type.fields.map((field, index) => [field.name, plainOf(fields[index] as AvroDatum, field.type)]),
      );
    }
    default:
      return datum instanceof Uint8Array ? Buffer.from(datum) : datum;
  }
}

class Filling {
  private values = 0;

  field({ name, type, defaultJson }: AvroField, depth: number): AvroDatum {
    if (defaultJson === undefined)
      throw new NoDefault(`field ${shownName(name)} is not written and has no default`);
    const misfit = misfitOf(defaultJson, type);
    if (misfit !== undefined)
      throw new NoDefault(
        `field ${shownName(name)} is not written, and its default does not fit its type: ${misfit.why}`,
      );
    if (defaultJson.kind === 'string' && type.kind === 'primitive') {
      const number =
        type.type === 'float' || type.type === 'double' ? floatOfText(defaultJson.value) : undefined;
      if (number !== undefined) return type.type === 'float' ? Math.fround(number) : number;
    }
    return this.value(defaultJson, type, depth);
  }

  /** Value of a JSON value that fits the type. */
  private value(json: JsonNode, type: AvroNode, depth: number): AvroDatum {
    if (depth > FILL_DEPTH_MAX || ++this.values > FILL_VALUES_MAX)
      throw new NoDefault('a default has no end, or too many values');
    switch (type.kind) {
      case 'primitive':
        return primitive(json, type.type);
      case 'enum':
        return (json as JsonString).value;
      case 'fixed':
        return Buffer.from((json as JsonString).value, 'latin1');
      case 'union': {
        const branch = defaultBranch(json, type) ?? 0;
        return { branch, value: this.value(json, type.branches[branch] as AvroNode, depth + 1) };
      }
      case 'array':
        return json.kind === 'array' ? json.items.map((item) => this.value(item, type.items, depth + 1)) : [];
      case 'map':
        return json.kind === 'object'
          ? new Map(
              [...json.members].map(([key, { value }]) => [key, this.value(value, type.values, depth + 1)]),
            )
          : new Map();
      case 'record': {
        const members = json.kind === 'object' ? json.members : undefined;
        return {
          fields: type.fields.map((field) => {
            const member = members?.get(field.name);
            return member === undefined
              ? this.field(field, depth + 1)
              : this.value(member.value, field.type, depth + 1);
          }),
        };
      }
    }
  }
}

function primitive(json: JsonNode, type: AvroPrimitive): AvroDatum {
  switch (type) {
    case 'null':
      return null;
    case 'boolean':
      return json.kind === 'boolean' && json.value;
    case 'int':
    case 'double':
      return doubleOf(json as JsonNumber);
    case 'float':
      return Math.fround(doubleOf(json as JsonNumber));
    case 'long':
      return BigInt((json as JsonNumber).digits);
    case 'bytes':
      return Buffer.from((json as JsonString).value, 'latin1');
    case 'string':
      return (json as JsonString).value;
  }
}
