/** Parsed schema of any format, with the text that is stored and the identity that deduplication
 *  uses. */
import { createHash } from 'node:crypto';
import { parseAvroSchema, resolvedAvroText } from './avro/schema.ts';
import type { AvroNode } from './avro/syntax/tree.ts';
import type { ResolvedReference } from './content.ts';
import type { SchemaFormat } from './format.ts';
import { parseJsonSchema } from './json/schema.ts';
import type { JsonNode } from './json/text.ts';
import type { ParseOptions, TextForm } from './options.ts';
import { protoTextForm } from './protobuf/form.ts';
import { type ProtoFile, parseProto } from './protobuf/tree.ts';

interface Parsed {
  /** Canonical or normalized text: it is stored, answered and compared. */
  readonly text: string;
  /** Equal for texts that a lookup treats as one schema, although they are stored unchanged;
   *  absent: the text. */
  readonly lookupText?: string;
  /** Text that was parsed; the positions in the tree refer to it. */
  readonly source: string;
  /** Equal exactly when format, text and all referenced texts are equal. */
  readonly identity: string;
  readonly references: readonly ResolvedReference[];
}
export interface AvroSchema extends Parsed {
  readonly format: 'AVRO';
  readonly tree: AvroNode;
}
export interface ProtoSchema extends Parsed {
  readonly format: 'PROTOBUF';
  readonly tree: ProtoFile;
}
export interface JsonSchema extends Parsed {
  readonly format: 'JSON';
  readonly tree: JsonNode;
}
export type { ParseOptions, TextForm } from './options.ts';
export type Schema = AvroSchema | ProtoSchema | JsonSchema;

function identityOf(format: SchemaFormat, text: string, references: readonly ResolvedReference[]): string {
  // Most schemas have no references: then the text identifies them.
  if (references.length === 0) return `${format}\n${text}`;
  const hash = createHash('sha256').update(`${format}\n${text}`);
  const seen = new Set<ResolvedReference>();
  const add = (list: readonly ResolvedReference[]): void => {
    for (const reference of list) {
      if (seen.has(reference)) continue;
      seen.add(reference);
      hash.update(`\n${JSON.stringify([reference.name, reference.format, reference.text])}`);
      add(reference.references);
    }
  };
  add(references);
  return hash.digest('hex');
}

/** Parses a schema text. The result is immutable and may be shared.
 *  @param source text of at most SCHEMA_TEXT_CHARS_MAX characters
 *  @throws invalid_schema, schema_too_large
 *  @example
 *  const schema = parseSchema('AVRO', '{"type":"record","name":"Order","fields":[]}');
 */
export function parseSchema(format: SchemaFormat, source: string, options: ParseOptions = {}): Schema {
  const references = options.references ?? [];
  switch (format) {
    case 'AVRO': {
      const parsed = parseAvroSchema(source, options);
      return { format, ...parsed, source, references, identity: identityOf(format, parsed.text, references) };
    }
    case 'PROTOBUF': {
      const { canonical: text, ...more } = parseProto(source, options);
      return { format, text, ...more, source, references, identity: identityOf(format, text, references) };
    }
    case 'JSON': {
      const { text, tree } = parseJsonSchema(source, options);
      return { format, text, source, tree, references, identity: identityOf(format, text, references) };
    }
  }
}

/** Text that a lookup compares. */
export const lookupTextOf = (schema: Schema): string => schema.lookupText ?? schema.text;

/** Text in another form.
 *  @throws invalid_schema where a reference lacks a type that the form requires */
export function schemaText(schema: Schema, form: TextForm): string {
  if (schema.format === 'PROTOBUF') return protoTextForm(schema, form);
  if (schema.format === 'AVRO' && form === 'resolved')
    return resolvedAvroText(schema.text, schema.references);
  return schema.text;
}
