/** The coordinator of checkpoints: the files that it writes and keeps, and its protocol with the
 *  engine loop. */
import { describe, expect, it } from 'vitest';
import { COVER_RANGES, type SortedRun } from '../../../src/addon/window-surface.ts';
import { PARTITION_PROGRESS, REFUSAL, WINDOW_CLOCK } from '../../../src/core/layout/layouts.gen.ts';
import { createClock, createProgress, PROGRESS_CELLS } from '../../../src/core/layout/window-clock.ts';
import { silentLogger } from '../../../src/core/log.ts';
import { segmentSeq } from '../../../src/engine/durability/changelog/log.ts';
import { decodeRecord } from '../../../src/engine/durability/changelog/records.ts';
import { Replay } from '../../../src/engine/durability/changelog/replay.ts';
import {
  Checkpointer,
  type CheckpointReport,
  type CheckpointSizes,
  initialRecoveryPoint,
} from '../../../src/engine/durability/checkpoint/checkpointer.ts';
import { type LiveState, liveWindows } from '../../../src/engine/durability/checkpoint/live.ts';
import { type Restored, restoreState } from '../../../src/engine/durability/checkpoint/restore.ts';
import { decodeStateManifest, ownFile } from '../../../src/engine/durability/checkpoint/state-manifest.ts';
import type { PieceStore } from '../../../src/engine/durability/spill/pieces.ts';
import type { Job } from '../../../src/engine/job.ts';
import { encodeLate } from '../../../src/engine/output/late/rows.ts';
import type { SideBytes } from '../../../src/engine/output/side/sections.ts';
import { TumblingWindows } from '../../../src/engine/window/definition.ts';
import { SimDisk } from '../../../src/sim/disk.ts';
import { admitAll, batchesOf, reference } from '../../differential/window-kit.ts';

const SIZE_MS = 1000;
const ROW_BYTES = 64;
const JOB: Job = {
  topic: 'events',
  window: 'tumbling',
  sizeMs: SIZE_MS,
  skewMs: 0,
  latenessMs: 0,
  watermark: 'partition',
};
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const cell = (byte: number): number => byte / 8;

/** One partition, one slice, and an engine loop that the test drives. */
class ManualLoop {
  readonly disk: SimDisk;
  readonly state = reference.open(SIZE_MS, 1);
  readonly progress = createProgress(1);
  readonly clock = createClock({
    mode: 'partition',
    sizeMs: SIZE_MS,
    slideMs: SIZE_MS,
    skewMs: 0,
    latenessMs: 0,
  });
  private started: Checkpointer | undefined;

  constructor(disk = new SimDisk()) {
    this.disk = disk;
  }
  get live(): LiveState {
    return liveWindows(this.state, new TumblingWindows(SIZE_MS));
  }
  get checkpointer(): Checkpointer {
    return this.started as Checkpointer;
  }
  async start(sizes: Partial<CheckpointSizes>, pieces?: PieceStore): Promise<this> {
    this.started = await Checkpointer.start(
      {
        disk: this.disk.view(),
        clock: { wallNowMs: () => 1000, monotonicMs: () => 0 },
        job: JOB,
        clusterId: 'c',
        shards: 1,
        state: liveWindows(this.state, new TumblingWindows(SIZE_MS)),
        sizes,
        ...(pieces === undefined ? {} : { pieces }),
      },
      initialRecoveryPoint(this.progress),
    );
    return this;
  }
  /** Accumulates one event for each account in [from, to). */
  feed(from: number, to: number, late?: SideBytes): number {
    const rows = Array.from({ length: to - from }, (_, i) => ({
      accountId: BigInt(from + i),
      value: 1n,
      eventTs: 5n,
    }));
    const batches = batchesOf(rows);
    admitAll(batches, BigInt(SIZE_MS));
    this.state.accumulate(batches.events, batches.admitted);
    for (const byte of [
      PARTITION_PROGRESS.NEXT_OFFSET,
      PARTITION_PROGRESS.CONSUMED,
      PARTITION_PROGRESS.ACCEPTED,
    ])
      this.progress[cell(byte)] = (this.progress[cell(byte)] as number) + rows.length;
    this.clock[cell(WINDOW_CLOCK.FRONTIER)] = 5;
    const sections = late === undefined ? undefined : { late };
    return this.checkpointer.afterBatch(this.progress, this.clock, rows.length, undefined, sections);
  }
  async checkpoint(): Promise<CheckpointReport> {
    for (let i = 0; i < 200; i++) this.checkpointer.advance();
    await turn();
    return this.checkpointer.checkpoint();
  }
  restore(): Promise<Restored | undefined> {
    return restoreState({
      disk: this.disk.view(),
      log: silentLogger,
      open: () => liveWindows(reference.open(SIZE_MS, 4), new TumblingWindows(SIZE_MS)),
    });
  }
}

