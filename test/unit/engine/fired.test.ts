/** The store of fired windows: look-ups compared with a plain list, expiry of rows, and folders
 *  that it refuses to open. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { openKv } from '../../../src/drivers.ts';
import type { WindowBounds } from '../../../src/engine/output/fired/lookup.ts';
import type { FiredShape } from '../../../src/engine/output/fired/mark.ts';
import { ReopeningStore } from '../../../src/engine/output/fired/reopening-store.ts';
import { sessionOrder } from '../../../src/engine/output/fired/session-order.ts';
import {
  FIRED_FAMILIES,
  FiredStore,
  RUN_ROWS_MIN,
  readFired,
} from '../../../src/engine/output/fired/store.ts';
import { ResultRows } from '../../../src/engine/output/sink/rows.ts';
import { markEarly, type WindowResult } from '../../../src/engine/window/accumulator.ts';
import type { FiredPage } from '../../../src/engine/window/firing.ts';
import { rocksdbDriver } from '../../../src/io/rocksdb/addon.ts';
import { npmObstacle, rocksdbNpmDriver } from '../../../src/io/rocksdb/npm.ts';
import { type KvDriver, type KvStore, kvError } from '../../../src/io/rocksdb/port.ts';
import { SimKv } from '../../../src/sim/kv.ts';
import {
  manyRows,
  pageOf,
  type RowSpec,
  resultText,
  sessionBounds,
  textsOf,
  windowBounds,
} from '../../contract/fired-kit.ts';
import { runs } from '../../tier.ts';

const root = mkdtempSync(join(tmpdir(), 'fired-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let folders = 0;
const MIB = 1024 * 1024;
const OPTIONS = { budgetBytes: 16 * MIB, families: FIRED_FAMILIES };
const TUMBLING: FiredShape = { kind: 'windows', sizeMs: 10, slideMs: 10 };
const SESSIONS: FiredShape = { kind: 'sessions', gapMs: 30 };
const HOUR = 3_600_000;
const U64_MAX = (1n << 64n) - 1n;

const place = (): string => join(root, `store-${folders++}`);
const sim = (): Promise<KvStore> => new SimKv().open('f', OPTIONS);
const sinkOf = (store: KvStore, shape: FiredShape): Promise<FiredStore> =>
  FiredStore.open(store, { shape, role: 'sink' });

interface LookUp {
  readonly from?: number;
  readonly to?: number;
  readonly limit?: number;
}

/** All rows of an answer, and its number of pages. */
async function pages(fired: FiredStore, accountId: bigint, { from, to, limit }: LookUp = {}) {
  const query = { accountId, from: from ?? -1e12, to: to ?? 1e12, limit: limit ?? 100 };
  const rows: WindowResult[] = [];
  let count = 0;
  let after: WindowBounds | undefined;
  do {
    const page = await fired.find(after === undefined ? query : { ...query, after });
    expect(page.rows.length).toBeLessThanOrEqual(query.limit);
    rows.push(...page.rows);
    after = page.next;
    if (++count > 10_000) throw new Error('the answer has more than 10,000 pages');
  } while (after !== undefined);
  return { rows, count };
}

const found = async (fired: FiredStore, accountId: bigint, lookUp: LookUp = {}): Promise<string[]> =>
  (await pages(fired, accountId, lookUp)).rows.map(resultText);

/** Expected answer: filters and sorts a list of all rows. */
function listed(all: readonly FiredPage[], accountId: bigint, { from, to }: LookUp): string[] {
  return textsOf(all)
    .map((text) => ({ text, cells: text.split(',') }))
    .filter(({ cells }) => cells[0] === String(accountId))
    .filter(({ cells }) => Number(cells[1]) >= (from ?? -1e12) && Number(cells[1]) < (to ?? 1e12))
    .sort((a, b) => Number(a.cells[1]) - Number(b.cells[1]) || Number(a.cells[2]) - Number(b.cells[2]))
    .map(({ text }) => text);
}

