/** Converts a decoded Protobuf message to a ProtoDatum: the fields that its writer put on the wire,
 *  by number. */

import type { ProtoDatum, ProtoFieldDatum, ProtoValueDatum } from '../../../formats/datum.ts';
import { isPlainObject, ownProperty } from '../../../formats/plain-object.ts';
import { mapKeyOf } from '../../../formats/protobuf/codec/scalar-put.ts';
import type { ProtoField, ProtoMessage } from '../../../formats/protobuf/tree.ts';
import { isZero } from './cast.ts';

/** @param plain decoder's result for a payload with the writer's own schema */
export function protoDatum(message: ProtoMessage, plain: unknown): ProtoDatum {
  const datum = new Map<number, ProtoFieldDatum>();
  for (const field of message.fields) {
    const given = ownProperty(plain as Readonly<Record<string, unknown>>, field.name);
    if (given === undefined || given === null) continue;
    const value = fieldDatum(field, given);
    if (value !== undefined) datum.set(field.number, value);
  }
  return datum;
}

/** Undefined: the field is not on the wire. */
function fieldDatum(field: ProtoField, given: unknown): ProtoFieldDatum | undefined {
  if (field.mapKey !== undefined) {
    const type = field.mapKey;
    const entries = isPlainObject(given) ? Object.entries(given) : [];
    const pairs = entries.map(
      ([key, value]) => [mapKeyOf(type, key) as ProtoValueDatum, valueDatum(field, value)] as const,
    );
    return pairs.length === 0 ? undefined : pairs;
  }
  if (field.repeated) {
    const items = (given as readonly unknown[]).map((item) => valueDatum(field, item));
    return items.length === 0 ? undefined : items;
  }
  const value = valueDatum(field, given);
  return field.presence || field.required || !isEmpty(value) ? value : undefined;
}

/** True for a value that a field without presence omits. */
const isEmpty = (value: ProtoValueDatum): boolean =>
  isZero(value) || ((typeof value === 'string' || value instanceof Uint8Array) && value.length === 0);

function valueDatum({ message, enumeration }: ProtoField, given: unknown): ProtoValueDatum {
  if (message !== undefined) return protoDatum(message, given);
  if (enumeration === undefined || typeof given !== 'string') return given as ProtoValueDatum;
  for (const [number, name] of enumeration.values) if (name === given) return number;
  return 0;
}
