/** Writers and readers of Protobuf records: they select the message type of a record, and the type
 *  that reads it. */

import type { Decode, WriterCodec } from '../../decode.ts';
import { formatError } from '../../errors.ts';
import type { ProtoSchema, Schema } from '../../schema.ts';
import type { ProtoMessage } from '../tree.ts';
import { protoDecoder } from './decoder.ts';
import { protoEncoder } from './value-encoder.ts';

/** Message that a writer names. @param name full name; undefined: the first message of the file
 *  @throws invalid_schema */
export function writtenMessage(schema: ProtoSchema, name: string | undefined): ProtoMessage {
  const message = name === undefined ? schema.tree.messages[0] : schema.tree.byName.get(name);
  if (message !== undefined) return message;
  throw formatError(
    'invalid_schema',
    name === undefined ? 'the schema has no message' : `the schema has no message ${name}`,
    { next: `choose from ${[...schema.tree.byName.keys()].join(', ')}` },
  );
}

/** Makes the writer of a message. @throws invalid_schema */
export function protoWriter(schema: ProtoSchema, name: string | undefined): WriterCodec {
  const message = writtenMessage(schema, name);
  return { messageIndexes: Int32Array.from(message.path), encode: protoEncoder(message) };
}

/** Message of the reader's schema that reads a record.
 *  @throws incompatible_schema where the reader's schema lacks the message, bad_message_index */
export function readMessage(reader: ProtoSchema, writer: Schema, path: readonly number[]): ProtoMessage {
  if (writer.format !== 'PROTOBUF') throw formatError('incompatible_schema', 'the record is not Protobuf');
  const key = path.join();
  const written = writer.tree.messages.find((message) => message.path.join() === key);
  if (written === undefined)
    throw formatError('bad_message_index', `the writer's schema has no message at [${path.join(', ')}]`);
  const message = reader.tree.byName.get(written.name);
  if (message === undefined)
    throw formatError('incompatible_schema', `the reader's schema has no message ${written.name}`);
  return message;
}

/** Makes the decoder without checking compatibility rules: some records may be readable with any
 *  two schemas. @throws incompatible_schema, bad_message_index */
export const protoReader = (reader: ProtoSchema, writer: Schema, path: readonly number[]): Decode =>
  protoDecoder(readMessage(reader, writer, path));