const ids = fc.constantFrom(0n, 1n, 5n, 1n << 63n, U64_MAX);
const lookUps = fc.record({
  accountId: ids,
  from: fc.option(fc.integer({ min: -300, max: 300 }), { nil: undefined }),
  to: fc.option(fc.integer({ min: -300, max: 300 }), { nil: undefined }),
  limit: fc.integer({ min: 1, max: 9 }),
});
const definedOnly = ({
  from,
  to,
  limit,
}: {
  from?: number | undefined;
  to?: number | undefined;
  limit: number;
}): LookUp => ({
  ...(from === undefined ? {} : { from }),
  ...(to === undefined ? {} : { to }),
  limit,
});
const ascending = (rows: readonly RowSpec[]): RowSpec[] =>
  [...new Map(rows.map((row) => [row.accountId, row])).values()].sort((a, b) =>
    a.accountId < b.accountId ? -1 : 1,
  );

describe('look-ups', () => {
  it('look-ups of tumbling and sliding windows equal a list of all rows, in pages of any size', async () => {
    const grids = fc.constantFrom([10, 10], [10, 5], [10, 3], [7, 7], [100, 1]);
    const windows = fc.uniqueArray(fc.tuple(fc.integer({ min: -60, max: 60 }), fc.array(ids)), {
      selector: ([start]) => start,
      maxLength: 30,
    });
    await fc.assert(
      fc.asyncProperty(
        grids,
        windows,
        fc.array(lookUps, { minLength: 1, maxLength: 6 }),
        async (grid, spec, lookUp) => {
          const [sizeMs, slideMs] = grid as [number, number];
          const fired = await sinkOf(await sim(), { kind: 'windows', sizeMs, slideMs });
          const all = [...spec]
            .sort(([a], [b]) => a - b)
            .map(([step, accounts]) =>
              pageOf(
                windowBounds(step * slideMs, step * slideMs + sizeMs),
                ascending(accounts.map((accountId) => ({ accountId, last: BigInt(step) }))),
              ),
            );
          for (const page of all) await fired.write([page]);
          for (const one of lookUp)
            expect(await found(fired, one.accountId, definedOnly(one))).toEqual(
              listed(all, one.accountId, definedOnly(one)),
            );
        },
      ),
      { numRuns: runs(60) },
    );
  });

  it('look-ups of sessions equal a list of all rows, also across buckets', async () => {
    // Pauses of a minute and more spread the sessions over buckets, which are at least a minute
    // long.
    const spans = fc.array(
      fc.record({ accountId: ids, pause: fc.constantFrom(31, 100, 70_000, 900_000), length: fc.nat(90_000) }),
      { maxLength: 25 },
    );
    await fc.assert(
      fc.asyncProperty(spans, fc.array(lookUps, { minLength: 1, maxLength: 6 }), async (spec, lookUp) => {
        const fired = await FiredStore.open(await sim(), { shape: SESSIONS, role: 'sink' });
        const ends = new Map<bigint, number>();
        const rows = spec.map(({ accountId, pause, length }) => {
          const start = (ends.get(accountId) ?? -2_000_000) + pause;
          const last = start + length;
          ends.set(accountId, last + 30);
          return { accountId, start: BigInt(start), last: BigInt(last) };
        });
        rows.sort((a, b) => Number(a.last - b.last) || (a.accountId < b.accountId ? -1 : 1));
        const all = rows.map((row) => pageOf(sessionBounds(30), [row]));
        for (let at = 0; at < all.length; at += 4) await fired.write(all.slice(at, at + 4));
        for (const one of lookUp) {
          const wide = { ...definedOnly(one) };
          for (const edge of ['from', 'to'] as const)
            if (wide[edge] !== undefined) Object.assign(wide, { [edge]: (wide[edge] as number) * 6000 });
          expect(await found(fired, one.accountId, wide)).toEqual(listed(all, one.accountId, wide));
        }
      }),
      { numRuns: runs(60) },
    );
  });

  it('look-ups do a bounded amount of work per page and return where the next page starts', async () => {
    const fired = await sinkOf(await sim(), TUMBLING);
    const far = 100_000 * 10;
    const ends = [0, far].map((start) => pageOf(windowBounds(start, start + 10), [{ accountId: 1n }]));
    for (const page of ends) await fired.write([page]);
    const { rows, count } = await pages(fired, 1n);
    expect(rows.map((row) => row.windowStart)).toEqual([0, far]);
    expect(count).toBeGreaterThan(2);
    expect((await pages(fired, 2n)).rows).toEqual([]);
  });

  it('look-ups of sessions do a bounded amount of work too', async () => {
    const fired = await sinkOf(await sim(), SESSIONS);
    const far = 5000n * BigInt(HOUR);
    for (const at of [0n, far])
      await fired.write([pageOf(sessionBounds(30), [{ accountId: 1n, start: at, last: at + 5n }])]);
    const { rows, count } = await pages(fired, 1n, { to: 1e14 });
    expect(rows.map((row) => row.windowStart)).toEqual([0, Number(far)]);
    expect(count).toBeGreaterThan(2);
  });
});

