/** Ids of variable-length keys: the hash of the addon is HalfSipHash of the reference
 *  implementation, and both kernels find the same keys in any cache. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type KeyCopies,
  type KeyKernel,
  type KeyProbe,
  PROBE_BLOCK_ROWS,
  REST_CELLS,
} from '../../src/addon/key-surface.ts';
import { loadKeyKernels } from '../../src/addon/keys.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { EVENT_STATUS, KEY_ENTRY } from '../../src/core/layout/layouts.gen.ts';
import { HalfSipHash } from '../../src/core/random/half-sip-hash.ts';
import { KeyCache } from '../../src/engine/keys/cache.ts';
import { KeySpans } from '../../src/engine/keys/spans.ts';
import { runs } from '../tier.ts';
import { outcome } from './kernel-kit.ts';

const SECRET = Uint8Array.of(9, 8, 7, 6, 5, 4, 3, 2);
const native = loadKeyKernels('native').open(SECRET);
const reference = loadKeyKernels('reference').open(SECRET);
const GENERATION = 3;

interface Row {
  readonly key: Uint8Array;
  readonly status: number;
  readonly time: bigint;
}

function spansOf(rows: readonly Row[]): KeySpans {
  const spans = new KeySpans();
  spans.reset(rows.length);
  rows.forEach(({ key }, row) => {
    spans.begin();
    spans.put(key, 0, key.length);
    spans.end(row);
  });
  return spans;
}

function eventsOf(rows: readonly Row[], shared = false): EventBatch {
  const events = EventBatch.create(Math.max(1, rows.length), shared);
  events.rowCount = rows.length;
  rows.forEach(({ status, time }, row) => {
    events.columns.status[row] = status;
    events.columns.eventTs[row] = time;
    events.columns.accountId[row] = 77n;
  });
  return events;
}

const probeOf = (rows: number): KeyProbe => ({
  rest: new Int32Array(REST_CELLS * rows),
  state: new Float64Array(4),
});

/** Inserts keys with some generations. */
function cacheOf(keys: readonly (readonly [Uint8Array, number])[]): KeyCache {
  const cache = new KeyCache(1);
  const hash = new HalfSipHash(SECRET);
  for (const [key, generation] of keys) {
    const spans = spansOf([{ key, status: 0, time: 0n }]);
    hash.hash(spans.words, 0, key.length);
    cache.insert(hash.low, hash.high, generation, 0, spans.words, 0, key.length);
  }
  return cache;
}

/** All bytes that a probe writes. */
function probed(
  kernel: KeyKernel,
  rows: readonly Row[],
  cached: Parameters<typeof cacheOf>[0],
  from: number,
  bytesMax: number,
  shared: boolean,
) {
  const events = eventsOf(rows, shared);
  const cache = cacheOf(cached);
  const into = probeOf(rows.length);
  kernel.probe(events, spansOf(rows), from, cache, GENERATION, bytesMax, into);
  return {
    ids: [...events.columns.accountId],
    ring: Buffer.from(cache.ring.buffer).toString('latin1').replace(/\0+$/, ''),
    ...into,
  };
}

const key = fc.oneof(
  fc.nat(30).map((n) => Buffer.from(`key-${n}`)),
  fc.uint8Array({ maxLength: 40 }),
  fc.nat(3).map((n) => Buffer.alloc(1024, n)),
);
const row = fc.record({
  key,
  status: fc.constantFrom(EVENT_STATUS.OK, EVENT_STATUS.OK, EVENT_STATUS.OK, EVENT_STATUS.FILTERED),
  time: fc.bigInt(-(2n ** 60n), 2n ** 60n),
});

