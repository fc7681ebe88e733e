/** Reads ProtoJSON as a value of a message type. Keys are the JSON names or the names of the
 *  fields, null means absent, and an unknown key is refused. Source: protobuf.dev, "ProtoJSON
 *  Format". */
import type { ProtoDatum, ProtoFieldDatum, ProtoValueDatum } from '../../datum.ts';
import { Misread, memberStep, misread } from '../../json/misread.ts';
import { exactInteger } from '../../json/number.ts';
import type { JsonNode, JsonObject } from '../../json/text.ts';
import { encodeProto } from '../codec/encoder.ts';
import type { ProtoEnum, ProtoField, ProtoFile, ProtoMessage } from '../tree.ts';
import { bytesOfBase64 } from './base64.ts';
import { ANY, isSpecial, NULL_VALUE, reachable, typeOfUrl, VALUE, WRAPPERS } from './known.ts';
import { durationOf, fieldMaskOf, timestampOf } from './times.ts';

/** Makes the reader of a message. It throws value_refused with the detail `path`. */
export function protoJsonReader(file: ProtoFile, message: ProtoMessage): (json: JsonNode) => ProtoDatum {
  const reader = new Reader(file);
  const root = message.name.replace(/^.*\./s, '');
  return (json) => {
    try {
      return reader.message(json, message);
    } catch (thrown) {
      throw thrown instanceof Misread ? thrown.toError(root) : thrown;
    }
  };
}

type Fields = Map<number, ProtoFieldDatum>;

class Reader {
  private readonly file: ProtoFile;
  private readonly byKey = new WeakMap<ProtoMessage, ReadonlyMap<string, ProtoField>>();
  private types: ReadonlyMap<string, ProtoMessage> | undefined;

  constructor(file: ProtoFile) {
    this.file = file;
  }

  message(json: JsonNode, message: ProtoMessage): ProtoDatum {
    if (message.unknown) throw new Misread(`the type ${message.name} is not known`);
    if (message.name === ANY) return this.any(json, message);
    if (isSpecial(message)) {
      const datum = this.special(json, message);
      if (datum !== undefined) return datum;
    }
    if (json.kind !== 'object') throw misread(json, `a message ${message.name}`);
    return this.fields([...json.members], message);
  }

  private fields(members: ReadonlyArray<JsonEntry>, message: ProtoMessage): ProtoDatum {
    const byKey = this.keysOf(message);
    const datum: Fields = new Map();
    const oneofs = new Map<string, string>();
    const given = new Set<ProtoField>();
    for (const [key, { value }] of members) {
      const field = byKey.get(key);
      if (field === undefined)
        throw Misread.inside(memberStep(key), new Misread(`${message.name} has no such field`));
      inside(memberStep(key), () => {
        if (given.has(field)) throw new Misread('the field is given twice');
        given.add(field);
        if (value.kind === 'null' && !acceptsNull(field)) return;
        const { oneof } = field;
        const other = oneof === undefined ? undefined : oneofs.get(oneof);
        if (other !== undefined) throw new Misread(`it is in one oneof with ${other}, which is set`);
        if (oneof !== undefined) oneofs.set(oneof, key);
        const read = this.field(value, field);
        if (read !== undefined) datum.set(field.number, read);
      });
    }
    return datum;
  }

  private keysOf(message: ProtoMessage): ReadonlyMap<string, ProtoField> {
    const known = this.byKey.get(message);
    if (known !== undefined) return known;
    const byKey = new Map<string, ProtoField>();
    for (const field of message.fields) byKey.set(field.name, field);
    for (const field of message.fields) byKey.set(field.jsonName, field);
    this.byKey.set(message, byKey);
    return byKey;
  }

  /** Undefined: the field is not written. */
  private field(json: JsonNode, field: ProtoField): ProtoFieldDatum | undefined {
    if (field.mapKey !== undefined) return this.map(json, field, field.mapKey);
    if (field.repeated) {
      if (json.kind !== 'array') throw misread(json, 'a list');
      const items = json.items.map((item, index) => inside(`[${index}]`, () => this.value(item, field)));
      return items.length === 0 ? undefined : items;
    }
    const value = this.value(json, field);
    return field.presence || field.required || !isZero(value) ? value : undefined;
  }

