/** Kernel of the ids of variable-length keys: one interface for the addon and the TypeScript
 *  reference implementation.
 *
 *  Buffers belong to the caller and are borrowed until return. */
import type { EventBatch } from '../core/layout/event-batch.ts';

/** Canonical keys of the rows of a batch: each begins at word `at` and is followed by zeros up to a
 *  whole word. */
export interface KeyWords {
  readonly at: Int32Array;
  readonly length: Int32Array;
  readonly words: Int32Array;
}

/** Cache of keys (src/engine/keys/cache.ts): entries of layout KEY_ENTRY in `ring`, and the hash
 *  table of their positions plus 1, with a power of two of slots; 0: empty. */
export interface KeyCacheWords {
  readonly slots: Int32Array;
  readonly ring: Int32Array;
}

/** Cells of a row in `KeyProbe.rest`: row, low and high half of the hash. */
export const REST_CELLS = 3;
/** Rows between two checks of `bytesMax`. */
export const PROBE_BLOCK_ROWS = 256;

/** Result of a probe. */
export interface KeyProbe {
  /** Rows without an id. @shape i32[REST_CELLS * rows] */
  readonly rest: Int32Array;
  /** Row at which the probe stopped; number of rows in `rest`; bytes of their keys; greatest
   *  event_ts of the rows with status OK, -Infinity for none. @shape f64[4] */
  readonly state: Float64Array;
}

/** Ids of the rows of a page: low and high word, from word `first` of a row on. */
export interface KeyIds {
  readonly words: Int32Array;
  readonly first: number;
  /** Words of a row. */
  readonly rowWords: number;
}

/** Keys of the rows of a page, one after the other. */
export interface KeyCopies {
  readonly bytes: Uint8Array;
  /** End of the key of each row in `bytes`; a missing key has no bytes. */
  readonly ends: Uint32Array;
  /** Rows whose keys are not cached, ascending. @shape i32[rows] */
  readonly missing: Int32Array;
  /** Number of missing rows; end of the last key. Zeros before the first call. @shape f64[2] */
  readonly state: Float64Array;
}

export interface KeyKernel {
  /** Sets account_id of each row with status OK, from row `from` on, whose key has an entry of the
   *  generation in the first slot of its search, and marks the entry as used. Lists all other rows
   *  with status OK. Stops between two blocks of rows once the listed keys have `bytesMax` bytes.
   *  @throws out_of_range when a key or an entry leaves its buffer, or `into` is too small */
  probe(
    events: EventBatch,
    keys: KeyWords,
    from: number,
    cache: KeyCacheWords,
    generation: number,
    bytesMax: number,
    into: KeyProbe,
  ): void;

  /** Copies the cached keys of the rows [from, to) behind those of earlier rows, and lists the rows
   *  without an entry of one of the generations. Returns `to`, or the row whose key has no room.
   *  @throws out_of_range when an id or an entry leaves its buffer, or `into` is too small */
  copy(
    ids: KeyIds,
    from: number,
    to: number,
    cache: KeyCacheWords,
    generations: Int32Array,
    into: KeyCopies,
  ): number;
}

export interface KeyKernels {
  readonly name: 'native' | 'reference';
  /** Opens the kernel for a secret of 8 bytes: the hash is HalfSipHash-1-3. */
  open(secret: Uint8Array): KeyKernel;
}
