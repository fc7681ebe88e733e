/** JSON texts of values of any schema: printers of decoded values, encoders of JSON documents. */
import { encodeAvro } from './avro/codec/encoder.ts';
import { type AvroJsonOptions, avroJsonPrinter } from './avro/json/print.ts';
import { avroJsonReader } from './avro/json/read.ts';
import { formatError } from './errors.ts';
import type { JsonNode } from './json/text.ts';
import { encodeProto } from './protobuf/codec/encoder.ts';
import { protoJsonPrinter } from './protobuf/json/print.ts';
import { protoJsonReader } from './protobuf/json/read.ts';
import type { ProtoMessage } from './protobuf/tree.ts';
import type { ProtoSchema, Schema } from './schema.ts';

/** Prints a decoded value as one line of JSON. */
export type JsonPrinter = (value: unknown) => string;

export interface JsonEncoder {
  /** Encodes a document, without a frame. @throws value_refused with the detail `path` */
  readonly encode: (json: JsonNode) => Buffer;
  /** Path of the message in its file; null for Avro. */
  readonly messageIndexes: Int32Array | null;
}

/** Makes the printer of values that were decoded as a schema: Avro's JSON encoding, or ProtoJSON.
 *  @param path message indexes; ignored for Avro
 *  @throws incompatible_schema for a JSON Schema, bad_message_index */
export function jsonPrinter(
  schema: Schema,
  path: readonly number[],
  options: AvroJsonOptions = {},
): JsonPrinter {
  switch (schema.format) {
    case 'AVRO':
      return avroJsonPrinter(schema.tree, options);
    case 'PROTOBUF': {
      const message = messageAt(schema, path);
      if (message === undefined)
        throw formatError('bad_message_index', `the schema has no message at [${path.join(', ')}]`);
      return protoJsonPrinter(schema.tree, message);
    }
    case 'JSON':
      throw formatError('incompatible_schema', 'a JSON Schema decodes no values');
  }
}

function messageAt({ tree }: ProtoSchema, path: readonly number[]): ProtoMessage | undefined {
  const key = path.join();
  return tree.messages.find((message) => message.path.join() === key);
}

/** Makes the encoder of JSON documents as values of a schema.
 *  @param message full name of the Protobuf message; the first of the file when absent
 *  @throws invalid_schema for a JSON Schema, or a message that the schema lacks */
export function jsonEncoder(schema: Schema, message?: string): JsonEncoder {
  switch (schema.format) {
    case 'AVRO': {
      const { tree } = schema;
      const read = avroJsonReader(tree);
      return { encode: (json) => encodeAvro(tree, read(json)), messageIndexes: null };
    }
    case 'PROTOBUF': {
      const { byName, messages } = schema.tree;
      const found = message === undefined ? messages[0] : byName.get(message);
      if (found === undefined)
        throw formatError('invalid_schema', `the schema has no message ${message ?? 'at all'}`, {
          next: `choose from ${[...byName.keys()].join(', ')}`,
        });
      const read = protoJsonReader(schema.tree, found);
      return {
        encode: (json) => encodeProto(found, read(json)),
        messageIndexes: Int32Array.from(found.path),
      };
    }
    case 'JSON':
      throw formatError('invalid_schema', 'values cannot be written with a JSON Schema', {
        next: 'use an Avro or a Protobuf schema',
      });
  }
}
