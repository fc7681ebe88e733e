/** Reads records of one writer schema as the reader schema, and refuses records that would be
 *  misread.
 *
 *  Avro's decoder refuses such records by itself. Protobuf's wire format does not reveal a loss. So
 *  if the rules refuse a pair of schemas, each record is read with both schemas, and the reader's
 *  value is compared with the value that the specification promises. */
import { findMillraceError } from '../../core/errors.ts';
import type { Decode } from '../../formats/decode.ts';
import type { ProtoSchema, Schema } from '../../formats/schema.ts';
import { COMPILED_CODECS, type RecordCodecs } from '../../serde/codec.ts';
import { isCompatible } from '../compatibility/finding.ts';
import { checkPair } from '../compatibility/modes.ts';
import { registryError } from '../errors.ts';
import { protoDatum } from './protobuf/datum.ts';
import { protoProjector } from './protobuf/projection.ts';
import { differenceOf } from './same.ts';

/** Compiles a reader of records of one writer schema. Its decoder throws incompatible_schema for a
 *  record that only its writer schema can read, with the detail `path` where one field is the
 *  cause.
 *  @param path message indexes of the record; ignored for Avro; @param codecs default: compiled
 *  @throws incompatible_schema, bad_message_index
 *  @example
 *  const decode = readerCodec(reader, writer, []); const value = decode(payload);
 */
export function readerCodec(
  reader: Schema,
  writer: Schema,
  path: readonly number[],
  codecs: RecordCodecs = COMPILED_CODECS,
): Decode {
  const decode = codecs.reader(reader, writer, path);
  if (reader.format !== 'PROTOBUF' || writer.format !== 'PROTOBUF') return decode;
  return isCompatible(checkPair(reader, writer)) ? decode : judged(decode, reader, writer, path, codecs);
}

function judged(
  decode: Decode,
  reader: ProtoSchema,
  writer: ProtoSchema,
  path: readonly number[],
  codecs: RecordCodecs,
): Decode {
  const key = path.join();
  const message = writer.tree.messages.find((one) => one.path.join() === key);
  if (message === undefined)
    throw registryError('bad_message_index', `the writer's schema has no message at [${path.join(', ')}]`);
  const decodeWritten = codecs.reader(writer, writer, path);
  const project = protoProjector(reader.tree);
  return (bytes, start, end) => {
    const written = decodeWritten(bytes, start, end);
    const projection = project(protoDatum(message, written), message);
    if (projection.kind === 'none') throw refused(projection.why);
    let read: unknown;
    try {
      read = decode(bytes, start, end);
    } catch (cause) {
      throw refused(findMillraceError(cause)?.message ?? String(cause), cause);
    }
    const changed = differenceOf(projection.value, read);
    if (changed === undefined) return read;
    const where = `${message.name}${changed}`;
    throw refused(`${where} would be read with a changed value`, undefined, { path: where });
  };
}

function refused(why: string, cause?: unknown, details = findMillraceError(cause)?.details): Error {
  return registryError('incompatible_schema', `the reader's schema cannot read this record: ${why}`, {
    cause,
    ...(details === undefined ? {} : { details }),
  });
}
