/** Writers and readers of Protobuf records: they select the message type of a record, and the type
 *  that reads it. */

import type { Decode, WriterCodec } from '../../decode.ts';
import { formatError } from '../../errors.ts';
import type { ProtoSchema, Schema } from '../../schema.ts';
import { protoDecoder } from './decoder.ts';
import { protoEncoder } from './encoder.ts';

/** Makes the writer of a message. @throws invalid_schema */
export function protoWriter(schema: ProtoSchema, name: string | undefined): WriterCodec {
  const message = name === undefined ? schema.tree.messages[0] : schema.tree.byName.get(name);
  if (message === undefined) {
    throw formatError('invalid_schema', `the schema has no message ${name}`, {
      next: `choose from ${[...schema.tree.byName.keys()].join(', ')}`,
    });
  }
  const encoder = protoEncoder(message);
  return {
    messageIndexes: Int32Array.from(message.path),
    encode: (value, into) => {
      const bytes = encoder(value);
      if (into.used + bytes.length > into.bytes.length) into.grow(bytes.length);
      into.bytes.set(bytes, into.used);
      into.push(into.used + bytes.length);
    },
  };
}

/** Makes the decoder without checking compatibility rules: some records may be readable with any
 *  two schemas.
 *  @throws incompatible_schema where the reader's schema lacks the message, bad_message_index */
export function protoReader(reader: ProtoSchema, writer: Schema, path: readonly number[]): Decode {
  if (writer.format !== 'PROTOBUF') throw formatError('incompatible_schema', 'the record is not Protobuf');
  const key = path.join();
  const written = writer.tree.messages.find((message) => message.path.join() === key);
  if (written === undefined)
    throw formatError('bad_message_index', `the writer's schema has no message at [${path.join(', ')}]`);
  const message = reader.tree.byName.get(written.name);
  if (message === undefined)
    throw formatError('incompatible_schema', `the reader's schema has no message ${written.name}`);
  return protoDecoder(message);
}
