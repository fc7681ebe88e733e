/** Path of firings out of the engine: a firing waits until the changelog up to it is durable, is
 *  written to the sinks in their order, and is then recorded in the changelog.
 *
 *  Invariants: (1) at most one wait for the changelog and one for the sinks at a time, however many
 *  firings arrive: each wait covers all firings that arrived during the one before; (2) the
 *  changelog records a watermark only when all firings up to it are durable in every sink. */
import type { Clock } from '../../core/clock.ts';
import type { Logger } from '../../core/log.ts';
import type { Checkpointer } from '../durability/checkpoint/checkpointer.ts';
import type { Stages } from '../stages.ts';
import type { StateFiring } from '../state/port.ts';
import type { WindowSink } from './sink/port.ts';
import { SINK_FIRINGS_WAITING_MAX, SINK_ROWS_WAITING_MAX, SinkWriter } from './sink/writer.ts';

export interface OutletParts {
  readonly sinks: readonly WindowSink[];
  readonly checkpointer: Pick<Checkpointer, 'durable' | 'fired'>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  /** As in the writer. */
  readonly onWritten: (rows: number, seconds: number) => void;
  readonly stages: Stages;
}

/** Number of firings after which closed ones are removed; twice as many as were left the last time,
 *  if that is more. */
const SWEEP_FIRINGS_MIN = 64;

export class Outlet {
  private readonly checkpointer: OutletParts['checkpointer'];
  private readonly writer: SinkWriter;
  /** Firings that were not offered to the sinks yet, and the newest watermark of them. */
  private held: StateFiring[] = [];
  private heldRows = 0;
  private heldTo: number | undefined;
  private passing: Promise<void> | undefined;
  /** Newest watermark whose firings were offered to the sinks; undefined once a wait covers it. */
  private offeredTo: number | undefined;
  private telling: Promise<void> | undefined;
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
  /** True when there are firings that may not be durable yet. @throws errors of a sink or the
   *  changelog */
  get isLeaving(): boolean {
    this.rethrow();
    return this.leaving.length > 0;
  }
  /** Firings that may not be durable yet. */
  get leaving(): readonly StateFiring[] {
    this.unclosed = this.unclosed.filter((firing) => !firing.isClosed);
    return this.unclosed;
  }

  /** Accepts firings, which it closes; with them, all windows that end by `frontier` have fired.
   *  Without a watermark, the changelog does not record that they left. */
  take(firings: readonly StateFiring[], frontier: number | undefined): void {
    if (this.unclosed.length >= this.sweepAt)
      this.sweepAt = Math.max(SWEEP_FIRINGS_MIN, 2 * this.leaving.length);
    for (const firing of firings) {
      this.unclosed.push(firing);
      this.held.push(firing);
      this.heldRows += firing.rowsMax;
    }
    this.heldTo = frontier ?? this.heldTo;
    if (this.failure !== undefined) this.closeAll();
    else if (this.held.length > 0) this.passing ??= this.pass();
  }

  /** Settles when reading may continue: waiting rows are within the limits, or the signal is given.
   *  @throws errors of a sink or the changelog */
  async room(signal: AbortSignal): Promise<void> {
    if (this.held.length > SINK_FIRINGS_WAITING_MAX || this.heldRows > SINK_ROWS_WAITING_MAX)
      await this.stages.waiting('changelog', async () => this.passing);
    this.rethrow();
    if (this.writer.isFull) await this.stages.waiting('sink', () => this.writer.room(signal));
    this.writer.rethrow();
  }

  /** Settles when all firings accepted so far are durable in every sink and recorded. @throws as
   *  room; sink_failed when stopped */
  async flushed(): Promise<void> {
    await this.stages.waiting('changelog', async () => this.passing);
    await this.stages.waiting('sink', async () => this.telling);
    this.rethrow();
    await this.stages.waiting('sink', () => this.writer.flushed());
  }

  /** Drops waiting firings. */
  stop(): void {
    this.stopped = true;
    this.writer.stop();
  }

  private rethrow(): void {
    if (this.failure !== undefined) throw this.failure;
  }

  /** Closes the firings that will not be offered to the sinks. */
  private closeAll(): void {
    for (const firing of this.held.splice(0)) firing.close();
    this.heldRows = 0;
  }

  /** Offers waiting firings to the sinks until none is left. Never throws: a failure ends the run
   *  at its next call of room. */
  private async pass(): Promise<void> {
    this.stages.given('sink');
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
        this.telling ??= this.tell();
      }
    } catch (thrown) {
      this.failure ??= thrown;
      this.closeAll();
    } finally {
      this.passing = undefined;
      this.stages.done('sink');
    }
  }

  /** Records in the changelog how far the sinks are. Never throws, as pass. */
  private async tell(): Promise<void> {
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
      this.telling = undefined;
    }
  }
}