/** The package does not run on every Node.js. */
const drivers = npmObstacle() === undefined ? [rocksdbDriver, rocksdbNpmDriver] : [rocksdbDriver];

describe.each<KvDriver>(drivers)('fired store on disk, by $name', (driver) => {
  it('the fired store finds rows of runs and of puts, also after it is reopened', async () => {
    const folder = place();
    const store = await driver.open(folder, OPTIONS);
    const fired = await sinkOf(store, TUMBLING);
    const large = { bounds: windowBounds(-10, 0), rows: manyRows(RUN_ROWS_MIN), rowCount: RUN_ROWS_MIN };
    const small = pageOf(windowBounds(20, 30), [{ accountId: 0n }, { accountId: U64_MAX }]);
    await fired.write([large, small]);
    const some = textsOf([large]).filter((_, row) => row % 5000 === 0);
    const check = async (in_: FiredStore): Promise<void> => {
      for (const text of some) expect(await found(in_, BigInt(text.split(',')[0] as string))).toEqual([text]);
      expect(await found(in_, U64_MAX)).toEqual([textsOf([small])[1]]);
    };
    await check(fired);
    await store.close();
    const again = await driver.open(folder, OPTIONS);
    await check(await sinkOf(again, TUMBLING));
    let rows = 0;
    for await (const page of readFired(again)) rows += page.length;
    expect(rows).toBe(RUN_ROWS_MIN + 2);
    await again.close();
  });

  it('the fired store finds each session of a large page whose accounts are out of order', async () => {
    const store = await driver.open(place(), OPTIONS);
    const fired = await sinkOf(store, SESSIONS);
    // Ascending by end, over several buckets.
    const specs = Array.from({ length: RUN_ROWS_MIN + 1000 }, (_, row) => ({
      accountId: BigInt((row * 7919) % 40_009),
      last: BigInt(row * 10),
      start: BigInt(row * 10 - 5),
    }));
    const page = pageOf(sessionBounds(30), specs);
    await fired.write([page]);
    const texts = textsOf([page]);
    for (let row = 0; row < specs.length; row += 4999)
      expect(await found(fired, (specs[row] as RowSpec).accountId as bigint)).toEqual([texts[row]]);
    let rows = 0;
    for await (const results of readFired(store)) rows += results.length;
    expect(rows).toBe(specs.length);
    await store.close();
  });

  it('the fired store of an engine with another sink expires rows by event time, and frees their disk space', async () => {
    const store = await driver.open(place(), OPTIONS);
    const fired = await FiredStore.open(store, { shape: TUMBLING, role: 'beside', retainMs: 100 });
    for (let start = 0; start < 1000; start += 10)
      await fired.write([pageOf(windowBounds(start, start + 10), [{ accountId: 7n }])]);
    const starts = (await pages(fired, 7n)).rows.map((row) => row.windowStart);
    // The newest window ends at 1000, so windows that end at 900 have expired.
    expect(starts).toEqual([900, 910, 920, 930, 940, 950, 960, 970, 980, 990]);
    let rows = 0;
    for await (const page of readFired(store)) rows += page.length;
    expect(rows).toBeLessThan(15);
    await store.close();
  });
});

