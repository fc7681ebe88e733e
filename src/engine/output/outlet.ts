/** Forwards firings to the sinks: holds them until the changelog up to them is durable, writes them
 *  in order, then records them in the changelog as fired.
 *
 *  Invariants: (1) at most one wait for the changelog and one for the sinks is in flight, however
 *  many firings arrive; each wait covers everything that arrived during the previous wait; (2) the
 *  changelog records a frontier as fired only when all results up to it are durable in every sink.
 */
import type { Clock } from '../../core/clock.ts';
import type { Logger } from '../../core/log.ts';
import type { Checkpointer } from '../durability/checkpoint/checkpointer.ts';
import type { KeyDictionary } from '../keys/dictionary.ts';
import type { Stages } from '../stages.ts';
import type { StateFiring } from '../state/port.ts';
import type { FiredPage } from '../window/firing.ts';
import type { WindowSink } from './sink/port.ts';
import { SINK_FIRINGS_WAITING_MAX, SINK_ROWS_WAITING_MAX, SinkWriter } from './sink/writer.ts';

export interface OutletParts {
  readonly sinks: readonly WindowSink[];
  readonly checkpointer: Pick<Checkpointer, 'durable' | 'fired'>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  /** See SinkWriterParts. */
  readonly onWritten: (rows: number, seconds: number) => void;
  /** See SinkWriterParts. */
  readonly onPage?: (page: FiredPage) => void;
  readonly stages: Stages;
  /** See SinkWriterParts. */
  readonly keys?: (() => Pick<KeyDictionary, 'column'> | undefined) | undefined;
}

/** Number of unclosed firings at which closed ones are removed from the list; the next limit is
 *  twice the number that remained, if that is larger. */
const SWEEP_FIRINGS_MIN = 64;

export class Outlet {
  private readonly checkpointer: OutletParts['checkpointer'];
  private readonly writer: SinkWriter;
  /** Firings not yet offered to the sinks, and the newest frontier that arrived with them. */
  private held: StateFiring[] = [];
  private heldRows = 0;
  private heldTo: number | undefined;
  private forwarding: Promise<void> | undefined;
  /** Newest frontier whose firings the sinks were offered and that `recording` has not picked up
   *  yet. */
  private offeredTo: number | undefined;
  private recording: Promise<void> | undefined;
  private unclosed: StateFiring[] = [];
  private sweepAt = SWEEP_FIRINGS_MIN;
  private readonly stages: Stages;
  private failure: unknown;
  private stopped = false;

  constructor({ checkpointer, ...writer }: OutletParts) {
    this.checkpointer = checkpointer;
    this.writer = new SinkWriter(writer);
    this.stages = writer.stages;
  }

  /** False while a sink is unreachable. */
  get ready(): boolean {
    return this.writer.ready;
  }
  /** Upper bound of the rows that have fired and are not durable in every sink. */
  get waitingRows(): number {
    return this.heldRows + this.writer.waitingRows;
  }
  /** True if some firings may not be durable yet. @throws the error of a sink or the changelog */
  get isLeaving(): boolean {
    this.rethrow();
    return this.leaving.length > 0;
  }
  /** Firings that may not be durable yet. */
  get leaving(): readonly StateFiring[] {
    this.unclosed = this.unclosed.filter((firing) => !firing.isClosed);
    return this.unclosed;
  }

  /** Takes ownership of the firings, including their `close`. With these, everything that ends by
   *  `frontier` has fired. Without a frontier the changelog does not record them as fired. */
  take(firings: readonly StateFiring[], frontier: number | undefined): void {
    if (this.unclosed.length >= this.sweepAt)
      this.sweepAt = Math.max(SWEEP_FIRINGS_MIN, 2 * this.leaving.length);
    for (const firing of firings) {
      this.unclosed.push(firing);
      this.held.push(firing);
      this.heldRows += firing.rowsMax;
    }
    this.heldTo = frontier ?? this.heldTo;
    if (this.failure !== undefined) this.closeHeld();
    else if (this.held.length > 0) this.forwarding ??= this.forward();
  }

  /** Settles when reading may continue: the backlog is within its limits, or the signal is aborted.
   *  @throws the error of a sink or the changelog */
  async room(signal: AbortSignal): Promise<void> {
    if (this.held.length > SINK_FIRINGS_WAITING_MAX || this.heldRows > SINK_ROWS_WAITING_MAX)
      await this.stages.waiting('changelog', async () => this.forwarding);
    this.rethrow();
    if (this.writer.isFull) await this.stages.waiting('sink', () => this.writer.room(signal));
    this.writer.rethrow();
  }

  /** Settles when everything taken so far is durable in every sink and recorded in the changelog.
   *  @throws as `room`; sink_failed when the writer was stopped */
  async flushed(): Promise<void> {
    await this.stages.waiting('changelog', async () => this.forwarding);
    await this.stages.waiting('sink', async () => this.recording);
    this.rethrow();
    await this.stages.waiting('sink', () => this.writer.flushed());
  }

  /** Discards the firings that are not written yet. */
  stop(): void {
    this.stopped = true;
    this.writer.stop();
  }

  private rethrow(): void {
    if (this.failure !== undefined) throw this.failure;
  }

  /** Closes firings that will not be offered to the sinks. */
  private closeHeld(): void {
    for (const firing of this.held.splice(0)) firing.close();
    this.heldRows = 0;
  }

  /** Offers held firings to the sinks until none is left. Never throws: `room` rethrows the
   *  failure, which ends the run. */
  private async forward(): Promise<void> {
    this.stages.taskQueued('sink');
    try {
      while (this.held.length > 0) {
        const count = this.held.length;
        const frontier = this.heldTo;
        this.heldTo = undefined;
        await this.checkpointer.durable();
        this.rethrow();
        const firings = this.held.splice(0, count);
        for (const { rowsMax } of firings) this.heldRows -= rowsMax;
        this.writer.offer(firings);
        if (frontier === undefined) continue;
        this.offeredTo = frontier;
        this.recording ??= this.recordFired();
      }
    } catch (thrown) {
      this.failure ??= thrown;
      this.closeHeld();
    } finally {
      this.forwarding = undefined;
      this.stages.taskDone('sink');
    }
  }

  /** Records in the changelog how far the sinks have written. Never throws; see `forward`. */
  private async recordFired(): Promise<void> {
    try {
      for (let frontier = this.offeredTo; frontier !== undefined; frontier = this.offeredTo) {
        this.offeredTo = undefined;
        await this.writer.flushed();
        if (this.stopped) return;
        this.checkpointer.fired(frontier);
      }
    } catch (thrown) {
      if (!this.stopped) this.failure ??= thrown;
    } finally {
      this.recording = undefined;
    }
  }
}
