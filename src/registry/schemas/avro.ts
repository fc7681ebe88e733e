/** Avro for the registry: one call from a text to its stored form and its tree. */
import { registryError } from '../errors.ts';
import { avroText } from './avro-text.ts';
import { type AvroNode, parseAvro } from './avro-tree.ts';
import type { ResolvedReference } from './content.ts';
import type { ParseOptions } from './options.ts';

/** @throws invalid_schema, schema_too_large */
export function parseAvroSchema(
  source: string,
  options: ParseOptions,
): { readonly text: string; readonly tree: AvroNode } {
  if ((options.references ?? []).length > 0)
    throw registryError('invalid_schema', 'invalid Avro schema: references are not supported');
  const { json, tree } = parseAvro(source);
  return { text: avroText(json), tree };
}

/** The text with the types of its references in their places. @throws invalid_schema */
export function resolvedAvroText(text: string, references: readonly ResolvedReference[]): string {
  if (references.length > 0)
    throw registryError('invalid_schema', 'invalid Avro schema: references are not supported');
  return text;
}
