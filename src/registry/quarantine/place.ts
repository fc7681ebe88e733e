/** Byte at which a quarantined record breaks, and the fields before it. */
import { findMillraceError, type MillraceError } from '../../core/errors.ts';
import { FRAME } from '../../core/layout/layouts.gen.ts';
import type { RecordHeader } from '../../core/layout/record-batch.ts';
import { JsonTextError, readJson } from '../../formats/json/text.ts';
import { avroPrefix } from '../../formats/prefix/avro.ts';
import { PrefixFields } from '../../formats/prefix/fields.ts';
import { protoPrefix } from '../../formats/prefix/protobuf.ts';
import type { Schema } from '../../formats/schema.ts';
import { type RecordId, type RecordMessage, readMessage, VALUE_ID_HEADER } from '../../serde/frame.ts';
import { idOfValue } from '../consumer/writers.ts';

/** Bytes of a JSON text that are searched for its error: the parser blocks the event loop. */
const JSON_BYTES_MAX = 64 << 10;
/** Characters of a JSON text that are shown. */
const JSON_CHARS_MAX = 200;

export interface BreakPlace {
  /** Byte of the value where reading failed. Absent: no single byte is the cause. */
  readonly byte?: number;
  /** Byte of the schema id header, for an error of the header. */
  readonly headerByte?: number;
  /** Path of the field. */
  readonly path?: string;
  /** Fields before the byte, such as `id="o-1"`. */
  readonly decoded: readonly string[];
  /** True when `decoded` leaves out fields. */
  readonly isCut: boolean;
}

const NOTHING = { decoded: [], isCut: false } as const;

const numberOf = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined);

/** @param schemaOf loaded schema of a writer, if any */
export function breakPlace(
  bytes: Uint8Array,
  headers: readonly RecordHeader[],
  error: MillraceError,
  schemaOf: (id: number | string) => Schema | undefined,
): BreakPlace {
  if (error.code === 'bad_magic') return { ...NOTHING, byte: 0 };
  let frame: RecordId | undefined;
  try {
    frame = idOfValue(bytes, headers, VALUE_ID_HEADER);
  } catch (thrown) {
    return { ...NOTHING, ...offsetsOf(thrown) };
  }
  if (frame === undefined) return { ...NOTHING, byte: 0 };
  const isPrefix = typeof frame.id === 'number';
  const idPlace = isPrefix ? { byte: 1 } : { headerByte: 1 };
  if (error.code === 'unknown_schema_id') return { ...NOTHING, ...idPlace };
  const writer = schemaOf(frame.id);
  if (writer === undefined) return { ...NOTHING, ...idPlace };
  let message: RecordMessage;
  try {
    message = readMessage(frame, writer.format === 'PROTOBUF');
  } catch (thrown) {
    return { ...NOTHING, ...offsetsOf(thrown) };
  }
  if (error.code === 'bad_message_index')
    return { ...NOTHING, ...(isPrefix ? { byte: FRAME.HEADER_BYTES } : { headerByte: frame.end }) };
  const { details } = error;
  const { payloadStart } = message;
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const fields = new PrefixFields();
  const failedAt = prefixOf(writer, message, buffer, fields);
  const at = error.code === 'malformed_payload' ? (numberOf(details['at']) ?? failedAt) : undefined;
  return {
    ...(at === undefined ? {} : { byte: payloadStart + at }),
    ...(typeof details['path'] === 'string' ? { path: details['path'] } : {}),
    decoded: fields.texts,
    isCut: fields.isFull,
  };
}

function offsetsOf(thrown: unknown): Pick<BreakPlace, 'byte' | 'headerByte'> {
  const details = findMillraceError(thrown)?.details ?? {};
  const byte = numberOf(details['byte']);
  const headerByte = numberOf(details['headerByte']);
  return { ...(byte === undefined ? {} : { byte }), ...(headerByte === undefined ? {} : { headerByte }) };
}

/** @returns byte of the payload where reading with the writer's schema failed, if it did */
function prefixOf(
  writer: Schema,
  { path, payloadStart }: RecordMessage,
  bytes: Buffer,
  fields: PrefixFields,
): number | undefined {
  switch (writer.format) {
    case 'AVRO':
      return avroPrefix(writer.tree, bytes, payloadStart, bytes.length, fields);
    case 'PROTOBUF': {
      const key = path.join();
      const message = writer.tree.messages.find((one) => one.path.join() === key);
      return message === undefined
        ? undefined
        : protoPrefix(message, bytes, payloadStart, bytes.length, fields);
    }
    case 'JSON':
      return jsonPrefix(bytes.subarray(payloadStart, payloadStart + JSON_BYTES_MAX), fields);
  }
}

function jsonPrefix(bytes: Buffer, fields: PrefixFields): number | undefined {
  const text = bytes.toString('utf8');
  try {
    readJson(text, { comments: false, repeatedKeys: true });
    return undefined;
  } catch (thrown) {
    if (!(thrown instanceof JsonTextError)) throw thrown;
    const read = text.slice(0, thrown.at);
    fields.texts.push(read.length > JSON_CHARS_MAX ? `…${read.slice(-JSON_CHARS_MAX)}` : read);
    return Buffer.byteLength(read);
  }
}
