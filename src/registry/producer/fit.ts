/** Converts the numbers of generated values to the number types of a schema: a quantity is a number
 *  for an Avro int, a bigint for a long and decimal text for a string.
 *  Invariants: (1) the conversion is compiled once, from one sample, and touches only the fields
 *  whose type differs from the sample's; (2) without such a field the values pass unchanged. */
import type { AvroNode } from '../../formats/avro/syntax/tree.ts';
import type { ProtoField, ProtoMessage } from '../../formats/protobuf/tree.ts';
import type { Schema } from '../../formats/schema.ts';

type Convert = (value: unknown) => unknown;
type Entry = readonly [name: string, convert: Convert];

const AVRO_LEAVES: Readonly<Record<string, Convert>> = { int: asNumber, long: asBigint, string: asText };
const PROTO_LEAVES: Readonly<Record<string, Convert>> = {
  int32: asNumber,
  uint32: asNumber,
  sint32: asNumber,
  fixed32: asNumber,
  sfixed32: asNumber,
  int64: asBigint,
  uint64: asBigint,
  sint64: asBigint,
  fixed64: asBigint,
  sfixed64: asBigint,
  string: asText,
};

function asNumber(value: unknown): unknown {
  return typeof value === 'bigint' ? Number(value) : value;
}

function asBigint(value: unknown): unknown {
  return Number.isSafeInteger(value) ? BigInt(value as number) : value;
}

function asText(value: unknown): unknown {
  return typeof value === 'bigint' || typeof value === 'number' ? String(value) : value;
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Compiles the conversion of values that look like the sample.
 *  @param sample a value of the generator; its lists have an item
 *  @returns undefined if the values already have the schema's number types */
export function fitOf(schema: Schema, sample: unknown): Convert | undefined {
  switch (schema.format) {
    case 'AVRO':
      return avroFit(schema.tree, sample);
    case 'PROTOBUF': {
      const message = schema.tree.messages[0];
      return message === undefined ? undefined : messageFit(message, sample);
    }
    case 'JSON':
      return undefined;
  }
}

function avroFit(node: AvroNode, sample: unknown): Convert | undefined {
  switch (node.kind) {
    case 'primitive':
      return leafFit(AVRO_LEAVES[node.type], sample);
    case 'record':
      return objectFit(
        node.fields.map(({ name, type }) => [name, (part) => avroFit(type, part)]),
        sample,
      );
    case 'array':
      return listFit((part) => avroFit(node.items, part), sample);
    default:
      return undefined;
  }
}

function messageFit(message: ProtoMessage, sample: unknown): Convert | undefined {
  return objectFit(
    message.fields.map((field) => [field.name, (part) => fieldFit(field, part)]),
    sample,
  );
}

function fieldFit(field: ProtoField, sample: unknown): Convert | undefined {
  if (field.mapKey !== undefined) return undefined;
  const one = (part: unknown): Convert | undefined =>
    field.message === undefined ? leafFit(PROTO_LEAVES[field.type], part) : messageFit(field.message, part);
  return field.repeated ? listFit(one, sample) : one(sample);
}

const leafFit = (convert: Convert | undefined, sample: unknown): Convert | undefined =>
  convert === undefined || Object.is(convert(sample), sample) ? undefined : convert;

function listFit(compile: (part: unknown) => Convert | undefined, sample: unknown): Convert | undefined {
  const convert = Array.isArray(sample) && sample.length > 0 ? compile(sample[0]) : undefined;
  return convert === undefined ? undefined : (value) => (Array.isArray(value) ? value.map(convert) : value);
}

function objectFit(
  fields: ReadonlyArray<readonly [name: string, compile: (part: unknown) => Convert | undefined]>,
  sample: unknown,
): Convert | undefined {
  if (!isObject(sample)) return undefined;
  const changed = fields.flatMap(([name, compile]): Entry[] => {
    const convert = compile(sample[name]);
    return convert === undefined ? [] : [[name, convert]];
  });
  if (changed.length === 0) return undefined;
  return (value) => {
    if (!isObject(value)) return value;
    const copy: Record<string, unknown> = { ...value };
    for (const [name, convert] of changed) copy[name] = convert(copy[name]);
    return copy;
  };
}
