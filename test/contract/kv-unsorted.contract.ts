/** Contract of every key-value driver about runs whose rows are in any order. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { KeyedRows, SortableRows } from '../../src/core/rows.ts';
import type { KvStore } from '../../src/io/rocksdb/port.ts';
import { isFull, runs } from '../tier.ts';
import { ALL, code, hex, type KvWorld, OPTIONS, type Pair, pair, scanned, spans, text } from './kv-kit.ts';

/** Parts of keys: equal beginnings of several lengths, zeros at the end, and edges of bytes. */
const PARTS = [
  '',
  '\0',
  '\0\0',
  'a',
  'tenant-',
  'tenant-a:',
  '00000000',
  '0000000000000000',
  'x'.repeat(300),
];
const partOf = fc.oneof(
  fc.constantFrom(...PARTS).map(text),
  fc.uint8Array({ maxLength: 12 }),
  fc.uint8Array({ maxLength: 3, max: 1 }),
);
const keyOf = fc.tuple(partOf, partOf, partOf).map((parts) => new Uint8Array(Buffer.concat(parts)));
const isKey = (key: Uint8Array): boolean => key.length > 0;
const RECORD_BYTES = 24;
const ZERO_BYTES = 8;

/** The pairs as records whose keys are apart. */
function keyedOf(pairs: readonly Pair[], prefix: Uint8Array): KeyedRows {
  const bytes = new Uint8Array(pairs.length * RECORD_BYTES).fill(0xee);
  const ends = new Uint32Array(pairs.length);
  pairs.forEach(([key, value], row) => {
    bytes.set(value, row * RECORD_BYTES + ZERO_BYTES);
    ends[row] = (ends[row - 1] ?? 0) + key.length;
  });
  const keys = new Uint8Array(Buffer.concat(pairs.map(([key]) => key)));
  const values = { bytes, recordBytes: RECORD_BYTES, zeroBytes: ZERO_BYTES };
  return { shape: 'keyed', count: pairs.length, prefix, keys, ends, ...values };
}

/** Rows that a put of the pairs, in their order, leaves. */
function lastOf(pairs: readonly Pair[], prefix = ''): ReadonlyArray<readonly [string, string]> {
  const last = new Map(pairs.map(([key, value]) => [hex(text(prefix)) + hex(key), hex(value)]));
  return [...last].sort(([a], [b]) => (a < b ? -1 : 1));
}