describe('full disk', () => {
  const child = fileURLToPath(new URL('../../contract/sink.child.mjs', import.meta.url));
  /** Maximum size of a file in blocks of 1 KiB: less than the log of the first rows below. */
  const FILE_KIB = 900;

  it.each(['on', 'off'] as const)(
    'a full disk with -native=%s does not stop writes permanently, and rows are written once there is room',
    {
      timeout: 180_000,
    },
    async (native) => {
      const folder = place();
      const file = `${folder}.rows`;
      const rows = manyRows(40_000, 3);
      writeFileSync(file, rows);
      const given = { kind: 'rocksdb', folder, native, file, rows: [20_000, 40_000], windows: 4 };
      const limited = ['-c', `ulimit -S -f ${FILE_KIB}; exec "$@"`, 'bash', process.execPath, child];
      const held = spawn('bash', [...limited, JSON.stringify(given)], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const ended = once(held, 'exit');
      const lines: string[] = [];
      for await (const line of createInterface({ input: held.stdout })) {
        lines.push(line);
        if (lines.filter((one) => one.startsWith('failed')).length === 3 && line.startsWith('failed'))
          spawn('prlimit', ['--pid', String(held.pid), '--fsize=unlimited']);
        if (line === 'wrote 4') held.kill('SIGKILL');
      }
      await ended;
      expect(lines).toContain('wrote 4');
      expect(lines.filter((one) => one.startsWith('failed')).length).toBeGreaterThanOrEqual(3);
      const driver = await openKv(native);
      const store = await driver.open(folder, OPTIONS);
      const seen = new Set<string>();
      for await (const page of readFired(store)) for (const row of page) seen.add(resultText(row));
      await store.close();
      const written = [0, 1, 2, 3].map((window) => ({
        bounds: windowBounds(window * 1000, (window + 1) * 1000),
        rows,
        rowCount: window % 2 === 0 ? 20_000 : 40_000,
      }));
      expect(seen.size).toBe(120_000);
      for (const text of textsOf(written)) if (!seen.has(text)) throw new Error(`lost: ${text}`);
    },
  );

  it('a store that refuses a write is reopened for the next change and answers reads meanwhile', async () => {
    const kv = new SimKv();
    let isFull = false;
    const opened: KvStore[] = [];
    const store = await ReopeningStore.open(async () => {
      if (opened.length > 0 && isFull) throw kvError('kv_full', 'no room to open');
      const inner = await kv.open('f', OPTIONS);
      opened.push(inner);
      let refuses = false;
      const put = inner.put.bind(inner);
      inner.put = async (...given) => {
        refuses ||= isFull;
        if (refuses) throw kvError('kv_full', 'no room');
        await put(...given);
      };
      return inner;
    });
    const fired = await sinkOf(store, TUMBLING);
    const page = (start: number) => pageOf(windowBounds(start, start + 10), [{ accountId: 7n }]);
    await fired.write([page(0)]);
    isFull = true;
    await expect(fired.write([page(10)])).rejects.toMatchObject({ code: 'kv_full' });
    expect((await pages(fired, 7n)).rows).toHaveLength(1);
    // The store must be reopened, and the open fails too.
    await expect(fired.write([page(10)])).rejects.toMatchObject({ code: 'kv_full' });
    isFull = false;
    await fired.write([page(10)]);
    expect((await pages(fired, 7n)).rows).toHaveLength(2);
    expect(opened).toHaveLength(2);
    await store.close();
    await expect(fired.write([page(20)])).rejects.toMatchObject({ code: 'closed' });
    await expect(store.stats()).rejects.toMatchObject({ code: 'closed' });
  });
});

describe('session order', () => {
  const few = { min: 0n, max: 40n };
  const account = fc.oneof(fc.bigInt(few), fc.bigInt({ min: 0n, max: U64_MAX }), fc.constant(1n << 63n));

  it('the session order follows the keys, whether rows are compared or counted', () => {
    const many = fc.array(fc.tuple(account, fc.nat(500)), { maxLength: 60 });
    fc.assert(
      fc.property(many, fc.constantFrom(1, 200), fc.constantFrom(100, 1000), (drawn, times, bucketMs) => {
        // Later sessions of an account end later.
        const specs = Array.from({ length: times }, (_, turn) =>
          drawn.map(([id, at]) => ({ id, last: turn * 2000 + at })),
        ).flat();
        specs.sort((a, b) => a.last - b.last || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0));
        const page = pageOf(
          sessionBounds(30),
          specs.map(({ id, last }) => ({ accountId: id, last: BigInt(last), start: BigInt(last - 1) })),
        );
        const rows = new ResultRows(page);
        const key = (row: number): readonly bigint[] => [
          BigInt(Math.floor(rows.windowEnd(row) / bucketMs)),
          rows.accountId(row),
          BigInt(row),
        ];
        const expected = specs
          .map((_, row) => row)
          .sort((a, b) => {
            const [one, other] = [key(a), key(b)];
            const at = one.findIndex((cell, i) => cell !== other[i]);
            return at < 0 ? 0 : (one[at] as bigint) < (other[at] as bigint) ? -1 : 1;
          });
        expect([...sessionOrder(rows, bucketMs)]).toEqual(expected);
      }),
      { numRuns: runs(40) },
    );
  });

  it('the session order holds for a bucket of many rows', () => {
    const count = 50_000;
    const rows = new ResultRows(
      pageOf(
        sessionBounds(1),
        Array.from({ length: count }, (_, i) => ({
          accountId: BigInt.asUintN(64, BigInt(i) * 0x9e37_79b9_7f4a_7c15n),
          last: 5n,
        })),
      ),
    );
    const order = sessionOrder(rows, 1000);
    expect(new Set(order).size).toBe(count);
    for (let i = 1; i < count; i++)
      if (rows.accountId(order[i - 1] as number) >= rows.accountId(order[i] as number))
        throw new Error(`row ${i} is out of order`);
  });
});

