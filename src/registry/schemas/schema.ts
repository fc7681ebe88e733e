/** A parsed schema of either format, with the text that is stored and the identity that dedup uses. */
import { createHash } from 'node:crypto';
import { avroText } from './avro-text.ts';
import { type AvroNode, parseAvro } from './avro-tree.ts';
import type { SchemaFormat } from './format.ts';
import { type ProtoFile, parseProto } from './proto-tree.ts';

interface Parsed {
  /** Canonical text: what is stored, answered and compared. */
  readonly text: string;
  /** Equal exactly when format and canonical text are. */
  readonly identity: string;
}
export interface AvroSchema extends Parsed {
  readonly format: 'AVRO';
  readonly tree: AvroNode;
}
export interface ProtoSchema extends Parsed {
  readonly format: 'PROTOBUF';
  readonly tree: ProtoFile;
}
export type Schema = AvroSchema | ProtoSchema;

function identityOf(format: SchemaFormat, text: string): string {
  return createHash('sha256').update(`${format}\n${text}`).digest('hex');
}

/** @throws invalid_schema, schema_too_large */
export function parseSchema(format: SchemaFormat, source: string): Schema {
  if (format === 'AVRO') {
    const { json, tree } = parseAvro(source);
    const text = avroText(json);
    return { format, text, tree, identity: identityOf(format, text) };
  }
  const { canonical, tree } = parseProto(source);
  return { format, text: canonical, tree, identity: identityOf(format, canonical) };
}
