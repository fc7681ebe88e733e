/** Options of parsers and forms of stored texts, the same for every format. */
import type { ResolvedReference } from './content.ts';

export interface ParseOptions {
  /** References of the schema, in its order. Avro: their types are known by name. Protobuf: their
   *  files by path. */
  readonly references?: readonly ResolvedReference[];
  /** True: the text is normalized, so that more spellings share it; the tree is the same. */
  readonly normalize?: boolean;
  /** True for a text that a registry accepted earlier: everything readable is read, although no
   *  such schema may be registered now. */
  readonly lenient?: boolean;
  /** True: a new Avro text may have defaults that do not fit and invalid namespaces, as in the
   *  existing registries up to release 7.9. */
  readonly unvalidated?: boolean;
  /** True: a new Protobuf text may import files that no reference has, and use undefined options.
   *  It may also name well-known types without their import, as in the existing registries. The
   *  type of every field is still resolved. */
  readonly looseImports?: boolean;
}

/** Form of a stored text in an answer; a form that the format does not have is the text itself. */
export type TextForm = 'resolved' | 'serialized' | 'ignore_extensions';