/** Every row of the single slice, sorted as text. */
function rowsIn(live: LiveState): string[] {
  const rows: string[] = [];
  const page = new Uint8Array(16 * ROW_BYTES);
  for (let range = 0; range < COVER_RANGES; range++) {
    const cursor = new Float64Array(1);
    for (let count = 1; count > 0; ) {
      count = live.copyRange(range, 0, cursor, page);
      for (let row = 0; row < count; row++)
        // The spare cell contains the number of the record that changed the row last, so leave it
        // out.
        rows.push(Buffer.from(page.subarray(row * ROW_BYTES, (row + 1) * ROW_BYTES - 8)).toString('hex'));
    }
  }
  return rows.sort();
}

describe('checkpoint', () => {
  it('a checkpoint writes the changes, and a new snapshot only when the changelog has outgrown the state', async () => {
    const loop = await new ManualLoop().start({ baseBytesMin: 1000, baseFactor: 1 });
    const keys = 5000;
    for (let from = 0; from < keys; from += 1000) loop.feed(from, from + 1000);
    const first = await loop.checkpoint();
    expect(first.changelogBytes).toBeGreaterThan(keys * 6);
    let changed = first.changelogBytes;
    let bases = 0;
    let greatest = 0;
    for (let i = 0; i < 250; i++) {
      loop.feed(0, 200);
      const { changelogBytes, manifestBytes, newBaseBytes } = await loop.checkpoint();
      changed += changelogBytes;
      greatest = Math.max(greatest, changelogBytes + manifestBytes);
      if (newBaseBytes !== undefined) {
        expect(newBaseBytes).toBeGreaterThan(keys * ROW_BYTES);
        bases++;
      }
    }
    expect(greatest).toBeLessThan(200 * ROW_BYTES);
    // A new snapshot each time the changelog has grown to the size of the state, and none before.
    expect(bases).toBeGreaterThan(0);
    expect(bases).toBeLessThanOrEqual(changed / (keys * ROW_BYTES));
    const restored = (await loop.restore()) as Restored;
    expect(restored.state.rowCount()).toBe(keys);
    expect(restored.progress).toEqual(loop.progress);
  });

  it('a checkpoint replays records with unsent late copies, whatever its snapshot', async () => {
    const loop = await new ManualLoop().start({ baseBytesMin: 1000, baseFactor: 0, segmentBytes: 1500 });
    const { records, refused } = batchesOf([{ eventTs: 0n, offset: 77n }]);
    records.columns.keyLength[0] = -1;
    records.columns.valueLength[0] = -1;
    refused.columns.reason[0] = REFUSAL.LATE;
    refused.rowCount = 1;
    const late = encodeLate(records, refused);
    const seq = loop.feed(0, 50, late);
    const feedOn = async (): Promise<number> => {
      let bases = 0;
      for (let i = 0; i < 20; i++) {
        loop.feed(0, 50);
        if ((await loop.checkpoint()).newBaseBytes !== undefined) bases++;
      }
      return bases;
    };
    expect(await feedOn()).toBeGreaterThan(0);
    const waiting = (await loop.restore()) as Restored;
    expect(waiting.unsent.late).toEqual([{ seq, ...late }]);
    expect(waiting.replayFrom).toBe(seq);
    expect(waiting.progress).toEqual(loop.progress);
    expect(rowsIn(waiting.state)).toEqual(rowsIn(loop.live));
    loop.checkpointer.sent('late', seq);
    expect(await feedOn()).toBeGreaterThan(0);
    const sent = (await loop.restore()) as Restored;
    expect(sent.unsent.late).toEqual([]);
    expect(sent.replayFrom).toBeGreaterThan(seq);
    expect(sent.progress).toEqual(loop.progress);
    expect(rowsIn(sent.state)).toEqual(rowsIn(loop.live));
  });

  it('the checkpointer keeps three checkpoints and the part of the changelog that they replay', async () => {
    const loop = await new ManualLoop().start({ baseBytesMin: 2000, baseFactor: 0, segmentBytes: 1500 });
    for (let i = 0; i < 40; i++) {
      loop.feed(i * 5, i * 5 + 20);
      await loop.checkpoint();
    }
    const names = loop.disk.names();
    const of = (role: string): string[] => names.filter((name) => ownFile(name)?.role === role);
    expect(of('manifest').length).toBe(3);
    const manifests = of('manifest').map((name) => {
      const decoded = decodeStateManifest(loop.disk.bytesOf(name) as Uint8Array);
      if ('fault' in decoded) throw new Error(decoded.fault);
      return decoded.manifest;
    });
    const bases = new Set(manifests.map(({ base }) => base?.name));
    expect(bases.size).toBe(2);
    expect(of('base').filter((name) => bases.has(name))).toHaveLength(2);
    // At most one more snapshot, which is in progress.
    expect(of('base').length).toBeLessThanOrEqual(3);
    const replayFrom = Math.min(...manifests.map((one) => one.replayFrom));
    const firsts = names.flatMap((name) => segmentSeq(name) ?? []).sort((a, b) => a - b);
    expect(firsts[0]).toBeLessThanOrEqual(replayFrom);
    expect(firsts[1]).toBeGreaterThan(replayFrom);
    expect(firsts[0]).toBeGreaterThan(1);
  });

  it('a checkpoint exists before the first record of a new run', async () => {
    const loop = await new ManualLoop().start({});
    expect(loop.disk.names()).toEqual(['checkpoint-00000001.manifest']);
    const restored = (await loop.restore()) as Restored;
    expect(restored).toMatchObject({ nextSeq: 1, refused: [], replayed: 0, fired: Number.NEGATIVE_INFINITY });
    expect(restored.progress).toEqual(loop.progress);
  });

  it('a sorted run is deleted only when the disk records that the state no longer needs it', async () => {
    const loop = new ManualLoop();
    const kinds = async (): Promise<readonly string[]> => {
      const found: string[] = [];
      await new Replay(loop.disk.view(), 1, 0).run(({ kind, body }) => {
        const decoded = decodeRecord(kind, body);
        if ('record' in decoded) found.push(decoded.record.kind);
      });
      return found;
    };
    let gone: readonly string[] | undefined;
    const pieces: Pick<PieceStore, 'dropOthers' | 'keepOnly'> = {
      dropOthers: async () => {},
      keepOnly: async (isKept, forGood) => {
        // While the checkpoint waited for its disk, a sorted run was written and expired after the
        // manifest.
        const { checkpointer } = loop;
        // The first checkpoint exists before any record.
        if (checkpointer === undefined) return;
        const id = checkpointer.detached(0);
        const firsts = new BigUint64Array();
        const piece = { id, part: 0, rows: 10, crc32: 1, firsts, leastLast: 0, leastFirst: 0 };
        expect(checkpointer.spilled(piece)).toBe(true);
        await checkpointer.durable();
        expect([isKept(id), (await kinds()).at(-1)]).toEqual([true, 'spilled']);
        checkpointer.fired(SIZE_MS);
        expect([isKept(id), (await kinds()).at(-1)]).toEqual([false, 'spilled']);
        await forGood();
        gone = await kinds();
      },
    };
    await loop.start({}, pieces as PieceStore);
    loop.feed(0, 10);
    await loop.checkpoint();
    expect(gone?.slice(-2)).toEqual(['spilled', 'fired']);
  });

  it('a checkpoint does not reuse the number of an unfinished checkpoint that a crash left', async () => {
    const disk = new SimDisk();
    disk.put('checkpoint-00000001.manifest.tmp', new Uint8Array(9));
    const loop = new ManualLoop(disk);
    expect(await loop.restore()).toBeUndefined();
    await loop.start({});
    expect(disk.names()).toEqual(['checkpoint-00000002.manifest']);
  });
});

