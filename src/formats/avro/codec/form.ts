/** Compiled reader of one type, in two forms: a function that reads a value, and a description of
 *  the reader, from which a whole decoder is generated (generated.ts). */
import type { AvroCursor } from './cursor.ts';

export type Read = (from: AvroCursor) => unknown;

/** Field in the order of the writer. */
export interface WrittenField {
  readonly name: string;
  /** Field of the value; undefined: the written value is dropped. */
  readonly into: string | undefined;
  readonly slot: Slot;
}

/** Parts of a record's reader, which both forms share. */
export interface RecordParts {
  readonly written: readonly WrittenField[];
  /** Names of the value's fields in the reader's order. */
  readonly names: readonly string[];
  /** Values of fields that the writer lacks, the same for every record. */
  readonly constants: ReadonlyMap<string, unknown>;
  /** Makers of values of such fields, where each record has its own. */
  readonly makers: ReadonlyMap<string, () => unknown>;
  /** Number of written fields that never have bytes. */
  readonly nulls: number;
}

/** Description of a reader. */
export type ReaderForm =
  /** A value is one expression over the cursor `from`. The text is part of this program, never of a
   *  schema. */
  | { readonly kind: 'expression'; readonly code: string }
  | { readonly kind: 'enum'; readonly symbols: ReadonlyArray<string | undefined> }
  | { readonly kind: 'union'; readonly branches: readonly Slot[] }
  /** Reads what another slot reads. */
  | { readonly kind: 'same'; readonly slot: Slot }
  /** An object whose one key names the branch. */
  | { readonly kind: 'wrapped'; readonly key: string; readonly slot: Slot }
  | { readonly kind: 'array'; readonly items: Slot; readonly isEmpty: boolean; readonly keeps: boolean }
  | { readonly kind: 'map'; readonly values: Slot; readonly keeps: boolean }
  | { readonly kind: 'record'; readonly parts: RecordParts }
  /** Any other reader: generated code calls its function. */
  | { readonly kind: 'function' };

/** Reader of a type. It is set after the slots that refer to it exist, because types are recursive.
 */
export interface Slot {
  read: Read;
  form: ReaderForm;
}

export const FUNCTION: ReaderForm = { kind: 'function' };

export const expression = (code: string): ReaderForm => ({ kind: 'expression', code });
