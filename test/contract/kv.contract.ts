/** Contract of every key-value driver: order, batches, runs and snapshots. */
import { describe, expect, it } from 'vitest';
import type { KvStore } from '../../src/io/rocksdb/port.ts';
import { isFull } from '../tier.ts';
import {
  ALL,
  code,
  hex,
  ingest,
  type KvWorld,
  keysOf,
  lookedUp,
  OPTIONS,
  type Pair,
  pair,
  records,
  type ScanRow,
  scanned,
  sorted,
  spans,
  text,
  unhex,
} from './kv-kit.ts';

const EDGES = [
  '',
  '00',
  '0000',
  '00ff',
  '0100',
  '7f',
  '80',
  '8000',
  'fe',
  'feff',
  'ff',
  'ff00',
  'ffff',
  'ffffff',
];
const within = (rows: readonly ScanRow[], from: string | null, to: string | null): ScanRow[] =>
  rows.filter(([key]) => (from === null || key >= from) && (to === null || key < to));

export function kvContract(world: KvWorld): void {
  const { driver } = world;
  const opened = async (use: (store: KvStore) => Promise<void>): Promise<void> => {
    const store = await driver.open(world.folder(), OPTIONS);
    try {
      await use(store);
    } finally {
      await store.close();
    }
  };

  describe(`${driver.name}: order`, () => {
    // Every byte alone and after three other bytes, so that signs, prefixes and ends all occur.
    const keys = Array.from({ length: 256 }, (_, i) => [[i], [0, i], [127, i], [255, i]]).flat();
    const pairs: Pair[] = keys.map((key, i) => [Uint8Array.from(key), text(`v${i}`)]);
    const shuffled = pairs.map((_, i) => pairs[(i * 389) % pairs.length] as Pair);
    const expected = sorted(pairs.map(([key, value]) => [hex(key), hex(value)]));

    it.each(['rows', 'runs'])(
      'rows of family %s are ordered by unsigned bytes, for any range',
      async (family) => {
        await opened(async (store) => {
          if (family === 'rows') await store.put(family, spans(shuffled), 'off');
          else await ingest(store, family, [expected.map(([key, value]) => [unhex(key), unhex(value)])]);
          expect(await scanned(store, family)).toEqual(expected);
          for (const from of [null, ...EDGES])
            for (const to of [null, ...EDGES.slice(1)]) {
              const range = { from: from === null ? null : unhex(from), to: to === null ? null : unhex(to) };
              expect(await scanned(store, family, range), `${from} ${to}`).toEqual(
                within(expected, from, to),
              );
            }
        });
      },
    );

    it.each(['rows', 'runs'])('a deleted range of %s removes its rows and no other row', async (family) => {
      for (const [from, to] of [
        ['00ff', '0100'],
        ['7f', '80'],
        [null, '00'],
        ['ff', null],
        ['80', '7f'],
        ['ffffff', null],
        [null, null],
      ] as const) {
        await opened(async (store) => {
          await store.put(family, spans(shuffled), 'off');
          await store.flush();
          await store.deleteRange(
            family,
            { from: from === null ? null : unhex(from), to: to === null ? null : unhex(to) },
            'off',
          );
          const deleted = new Set(within(expected, from, to).map(([key]) => key));
          expect(await scanned(store, family)).toEqual(expected.filter(([key]) => !deleted.has(key)));
        });
      }
    });
  });

  describe(`${driver.name}: values`, () => {
    it('values may be empty or large, and a page grows for a row that does not fit', async () => {
      await opened(async (store) => {
        const large = new Uint8Array(5_000_000).map((_, i) => (i * 7) >> 3);
        const pairs: Pair[] = [pair('a', ''), [text('b'), large], pair('c', 'x')];
        for (const family of ['rows', 'runs']) {
          if (family === 'rows') await store.put(family, spans(pairs), 'on');
          else await ingest(store, family, [pairs]);
          const scan = await store.scan(family, ALL, { shape: 'spans' });
          const small = { bytes: new Uint8Array(100), ends: new Uint32Array(20) };
          expect(await scan.next(small)).toBe(1);
          expect([...small.ends.subarray(0, 2)]).toEqual([1, 1]);
          await expect(scan.next(small)).rejects.toThrow(code('kv_row_too_large'));
          const grown = { bytes: new Uint8Array(5_000_001), ends: new Uint32Array(20) };
          expect(await scan.next(grown)).toBe(1);
          expect(Buffer.compare(grown.bytes.subarray(1), large)).toBe(0);
          expect(await scan.next(small)).toBe(1);
          expect(await scan.next(small)).toBe(0);
          expect(await scan.next(small)).toBe(0);
          scan.close();
          const { bytes, start, length } = await store.get(family, keysOf(['b', 'a', 'z', 'b'].map(text)));
          expect([...length]).toEqual([large.length, 0, -1, large.length]);
          expect(Buffer.compare(bytes.subarray(start[3]), large)).toBe(0);
        }
      });
    });

    it('values are found by many keys in one call, with keys of one size or of any', async () => {
      await opened(async (store) => {
        const key = (i: number): Uint8Array => text(String(i).padStart(6, '0'));
        const pairs = Array.from({ length: 1000 }, (_, i): Pair => [key(i * 2), text(`v${i * 2}`)]);
        await store.put('rows', spans(pairs), 'off');
        const numbers = Array.from({ length: 2000 }, (_, i) => (i * 1237) % 2000);
        const expected = numbers.map((i) => (i % 2 === 0 ? hex(text(`v${i}`)) : null));
        expect(await lookedUp(store, 'rows', numbers.map(key))).toEqual(expected);
        const bytes = new Uint8Array(Buffer.concat(numbers.map(key)));
        const { length } = await store.get('rows', { count: 2000, bytes, keyBytes: 6 });
        expect([...length]).toEqual(expected.map((value) => (value === null ? -1 : value.length / 2)));
        expect((await store.get('rows', { count: 0, bytes, keyBytes: 6 })).length).toHaveLength(0);
      });
    });
  });

  describe(`${driver.name}: overwritten rows`, () => {
    it('the newer row wins, whether put or ingested', async () => {
      await opened(async (store) => {
        for (const family of ['rows', 'runs']) {
          const now = async (): Promise<string> =>
            (await scanned(store, family))
              .map(([, value]) => unhex(value))
              .map((v) => Buffer.from(v).toString())
              .join();
          await store.put(family, spans([pair('a', 'put'), pair('b', 'put'), pair('b', 'again')]), 'off');
          expect(await now()).toBe('put,again');
          await ingest(store, family, [[pair('a', 'run'), pair('c', 'run')]]);
          expect(await now()).toBe('run,again,run');
          await store.put(family, spans([pair('c', 'last')]), 'off');
          await ingest(store, family, [[pair('b', 'second')], [pair('d', 'second')]]);
          expect(await now()).toBe('run,second,last,second');
          await store.deleteRange(family, { from: text('b'), to: text('d') }, 'off');
          await ingest(store, family, [[pair('c', 'third')]]);
          expect(await now()).toBe('run,third,second');
        }
      });
    });
  });

  describe(`${driver.name}: run`, () => {
    it('a run becomes visible as a whole when it is finished, and never if it is closed unfinished', async () => {
      await opened(async (store) => {
        const run = store.openRun('runs');
        await run.append(spans([pair('a', '1'), pair('b', '2')]));
        await run.append(spans([]));
        await run.append(spans([pair('c', '3')]));
        expect(await scanned(store, 'runs')).toEqual([]);
        expect(await run.finish()).toMatchObject({ rows: 3, files: 1 });
        expect((await scanned(store, 'runs')).length).toBe(3);
        await expect(run.append(spans([pair('d', '4')]))).rejects.toThrow(code('closed'));
        const given = store.openRun('runs');
        await given.append(spans([pair('e', '5')]));
        given.close();
        given.close();
        expect((await scanned(store, 'runs')).length).toBe(3);
        expect(await store.openRun('runs').finish()).toEqual({ rows: 0, bytes: 0, files: 0 });
      });
    });

    it.each([
      ['inside a page', [[pair('b', ''), pair('a', '')]]],
      ['from page to page', [[pair('b', '')], [pair('a', '')]]],
      ['with a key twice', [[pair('a', '')], [pair('a', '')]]],
    ])('a run that does not ascend %s is refused and stays refused', async (_, pages) => {
      await opened(async (store) => {
        const run = store.openRun('runs');
        const write = async (): Promise<void> => {
          for (const page of pages) await run.append(spans(page));
        };
        await expect(write()).rejects.toThrow(code('kv_unsorted'));
        await expect(run.append(spans([pair('z', '')]))).rejects.toThrow(code('kv_unsorted'));
        await expect(run.finish()).rejects.toThrow(code('kv_unsorted'));
        expect(await scanned(store, 'runs')).toEqual([]);
      });
    });

    it('a run of records takes its keys from the records and returns them for any number of records in a value', async () => {
      const words = [0n, 1n, 255n, 256n, 1n << 31n, (1n << 32n) - 1n, 1n << 63n, (1n << 64n) - 1n];
      const key = (word: bigint): string => hex(text('p')) + word.toString(16).padStart(16, '0');
      await opened(async (store) => {
        for (const perValue of [1, 3, 100]) {
          const rows = records('p', words, perValue);
          const run = store.openRun('runs');
          await run.append(rows);
          expect(await run.finish()).toMatchObject({ rows: words.length });
          const found = await scanned(store, 'runs');
          expect(found.map(([at]) => at)).toEqual(words.filter((_, i) => i % perValue === 0).map(key));
          expect(found.map(([, value]) => value).join('')).toBe(hex(rows.bytes));
          const scan = await store.scan('runs', ALL, { shape: 'records', recordBytes: 64 });
          const page = { bytes: new Uint8Array(1024) };
          expect(await scan.next(page)).toBe(words.length);
          expect(hex(page.bytes.subarray(0, words.length * 64))).toBe(hex(rows.bytes));
          expect(await scan.next(page)).toBe(0);
          scan.close();
          await store.deleteRange('runs', { from: text('p'), to: text('q') }, 'off');
          expect(await scanned(store, 'runs')).toEqual([]);
          const wrong = store.openRun('runs');
          await expect(wrong.append(records('p', [5n, 7n, 6n], perValue))).rejects.toThrow(
            code('kv_unsorted'),
          );
          wrong.close();
        }
      });
    });

    it('rows of one size are returned in fixed shape, and other rows are refused in that shape', async () => {
      await opened(async (store) => {
        const bytes = text('aa1bb2cc3');
        const run = store.openRun('runs');
        await run.append({ shape: 'fixed', count: 3, bytes, keyBytes: 2, valueBytes: 1 });
        await run.finish();
        const page = { bytes: new Uint8Array(7) };
        const scan = await store.scan('runs', ALL, { shape: 'fixed', keyBytes: 2, valueBytes: 1 });
        expect(await scan.next(page)).toBe(2);
        expect(hex(page.bytes.subarray(0, 6))).toBe(hex(bytes.subarray(0, 6)));
        expect(await scan.next(page)).toBe(1);
        scan.close();
        await expect(scan.next(page)).rejects.toThrow(code('closed'));
        for (const shape of [
          { shape: 'fixed', keyBytes: 1, valueBytes: 2 },
          { shape: 'records', recordBytes: 64 },
        ] as const) {
          const other = await store.scan('runs', ALL, shape);
          await expect(other.next(page)).rejects.toThrow(code('kv_corrupt'));
          other.close();
        }
      });
    });

    it('a long run is read back in order, and a range of it is deleted', async () => {
      const rows = isFull ? 1_000_000 : 100_000;
      const perPage = 50_000;
      await opened(async (store) => {
        const run = store.openRun('runs');
        for (let first = 0; first < rows; first += perPage)
          await run.append(
            records(
              'm',
              Array.from({ length: perPage }, (_, i) => BigInt((first + i) * 3)),
            ),
          );
        expect(await run.finish()).toMatchObject({ rows });
        const scan = await store.scan('runs', ALL, { shape: 'records', recordBytes: 64 });
        const page = { bytes: new Uint8Array(100_000 * 64) };
        const cells = new BigUint64Array(page.bytes.buffer);
        let seen = 0;
        let wrong = 0;
        for (let count = await scan.next(page); count > 0; count = await scan.next(page))
          for (let i = 0; i < count; i++, seen++) if (cells[i * 8] !== BigInt(seen * 3)) wrong++;
        scan.close();
        expect([seen, wrong]).toEqual([rows, 0]);
        const edge = (n: number): Uint8Array => unhex(`6d${BigInt(n).toString(16).padStart(16, '0')}`);
        await store.deleteRange('runs', { from: edge(4), to: edge(3 * rows - 10) }, 'off');
        expect((await scanned(store, 'runs')).map(([key]) => Number.parseInt(key.slice(2), 16))).toEqual([
          ...[0, 3],
          ...[9, 6, 3].map((behind) => 3 * rows - behind),
        ]);
      });
    });
  });

  describe(`${driver.name}: deleted range`, () => {
    it('a deleted range spares the key at its end, although a file ends there', async () => {
      for (const last of ['m', 'm\0', 'm\0\0']) {
        await opened(async (store) => {
          await ingest(store, 'runs', [[pair('a', '1'), pair('b', '2'), pair(last, '3')]]);
          await store.deleteRange('runs', { from: null, to: text(last) }, 'off');
          expect(await scanned(store, 'runs')).toEqual([[hex(text(last)), hex(text('3'))]]);
          await store.deleteRange('runs', { from: text('a'), to: text(`${last}\0`) }, 'off');
          expect(await scanned(store, 'runs')).toEqual([]);
        });
      }
    });

    if (world.dropsFiles)
      it('a deleted range frees the disk space of whole files immediately', async () => {
        await opened(async (store) => {
          for (const prefix of ['a', 'b', 'c']) {
            const run = store.openRun('runs');
            await run.append(
              records(
                prefix,
                Array.from({ length: 20_000 }, (_, i) => BigInt(i * i)),
              ),
            );
            await run.finish();
          }
          const before = await store.stats();
          await store.deleteRange('runs', { from: text('b'), to: text('c') }, 'on');
          const after = await store.stats();
          expect(after.diskBytes).toBeLessThan(before.diskBytes * 0.7);
          expect(after.diskBytes).toBeGreaterThan(before.diskBytes * 0.6);
        });
      });
  });

  describe(`${driver.name}: scan`, () => {
    it('a scan sees the rows that existed at its beginning, whatever is written later', async () => {
      await opened(async (store) => {
        for (const family of ['rows', 'runs']) {
          const pairs = Array.from({ length: 50 }, (_, i) => pair(`k${10 + i}`, `v${i}`));
          await store.put(family, spans(pairs), 'off');
          await store.flush();
          const scan = await store.scan(family, ALL, { shape: 'spans' });
          const page = { bytes: new Uint8Array(30), ends: new Uint32Array(100) };
          expect(await scan.next(page)).toBe(6);
          await store.put(family, spans([pair('k30', 'new'), pair('k99', 'new')]), 'off');
          await ingest(store, family, [[pair('k31', 'new'), pair('k98', 'new')]]);
          await store.deleteRange(family, { from: text('k40'), to: null }, 'off');
          await store.deleteRange(family, ALL, 'off');
          await store.flush();
          expect(await scanned(store, family)).toEqual([]);
          let rest = '';
          for (let count = await scan.next(page); count > 0; count = await scan.next(page))
            rest += Buffer.from(page.bytes.subarray(0, page.ends[count * 2 - 1])).toString();
          expect(rest).toBe(
            pairs
              .slice(6)
              .map(([key, value]) => Buffer.concat([key, value]).toString())
              .join(''),
          );
          scan.close();
          scan.close();
        }
      });
    });

    it('a scan runs concurrently with other scans, look-ups and runs', async () => {
      await opened(async (store) => {
        const words = Array.from({ length: 20_000 }, (_, i) => BigInt(i));
        const one = async (prefix: string): Promise<number> => {
          const run = store.openRun('runs');
          await run.append(records(prefix, words));
          await run.finish();
          const scan = await store.scan(
            'runs',
            { from: text(prefix), to: text(`${prefix}~`) },
            {
              shape: 'records',
              recordBytes: 64,
            },
          );
          const page = { bytes: new Uint8Array(64 * 999) };
          let seen = 0;
          for (let count = await scan.next(page); count > 0; count = await scan.next(page)) seen += count;
          scan.close();
          await store.put('rows', spans([pair(prefix, String(seen))]), 'on');
          return seen;
        };
        const names = ['a', 'b', 'c', 'd', 'e'];
        expect(await Promise.all(names.map(one))).toEqual(names.map(() => words.length));
        expect(await lookedUp(store, 'rows', names.map(text))).toEqual(names.map(() => hex(text('20000'))));
      });
    });
  });
}
