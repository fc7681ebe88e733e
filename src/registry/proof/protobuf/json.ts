/** A written Protobuf event as JSON for a person, in the style of Protobuf's own mapping: 64-bit integers are texts of
 *  digits, bytes base64, enums names where they have one. Fields keep the names of the schema, what is not written is
 *  left out, and the types of google.protobuf have no forms of their own. Source: protobuf.dev, "ProtoJSON Format".
 */

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