describe('loop and checkpointer', () => {
  it('the loop writes no record when nothing has moved', async () => {
    const loop = await new ManualLoop().start({});
    loop.feed(0, 1);
    expect(loop.checkpointer.afterBatch(loop.progress, loop.clock, 0)).toBe(1);
    loop.clock[cell(WINDOW_CLOCK.FRONTIER)] = 6;
    expect(loop.checkpointer.afterBatch(loop.progress, loop.clock, 0)).toBe(2);
    loop.checkpointer.fired(6);
    loop.checkpointer.fired(6);
    await loop.checkpointer.close();
    const restored = (await loop.restore()) as Restored;
    expect(restored).toMatchObject({ nextSeq: 4, frontier: 6, fired: 6, replayed: 3 });
  });

  it('the loop logs a watermark before it fires, and a decision when it makes one', async () => {
    const loop = await new ManualLoop().start({});
    loop.feed(0, 1);
    const { checkpointer, progress, clock } = loop;
    const run = Promise.reject<SortedRun>(new Error('not sorted'));
    expect(() => checkpointer.sealed(0, 6, run)).toThrow('a frontier is in the changelog before it fires');
    await expect(run).rejects.toThrow('not sorted');
    expect(() => checkpointer.tookOut(6)).toThrow('a frontier is in the changelog before it fires');
    expect(() => checkpointer.fired(Number.POSITIVE_INFINITY)).toThrow('a whole number of ms');
    expect(() => checkpointer.idle(0, progress, clock)).toThrow('the cell of an idle partition is 1');
    expect(() => checkpointer.added(progress, clock)).toThrow('partitions are never removed');
    expect(() => checkpointer.afterBatch(createProgress(2), clock, 0)).toThrow(
      'new partitions have an ADDED record',
    );
  });

  it('a restore returns idle and added partitions', async () => {
    const loop = await new ManualLoop().start({});
    loop.progress[cell(PARTITION_PROGRESS.IDLE)] = 1;
    loop.checkpointer.idle(0, loop.progress, loop.clock);
    const wider = createProgress(3);
    wider.set(loop.progress);
    wider[2 * PROGRESS_CELLS + cell(PARTITION_PROGRESS.MAX_SEEN)] = 77;
    loop.checkpointer.added(wider, loop.clock);
    await loop.checkpointer.close();
    expect(((await loop.restore()) as Restored).progress).toEqual(wider);
  });

  it('a failed write is reported to the loop', async () => {
    const loop = await new ManualLoop().start({ baseBytesMin: 0, baseFactor: 0 });
    loop.feed(0, 100);
    await loop.checkpointer.checkpoint();
    expect(loop.checkpointer.isCopying).toBe(true);
    loop.disk.bytesLeft = 0;
    const advanced = async (): Promise<void> => {
      for (let i = 0; i < 200; i++) {
        loop.checkpointer.advance();
        await turn();
      }
    };
    await expect(advanced()).rejects.toMatchObject({ code: 'not_writable' });
    await expect(loop.checkpointer.checkpoint()).rejects.toMatchObject({ code: 'not_writable' });
  });

  it('the loop waits only while too much of the changelog is not yet on disk', async () => {
    const loop = await new ManualLoop().start({ waitingBytesMax: 100 });
    await loop.checkpointer.room();
    loop.feed(0, 500);
    await loop.checkpointer.room();
    await loop.checkpointer.close();
    expect(((await loop.restore()) as Restored).state.rowCount()).toBe(500);
  });
});
