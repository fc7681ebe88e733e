/** Sorted runs of the state in a store: they are read back unchanged by every access, and damage is
 *  reported. */
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import type { RowRun } from '../../../src/addon/window-surface.ts';
import { type MemoryShares, sharesOf } from '../../../src/engine/durability/spill/budget.ts';
import { PIECE_FAMILIES, PieceStore, type SpilledRun } from '../../../src/engine/durability/spill/pieces.ts';
import { SIDE_BYTES_MAX } from '../../../src/engine/output/side/sender.ts';
import type { StoredRows } from '../../../src/engine/state/end-order-sorter.ts';
import { ROW_BYTES } from '../../../src/engine/window/accumulator.ts';
import { rocksdbDriver } from '../../../src/io/rocksdb/addon.ts';
import { npmObstacle, rocksdbNpmDriver } from '../../../src/io/rocksdb/npm.ts';
import { KV_BUDGET_MIN_BYTES, type KvDriver, type KvStore, kvError } from '../../../src/io/rocksdb/port.ts';
import { SimKv } from '../../../src/sim/kv.ts';
import { runs } from '../../tier.ts';
import { turn } from '../../wait.ts';

const root = mkdtempSync(join(tmpdir(), 'millrace-pieces-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

const OPTIONS = { budgetBytes: KV_BUDGET_MIN_BYTES, families: PIECE_FAMILIES };
const never = (): boolean => false;
const doNothing = (): void => {};

/** Rows of these ascending accounts; every cell identifies its row. */
function runOf(accounts: readonly bigint[]): RowRun & { readonly bytesOf: Uint8Array } {
  const cells = new BigUint64Array((accounts.length * ROW_BYTES) / 8);
  accounts.forEach((account, row) => {
    cells[row * 8] = account;
    for (let cell = 1; cell < 8; cell++) cells[row * 8 + cell] = BigInt(row * 8 + cell);
  });
  const bytesOf = new Uint8Array(cells.buffer);
  const read: RowRun['read'] = (from, into) => {
    const out = into as Uint8Array;
    const rows = Math.min(accounts.length - from, Math.floor(out.length / ROW_BYTES));
    out.set(bytesOf.subarray(from * ROW_BYTES, (from + rows) * ROW_BYTES));
    return rows;
  };
  return {
    bytesOf,
    rowCount: accounts.length,
    bytes: bytesOf.length,
    read,
    readAside: async (from, into) => read(from, into),
    close: doNothing,
  };
}

const spread = (count: number, step: bigint): bigint[] =>
  Array.from({ length: count }, (_, i) => BigInt(i) * step + 5n);

async function read(store: PieceStore, piece: SpilledRun, pageRows: number): Promise<Buffer> {
  const stream = await store.rows(piece);
  const parts: Uint8Array[] = [];
  for (;;) {
    const page = new Uint8Array(pageRows * ROW_BYTES);
    const rows = await stream.next(page);
    parts.push(page.subarray(0, rows * ROW_BYTES));
    if (rows < pageRows) break;
  }
  stream.close();
  return Buffer.concat(parts);
}

const drivers: ReadonlyArray<readonly [string, () => KvDriver]> = [
  ['memory', () => new SimKv()],
  ['rocksdb', () => rocksdbDriver],
  ...(npmObstacle() === undefined ? [['rocksdb of npm', () => rocksdbNpmDriver] as const] : []),
];

describe.each(drivers)('sorted run, %s', (name, driverOf) => {
  it('a sorted run is read back completely, by pages of any size and by key, among other runs', async () => {
    const driver = driverOf();
    const folder = join(root, name.replaceAll(' ', '-'));
    let kv = await driver.open(folder, OPTIONS);
    let store = await PieceStore.open(async () => kv);
    const runs = [spread(1, 2n), spread(256, 3n), spread(257, 1n << 54n), spread(20_000, 7n)].map(runOf);
    const pieces: SpilledRun[] = [];
    for (const [i, run] of runs.entries())
      pieces.push((await store.write(i + 1, -10 * i, run, doNothing, never)) as SpilledRun);
    await kv.close();
    kv = await driver.open(folder, OPTIONS);
    store = await PieceStore.open(async () => kv);
    for (const [i, run] of runs.entries()) {
      const { firsts, ...entry } = pieces[i] as SpilledRun;
      const verified = await store.verify(entry);
      expect(verified).toEqual({ piece: pieces[i] });
      const again = ('piece' in verified ? verified.piece : undefined) as SpilledRun;
      expect(again.firsts).toEqual(firsts);
      for (const pageRows of [3, 1000, 4096])
        expect((await read(store, again, pageRows)).equals(Buffer.from(run.bytesOf))).toBe(true);
      for (const row of [0, run.rowCount >> 1, run.rowCount - 1]) {
        const at = row * ROW_BYTES;
        const account = Buffer.from(run.bytesOf).readBigUInt64LE(at);
        const into = new Uint8Array(ROW_BYTES);
        expect(await store.find(again, account, into)).toBe(true);
        expect(Buffer.from(into)).toEqual(Buffer.from(run.bytesOf.subarray(at, at + ROW_BYTES)));
        expect(await store.find(again, account + 1n, into)).toBe(false);
      }
      expect(await store.find(again, 0n, new Uint8Array(ROW_BYTES))).toBe(false);
    }
    await store.dropOthers([2, 4]);
    for (const { firsts: _, ...entry } of pieces) {
      const found = await store.verify(entry);
      if (entry.id === 2 || entry.id === 4) expect(found).toHaveProperty('piece');
      else expect(found).toEqual({ fault: `piece ${entry.id} of part ${entry.part} is missing` });
    }
    const asked: string[] = [];
    await store.keepOnly(
      () => true,
      async () => void asked.push('without a deletion'),
    );
    await store.keepOnly(
      (id) => id === 4,
      async () => {
        await turn();
        const { firsts: _, ...goes } = pieces[1] as SpilledRun;
        asked.push('piece' in (await store.verify(goes)) ? 'before the deletion' : 'after the deletion');
      },
    );
    expect(asked).toEqual(['before the deletion']);
    const { firsts: _, ...second } = pieces[1] as SpilledRun;
    expect(await store.verify(second)).toEqual({ fault: 'piece 2 of part -10 is missing' });
    // A look-up in a run that was deleted meanwhile finds nothing.
    await store.drop(4);
    expect(await store.find(pieces[3] as SpilledRun, 12n, new Uint8Array(ROW_BYTES))).toBe(false);
    await kv.close();
  });
});

describe.each(drivers)('sorted run of sessions, %s', (name, driverOf) => {
  it('a run of sessions has all rows of a key, in any number of chunks, whether swept or sealed', async () => {
    const kv = await driverOf().open(join(root, `sessions-${name.replaceAll(' ', '-')}`), OPTIONS);
    const store = await PieceStore.open(async () => kv, 'start');
    // One key for each number of rows, up to several chunks.
    const counts = [1, 255, 1, 256, 700, 2, 1];
    const accounts = counts.flatMap((count, i) => new Array<bigint>(count).fill(BigInt(i) * 10n));
    const run = runOf(accounts);
    const piece = (await store.write(1, 0, run, doNothing, never)) as SpilledRun;
    expect(piece.leastLast).toBe(6);
    const { firsts: _, ...entry } = piece;
    expect(await store.verify(entry)).toEqual({ piece });
    const written: number[] = [];
    store.watchSweeps(doNothing, (bytes) => written.push(bytes));
    const writer = store.writer(2, 0);
    for (let from = 0; from < run.bytesOf.length; from += 100 * ROW_BYTES)
      await writer.append(run.bytesOf.subarray(from, from + 100 * ROW_BYTES));
    const swept = await writer.finish();
    writer.close();
    expect(swept).toEqual({ ...piece, id: 2 });
    expect(written).toEqual([run.bytesOf.length]);
    for (const one of [piece, swept]) {
      expect((await read(store, one, 300)).equals(Buffer.from(run.bytesOf))).toBe(true);
      for (const [i, count] of counts.entries()) {
        const from = accounts.indexOf(BigInt(i) * 10n) * ROW_BYTES;
        const rows = await store.ofKey(one, BigInt(i) * 10n);
        expect(Buffer.from(rows)).toEqual(Buffer.from(run.bytesOf.subarray(from, from + count * ROW_BYTES)));
        expect(await store.ofKey(one, BigInt(i) * 10n + 1n)).toHaveLength(0);
      }
    }
    // A run that is being read is deleted after the read.
    const found = store.ofKey(piece, 40n);
    await store.keepOnly(never, async () => {});
    expect((await found).length).toBe(700 * ROW_BYTES);
    await store.keepOnly(never, async () => {});
    expect(await store.verify(entry)).toEqual({ fault: 'piece 1 of part 0 is missing' });
    await kv.close();
  });

  it('a reopened store has no rows that were in transit to the sink', async () => {
    const kv = await driverOf().open(join(root, `ended-${name.replaceAll(' ', '-')}`), OPTIONS);
    const store = await PieceStore.open(async () => kv, 'start');
    const { bytesOf } = runOf(spread(20_000, 1n).reverse());
    const kept: StoredRows[] = [];
    for (let i = 0; i < 2; i++) {
      const writer = store.endedWriter();
      await writer.append(bytesOf);
      kept.push(await writer.finish());
      writer.close();
    }
    const all = async (): Promise<Buffer> => {
      const stream = await (kept[1] as StoredRows).rows();
      const rows = new Uint8Array(20_001 * ROW_BYTES);
      expect(await stream.next(rows)).toBe(20_000);
      stream.close();
      return Buffer.from(rows.subarray(0, bytesOf.length));
    };
    kept[0]?.drop();
    expect((await all()).equals(Buffer.from(bytesOf))).toBe(true);
    await store.dropOthers([]);
    await expect(all()).rejects.toMatchObject({ code: 'kv_corrupt' });
    await kv.close();
  });
});

describe('stored run', () => {
  it('a key look-up in a sorted run equals a scan of the run', async () => {
    const accounts = fc.uniqueArray(fc.bigInt({ min: 0n, max: 3000n }), { minLength: 1, maxLength: 900 });
    await fc.assert(
      fc.asyncProperty(accounts, fc.bigInt({ min: 0n, max: 3000n }), async (ids, wanted) => {
        const run = runOf(ids.sort((a, b) => (a < b ? -1 : 1)));
        const kv = await new SimKv().open('x', OPTIONS);
        const store = await PieceStore.open(async () => kv);
        const piece = (await store.write(1, 0, run, doNothing, never)) as SpilledRun;
        expect(await store.find(piece, wanted, new Uint8Array(ROW_BYTES))).toBe(ids.includes(wanted));
      }),
      { numRuns: runs(100) },
    );
  });

  it('a sorted run is invisible until it is complete', async () => {
    const driver = new SimKv();
    const store = await PieceStore.open(() => driver.open('x', OPTIONS));
    const run = runOf(spread(40_000, 1n));
    let steps = 0;
    expect(
      await store.write(
        1,
        0,
        run,
        () => void steps++,
        () => steps > 1,
      ),
    ).toBeUndefined();
    driver.crash('x');
    const again = await PieceStore.open(() => driver.open('x', OPTIONS));
    expect(await again.verify({ id: 1, part: 0, rows: 40_000, crc32: 1 })).toEqual({
      fault: 'piece 1 of part 0 is missing',
    });
  });

  it('a sorted run with any changed byte, a missing row or an extra row is refused', async () => {
    const driver = new SimKv();
    const kv = await driver.open('x', OPTIONS);
    const store = await PieceStore.open(async () => kv);
    const run = runOf(spread(600, 9n));
    const { firsts: _, ...entry } = (await store.write(1, 7, run, doNothing, never)) as SpilledRun;
    const values = driver.folders.get('x')?.families.get('pieces')?.live.values as Uint8Array[];
    expect(values).toHaveLength(3);
    for (const [i, value] of values.entries()) {
      for (let bit = 0; bit < value.length * 8; bit += 4099) {
        value[bit >> 3] = (value[bit >> 3] as number) ^ (1 << (bit & 7));
        expect(await store.verify(entry)).toEqual({
          fault: 'piece 1 of part 7 has changed since it was written',
        });
        value[bit >> 3] = (value[bit >> 3] as number) ^ (1 << (bit & 7));
      }
      values[i] = value.slice(ROW_BYTES);
      expect(await store.verify(entry)).toEqual({ fault: 'piece 1 of part 7 holds 599 rows, not 600' });
      values[i] = value.slice(1);
      expect(await store.verify(entry)).toHaveProperty('fault');
      values[i] = value;
    }
    expect(await store.verify(entry)).toHaveProperty('piece');
    const whole = values[1] as Uint8Array;
    values[1] = whole.slice(ROW_BYTES);
    const rows = store.rows(entry);
    await expect((await rows).next(new Uint8Array(700 * ROW_BYTES))).rejects.toThrow(
      /piece 1 of part 7 holds 599 rows, not 600/,
    );
    const last = values[2] as Uint8Array;
    values[1] = whole;
    values[2] = new Uint8Array(Buffer.concat([last, last.subarray(0, ROW_BYTES)]));
    for (const pageRows of [100, 600, 700]) {
      const stream = await store.rows(entry);
      const page = new Uint8Array(pageRows * ROW_BYTES);
      const read = async (): Promise<void> => {
        while ((await stream.next(page)) > 0);
      };
      await expect(read()).rejects.toThrow(/piece 1 of part 7 holds (more than|601 rows, not) 600/);
    }
  });

  it('a sorted run in damaged or missing files is never read as complete', async () => {
    const folder = join(root, 'files');
    const piecesAt = async (at: string) => {
      let kv: KvStore | undefined;
      const store = await PieceStore.open(async () => {
        kv = await rocksdbDriver.open(at, OPTIONS);
        return kv;
      });
      return { kv: kv as KvStore, store };
    };
    const made = await piecesAt(folder);
    const { firsts: _, ...entry } = (await made.store.write(
      1,
      7,
      runOf(spread(30_000, 9n)),
      doNothing,
      never,
    )) as SpilledRun;
    await made.kv.close();
    const files = readdirSync(folder).filter((name) => name.endsWith('.sst'));
    expect(files.length).toBeGreaterThan(0);
    const outcomes = new Set<string>();
    for (const [i, part] of [0.01, 0.3, 0.7, 0.999, undefined].entries()) {
      const copy = join(root, `files-${i}`);
      cpSync(folder, copy, { recursive: true });
      const file = join(copy, files[0] as string);
      if (part === undefined) rmSync(file);
      else {
        const bytes = readFileSync(file);
        const at = Math.floor(part * bytes.length);
        bytes[at] = (bytes[at] as number) ^ 0x10;
        writeFileSync(file, bytes);
      }
      const opened = await piecesAt(copy).catch((thrown: unknown) => {
        expect(thrown).toMatchObject({ code: 'state_corrupt' });
        outcomes.add('cannot be opened');
      });
      if (opened === undefined) continue;
      const found = await opened.store.verify(entry);
      await opened.kv.close();
      if ('piece' in found) {
        // The changed byte belongs to no row.
        expect(found.piece).toMatchObject(entry);
        continue;
      }
      expect(found.fault).toMatch(/^piece 1 of part 7 cannot be read: .*\.sst/);
      outcomes.add('cannot be read');
    }
    expect([...outcomes].sort()).toEqual(['cannot be opened', 'cannot be read']);
  });

  it('a store that cannot be opened is reported as corrupt state', async () => {
    const open = async (): Promise<never> => {
      throw kvError('kv_corrupt', 'MANIFEST-000005 is gone');
    };
    await expect(PieceStore.open(open)).rejects.toMatchObject({
      code: 'state_corrupt',
      message: 'the spilled state cannot be opened: MANIFEST-000005 is gone',
    });
    const locked = async (): Promise<never> => {
      throw kvError('kv_locked', 'in use');
    };
    await expect(PieceStore.open(locked)).rejects.toMatchObject({ code: 'kv_locked' });
  });
});

describe('memory budget', () => {
  const MIB = 1024 * 1024;
  const batch = { rows: 16_384, bytes: 8 * MIB };
  const sum = (shares: MemoryShares): number => Object.values(shares).reduce((total, one) => total + one, 0);

  it('the memory budget is never spent twice and leaves most of a large one to the state', () => {
    for (const budget of [160 * MIB, 512 * MIB, 4096 * MIB, 65_536 * MIB]) {
      for (const sides of [0, 1, 2]) {
        const shares = sharesOf(budget, batch, sides);
        const others = (sides > 0 ? 3 : 2) * batch.bytes;
        expect(sum(shares) + Math.max(0, sides - 1) * shares.sideBytes).toBeLessThanOrEqual(budget - others);
        expect(shares.stateBytes).toBeGreaterThanOrEqual(16 * MIB);
        expect(shares.spillStoreBytes).toBeGreaterThanOrEqual(KV_BUDGET_MIN_BYTES);
        expect(shares.sideBytes > 0).toBe(sides > 0);
        expect(shares.sideBytes).toBeLessThanOrEqual(SIDE_BYTES_MAX);
      }
    }
    expect(sharesOf(4096 * MIB, batch, 0).stateBytes).toBeGreaterThan(0.8 * 4096 * MIB);
  });

  it('a memory budget that is too small is refused with a sufficient value', () => {
    for (const sizes of [batch, { rows: 1_048_576, bytes: 64 * MIB }]) {
      let next = '';
      try {
        sharesOf(20 * MIB, sizes, 2);
      } catch (thrown) {
        expect(thrown).toMatchObject({ code: 'bad_setting' });
        next = (thrown as { next: string }).next;
      }
      const least = Number(/-mem-budget=(\d+)MiB or more/.exec(next)?.[1]);
      expect(() => sharesOf(least * MIB, sizes, 2)).not.toThrow();
      expect(() => sharesOf((least - 1) * MIB, sizes, 2)).toThrow(/leaves no memory for state/);
    }
  });
});
