/** Protobuf's part of the live proof. */

import { encodeProto } from '../../../formats/protobuf/codec/encoder.ts';
import type { ProtoMessage } from '../../../formats/protobuf/tree.ts';
import type { ProtoSchema } from '../../../formats/schema.ts';
import { registryError } from '../../errors.ts';
import type { FormatProof, ProtoEvent } from '../witness.ts';
import { protoJson } from './json.ts';
import { protoProjector } from './projection.ts';
import { protoWitnesses } from './witness.ts';

/** Returns a lookup of the message of an event. @throws bad_message_index */
function messagesOf(writer: ProtoSchema): (event: ProtoEvent) => ProtoMessage {
  const byPath = new Map(writer.tree.messages.map((message) => [message.path.join(), message]));
  return ({ path }) => {
    const message = byPath.get(path.join());
    if (message === undefined)
      throw registryError('bad_message_index', `the writer's schema has no message at [${path.join(', ')}]`);
    return message;
  };
}

export const protoProof: FormatProof<ProtoSchema, ProtoEvent> = {
  witnesses: (writer, options) => protoWitnesses(writer.tree, options),
  pathOf: ({ path }) => path,
  encoder: (writer) => {
    const messageOf = messagesOf(writer);
    return (event) => encodeProto(messageOf(event), event.datum);
  },
  projector: (reader, writer) => {
    const messageOf = messagesOf(writer);
    const project = protoProjector(reader.tree);
    return (event) => project(event.datum, messageOf(event));
  },
  json: (event, writer) => protoJson(event.datum, messagesOf(writer)(event)),
};
