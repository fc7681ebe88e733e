/** The loop of the engine over record batches in memory: decode, admit, fold and append to the
 *  changelog, without broker, sinks and disk. It times each stage.
 *
 *  A pass reads the same records one window later, so that every pass but the first reuses the
 *  memory of the window before. The first batches of a pass fire that window; its rows are read and
 *  checked before the timed part begins. */
import { loadKernels, type NativeMode } from '../../src/addon/load.ts';
import type { Kernels } from '../../src/addon/surface.ts';
import { loadWindowKernels } from '../../src/addon/windows.ts';
import { invariant } from '../../src/core/errors.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { EVENT } from '../../src/core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { segmentSeq } from '../../src/engine/durability/changelog/log.ts';
import { Checkpointer, initialRecoveryPoint } from '../../src/engine/durability/checkpoint/checkpointer.ts';
import { type Job, stateOf, watermarksOf } from '../../src/engine/job.ts';
import { freshCells } from '../../src/engine/source/admission.ts';
import { STAGES, type Stage, type StageCursor } from '../../src/engine/stages.ts';
import type { StateFiring } from '../../src/engine/state/port.ts';
import { ROW_BYTES } from '../../src/engine/window/accumulator.ts';
import { WindowOperator } from '../../src/engine/window/operator.ts';
import { systemClock } from '../../src/io/clock/system.ts';
import type { AppendFile, Disk } from '../../src/io/disk/port.ts';
import { SimDisk } from '../../src/sim/disk.ts';

export const PARTITIONS = 8;
export const BATCH_ROWS = 16_384;
export const SIZE_MS = 60_000;
/** Batches of a pass that fire the window before. */
const FIRING_BATCHES = 2;
const PAGE_ROWS = 16_384;
/** Start of the first window. */
const BASE_MS = 1_750_000_020_000;
const JOB: Job = {
  topic: 'events',
  window: 'tumbling',
  sizeMs: SIZE_MS,
  skewMs: 0,
  latenessMs: 0,
  watermark: 'partition',
};

/** Time of one pass. */
export interface Pass {
  readonly perSecond: number;
  /** CPU time of all threads, in ns an event. */
  readonly cpuNs: number;
  /** Elapsed time of each stage, in ns an event. */
  readonly stageNs: Readonly<Record<Stage, number>>;
}

class StageTimes implements StageCursor {
  private readonly ms = new Map<Stage, number>();
  private stage: Stage | undefined;
  private since = 0;

  enter(stage: Stage): void {
    this.leave();
    this.stage = stage;
    this.since = performance.now();
  }
  leave(): void {
    if (this.stage !== undefined)
      this.ms.set(this.stage, (this.ms.get(this.stage) ?? 0) + performance.now() - this.since);
    this.stage = undefined;
  }
  clear(): void {
    this.ms.clear();
  }
  perEvent(events: number): Readonly<Record<Stage, number>> {
    const times = STAGES.map((stage) => [stage, ((this.ms.get(stage) ?? 0) * 1e6) / events]);
    return Object.fromEntries(times) as Record<Stage, number>;
  }
}

/** Discards what is appended. */
class Discarded implements AppendFile {
  size = 0;
  async write(chunks: readonly Uint8Array[]): Promise<void> {
    for (const { length } of chunks) this.size += length;
  }
  async sync(): Promise<void> {}
  async close(): Promise<void> {}
}

/** A disk whose changelog is discarded: bytes that wait for a disk are no cost of the loop. */
function discardingDisk(): Disk {
  const disk = new SimDisk().view();
  const append = async (name: string): Promise<AppendFile> =>
    segmentSeq(name) === undefined ? disk.append(name) : new Discarded();
  return { ...disk, append };
}

export class ShardLoop {
  private readonly batches: readonly RecordBatch[];
  private readonly count: number;
  private readonly events = EventBatch.create(BATCH_ROWS);
  private readonly times = new StageTimes();
  private readonly kernels: Kernels;
  private readonly operator: WindowOperator;
  private readonly checkpointer: Checkpointer;
  private readonly closeState: () => void;
  private passes = 0;

  private constructor(
    batches: readonly RecordBatch[],
    parts: {
      readonly kernels: Kernels;
      readonly operator: (times: StageTimes) => WindowOperator;
      readonly checkpointer: Checkpointer;
      readonly close: () => void;
    },
  ) {
    this.batches = batches;
    this.count = batches.reduce((sum, { rowCount }) => sum + rowCount, 0);
    this.kernels = parts.kernels;
    this.operator = parts.operator(this.times);
    this.checkpointer = parts.checkpointer;
    this.closeState = parts.close;
  }