  private map(json: JsonNode, field: ProtoField, keyType: string): ProtoFieldDatum | undefined {
    if (json.kind !== 'object') throw misread(json, 'a map');
    const pairs = [...json.members].map(([key, { keyAt, value }]) =>
      inside(memberStep(key), () => {
        const text = { kind: 'string', at: keyAt, value: key } as const;
        const isBool = keyType === 'bool' && (key === 'true' || key === 'false');
        return [isBool ? key === 'true' : scalar(text, keyType), this.value(value, field)] as const;
      }),
    );
    return pairs.length === 0 ? undefined : pairs;
  }

  private value(json: JsonNode, { type, message, enumeration }: ProtoField): ProtoValueDatum {
    if (message !== undefined) return this.message(json, message);
    return enumeration === undefined ? scalar(json, type) : enumNumber(json, enumeration);
  }

  /** Value of a type of google.protobuf; undefined where its fields are given. */
  private special(json: JsonNode, message: ProtoMessage): ProtoDatum | undefined {
    const { name, fields } = message;
    const [first, second] = fields as [ProtoField, ProtoField | undefined];
    if (name === VALUE) return this.dynamic(json, message);
    if (WRAPPERS.has(name) || name.endsWith('.Struct') || name.endsWith('.ListValue')) {
      const value = this.field(json, first);
      return new Map(value === undefined ? [] : [[first.number, value]]);
    }
    // Objects are values outside the range of the texts.
    if (json.kind === 'object') return undefined;
    if (json.kind !== 'string') throw misread(json, `a text of ${name}`);
    if (name.endsWith('.FieldMask')) {
      const paths = fieldMaskOf(json.value);
      if (paths === undefined) throw misread(json, 'a field mask in lowerCamelCase');
      return new Map(paths.length === 0 ? [] : [[first.number, paths]]);
    }
    const isTime = name.endsWith('.Timestamp');
    const time = isTime ? timestampOf(json.value) : durationOf(json.value);
    if (time === undefined)
      throw misread(
        json,
        isTime ? 'a timestamp such as 2026-01-02T03:04:05.678Z' : 'a duration such as 1.5s',
      );
    const datum: Fields = new Map();
    if (time.seconds !== 0n) datum.set(first.number, time.seconds);
    if (time.nanos !== 0 && second !== undefined) datum.set(second.number, time.nanos);
    return datum;
  }

  private dynamic(json: JsonNode, { fields }: ProtoMessage): ProtoDatum {
    const names = {
      null: 'null_value',
      number: 'number_value',
      string: 'string_value',
      boolean: 'bool_value',
      object: 'struct_value',
      array: 'list_value',
    };
    const field = fields.find(({ name }) => name === names[json.kind]) as ProtoField;
    return new Map([[field.number, json.kind === 'null' ? 0 : this.value(json, field)]]);
  }

  private any(json: JsonNode, { fields }: ProtoMessage): ProtoDatum {
    if (json.kind !== 'object') throw misread(json, 'an object with "@type"');
    const [urlField, bytesField] = fields as [ProtoField, ProtoField];
    const url = json.members.get('@type')?.value;
    if (url === undefined && json.members.size === 0) return new Map();
    if (url?.kind !== 'string') throw new Misread('the object has no "@type" that is a text');
    const bytes = this.anyBytes(url.value, json);
    return new Map<number, ProtoFieldDatum>([
      [urlField.number, url.value],
      ...(bytes.length === 0 ? [] : [[bytesField.number, bytes] as const]),
    ]);
  }