export function kvUnsortedContract({ driver, folder }: KvWorld): void {
  const opened = async (use: (store: KvStore) => Promise<void>): Promise<void> => {
    const store = await driver.open(folder(), OPTIONS);
    try {
      await use(store);
    } finally {
      await store.close();
    }
  };
  /** Writes a run of the rows, and removes them after they were read. */
  const written = async (store: KvStore, family: string, rows: SortableRows) => {
    const run = store.openRun(family);
    await run.appendUnsorted(rows);
    const report = await run.finish();
    const found = await scanned(store, family, ALL, 1024 * 1024);
    await store.deleteRange(family, ALL, 'off');
    return { report, found };
  };

  describe(`${driver.name}: unsorted rows of a run`, () => {
    it('rows in any order are read back in the order of their keys, of equal keys the last', async () => {
      let repeated = 0;
      let many = 0;
      await opened(async (store) => {
        await fc.assert(
          fc.asyncProperty(
            fc.array(keyOf.filter(isKey), { maxLength: 500, size: 'max' }),
            fc.constantFrom('rows', 'runs'),
            async (keys, family) => {
              const pairs = keys.map((key, row): Pair => [key, text(`v${row}`)]);
              const expected = lastOf(pairs);
              repeated += expected.length < pairs.length ? 1 : 0;
              many += pairs.length > 256 ? 1 : 0;
              const { report, found } = await written(store, family, spans(pairs));
              expect(found).toEqual(expected);
              expect(report.rows).toBe(expected.length);
            },
          ),
          { numRuns: runs(60) },
        );
      });
      expect(repeated).toBeGreaterThan(runs(60) / 4);
      expect(many).toBeGreaterThan(runs(60) / 10);
    });

    it('records whose keys are apart have the prefix before their keys and zeros where they are asked', async () => {
      await opened(async (store) => {
        await fc.assert(
          fc.asyncProperty(
            fc.array(keyOf, { maxLength: 300, size: 'max' }),
            fc.constantFrom('p', 'prefix of sixteen'),
            async (keys, prefix) => {
              const width = RECORD_BYTES - ZERO_BYTES;
              const pairs = keys.map((key, row): Pair => [key, text(`v${row}`.padEnd(width, '.'))]);
              const zeros = '00'.repeat(ZERO_BYTES);
              const expected = lastOf(pairs, prefix).map(([key, value]) => [key, zeros + value]);
              const rows = keyedOf(pairs, text(prefix));
              expect((await written(store, 'rows', rows)).found).toEqual(expected);
              // Every other call reads them in the order in which they are.
              await store.put('rows', rows, 'off');
              expect(await scanned(store, 'rows', ALL, 1024 * 1024)).toEqual(expected);
              await store.deleteRange('rows', ALL, 'off');
            },
          ),
          { numRuns: runs(30) },
        );
      });
    });

    it('pages of unsorted rows follow each other, and a page that does not is refused', async () => {
      await opened(async (store) => {
        const run = store.openRun('runs');
        await run.appendUnsorted(spans([pair('b', '2'), pair('a', '1')]));
        await run.append(spans([pair('c', '3')]));
        await run.appendUnsorted(spans([pair('e', '5'), pair('d', '4')]));
        expect(await run.finish()).toMatchObject({ rows: 5, files: 1 });
        expect((await scanned(store, 'runs')).map(([, value]) => value)).toEqual(
          ['1', '2', '3', '4', '5'].map((value) => hex(text(value))),
        );
        const wrong = store.openRun('runs');
        await wrong.appendUnsorted(spans([pair('y', ''), pair('x', '')]));
        await expect(wrong.appendUnsorted(spans([pair('z', ''), pair('w', '')]))).rejects.toThrow(
          code('kv_unsorted'),
        );
        wrong.close();
      });
    });

    it('keys that leave their buffer or their bounds are refused', async () => {
      await opened(async (store) => {
        const rows = keyedOf([pair('a', ''), pair('b', '')], text('p'));
        for (const wrong of [
          { ...rows, ends: Uint32Array.of(1, 3) },
          { ...rows, ends: Uint32Array.of(2, 1) },
          { ...rows, ends: Uint32Array.of(1) },
          { ...rows, count: 3 },
          { ...rows, prefix: new Uint8Array(0), ends: Uint32Array.of(0, 1) },
          { ...rows, prefix: new Uint8Array(4096) },
          { ...rows, zeroBytes: RECORD_BYTES + 1 },
        ]) {
          const run = store.openRun('runs');
          await expect(run.appendUnsorted(wrong)).rejects.toThrow(code('out_of_range'));
          run.close();
        }
      });
    });

    it('a long run of keys with a common beginning is read back in order', async () => {
      const count = isFull ? 50_000 : 20_000;
      const digits = (row: number): string => String((row * 7_919) % count).padStart(12, '0');
      await opened(async (store) => {
        const pairs = Array.from({ length: count }, (_, row) => pair(`customer-${digits(row)}`, digits(row)));
        const run = store.openRun('runs');
        await run.appendUnsorted(spans(pairs));
        expect(await run.finish()).toMatchObject({ rows: count });
        const found = await scanned(store, 'runs');
        expect(found.map(([, value]) => value)).toEqual(
          Array.from({ length: count }, (_, row) => hex(text(String(row).padStart(12, '0')))),
        );
      });
    });
  });
}