  /** @param batches records in order of time, of the partitions in turn, from offset 0 on */
  static async open(mode: NativeMode, batches: readonly RecordBatch[], shards: number): Promise<ShardLoop> {
    const windows = loadWindowKernels(mode);
    const state = stateOf(JOB, windows, shards);
    const point = initialRecoveryPoint(freshCells(new Array<number>(PARTITIONS).fill(0)));
    const checkpointer = await Checkpointer.start(
      { disk: discardingDisk(), clock: systemClock, job: JOB, clusterId: 'bench', shards, state: state.live },
      point,
    );
    const watermarks = watermarksOf(JOB, windows, PARTITIONS);
    return new ShardLoop(batches, {
      kernels: loadKernels(mode, shards),
      checkpointer,
      operator: (stages) =>
        new WindowOperator({ watermarks, state, journal: checkpointer, rowCapacity: BATCH_ROWS, stages }),
      close: () => state.close(),
    });
  }

  /** Reads all records. @param onFired receives the sums over the window before, except in the
   *  first pass */
  async pass(onFired: (digest: string) => void): Promise<Pass> {
    this.shift();
    const firing = this.batches.slice(0, FIRING_BATCHES);
    const rest = this.batches.slice(FIRING_BATCHES);
    const fired: StateFiring[] = [];
    for (const batch of firing) fired.push(...this.step(batch));
    for (const one of fired) onFired(await digestOf(one));
    invariant(fired.length === (this.passes === 1 ? 0 : 1), 'the first batches fire the window before');
    await this.checkpointer.durable();
    this.times.clear();
    const [cpu, from] = [process.cpuUsage(), performance.now()];
    for (const batch of rest) {
      this.step(batch);
      // The changelog writes between two batches.
      await undefined;
    }
    const ms = performance.now() - from;
    const { user, system } = process.cpuUsage(cpu);
    await this.checkpointer.durable();
    const events = rest.reduce((sum, { rowCount }) => sum + rowCount, 0);
    return {
      perSecond: (events / ms) * 1000,
      cpuNs: ((user + system) * 1000) / events,
      stageNs: this.times.perEvent(events),
    };
  }

  async close(): Promise<void> {
    await this.checkpointer.close();
    this.closeState();
  }

  private step(batch: RecordBatch): readonly StateFiring[] {
    this.times.enter('decode');
    const decoded = this.kernels.decodeEvents(batch, this.events);
    invariant(decoded === batch.rowCount, 'every record is an event');
    const fired = this.operator.step(batch, this.events, 0);
    this.times.leave();
    return fired;
  }

  /** Moves the records behind those that this loop has read: the sides share them. */
  private shift(): void {
    const pass = this.passes++;
    const next = new Array<number>(PARTITIONS).fill((pass * this.count) / PARTITIONS);
    for (const { columns, buffer, rowCount } of this.batches) {
      const words = new Uint32Array(buffer, columns.arena.byteOffset, (rowCount * EVENT.BYTES) / 4);
      const offsets = new Uint32Array(buffer, columns.offset.byteOffset, rowCount * 2);
      for (let row = 0; row < rowCount; row++) {
        const partition = columns.partition[row] as number;
        offsets[row * 2] = next[partition] as number;
        next[partition] = (next[partition] as number) + 1;
        // The time in a pass is in the padding behind the event.
        const at = (row * EVENT.BYTES) / 4;
        const time = BASE_MS + pass * SIZE_MS + (words[at + EVENT.PAD / 4] as number);
        words[at + EVENT.EVENT_TS / 4] = time;
        words[at + EVENT.EVENT_TS / 4 + 1] = Math.floor(time / 2 ** 32);
      }
    }
  }
}

/** Sums over the rows of a firing, which are the same for the same events in any window. */
async function digestOf(firing: StateFiring): Promise<string> {
  const page = new Uint8Array(PAGE_ROWS * ROW_BYTES);
  const cells = new BigUint64Array(page.buffer);
  let [rows, count, sum] = [0, 0n, 0n];
  for (;;) {
    const read = await firing.read(page);
    if (read === 0) break;
    rows += read;
    for (let at = 0; at < read * 8; at += 8) {
      count += cells[at + 1] as bigint;
      sum = BigInt.asUintN(64, sum + (cells[at + 2] as bigint) * (cells[at] as bigint));
    }
  }
  firing.close();
  return `${rows} rows, ${count} events, sum ${sum}`;
}
