/** Codecs of the libraries avsc and protobufjs, with the interface of the compiled ones. */
import { avroReferenceReader, avroReferenceWriter } from '../formats/avro/reference/codec.ts';
import { readMessage, writtenMessage } from '../formats/protobuf/codec/record-codec.ts';
import { protoReferenceDecoder, protoReferenceEncoder } from '../formats/protobuf/reference/codec.ts';
import { type RecordCodecs, unreadable, unwritable } from './codec.ts';

export const REFERENCE_CODECS: RecordCodecs = {
  writer: (schema, name) => {
    switch (schema.format) {
      case 'AVRO':
        return { encode: avroReferenceWriter(schema), messageIndexes: null };
      case 'PROTOBUF': {
        const message = writtenMessage(schema, name);
        const encode = protoReferenceEncoder(schema.tree, message);
        return { encode, messageIndexes: Int32Array.from(message.path) };
      }
      case 'JSON':
        throw unwritable();
    }
  },
  reader: (reader, writer, path) => {
    switch (reader.format) {
      case 'AVRO':
        return avroReferenceReader(reader, writer);
      case 'PROTOBUF':
        return protoReferenceDecoder(reader.tree, readMessage(reader, writer, path));
      case 'JSON':
        throw unreadable();
    }
  },
};
