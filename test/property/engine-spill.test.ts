/** Damaged state on disk: damaged or missing sorted runs are reported and never used; an unfinished
 *  spill is repeated; and the changelog that spills need stays short. */
import { describe, expect, it } from 'vitest';
import type { LogEntry } from '../../bench/peers/oracle/rules.ts';
import { oracleOf } from '../../bench/peers/oracle/windows.ts';
import { decodeRecord } from '../../src/engine/durability/changelog/records.ts';
import { Replay } from '../../src/engine/durability/changelog/replay.ts';
import { Ledger } from '../../src/engine/durability/checkpoint/ledger.ts';
import { decodeStateManifest, ownFile } from '../../src/engine/durability/checkpoint/state-manifest.ts';
import type { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import type { EngineRun, InputRecord, JobUnderTest } from '../windows/engine-under-test.ts';
import { type Left, operatorUnderTest, SPILL_FOLDER } from '../windows/operator-under-test.ts';

// The reference kernels sort synchronously, so that the order of events does not depend on threads.
const engine = operatorUnderTest('reference', 'disk');
const job: JobUnderTest = {
  rules: { window: 'sliding', sizeMs: 400n, slideMs: 100n, skewMs: 5n, latenessMs: 10n },
  partitions: 1,
  shards: 2,
};

const log: readonly Extract<LogEntry, { kind: 'event' }>[] = Array.from({ length: 600 }, (_, i) => ({
  kind: 'event',
  partition: 0,
  accountId: BigInt((i * 7) % 23),
  value: BigInt(i),
  eventTs: BigInt(i * 2 - (i % 5)),
}));

async function fed(run: EngineRun, to: number): Promise<number> {
  let rows = 0;
  for (let at = run.position(); at < to; ) {
    const batch: InputRecord[] = log
      .slice(at, Math.min(to, at + 10))
      .map((entry, i) => ({ entry, offset: at + i }));
    rows += (await run.feed(batch)).length;
    at += batch.length;
    if (at % 50 === 0) await run.checkpoint();
  }
  return rows;
}

type Values = ReadonlyArray<Uint8Array>;

/** Copies the disk and the store, and lets `damage` change the stored values. */
function damagedCopy(left: Left, damage: (values: Uint8Array[]) => Values): Left {
  const kv = new SimKv();
  const [[name, family] = []] = [...(left.kv?.folders.get(SPILL_FOLDER)?.families ?? [])];
  if (name === undefined || family === undefined) throw new Error('the state has no store');
  const values = damage(family.live.values.map((value) => value.slice()));
  const keys = family.live.keys.slice(0, values.length);
  const table = { keys, values };
  const families = new Map([[name, { live: table, durable: table }]]);
  kv.folders.set(SPILL_FOLDER, { families, holder: undefined });
  return { ...left, disk: left.disk.copy(), kv };
}

async function leftAt(to: number): Promise<Left> {
  const run = await engine.start(job);
  await fed(run, to);
  return (await run.kill()) as Left;
}

/** Processes the rest of the stream from the state left, and returns the windows open at its
 *  end. */
async function rest(left: Left): Promise<string> {
  const run = await engine.restore(job, left);
  await fed(run, log.length);
  const rows = await run.drain();
  await run.kill();
  return JSON.stringify(rows, (_, value) => (typeof value === 'bigint' ? `${value}` : value));
}

function newestManifest(disk: SimDisk) {
  const [name] = disk
    .names()
    .filter((one) => ownFile(one)?.role === 'manifest')
    .slice(-1);
  const decoded = decodeStateManifest(disk.bytesOf(name as string) as Uint8Array);
  if ('fault' in decoded) throw new Error(decoded.fault);
  return decoded.manifest;
}

describe('sorted run of the state', () => {
  it('a start with a damaged or missing run fails and names the run, unless no checkpoint needs it', async () => {
    const left = await leftAt(430);
    const expected = await rest(damagedCopy(left, (values) => values));
    let refused = 0;
    let harmless = 0;
    const count = damagedCopy(left, (values) => values)
      .kv?.folders.get(SPILL_FOLDER)
      ?.families.get('pieces')?.live;
    const all = count?.values.length ?? 0;
    expect(all).toBeGreaterThan(3);
    const ways = Array.from({ length: all }, (_, at) => [
      (values: Uint8Array[]): Values => {
        const value = values[at] as Uint8Array;
        const bit = (at * 61) % (value.length * 8);
        value[bit >> 3] = (value[bit >> 3] as number) ^ (1 << (bit & 7));
        return values;
      },
      (values: Uint8Array[]): Values => values.slice(0, at),
    ]).flat();
    for (const way of ways) {
      const failure = await rest(damagedCopy(left, way)).catch((thrown: unknown) => thrown);
      if (typeof failure === 'string') {
        expect(failure).toBe(expected);
        harmless++;
        continue;
      }
      expect(failure).toMatchObject({ code: 'state_corrupt' });
      expect((failure as Error).message).toMatch(
        /piece \d+ of part \d+ (is missing|has changed since|holds \d+ rows)/,
      );
      refused++;
    }
    expect(refused).toBeGreaterThan(3);
    // The run is kept only for an older checkpoint.
    expect(harmless).toBeGreaterThan(0);
  });

  it('a sorted run is removed with its changelog once no checkpoint needs it', async () => {
    const run = await engine.start(job);
    await fed(run, log.length);
    await run.checkpoint();
    const { disk, kv } = (await run.kill()) as Left;
    const manifest = newestManifest(disk);
    const pieces = manifest.spill?.pieces ?? [];
    expect(pieces.length).toBeGreaterThan(0);
    expect(manifest.spill?.lastId).toBeGreaterThan(2 * pieces.length);
    const there = kv?.folders.get(SPILL_FOLDER)?.families.get('pieces')?.durable.values.length ?? 0;
    expect(there).toBeLessThan((manifest.spill?.lastId ?? 0) / 2);
    expect(manifest.durable - manifest.replayFrom).toBeLessThan(20);
  });

  it('the rows of a half-written run are rebuilt once after the process dies', async () => {
    const oracle = oracleOf(job.rules, 1, log);
    let undone = 0;
    for (let to = 11; to < 300; to += 31) {
      const left = await leftAt(to);
      let aside: number | undefined;
      await new Replay(left.disk.view(), newestManifest(left.disk).replayFrom, 0).run(({ kind, body }) => {
        const decoded = decodeRecord(kind, body);
        const record = 'record' in decoded ? decoded.record : undefined;
        if (record?.kind === 'detached') aside = record.id;
        if (record?.kind === 'spilled' && record.piece.id === aside) aside = undefined;
      });
      if (aside !== undefined) undone++;
      const run = await engine.restore(job, left);
      await fed(run, log.length);
      const drained = await run.drain();
      await run.kill();
      const open = [...oracle.rows()].slice(-drained.length);
      expect(drained).toEqual(open);
    }
    expect(undone).toBeGreaterThan(1);
  });
});

describe('spill ledger', () => {
  const ends = (part: number): number => part + 10;

  it('the ledger needs the changelog from the oldest table on, except for parts in a sorted run', () => {
    const ledger = new Ledger();
    expect(ledger.replayFrom(1)).toBe(1);
    ledger.applied(1, 0, [0]);
    ledger.applied(2, 100, [0, 10]);
    expect(ledger.replayFrom(3)).toBe(1);
    expect([ledger.olderThan(0), ledger.olderThan(50), ledger.olderThan(101)]).toEqual([[], [0], [0, 10]]);
    ledger.detached(1, 0, 3, 200);
    expect([ledger.replayFrom(4), ledger.detachedId, ledger.olderThan(1000)]).toEqual([1, 1, []]);
    ledger.applied(4, 220, [0, 10]);
    ledger.spilled({ id: 1, part: 0, rows: 5, crc32: 9 });
    expect([ledger.replayFrom(6), ledger.detachedId, ledger.lastId]).toEqual([2, undefined, 1]);
    expect(ledger.pieces).toEqual([{ id: 1, part: 0, rows: 5, crc32: 9 }]);
    ledger.detached(2, 0, 6, 300);
    expect(ledger.replayFrom(7)).toBe(2);
    ledger.reattached();
    expect([ledger.has(1), ledger.has(2), ledger.olderThan(1000)]).toEqual([true, false, [10, 0]]);
    ledger.fired(10, ends);
    expect([ledger.pieces, ledger.replayFrom(8), ledger.olderThan(1000)]).toEqual([[], 2, [10]]);
    ledger.detached(3, 10, 8, 400);
    ledger.fired(20, ends);
    expect([ledger.detachedId, ledger.replayFrom(9), ledger.lastId]).toEqual([undefined, 9, 3]);
  });

  it('the ledger replaces swept runs by the runs that the sweep wrote, and keeps all other runs', () => {
    const ledger = new Ledger([{ id: 2, part: 0, rows: 1, crc32: 1 }], 5);
    expect(ledger.isAllInTables).toBe(false);
    expect(ledger.reserve(3)).toBe(6);
    expect([5, 6, 7, 8, 9].map((id) => ledger.has(id))).toEqual([false, true, true, true, false]);
    expect(ledger.pieces.length).toBe(1);
    ledger.detached(ledger.lastId + 1, 0, 9, 0);
    ledger.spilled({ id: 9, part: 0, rows: 2, crc32: 2 });
    const next = ledger.reserve(2);
    const left = [6, 8].map((id) => ({ id, part: 0, rows: 3, crc32: 3 }));
    ledger.swept({ frontier: 4, gone: [2], lastId: 8, left });
    expect(ledger.pieces.map((piece) => piece.id).sort()).toEqual([6, 8, 9]);
    // The output of the next sweep is kept; ids that this sweep reserved but did not use are not.
    expect([6, 7, 8, 9, 10, 11].map((id) => ledger.has(id))).toEqual([true, false, true, true, true, true]);
    ledger.swept({ frontier: 5, gone: [6, 8, 9], lastId: next + 1, left: [] });
    expect([ledger.pieces, ledger.has(next), ledger.isAllInTables, ledger.lastId]).toEqual([
      [],
      false,
      true,
      11,
    ]);
    ledger.detached(12, 0, 12, 0);
    expect(ledger.isAllInTables).toBe(false);
  });
});
