/** The way of firings out of the engine: held until the changelog up to them is durable, then
 *  written to the sinks in their order, then noted in the changelog as gone.
 *
 *  Invariants: (1) one wait for the changelog and one for the sinks at a time, however many firings
 *  come: each takes along whatever came during the one before; (2) the changelog is told of a
 *  frontier only when everything that was taken with it or before is durable in every sink.
 */
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
  /** As for the writer. */
  readonly onWritten: (rows: number, seconds: number) => void;
  readonly stages: Stages;
}

/** Firings taken before those that were let go are looked for; twice as many as were left the last
 *  time, if that is more. */
const SWEEP_FIRINGS_MIN = 64;

export class Outlet {
  private readonly checkpointer: OutletParts['checkpointer'];
  private readonly writer: SinkWriter;
  /** Not offered to the sinks yet, and the newest frontier that came with one of them. */
  private held: StateFiring[] = [];
  private heldRows = 0;
  private heldTo: number | undefined;
  private passing: Promise<void> | undefined;
  /** Newest frontier whose firings the sinks were offered, until somebody waits for them. */
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

  /** False while a sink cannot be reached. */
  get ready(): boolean {
    return this.writer.ready;
  }
  /** Rows that have fired and are not durable in every sink, at most. */
  get waitingRows(): number {
    return this.heldRows + this.writer.waitingRows;
  }
  /** Whether there are firings that may not be durable yet. @throws what a sink or the changelog
   *  threw */
  get isLeaving(): boolean {
    this.rethrow();
    return this.leaving.length > 0;
  }
  /** Firings that may not be durable yet. */
  get leaving(): readonly StateFiring[] {
    this.unclosed = this.unclosed.filter((firing) => !firing.isClosed);
    return this.unclosed;
  }

  /** Takes firings over, to close them; with these, everything that ends by `frontier` has fired.
   *  Without a frontier the changelog is not told that they are gone. */
  take(firings: readonly StateFiring[], frontier: number | undefined): void {
    if (this.unclosed.length >= this.sweepAt)
      this.sweepAt = Math.max(SWEEP_FIRINGS_MIN, 2 * this.leaving.length);
    for (const firing of firings) {
      this.unclosed.push(firing);
      this.held.push(firing);
      this.heldRows += firing.rowsMax;
    }
    this.heldTo = frontier ?? this.heldTo;
    if (this.failure !== undefined) this.letGo();
    else if (this.held.length > 0) this.passing ??= this.pass();
  }

  /** Settles when reading may go on: what waits is within the limits, or the signal is given.
   *  @throws what a sink or the changelog threw */
  async room(signal: AbortSignal): Promise<void> {
    if (this.held.length > SINK_FIRINGS_WAITING_MAX || this.heldRows > SINK_ROWS_WAITING_MAX)
      await this.stages.waiting('changelog', async () => this.passing);
    this.rethrow();
    if (this.writer.isFull) await this.stages.waiting('sink', () => this.writer.room(signal));
    this.writer.rethrow();
  }

  /** Settles when everything taken so far is durable in every sink, and the changelog has been
   *  told. @throws as room; sink_failed when it was given up */
  async flushed(): Promise<void> {
    await this.stages.waiting('changelog', async () => this.passing);
    await this.stages.waiting('sink', async () => this.telling);
    this.rethrow();
    await this.stages.waiting('sink', () => this.writer.flushed());
  }

  /** Gives up what still waits. */
  stop(): void {
    this.stopped = true;
    this.writer.stop();
  }

  private rethrow(): void {
    if (this.failure !== undefined) throw this.failure;
  }

  /** Closes what the sinks are not going to be offered. */
  private letGo(): void {
    for (const firing of this.held.splice(0)) firing.close();
    this.heldRows = 0;
  }

  /** Offers the sinks what is held, until nothing is. Never throws: a failure ends the run where
   *  that asks for room. */
  private async pass(): Promise<void> {
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
        this.telling ??= this.tell();
      }
    } catch (thrown) {
      this.failure ??= thrown;
      this.letGo();
    } finally {
      this.passing = undefined;
      this.stages.taskDone('sink');
    }
  }

  /** Tells the changelog how far the sinks have come, until it knows. Never throws, as pass. */
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