describe('retention', () => {
  it('the retention of sessions follows their ends, not their starts', async () => {
    const fired = await FiredStore.open(await sim(), { shape: SESSIONS, role: 'beside', retainMs: HOUR });
    const at = (start: number, last: number): FiredPage =>
      pageOf(sessionBounds(30), [{ accountId: 1n, start: BigInt(start), last: BigInt(last) }]);
    await fired.write([at(0, 10)]);
    await fired.write([at(1000, 9 * HOUR)]);
    await fired.write([at(9 * HOUR + 100, 9 * HOUR + 200)]);
    expect((await pages(fired, 1n)).rows.map((row) => row.windowStart)).toEqual([1000, 9 * HOUR + 100]);
  });

  it('the retention of a sink expires rows for readers and exports, and only if it is set', async () => {
    const write = async (fired: FiredStore): Promise<void> => {
      for (const start of [0, 999_900, 1_000_000])
        await fired.write([pageOf(windowBounds(start, start + 10), [{ accountId: 7n }])]);
    };
    const startsIn = async (store: KvStore): Promise<number[]> => {
      const starts: number[] = [];
      for await (const rows of readFired(store)) starts.push(...rows.map(({ windowStart }) => windowStart));
      return starts;
    };
    const [bounded, whole] = [await sim(), await sim()];
    const fired = await FiredStore.open(bounded, { shape: TUMBLING, role: 'sink', retainMs: 1000 });
    await write(fired);
    expect(await startsIn(bounded)).toEqual([999_900, 1_000_000]);
    expect((await pages(fired, 7n, { to: 2_000_000 })).rows).toHaveLength(2);
    // The folder is still the sink's, also without a retention.
    await write(await sinkOf(bounded, TUMBLING));
    expect(await startsIn(bounded)).toEqual([0, 999_900, 1_000_000]);
    await write(await sinkOf(whole, TUMBLING));
    expect(await startsIn(whole)).toEqual([0, 999_900, 1_000_000]);
  });
});

