/** Schema as plain data, which can be sent to another thread and parsed there. */
import type { ResolvedReference } from '../../formats/content.ts';
import type { SchemaFormat } from '../../formats/format.ts';
import type { ParseOptions } from '../../formats/options.ts';
import { parseSchema, type Schema } from '../../formats/schema.ts';

export interface Source extends Pick<ParseOptions, 'unvalidated' | 'looseImports'> {
  readonly format: SchemaFormat;
  readonly text: string;
  readonly references: readonly ResolvedReference[];
  readonly lenient: boolean;
  readonly normalize: boolean;
}

/** @throws invalid_schema, schema_too_large */
export function readSource({ format, text, ...options }: Source): Schema {
  return parseSchema(format, text, options);
}

/** Characters of the text and of everything that it refers to, each reference once. */
export function charsOf({ text, references }: Pick<Source, 'text' | 'references'>): number {
  let chars = text.length;
  const met = new Set<ResolvedReference>();
  const open = [...references];
  for (let one = open.pop(); one !== undefined; one = open.pop()) {
    if (met.has(one)) continue;
    met.add(one);
    chars += one.text.length;
    open.push(...one.references);
  }
  return chars;
}