  private anyBytes(url: string, json: JsonObject): Uint8Array {
    this.types ??= reachable(this.file);
    const message = this.types.get(typeOfUrl(url));
    const rest = [...json.members].filter(([key]) => key !== '@type');
    const [key, member] = rest[0] ?? [];
    const isWrapped = rest.length === 1 && key === 'value' && member !== undefined;
    const isOwn = message !== undefined && !isSpecial(message) && message.name !== ANY;
    // Bytes are given where the writer lacked the type, or where they are no message of it.
    const bytes = isWrapped && member.value.kind === 'string' ? bytesOfBase64(member.value.value) : undefined;
    if (bytes !== undefined && (message === undefined || (isOwn && !this.keysOf(message).has('value'))))
      return bytes;
    if (message === undefined) throw new Misread(`the schema has no type ${typeOfUrl(url)}`);
    if (isOwn) return encodeProto(message, this.fields(rest, message));
    if (!isWrapped) throw new Misread(`an Any of ${message.name} has the members "@type" and "value"`);
    return encodeProto(
      message,
      inside('.value', () => this.message(member.value, message)),
    );
  }
}

type JsonEntry = readonly [key: string, member: { readonly value: JsonNode }];

/** True for a field in which null is a value. */
const acceptsNull = ({ message, enumeration, repeated, mapKey }: ProtoField): boolean =>
  !repeated && mapKey === undefined && (message?.name === VALUE || enumeration?.name === NULL_VALUE);

const isZero = (value: ProtoValueDatum): boolean =>
  value === 0n ||
  Object.is(value, 0) ||
  value === false ||
  value === '' ||
  (value instanceof Uint8Array && value.length === 0);

function inside<T>(step: string, read: () => T): T {
  try {
    return read();
  } catch (thrown) {
    throw Misread.inside(step, thrown);
  }
}

function enumNumber(json: JsonNode, { name, numbers, values, closed }: ProtoEnum): number {
  if (name === NULL_VALUE && json.kind === 'null') return 0;
  const number =
    json.kind === 'string'
      ? numbers.get(json.value)
      : json.kind === 'number'
        ? Number(exactInteger(json.digits) ?? Number.NaN)
        : undefined;
  if (number === undefined || number !== (number | 0) || (closed && !values.has(number)))
    throw misread(json, `a value of the enum ${name}`);
  return number;
}

const BITS: Readonly<Record<string, number>> = {
  int32: 32,
  sint32: 32,
  sfixed32: 32,
  uint32: 32,
  fixed32: 32,
};
const isUnsigned = (type: string): boolean => type.startsWith('u') || type.startsWith('f');
const DIGITS = /^-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$/;

/** Digits of a number, which may be written as a text. */
function digitsOf(json: JsonNode): string | undefined {
  if (json.kind === 'number') return json.digits;
  return json.kind === 'string' && DIGITS.test(json.value) ? json.value : undefined;
}

function scalar(json: JsonNode, type: string): ProtoValueDatum {
  switch (type) {
    case 'bool':
      if (json.kind !== 'boolean') throw misread(json, 'a bool');
      return json.value;
    case 'string':
      if (json.kind !== 'string' || !json.value.isWellFormed()) throw misread(json, 'a string');
      return json.value;
    case 'bytes': {
      const bytes = json.kind === 'string' ? bytesOfBase64(json.value) : undefined;
      if (bytes === undefined) throw misread(json, 'bytes in base64');
      return bytes;
    }
    case 'float':
    case 'double':
      return real(json, type);
    default:
      return integer(json, type);
  }
}

function real(json: JsonNode, type: string): number {
  if (json.kind === 'string' && /^(?:NaN|-?Infinity)$/.test(json.value)) return Number(json.value);
  const value = Number(digitsOf(json) ?? Number.NaN);
  const stored = type === 'float' ? Math.fround(value) : value;
  if (!Number.isFinite(stored)) throw misread(json, `a ${type}`);
  return stored;
}

function integer(json: JsonNode, type: string): ProtoValueDatum {
  const digits = digitsOf(json);
  const value = digits === undefined ? undefined : exactInteger(digits);
  const bits = BITS[type] ?? 64;
  const fits = isUnsigned(type) ? BigInt.asUintN : BigInt.asIntN;
  if (value === undefined || fits(bits, value) !== value) throw misread(json, type);
  return bits === 64 ? value : Number(value);
}
