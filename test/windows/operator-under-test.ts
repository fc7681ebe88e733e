/** Adapts the window operator, with its state and changelog, as an engine under test. It covers all
 *  windows, both watermarks and decisions. Its folder is in memory and keeps after a crash what a
 *  real disk would keep. Its state is in memory, or on disk with a budget of 0 bytes, so that it
 *  always spills. */

import type { OracleRow, OracleRules, PartitionCounters } from '../../bench/peers/oracle/rules.ts';
import type { NativeMode } from '../../src/addon/load.ts';
import type { WindowKernels } from '../../src/addon/window-surface.ts';
import { loadWindowKernels } from '../../src/addon/windows.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { EVENT_STATUS, TIMESTAMP_TYPE } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../src/core/log.ts';
import {
  Checkpointer,
  type CheckpointSizes,
  initialRecoveryPoint,
} from '../../src/engine/durability/checkpoint/checkpointer.ts';
import { restoreState } from '../../src/engine/durability/checkpoint/restore.ts';
import { PIECE_FAMILIES, PieceStore } from '../../src/engine/durability/spill/pieces.ts';
import { Spiller } from '../../src/engine/durability/spill/spiller.ts';
import { checkJob, type Job, pieceOrderOf, stateOf, watermarksOf } from '../../src/engine/job.ts';
import { freshCells, type WatermarkGenerator } from '../../src/engine/source/admission.ts';
import { Stages } from '../../src/engine/stages.ts';
import type { StateBackend, StateFiring } from '../../src/engine/state/port.ts';
import { type Journal, WindowOperator } from '../../src/engine/window/operator.ts';
import { KV_BUDGET_MIN_BYTES } from '../../src/io/rocksdb/port.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { shareSmallBatches } from '../native-threads.ts';
import type { EngineRun, EngineUnderTest, InputRecord, JobUnderTest } from './engine-under-test.ts';
import { rowsOfFirings } from './fired-rows.ts';

/** Least number of rows that a batch has room for. */
const ROWS_MIN = 128;
const AT_MS = 0;
/** Processing time after a pause without events, ms. */
const LATER_MS = 60_000;
/** Small sizes, so that short streams begin a snapshot immediately and copy it in several steps. */
const SIZES: Partial<CheckpointSizes> = {
  segmentBytes: 2000,
  stepBytes: 20_000,
  baseFactor: 0.5,
  baseBytesMin: 0,
};

/** Files and decisions that a dead process leaves for the next one. */
export interface Left {
  readonly disk: SimDisk;
  /** Store of the state on disk; undefined if the state is in memory. */
  readonly kv: SimKv | undefined;
  /** Sequence numbers of the changelog records that are decisions. */
  readonly decisions: readonly number[];
  readonly deaths: number;
}

function jobOf(rules: OracleRules): Job {
  const windows =
    rules.window === 'session'
      ? ({ window: 'session', gapMs: Number(rules.gapMs) } as const)
      : rules.window === 'sliding'
        ? ({ window: 'sliding', sizeMs: Number(rules.sizeMs), slideMs: Number(rules.slideMs) } as const)
        : ({ window: 'tumbling', sizeMs: Number(rules.sizeMs) } as const);
  return checkJob({
    ...windows,
    topic: 'events',
    skewMs: Number(rules.skewMs),
    latenessMs: Number(rules.latenessMs),
    ...(rules.maxFutureMs === undefined ? {} : { maxFutureMs: Number(rules.maxFutureMs) }),
    watermark: rules.watermark ?? 'partition',
  });
}

function batchOf(batch: readonly InputRecord[]): {
  readonly records: RecordBatch;
  readonly events: EventBatch;
} {
  const rows = Math.max(ROWS_MIN, batch.length);
  const records = RecordBatch.create(rows, 0);
  const events = EventBatch.create(rows);
  for (const [row, { entry, offset }] of batch.entries()) {
    records.columns.partition[row] = entry.partition;
    records.columns.offset[row] = BigInt(offset);
    records.columns.timestampType[row] = TIMESTAMP_TYPE.NONE;
    events.columns.status[row] = entry.kind === 'event' ? EVENT_STATUS.OK : EVENT_STATUS.BAD_LENGTH;
    if (entry.kind !== 'event') continue;
    events.columns.accountId[row] = entry.accountId;
    events.columns.value[row] = entry.value;
    events.columns.eventTs[row] = entry.eventTs;
    if (entry.appendTs === undefined) continue;
    records.columns.timestamp[row] = entry.appendTs;
    records.columns.timestampType[row] = TIMESTAMP_TYPE.APPEND;
  }
  records.rowCount = batch.length;
  events.rowCount = batch.length;
  return { records, events };
}

