/** Default of an Avro field as the plain value that a reader's program gets.
 *  Source: Apache Avro 1.12 specification, "Schema Declaration", the table of defaults, and
 *  "Unions": a union's default belongs to the first branch that it fits. */
import { FILL_DEPTH_MAX, FILL_VALUES_MAX } from '../../../formats/avro/syntax/default.ts';
import type { AvroField, AvroNode, AvroPrimitive } from '../../../formats/avro/syntax/tree.ts';
import type { JsonNode, JsonObject } from '../../../formats/json/text.ts';
import { objectOf, plainBranch } from './plain.ts';

/** Marks a field without a usable default: it does not fit, it never ends, or it exceeds the
 *  reader's limits. */
export const NO_DEFAULT = Symbol('no default');

const INTEGER = /^-?[0-9]+$/;
/** Java's text form of numbers that JSON cannot express. It is accepted only if the field itself is
 *  a float or a double. */
const NUMBER_TEXT = /^[+-]?(NaN|Infinity|[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?)$/;

const isByteText = (text: string): boolean => [...text].every((char) => (char.codePointAt(0) ?? 0) < 256);

function integer(json: JsonNode, bits: number): bigint | undefined {
  if (json.kind !== 'number' || !INTEGER.test(json.digits) || json.digits.length > 20) return undefined;
  const value = BigInt(json.digits);
  return BigInt.asIntN(bits, value) === value ? value : undefined;
}

function primitive(json: JsonNode, type: AvroPrimitive): unknown {
  switch (type) {
    case 'null':
      return json.kind === 'null' ? null : NO_DEFAULT;
    case 'boolean':
      return json.kind === 'boolean' ? json.value : NO_DEFAULT;
    case 'int': {
      const value = integer(json, 32);
      return value === undefined ? NO_DEFAULT : Number(value);
    }
    case 'long':
      return integer(json, 64) ?? NO_DEFAULT;
    case 'float':
    case 'double': {
      if (json.kind !== 'number') return NO_DEFAULT;
      // A JSON integer has no negative zero.
      const value = INTEGER.test(json.digits) ? Number(json.digits) + 0 : Number(json.digits);
      if (!Number.isFinite(value)) return NO_DEFAULT;
      return type === 'float' ? Math.fround(value) : value;
    }
    case 'bytes':
      return json.kind === 'string' && isByteText(json.value)
        ? Buffer.from(json.value, 'latin1')
        : NO_DEFAULT;
    case 'string':
      return json.kind === 'string' ? json.value : NO_DEFAULT;
  }
}

class Defaults {
  private values = 0;
  /** Fields whose default is in progress: a field that needs itself never ends. */
  private readonly open = new Set<AvroField>();

  private of(json: JsonNode, type: AvroNode, depth: number): unknown {
    if (depth > FILL_DEPTH_MAX || ++this.values > FILL_VALUES_MAX) return NO_DEFAULT;
    switch (type.kind) {
      case 'primitive':
        return primitive(json, type.type);
      case 'enum':
        return json.kind === 'string' && type.symbols.includes(json.value) ? json.value : NO_DEFAULT;
      case 'fixed':
        return json.kind === 'string' && json.value.length === type.size && isByteText(json.value)
          ? Buffer.from(json.value, 'latin1')
          : NO_DEFAULT;
      case 'union': {
        for (const [at, branch] of type.branches.entries()) {
          const value = this.of(json, branch, depth + 1);
          if (value !== NO_DEFAULT) return plainBranch(type, at, value);
        }
        return NO_DEFAULT;
      }
      case 'array': {
        if (json.kind !== 'array') return NO_DEFAULT;
        const items = json.items.map((item) => this.of(item, type.items, depth + 1));
        return items.includes(NO_DEFAULT) ? NO_DEFAULT : items;
      }
      case 'map': {
        if (json.kind !== 'object') return NO_DEFAULT;
        const entries = [...json.members].map(
          ([key, { value }]) => [key, this.of(value, type.values, depth + 1)] as const,
        );
        return entries.some(([, value]) => value === NO_DEFAULT) ? NO_DEFAULT : objectOf(entries);
      }
      case 'record':
        return json.kind === 'object' ? this.record(json, type.fields, depth + 1) : NO_DEFAULT;
    }
  }

  private record(json: JsonObject, fields: readonly AvroField[], depth: number): unknown {
    const entries: Array<readonly [string, unknown]> = [];
    for (const field of fields) {
      const member = json.members.get(field.name);
      const value =
        member === undefined ? this.field(field, depth) : this.of(member.value, field.type, depth);
      if (value === NO_DEFAULT) return NO_DEFAULT;
      entries.push([field.name, value]);
    }
    return objectOf(entries);
  }

  /** Returns the value of a field that is not given. */
  field(field: AvroField, depth: number): unknown {
    const { defaultJson: json, type } = field;
    if (json === undefined || this.open.has(field)) return NO_DEFAULT;
    if (json.kind === 'string' && type.kind === 'primitive' && /^(float|double)$/.test(type.type)) {
      if (!NUMBER_TEXT.test(json.value)) return NO_DEFAULT;
      const value = json.value.endsWith('NaN') ? Number.NaN : Number(json.value);
      return type.type === 'float' ? Math.fround(value) : value;
    }
    this.open.add(field);
    const value = this.of(json, type, depth);
    this.open.delete(field);
    return value;
  }
}

/** Returns the value of a field that was not written; NO_DEFAULT if there is none. */
export function defaultOf(field: AvroField): unknown {
  return new Defaults().field(field, 0);
}