describe('ids of keys', () => {
  it('both kernels hash every length, alone and four at a time, as HalfSipHash does', () => {
    const hash = new HalfSipHash(SECRET);
    for (let length = 0; length <= 70; length++) {
      const rows = [0, 1, 2, 3, 4].map((n) => ({
        key: Uint8Array.from({ length }, (_, i) => (i * 31 + n * 7 + length) & 255),
        status: EVENT_STATUS.OK,
        time: 0n,
      }));
      const spans = spansOf(rows);
      const expected = rows.flatMap((_, at) => {
        hash.hash(spans.words, spans.at[at] as number, length);
        return [at, hash.low, hash.high];
      });
      for (const kernel of [native, reference]) {
        const into = probeOf(rows.length);
        kernel.probe(eventsOf(rows), spans, 0, new KeyCache(1), GENERATION, 1e9, into);
        expect([...into.rest], `${length}`).toEqual(expected);
      }
    }
  });

  it('both kernels set the same ids and list the same rows in any cache, from any row', () => {
    fc.assert(
      fc.property(
        fc.array(row, { maxLength: 700, size: 'max' }),
        fc.array(fc.tuple(key, fc.constantFrom(GENERATION, GENERATION, 2)), { maxLength: 40, size: 'max' }),
        fc.nat(40),
        fc.nat(4000),
        fc.boolean(),
        (rows, cached, start, bytesMax, shared) => {
          const from = Math.min(start, rows.length);
          const ours = probed(native, rows, cached, from, bytesMax, shared);
          expect(ours).toEqual(probed(reference, rows, cached, from, bytesMax, shared));
          const [stop, listed] = ours.state as unknown as [number, number];
          // Every row before the stop has its id, is listed, or has no key.
          const rest = new Set(Array.from({ length: listed }, (_, i) => ours.rest[i * REST_CELLS]));
          for (let at = from; at < stop; at++)
            expect(ours.ids[at] === 77n).toBe(rest.has(at) || rows[at]?.status !== EVENT_STATUS.OK);
        },
      ),
      { numRuns: runs(150) },
    );
  });

  it('a probe stops after the block that has the most bytes of unknown keys', () => {
    const rows = Array.from({ length: 3 * PROBE_BLOCK_ROWS }, (_, n) => ({
      key: Buffer.from(`key-${n}`.padEnd(10)),
      status: EVENT_STATUS.OK,
      time: BigInt(n),
    }));
    for (const kernel of [native, reference]) {
      const into = probeOf(rows.length);
      kernel.probe(eventsOf(rows), spansOf(rows), 0, new KeyCache(1), GENERATION, 11, into);
      expect([...into.state]).toEqual([
        PROBE_BLOCK_ROWS,
        PROBE_BLOCK_ROWS,
        10 * PROBE_BLOCK_ROWS,
        PROBE_BLOCK_ROWS - 1,
      ]);
      kernel.probe(eventsOf(rows), spansOf(rows), rows.length, new KeyCache(1), GENERATION, 11, into);
      expect([...into.state]).toEqual([rows.length, 0, 0, Number.NEGATIVE_INFINITY]);
    }
  });

  it.each([
    ['a key that begins before its buffer', { at: [-1] }],
    ['a key that ends behind its buffer', { at: [1 << 29] }],
    ['a key of a negative length', { length: [-4] }],
    ['fewer keys than rows', { at: [] }],
    ['too little room for the rest', { rest: 2 }],
    ['too little room for the state', { state: 3 }],
    ['a start behind the last row', { from: 2 }],
    ['slots whose number is no power of two', { slots: [0, 0, 0] }],
    ['no slots', { slots: [] }],
    ['an entry whose header leaves the ring', { slots: [98], ring: 100 }],
    ['an entry whose key leaves the ring', { slots: [1], entry: true }],
  ] as const)('both kernels refuse %s', (_, wrong: Readonly<Record<string, unknown>>) => {
    const rows = [{ key: Buffer.from('abcdefgh'), status: EVENT_STATUS.OK, time: 0n }];
    const spans = spansOf(rows);
    const hash = new HalfSipHash(SECRET);
    hash.hash(spans.words, 0, 8);
    const entry = Int32Array.of(hash.low, hash.high, GENERATION, 0, 8 << 1);
    expect(entry.byteLength).toBe(KEY_ENTRY.BYTES);
    const cells = (name: 'at' | 'length', otherwise: Int32Array): Int32Array =>
      wrong[name] === undefined ? otherwise : Int32Array.from(wrong[name] as number[]);
    const cache = {
      slots: Int32Array.from((wrong['slots'] as number[] | undefined) ?? [0]),
      ring: wrong['entry'] === true ? entry : new Int32Array((wrong['ring'] as number | undefined) ?? 8),
    };
    for (const kernel of [native, reference])
      expect(
        outcome(() => {
          kernel.probe(
            eventsOf(rows),
            { at: cells('at', spans.at), length: cells('length', spans.length), words: spans.words },
            (wrong['from'] as number | undefined) ?? 0,
            cache,
            GENERATION,
            1000,
            {
              rest: new Int32Array((wrong['rest'] as number | undefined) ?? REST_CELLS),
              state: new Float64Array((wrong['state'] as number | undefined) ?? 4),
            },
          );
          return undefined;
        }),
      ).toBe('out_of_range');
  });
});

/** Words of a row of a page, and the first of its id. */
const ROW_WORDS = 5;
const ID_AT = 2;

interface Cached {
  readonly id: readonly [number, number];
  readonly generation: number;
  readonly key: Uint8Array;
}

const copiesOf = (rows: number, bytes: number): KeyCopies => ({
  bytes: new Uint8Array(bytes),
  ends: new Uint32Array(rows),
  missing: new Int32Array(rows),
  state: new Float64Array(2),
});