export const SPILL_FOLDER = 'spill';
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

interface Opened {
  readonly state: StateBackend;
  readonly watermarks: WatermarkGenerator;
  readonly operator: WindowOperator;
  readonly checkpointer: Checkpointer;
  readonly spiller: Spiller | undefined;
  /** Firings of an earlier life, which may not have handed them out. */
  readonly again: readonly StateFiring[];
  readonly decisions: number[];
}

async function open(
  kernels: WindowKernels,
  { rules, partitions, shards, rowsMax = ROWS_MIN }: JobUnderTest,
  left: Left,
): Promise<Opened> {
  const job = jobOf(rules);
  const disk = left.disk.view();
  const { kv } = left;
  const pieces =
    kv &&
    (await PieceStore.open(
      () => kv.open(SPILL_FOLDER, { budgetBytes: KV_BUDGET_MIN_BYTES, families: PIECE_FAMILIES }),
      pieceOrderOf(job),
    ));
  const onDisk = pieces === undefined ? {} : { pieces };
  let state: StateBackend | undefined;
  const openState = () => {
    state = stateOf(job, kernels, shards, pieces);
    return state.live;
  };
  const saved = await restoreState({ disk, log: silentLogger, open: openState, ...onDisk });
  if (saved === undefined) openState();
  const opened = state as StateBackend | undefined as StateBackend;
  const standing = saved ?? initialRecoveryPoint(freshCells(new Array<number>(partitions).fill(0)));
  const checkpointer = await Checkpointer.start(
    {
      ...{ disk, job, shards, sizes: SIZES, clusterId: 'test-cluster', state: opened.live, ...onDisk },
      clock: { wallNowMs: () => 1, monotonicMs: () => 1 },
    },
    standing,
  );
  const decisions = left.decisions.filter((seq) => seq < standing.nextSeq);
  const journal: Journal = {
    afterBatch: (...piece) => checkpointer.afterBatch(...piece),
    idle: (...decision) => void decisions.push(checkpointer.idle(...decision)),
    added: (...decision) => void decisions.push(checkpointer.added(...decision)),
    sealed: (...one) => checkpointer.sealed(...one),
    tookOut: (frontier) => checkpointer.tookOut(frontier),
    sweeping: (pieces) => checkpointer.sweeping(pieces),
    swept: (sweep) => checkpointer.swept(sweep),
  };
  const watermarks = watermarksOf(job, kernels, partitions);
  const rowCapacity = Math.max(ROWS_MIN, rowsMax);
  const operator = new WindowOperator({ watermarks, state: opened, journal, rowCapacity });
  const again = operator.resume(standing, AT_MS);
  const { spillable } = opened;
  const spiller =
    pieces &&
    spillable &&
    new Spiller({
      ...{ state: spillable, log: checkpointer, pieces, bytesMax: 0 },
      ...{ hook: () => {}, sleep: () => turn(), onSpilled: () => {} },
      stages: new Stages({ monotonicMs: () => 0 }),
    });
  return { state: opened, watermarks, operator, checkpointer, spiller, again, decisions };
}

class OperatorRun implements EngineRun {
  private readonly opened: Opened;
  private readonly left: Left;
  private again: readonly StateFiring[];
  private handOuts = 0;

  constructor(opened: Opened, left: Left) {
    this.opened = opened;
    this.left = left;
    this.again = opened.again;
  }

