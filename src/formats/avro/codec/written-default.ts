/** Bytes of a field's default, for a value that omits the field. */
import { MillraceError } from '../../../core/errors.ts';
import type { AvroDatum } from '../../datum.ts';
import { doubleOf, type JsonNode, type JsonNumber, type JsonString } from '../../json/text.ts';
import { defaultBranch, FILL_DEPTH_MAX, FILL_VALUES_MAX, floatOfText, misfitOf } from '../syntax/default.ts';
import type { AvroField, AvroNode, AvroPrimitive } from '../syntax/tree.ts';
import { encodeAvro } from './encoder.ts';

/** Signals a default that the encoder does not write. */
class NotWritten extends Error {}

const cache = new WeakMap<AvroField, Buffer | null>();

/** Bytes of the default; null where there is none, where it does not fit its type, and where a
 *  union's default belongs to another branch than the first: then the value is required. */
export function writtenDefault(field: AvroField): Buffer | null {
  const held = cache.get(field);
  if (held !== undefined) return held;
  let bytes: Buffer | null = null;
  try {
    bytes = encodeAvro(field.type, new DefaultDatum().field(field, 0));
  } catch (thrown) {
    const isNested = thrown instanceof MillraceError && thrown.code === 'value_refused';
    if (!(thrown instanceof NotWritten) && !isNested) throw thrown;
  }
  cache.set(field, bytes);
  return bytes;
}

/** True when the encoder accepts a record without this field. */
export const isOmittable = (field: AvroField): boolean => writtenDefault(field) !== null;

class DefaultDatum {
  private values = 0;

  field({ type, defaultJson }: AvroField, depth: number): AvroDatum {
    // A default that does not fit, in a schema from another registry, can never be read.
    if (defaultJson === undefined || misfitOf(defaultJson, type) !== undefined) throw new NotWritten();
    if (defaultJson.kind === 'string' && type.kind === 'primitive') {
      const number = /^(float|double)$/.test(type.type) ? floatOfText(defaultJson.value) : undefined;
      if (number !== undefined) return type.type === 'float' ? Math.fround(number) : number;
    }
    return this.value(defaultJson, type, depth);
  }

  /** Datum of a JSON value that fits the type. */
  private value(json: JsonNode, type: AvroNode, depth: number): AvroDatum {
    if (depth > FILL_DEPTH_MAX || ++this.values > FILL_VALUES_MAX) throw new NotWritten();
    switch (type.kind) {
      case 'primitive':
        return primitive(json, type.type);
      case 'enum':
        return (json as JsonString).value;
      case 'fixed':
        return Buffer.from((json as JsonString).value, 'latin1');
      case 'union':
        if (defaultBranch(json, type) !== 0) throw new NotWritten();
        return { branch: 0, value: this.value(json, type.branches[0] as AvroNode, depth + 1) };
      case 'array': {
        const items = json.kind === 'array' ? json.items : [];
        return items.map((item) => this.value(item, type.items, depth + 1));
      }
      case 'map': {
        const members = json.kind === 'object' ? [...json.members] : [];
        return new Map(members.map(([key, { value }]) => [key, this.value(value, type.values, depth + 1)]));
      }
      case 'record': {
        const members = json.kind === 'object' ? json.members : undefined;
        const fields = type.fields.map((field) => {
          const member = members?.get(field.name);
          return member === undefined
            ? this.field(field, depth + 1)
            : this.value(member.value, field.type, depth + 1);
        });
        return { fields };
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
