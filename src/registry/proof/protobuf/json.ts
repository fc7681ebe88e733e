/** Renders a written Protobuf event as JSON in the style of ProtoJSON: 64-bit integers are texts of
 *  digits, bytes are base64, enums are names if they have one. It differs from ProtoJSON: fields
 *  keep the schema's names, unwritten fields are omitted, and the types of google.protobuf have no
 *  special forms. Source: protobuf.dev, "ProtoJSON Format". */

import type { ProtoDatum, ProtoFieldDatum, ProtoValueDatum } from '../../../formats/datum.ts';
import type { ProtoField, ProtoMessage } from '../../../formats/protobuf/tree.ts';

type Pairs = ReadonlyArray<readonly [ProtoValueDatum, ProtoValueDatum]>;

export function protoJson(datum: ProtoDatum, message: ProtoMessage): string {
  const members: string[] = [];
  for (const field of message.fields) {
    const value = datum.get(field.number);
    if (value !== undefined) members.push(`${JSON.stringify(field.name)}:${fieldText(value, field)}`);
  }
  return `{${members.join(',')}}`;
}

function fieldText(value: ProtoFieldDatum, field: ProtoField): string {
  if (field.mapKey !== undefined) {
    const entries = (value as Pairs).map(
      ([key, one]) => `${JSON.stringify(String(key))}:${valueText(one, field)}`,
    );
    return `{${entries.join(',')}}`;
  }
  if (field.repeated)
    return `[${(value as readonly ProtoValueDatum[]).map((one) => valueText(one, field)).join(',')}]`;
  return valueText(value as ProtoValueDatum, field);
}

function valueText(value: ProtoValueDatum, { message, enumeration }: ProtoField): string {
  if (message !== undefined) return protoJson(value as ProtoDatum, message);
  if (enumeration !== undefined) return JSON.stringify(enumeration.values.get(value as number) ?? value);
  if (typeof value === 'bigint') return `"${value}"`;
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) return `"${value}"`;
    return Object.is(value, -0) ? '-0.0' : String(value);
  }
  if (value instanceof Uint8Array) return `"${Buffer.from(value).toString('base64')}"`;
  return JSON.stringify(value);
}