  async feed(batch: readonly InputRecord[]): Promise<readonly OracleRow[]> {
    const { records, events } = batchOf(batch);
    return this.handOut(this.opened.operator.step(records, events, AT_MS));
  }
  async idle(partition: number): Promise<readonly OracleRow[]> {
    return this.handOut(this.opened.operator.idle(partition, AT_MS));
  }
  async added(): Promise<readonly OracleRow[]> {
    this.opened.operator.added(0);
    return this.handOut([]);
  }
  async settle(): Promise<readonly OracleRow[]> {
    const { operator, checkpointer, state, spiller } = this.opened;
    const rows = [...(await this.handOut([]))];
    if (spiller === undefined) return rows;
    // A sweep ends when its rows have been read, so processing time stands still until then.
    state.isDue(AT_MS);
    for (;;) {
      if (Number.isFinite(state.firedTo)) checkpointer.fired(state.firedTo);
      const fired = operator.due(LATER_MS);
      rows.push(...(await rowsOfFirings(fired)));
      state.isDue(LATER_MS);
      spiller.advance();
      const isBusy = spiller.isBusy;
      await spiller.settled();
      if (fired.length === 0 && !isBusy) return rows;
    }
  }
  async drain(): Promise<readonly OracleRow[]> {
    const again = await this.handOut([]);
    await this.spilled();
    return [...again, ...(await rowsOfFirings(this.opened.operator.drain(AT_MS)))];
  }
  counters(): readonly PartitionCounters[] {
    return this.opened.watermarks.progress().map((one) => ({
      consumed: BigInt(one.consumed),
      accepted: BigInt(one.accepted),
      droppedLate: BigInt(one.droppedLate),
      droppedAfterIdle: BigInt(one.droppedAfterIdle),
      invalid: BigInt(one.invalid),
      futureClamped: BigInt(one.futureClamped),
    }));
  }
  position(): number {
    return this.opened.watermarks.totals().consumed + this.opened.decisions.length;
  }
  async checkpoint(): Promise<void> {
    await this.opened.checkpointer.checkpoint();
  }
  async kill(): Promise<Left> {
    const { disk, kv, deaths } = this.left;
    let draws = 7 * deaths + 1;
    disk.crash((below) => {
      draws = (draws * 31 + 17) % 10_007;
      return draws % below;
    });
    kv?.crash(SPILL_FOLDER);
    await this.opened.spiller?.stop();
    this.opened.state.close();
    return { disk, kv, decisions: this.opened.decisions, deaths: deaths + 1 };
  }

  /** Completes a spill in progress. Before it can complete, the sink must have the results that
   *  have already left. */
  private async spilled(): Promise<void> {
    const { checkpointer, state, spiller } = this.opened;
    if (spiller?.isBusy && Number.isFinite(state.firedTo)) checkpointer.fired(state.firedTo);
    await spiller?.settled();
  }

  /** Returns results once the changelog up to them is durable. Every other call records in the
   *  changelog that they have left. */
  private async handOut(fired: readonly StateFiring[]): Promise<readonly OracleRow[]> {
    const { checkpointer, state, spiller } = this.opened;
    const firings = [...this.again, ...fired];
    this.again = [];
    if (firings.length > 0) await checkpointer.durable();
    const rows = await rowsOfFirings(firings);
    this.handOuts++;
    if (firings.length > 0 && this.handOuts % 2 === 1) checkpointer.fired(state.firedTo);
    checkpointer.advance();
    spiller?.advance();
    // Some spills complete before the next batch, others overlap it.
    if (this.handOuts % 3 === 0) await this.spilled();
    else if (this.handOuts % 3 === 1) await turn();
    return rows;
  }
}

export function operatorUnderTest(mode: NativeMode, where: 'memory' | 'disk' = 'memory'): EngineUnderTest {
  if (mode === 'native') shareSmallBatches();
  const kernels = loadWindowKernels(mode);
  return {
    name: `operator, ${where}, ${mode} kernels`,
    computes: {
      windows: ['tumbling', 'sliding', 'session'],
      watermarks: ['partition', 'global'],
      decisions: true,
      maxFuture: true,
    },
    start: async (job) => {
      const left: Left = {
        disk: new SimDisk(),
        kv: where === 'disk' ? new SimKv() : undefined,
        decisions: [],
        deaths: 0,
      };
      return new OperatorRun(await open(kernels, job, left), left);
    },
    restore: async (job, left) => new OperatorRun(await open(kernels, job, left as Left), left as Left),
  };
}
