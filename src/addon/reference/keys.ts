/** Kernel of the ids of variable-length keys. The addon's implementation is native/kernel/keys.cc.
 */
import { coreError } from '../../core/errors.ts';
import type { EventBatch } from '../../core/layout/event-batch.ts';
import { EVENT_STATUS, KEY_ENTRY } from '../../core/layout/layouts.gen.ts';
import { HalfSipHash, type KeyHash } from '../../core/random/half-sip-hash.ts';
import { copySpan } from '../../core/rows.ts';
import {
  type KeyCacheWords,
  type KeyCopies,
  type KeyIds,
  type KeyKernel,
  type KeyKernels,
  type KeyProbe,
  type KeyWords,
  PROBE_BLOCK_ROWS,
  REST_CELLS,
} from '../key-surface.ts';
import { demandInteger, demandRows, rowsOf } from './check.ts';

const HEADER = KEY_ENTRY.TEXT / 4;
const HIGH = KEY_ENTRY.ID_HIGH / 4;
const GENERATION = KEY_ENTRY.GENERATION / 4;
const LENGTH = KEY_ENTRY.LENGTH / 4;
const STATE_CELLS = 4;
const COPY_CELLS = 2;
const TWO_32 = 2 ** 32;

const leaves = (): Error => coreError('out_of_range', 'keys: a span leaves its buffer');

/** Looks for an entry in the first slot of the search. Returns its position, or -1. */
function entryOf(
  { slots, ring }: KeyCacheWords,
  { low, high }: KeyHash,
  generation: number,
  words: Int32Array,
  at: number,
  length: number,
): number {
  const found = ((slots[low & (slots.length - 1)] as number) - 1) | 0;
  if (found < 0) return -1;
  if (found + HEADER > ring.length) throw leaves();
  if (
    ring[found] !== low ||
    ring[found + HIGH] !== high ||
    ring[found + GENERATION] !== generation ||
    (ring[found + LENGTH] as number) >>> 1 !== length
  )
    return -1;
  const count = (length + 3) >> 2;
  if (found + HEADER + count > ring.length) throw leaves();
  for (let i = 0; i < count; i++) if (ring[found + HEADER + i] !== words[at + i]) return -1;
  return found;
}

/** Checks the number of slots. @throws out_of_range */
function demandSlots({ slots }: KeyCacheWords): void {
  if (slots.length === 0 || (slots.length & (slots.length - 1)) !== 0)
    throw coreError('out_of_range', 'keys: a number outside its range');
}

/** Position of the entry of an id; -1: none. @throws out_of_range */
function findEntry({ slots, ring }: KeyCacheWords, low: number, high: number): number {
  const mask = slots.length - 1;
  for (let tried = 0, slot = low & mask; tried < slots.length; tried++, slot = (slot + 1) & mask) {
    const at = (slots[slot] as number) - 1;
    if (at < 0) return -1;
    if (at + HEADER > ring.length) throw leaves();
    if (ring[at] === low && ring[at + HIGH] === high) return at;
  }
  return -1;
}

class ReferenceKeys implements KeyKernel {
  private readonly hash: KeyHash;

  constructor(hash: KeyHash) {
    this.hash = hash;
  }

  probe(
    events: EventBatch,
    keys: KeyWords,
    from: number,
    cache: KeyCacheWords,
    generation: number,
    bytesMax: number,
    { rest, state }: KeyProbe,
  ): void {
    const rows = rowsOf(events, 'events');
    demandInteger(from, 0, rows, 'keys');
    demandSlots(cache);
    demandRows(Math.min(keys.at.length, keys.length.length), rows, 'rest');
    demandRows(state.length, STATE_CELLS, 'rest');
    demandRows(rest.length, REST_CELLS * (rows - from), 'rest');
    let [row, listed, bytes, latest] = [from, 0, 0, Number.NEGATIVE_INFINITY];
    const { status, accountId, eventTs } = events.columns;
    const ids = new Int32Array(events.buffer, accountId.byteOffset, rows * 2);
    const times = new Int32Array(events.buffer, eventTs.byteOffset, rows * 2);
    const { hash } = this;
    while (row < rows && bytes < bytesMax) {
      const to = Math.min(rows, row + PROBE_BLOCK_ROWS);
      for (; row < to; row++) {
        if (status[row] !== EVENT_STATUS.OK) continue;
        const [at, length] = [keys.at[row] as number, keys.length[row] as number];
        if (at < 0 || length < 0 || at + ((length + 3) >> 2) > keys.words.length) throw leaves();
        const time = (times[row * 2 + 1] as number) * TWO_32 + ((times[row * 2] as number) >>> 0);
        if (time > latest) latest = time;
        hash.hash(keys.words, at, length);
        const found = entryOf(cache, hash, generation, keys.words, at, length);
        if (found >= 0) {
          cache.ring[found + LENGTH] = (cache.ring[found + LENGTH] as number) | 1;
          ids[row * 2] = hash.low;
          ids[row * 2 + 1] = hash.high;
          continue;
        }
        const cell = REST_CELLS * listed++;
        rest[cell] = row;
        rest[cell + 1] = hash.low;
        rest[cell + 2] = hash.high;
        bytes += length;
      }
    }
    state[0] = row;
    state[1] = listed;
    state[2] = bytes;
    state[3] = latest;
  }

  copy(
    { words, first, rowWords }: KeyIds,
    from: number,
    to: number,
    cache: KeyCacheWords,
    generations: Int32Array,
    { bytes, ends, missing, state }: KeyCopies,
  ): number {
    for (const [value, name] of [
      [to, 'to'],
      [first, 'first'],
      [rowWords, 'rowWords'],
    ] as const)
      demandInteger(value, 0, TWO_32 - 1, name);
    demandInteger(from, 0, to, 'keys');
    demandSlots(cache);
    demandRows(ends.length, to, 'copies');
    demandRows(state.length, COPY_CELLS, 'copies');
    let [count, end] = [state[0] as number, state[1] as number];
    demandInteger(count, 0, missing.length, 'keys');
    demandInteger(end, 0, bytes.length, 'keys');
    demandRows(missing.length - count, to - from, 'copies');
    if (to > from && (to - 1) * rowWords + first + 2 > words.length) throw leaves();
    const { ring } = cache;
    const octets = new Uint8Array(ring.buffer, ring.byteOffset, ring.byteLength);
    let row = from;
    for (; row < to; row++) {
      const id = row * rowWords + first;
      const at = findEntry(cache, words[id] as number, words[id + 1] as number);
      if (at < 0 || !generations.includes(ring[at + GENERATION] as number)) missing[count++] = row;
      else {
        const length = (ring[at + LENGTH] as number) >>> 1;
        if (at + HEADER + ((length + 3) >>> 2) > ring.length) throw leaves();
        if (length > bytes.length - end) break;
        end = copySpan(octets, (at + HEADER) * 4, (at + HEADER) * 4 + length, bytes, end);
      }
      ends[row] = end;
    }
    state[0] = count;
    state[1] = end;
    return row;
  }
}

/** The kernel with another hash, for tests of collisions. */
export const referenceKeysOf = (hash: KeyHash): KeyKernel => new ReferenceKeys(hash);

export const referenceKeyKernels: KeyKernels = {
  name: 'reference',
  open: (secret) => referenceKeysOf(new HalfSipHash(secret)),
};