function cacheById(entries: readonly Cached[]): KeyCache {
  const cache = new KeyCache(1);
  for (const { id, generation, key } of entries) {
    const words = new Int32Array(257);
    new Uint8Array(words.buffer).set(key);
    cache.insert(id[0], id[1], generation, 0, words, 0, key.length);
  }
  return cache;
}

function pageWords(ids: ReadonlyArray<readonly [number, number]>): Int32Array {
  const words = new Int32Array(ids.length * ROW_WORDS).fill(-1);
  ids.forEach((id, row) => {
    words.set(id, row * ROW_WORDS + ID_AT);
  });
  return words;
}

/** Few ids, whose searches begin in few slots. */
const id = fc.tuple(fc.integer({ min: -3, max: 3 }), fc.constantFrom(0, 1, -1, 7));

describe('copies of cached keys', () => {
  it('both kernels copy the keys that a map has, list the other rows, and stop where there is no room', () => {
    fc.assert(
      fc.property(
        fc.array(fc.record({ id, key, generation: fc.integer({ min: 1, max: 4 }) }), { maxLength: 30 }),
        fc.array(id, { maxLength: 600, size: 'max' }),
        fc.uniqueArray(fc.integer({ min: 1, max: 4 })),
        fc.nat(3000),
        fc.nat(300),
        (entries, ids, generations, room, portion) => {
          const cache = cacheById(entries);
          const known = new Map(entries.map((entry) => [entry.id.join(), entry]));
          const page = { words: pageWords(ids), first: ID_AT, rowWords: ROW_WORDS };
          for (const kernel of [native, reference]) {
            const into = copiesOf(ids.length, room);
            const used = Int32Array.from(generations);
            let row = 0;
            for (let to = 0; row === to && to < ids.length; ) {
              to = Math.min(ids.length, row + portion + 1);
              row = kernel.copy(page, row, to, cache, used, into);
            }
            let [end, missing] = [0, 0];
            for (let at = 0; at <= row && at < ids.length; at++) {
              const entry = known.get((ids[at] as readonly number[]).join());
              const isFound = entry !== undefined && generations.includes(entry.generation);
              if (at === row) {
                expect(isFound && end + entry.key.length > room).toBe(true);
                break;
              }
              if (isFound) {
                const next = end + entry.key.length;
                expect(Buffer.compare(into.bytes.subarray(end, next), entry.key)).toBe(0);
                end = next;
              } else expect(into.missing[missing++]).toBe(at);
              expect(into.ends[at]).toBe(end);
            }
            expect([...into.state]).toEqual([missing, end]);
          }
        },
      ),
      { numRuns: runs(150) },
    );
  });

  it.each([
    ['rows that end behind the words', { words: 11 }],
    ['fewer ends than rows', { ends: 1 }],
    ['too little room for missing rows', { missing: 1 }],
    ['too little room for the state', { state: [0] }],
    ['more missing rows than there is room', { state: [3, 0] }],
    ['a part of a missing row', { state: [0.5, 0] }],
    ['an end behind the bytes', { state: [0, 17] }],
    ['an end that is no number', { state: [0, Number.NaN] }],
    ['a start behind the end', { from: 3 }],
    ['no slots', { slots: [] }],
    ['slots whose number is no power of two', { slots: [0, 0, 0] }],
    ['an entry whose header leaves the ring', { slots: [30] }],
    ['an entry whose key leaves the ring', { length: 200 }],
    ['an entry of the greatest length', { length: 0x7fff_ffff }],
    ['a row of a negative length', { rowWords: -1 }],
    ['an id that begins within a word', { first: 0.5 }],
  ] as const)('both kernels refuse to copy keys with %s', (_, wrong: Readonly<Record<string, unknown>>) => {
    const of = <T>(name: string, otherwise: T): T => (wrong[name] as T | undefined) ?? otherwise;
    const ring = new Int32Array(32);
    ring.set([0, 0, GENERATION, 0, of('length', 4) << 1]);
    const cache = { slots: Int32Array.from(of('slots', [1])), ring };
    for (const kernel of [native, reference])
      expect(
        outcome(() => {
          kernel.copy(
            { words: new Int32Array(of('words', 12)), first: of('first', 0), rowWords: of('rowWords', 10) },
            ...([of('from', 0), 2, cache, Int32Array.of(GENERATION)] as const),
            {
              bytes: new Uint8Array(16),
              ends: new Uint32Array(of('ends', 2)),
              missing: new Int32Array(of('missing', 2)),
              state: Float64Array.from(of('state', [0, 0])),
            },
          );
          return undefined;
        }),
      ).toBe('out_of_range');
  });
});
