/** What a schema is to the registry: a text of a format, and all that counts for its identity. */
import type { SchemaFormat } from './format.ts';

export interface Reference {
  /** Avro: the full name of a type. Protobuf: the import path. */
  readonly name: string;
  readonly subject: string;
  readonly version: number;
}

/** Kept and returned as it came. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

export interface SchemaContent {
  readonly format: SchemaFormat;
  /** Canonical, or normalised where the client asked for that. */
  readonly text: string;
  readonly references: readonly Reference[];
  readonly metadata?: Json;
  readonly ruleSet?: Json;
}

/** A schema that another one refers to, with its text: what a parser needs to resolve a name or an import. */
export interface ResolvedReference extends Reference {
  readonly format: SchemaFormat;
  readonly text: string;
  /** What this text refers to in turn; the same object where a reference is met twice. */
  readonly references: readonly ResolvedReference[];
}

/** References inside references; a longer chain is refused before it is parsed. */
export const REFERENCE_DEPTH_MAX = 32;
/** Distinct schemas one schema may draw in, all levels together. */
export const REFERENCE_COUNT_MAX = 1_000;