describe('fired-store folder', () => {
  const fill = async (fired: FiredStore): Promise<void> => {
    for (const start of [0, 1000])
      await fired.write([pageOf(windowBounds(start, start + 10), [{ accountId: 7n }])]);
  };
  const beside = (store: KvStore, retainMs: number) =>
    FiredStore.open(store, { shape: TUMBLING, role: 'beside', retainMs });

  it('a folder of other windows is refused', async () => {
    const store = await sim();
    await sinkOf(store, TUMBLING);
    await expect(sinkOf(store, SESSIONS)).rejects.toMatchObject({
      code: 'job_changed',
      message: expect.stringContaining('holds tumbling windows of 10 ms, not sessions with a gap of 30 ms'),
    });
    await expect(sinkOf(store, { kind: 'windows', sizeMs: 10, slideMs: 5 })).rejects.toMatchObject({
      code: 'job_changed',
    });
    await sinkOf(store, TUMBLING);
  });

  it('a folder that has expired rows never becomes the sink, and a folder with all rows may', async () => {
    const expiring = await sim();
    await fill(await beside(expiring, 100));
    await expect(sinkOf(expiring, TUMBLING)).rejects.toMatchObject({ code: 'bad_setting' });
    await beside(expiring, 100);
    const whole = await sim();
    await fill(await beside(whole, HOUR));
    await sinkOf(whole, TUMBLING);
  });

  it('a folder that was the sink expires nothing when another sink replaces it', async () => {
    const store = await sim();
    await fill(await sinkOf(store, TUMBLING));
    const fired = await beside(store, 100);
    await fill(fired);
    expect((await pages(fired, 7n)).rows).toHaveLength(2);
  });

  it('a folder with an invalid description is refused, whatever it contains', async () => {
    const texts = [
      '',
      'null',
      '7',
      '{',
      '{"form":2}',
      '{"form":1,"shape":{"kind":"windows","sizeMs":0,"slideMs":1},"bucketMs":60000,"role":"sink","trimmed":false}',
      '{"form":1,"shape":{"kind":"circles"},"bucketMs":60000,"role":"sink","trimmed":false}',
      '{"form":1,"shape":{"kind":"sessions","gapMs":30},"bucketMs":1e300,"role":"sink","trimmed":false}',
      '{"form":1,"shape":{"kind":"sessions","gapMs":30},"bucketMs":60000,"role":"king","trimmed":false}',
    ];
    for (const text of texts) {
      const store = await sim();
      const bytes = new TextEncoder().encode(`fired${text}`);
      const row = { shape: 'fixed', count: 1, bytes, keyBytes: 5, valueBytes: bytes.length - 5 } as const;
      await store.put('mark', row, 'sync');
      await expect(sinkOf(store, SESSIONS), text).rejects.toMatchObject({ code: 'state_corrupt' });
    }
  });
});

describe('early results', () => {
  const WINDOW = windowBounds(0, 10);
  const early = (start: number, accountId = 1n): FiredPage => {
    const page = pageOf(windowBounds(start, start + 10), [{ accountId, count: 3n }]);
    markEarly(page.rows, 0);
    return page;
  };

  it('an early result is found with its mark, and the final result replaces it', async () => {
    const fired = await sinkOf(await sim(), TUMBLING);
    await fired.write([early(0)]);
    expect((await pages(fired, 1n)).rows).toEqual([expect.objectContaining({ count: 3n, isEarly: true })]);
    await fired.write([pageOf(WINDOW, [{ accountId: 1n, count: 4n }])]);
    const { rows } = await pages(fired, 1n);
    expect(rows).toEqual([expect.objectContaining({ count: 4n })]);
    expect(rows[0]).not.toHaveProperty('isEarly');
  });

  it('an early result of a window far ahead expires no final result, also after a restart', async () => {
    const store = await sim();
    const options = { shape: TUMBLING, role: 'beside', retainMs: 100, hasEarly: true } as const;
    const fired = await FiredStore.open(store, options);
    await fired.write([pageOf(WINDOW, [{ accountId: 1n }]), early(HOUR)]);
    await fired.write([early(2 * HOUR)]);
    expect((await pages(fired, 1n)).rows).toHaveLength(3);
    const again = await FiredStore.open(store, options);
    await again.write([early(3 * HOUR)]);
    expect((await pages(again, 1n)).rows).toHaveLength(4);
    // A final result expires what is too far before it.
    await again.write([pageOf(windowBounds(500, 510), [{ accountId: 2n }])]);
    expect((await pages(again, 1n)).rows.map(({ windowStart }) => windowStart)).toEqual([
      HOUR,
      2 * HOUR,
      3 * HOUR,
    ]);
  });
});
