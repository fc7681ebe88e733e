/** What Protobuf brings to a proof. */
import { registryError } from '../errors.ts';
import type { ProtoMessage } from '../schemas/proto-tree.ts';
import type { ProtoSchema } from '../schemas/schema.ts';
import { encodeProto } from '../serde/proto-encoder.ts';
import { protoJson } from './proto-json.ts';
import { protoProjector } from './proto-projection.ts';
import { protoWitnesses } from './proto-witness.ts';
import type { FormatProof, ProtoEvent } from './witness.ts';

/** The message of an event. @throws bad_message_index */
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
