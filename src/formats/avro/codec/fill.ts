/** Value of a field that the writer's schema lacks, from its default in the reader's schema. */

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
  try {
    const value = new Filling(true).field(field, 0);
    if (typeof value !== 'object' || value === null) return { value };
    return { value, make: () => new Filling(false).field(field, 0) };
  } catch (thrown) {
    if (thrown instanceof NoDefault) return thrown;
    throw thrown;
  }
}

class Filling {
  /** True when the defaults must be checked; one check is enough. */
  private readonly checks: boolean;
  private values = 0;

  constructor(checks: boolean) {
    this.checks = checks;
  }

  field({ name, type, defaultJson }: AvroField, depth: number): unknown {
    if (defaultJson === undefined)
      throw new NoDefault(`field ${shownName(name)} is not written and has no default`);
    const misfit = this.checks ? misfitOf(defaultJson, type) : undefined;
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
  private value(json: JsonNode, type: AvroNode, depth: number): unknown {
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
        const branch = type.branches[defaultBranch(json, type) ?? 0] as AvroNode;
        const value = this.value(json, branch, depth + 1);
        return value !== null && isWrapped(type) ? { [branchKey(branch)]: value } : value;
      }
      case 'array':
        return json.kind === 'array' ? json.items.map((item) => this.value(item, type.items, depth + 1)) : [];
      case 'map':
        return json.kind === 'object'
          ? Object.fromEntries(
              [...json.members].map(([key, { value }]) => [key, this.value(value, type.values, depth + 1)]),
            )
          : {};
      case 'record': {
        const members = json.kind === 'object' ? json.members : undefined;
        return Object.fromEntries(
          type.fields.map((field) => {
            const member = members?.get(field.name);
            const value =
              member === undefined
                ? this.field(field, depth + 1)
                : this.value(member.value, field.type, depth + 1);
            return [field.name, value];
          }),
        );
      }
    }
  }
}

function primitive(json: JsonNode, type: AvroPrimitive): unknown {
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
