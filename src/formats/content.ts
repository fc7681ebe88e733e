/** Content of a schema in the registry: a text of a format, and everything else that determines its
 *  identity. */
import type { SchemaFormat } from './format.ts';

export interface Reference {
  /** Avro: the full name of a type. Protobuf: the import path. */
  readonly name: string;
  readonly subject: string;
  readonly version: number;
}

/** JSON that is stored and returned unchanged. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

export interface SchemaContent {
  readonly format: SchemaFormat;
  /** Canonical text, or normalized text where the client requested it. */
  readonly text: string;
  readonly references: readonly Reference[];
  readonly metadata?: Json;
  readonly ruleSet?: Json;
}

/** Referenced schema with its text: the input of a parser to resolve a name or an import. */
export interface ResolvedReference extends Reference {
  readonly format: SchemaFormat;
  readonly text: string;
  /** References of this text; the same object where a reference occurs twice. */
  readonly references: readonly ResolvedReference[];
}

/** Greatest nesting of references; a longer chain is refused before it is parsed. */
export const REFERENCE_DEPTH_MAX = 32;
/** Greatest number of distinct schemas that one schema may reference, over all levels. */
export const REFERENCE_COUNT_MAX = 1_000;
