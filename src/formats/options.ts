/** What a caller may ask of a parser and of a stored text, the same for every format. */
import type { ResolvedReference } from './content.ts';

export interface ParseOptions {
  /** What the schema refers to, in its own order. Avro: their types are known by name. Protobuf: their files by path. */
  readonly references?: readonly ResolvedReference[];
  /** The text becomes one that more spellings share; the tree is the same. */
  readonly normalize?: boolean;
  /** For a text that a registry once accepted: what can be read is read, though no schema like it may be registered. */
  readonly lenient?: boolean;
  /** A new Avro text may have defaults that do not fit and namespaces that are no names, as with the existing registries
   *  up to release 7.9. */
  readonly unvalidated?: boolean;
  /** A new Protobuf text may import files that no reference has, use options that nothing defines, and name well-known
   *  types without their import, as with the existing registries. The type of every field is still resolved. */
  readonly looseImports?: boolean;
}

/** How a stored text may be asked for; what a format does not know is the text itself. */
export type TextForm = 'resolved' | 'serialized' | 'ignore_extensions';
