/** Merge of streams by key with a page ahead of each stream. */
import { describe, expect, it } from 'vitest';
import { loadWindowKernels } from '../../../src/addon/windows.ts';
import { mergedRows } from '../../../src/engine/state/merged-rows.ts';
import type { SizedStream } from '../../../src/engine/state/rows.ts';
import { turns } from '../../wait.ts';

const ROW_BYTES = 64;
const CELLS = ROW_BYTES / 8;
/** More rows than two pages of each of a few streams have. */
const ROWS = 40_000;
const SIDES = [loadWindowKernels('native'), loadWindowKernels('reference')];

/** Rows with the keys 0, step, 2 * step and so on, and a count of 1. */
function rowsOf(count: number, step: number): Uint8Array {
  const cells = new BigInt64Array(count * CELLS);
  for (let row = 0; row < count; row++) {
    cells[row * CELLS] = BigInt(row * step);
    cells[row * CELLS + 1] = 1n;
  }
  return new Uint8Array(cells.buffer);
}

interface Reads {
  inFlight: number;
  mostInFlight: number;
  count: number;
}

const noReads = (): Reads => ({ inFlight: 0, mostInFlight: 0, count: 0 });

/** Stream that yields its rows in another turn of the event loop. @param failsAt row at which a
 *  read fails */
function streamOf(rows: Uint8Array, reads: Reads, failsAt = Number.POSITIVE_INFINITY): SizedStream {
  let at = 0;
  let isReading = false;
  return {
    rowsMax: rows.length / ROW_BYTES,
    next: async (into) => {
      expect(isReading).toBe(false);
      isReading = true;
      reads.count++;
      reads.mostInFlight = Math.max(reads.mostInFlight, ++reads.inFlight);
      await turns(1);
      reads.inFlight--;
      isReading = false;
      const portion = rows.subarray(at, at + into.length - (into.length % ROW_BYTES));
      if (at / ROW_BYTES + portion.length / ROW_BYTES > failsAt) throw new Error('the disk is gone');
      into.set(portion);
      at += portion.length;
      return portion.length / ROW_BYTES;
    },
    close: () => {},
  };
}

async function readAll(stream: SizedStream, pageRows: number): Promise<Map<bigint, bigint>> {
  const counts = new Map<bigint, bigint>();
  const page = new Uint8Array(pageRows * ROW_BYTES);
  const cells = new BigInt64Array(page.buffer);
  let last = -1n;
  for (let rows = await stream.next(page); rows > 0; rows = await stream.next(page))
    for (let row = 0; row < rows; row++) {
      const key = cells[row * CELLS] as bigint;
      expect(key > last).toBe(true);
      last = key;
      counts.set(key, cells[row * CELLS + 1] as bigint);
    }
  return counts;
}

describe.each(SIDES)('merged rows, $name', (kernels) => {
  const many = (count: number, rowsOf: (i: number) => number): readonly (readonly [number, number])[] =>
    Array.from({ length: count }, (_, i) => [rowsOf(i), i + 1]);

  it.each([
    ['no stream', [], 10],
    ['one stream', [[ROWS, 3]], 70_000],
    ['one short stream', [[5, 1]], 3],
    [
      'three long streams',
      [
        [ROWS, 1],
        [ROWS, 2],
        [ROWS / 2, 3],
      ],
      30_000,
    ],
    [
      'a long, a short and an empty stream',
      [
        [ROWS, 1],
        [3, 7],
        [0, 1],
      ],
      1_000_000,
    ],
    ['forty streams', many(40, () => 4_000), 9_000],
    ['three hundred short streams', many(300, () => 40), 500],
    ['more large streams than one merge takes', many(300, () => 300), 20_000],
    ['more streams than the kernel merges', many(1100, (i) => 1 + (i % 3)), 500],
  ] as ReadonlyArray<readonly [string, readonly (readonly [number, number])[], number]>)(
    'the merge of %s has each key once, in order, with all its rows',
    async (_, shapes, pageRows) => {
      const reads = noReads();
      const expected = new Map<bigint, bigint>();
      for (const [count, step] of shapes)
        for (let row = 0; row < count; row++) {
          const key = BigInt(row * step);
          expected.set(key, (expected.get(key) ?? 0n) + 1n);
        }
      const streams = shapes.map(([count, step]) => streamOf(rowsOf(count, step), reads));
      const found = await readAll(mergedRows(kernels, streams), pageRows);
      expect(found.size).toBe(expected.size);
      for (const [key, count] of expected) expect(found.get(key)).toBe(count);
      expect(reads.inFlight).toBe(0);
    },
  );

  it('the streams of a merge load their pages at the same time', async () => {
    const reads = noReads();
    await readAll(
      mergedRows(
        kernels,
        [1, 2, 3].map((step) => streamOf(rowsOf(ROWS, step), reads)),
      ),
      5_000,
    );
    expect(reads.mostInFlight).toBe(3);
  });

  it('small streams beside large ones leave the large ones their pages', async () => {
    const large = noReads();
    const small = noReads();
    const streams = [
      ...Array.from({ length: 200 }, (_, i) => streamOf(rowsOf(10, i + 1), small)),
      ...[1, 2, 3].map((step) => streamOf(rowsOf(ROWS, step), large)),
      ...Array.from({ length: 200 }, (_, i) => streamOf(rowsOf(10, i + 1), small)),
    ];
    await readAll(mergedRows(kernels, streams), 131_072);
    expect(small.count).toBe(400);
    // Pages of 1 MiB have 16,384 rows.
    expect(large.count).toBe(3 * Math.ceil(ROWS / 16_384));
  });

  it('the failure of a page that is loaded ahead reaches the reader, and the rows before it are read', async () => {
    const reads = noReads();
    const merged = mergedRows(kernels, [
      streamOf(rowsOf(ROWS, 1), reads),
      streamOf(rowsOf(ROWS, 1), reads, ROWS - 1),
    ]);
    const page = new Uint8Array(100 * ROW_BYTES);
    expect(await merged.next(page)).toBe(100);
    await expect(readAll(merged, 1000)).rejects.toThrow('the disk is gone');
    merged.close();
  });
});
