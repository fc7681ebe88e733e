/** Carries fired windows to the sink beside the reading: one write at a time, in the order they fired.
 *
 *  Invariants: (1) a window is written by a call of at most SINK_ROWS_MAX rows; (2) `flushed` settles when everything
 *  offered before it is durable, which is what lets a checkpoint say that its results have left; (3) a sink that cannot
 *  be reached is tried again for ever, any other failure ends the run.
 */
import type { Clock } from '../../core/clock.ts';
import { findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { FiredWindow } from '../accumulator.ts';
import { engineError } from '../errors.ts';
import type { FiredRows, WindowSink } from './port.ts';

export const SINK_ROWS_MAX = 50_000;
/** Rows waiting for the sink above which reading pauses. */
const SINK_ROWS_WAITING_MAX = 1_000_000;
const RETRY_MS_FIRST = 100;
const RETRY_MS_MAX = 5_000;

interface Waiting extends FiredRows {
  /** Monotonic ms at which the window fired. */
  readonly firedAt: number;
}

export interface SinkWriterParts {
  readonly sink: WindowSink;
  readonly clock: Clock;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  /** After each write: rows, and the seconds since the first of them fired. */
  readonly onWritten: (rows: number, seconds: number) => void;
}

export class SinkWriter {
  private readonly parts: SinkWriterParts;
  private readonly queue: Waiting[] = [];
  private rowsWaiting = 0;
  private running: Promise<void> | undefined;
  private failure: unknown;
  private reachable = true;
  private stopped = false;

  constructor(parts: SinkWriterParts) {
    this.parts = parts;
  }

  /** False while the sink cannot be reached. */
  get ready(): boolean {
    return this.reachable;
  }
  get waitingRows(): number {
    return this.rowsWaiting;
  }

  offer(windows: readonly FiredWindow[]): void {
    const firedAt = this.parts.clock.monotonicMs();
    for (const window of windows) {
      for (let from = 0; from < window.rowCount; from += SINK_ROWS_MAX) {
        this.queue.push({ window, from, to: Math.min(from + SINK_ROWS_MAX, window.rowCount), firedAt });
      }
      this.rowsWaiting += window.rowCount;
    }
    if (this.failure === undefined && this.queue.length > 0) this.running ??= this.run();
  }

  /** Settles when fewer rows wait than the limit, or the signal is given. @throws what the sink threw */
  async room(signal: AbortSignal): Promise<void> {
    while (this.rowsWaiting > SINK_ROWS_WAITING_MAX && this.failure === undefined && !signal.aborted) {
      await this.parts.sleep(5);
    }
    this.rethrow();
  }

  /** Settles when everything offered so far is durable. @throws what the sink threw; sink_failed when it was given up */
  async flushed(): Promise<void> {
    const last = this.queue.at(-1);
    while (last !== undefined && this.queue.includes(last)) {
      this.rethrow();
      if (this.stopped)
        throw engineError('sink_failed', 'results still waited for the sink when the run ended');
      await this.once;
    }
    this.rethrow();
  }

  /** Throws what ended the writing, if anything did. */
  rethrow(): void {
    if (this.failure !== undefined) throw this.failure;
  }

  /** Gives up what still waits. */
  stop(): void {
    this.stopped = true;
  }

  /** Settles after the write under way. */
  private once: Promise<void> = Promise.resolve();

  private async run(): Promise<void> {
    try {
      while (this.queue.length > 0 && !this.stopped) {
        this.once = this.writeSome();
        await this.once;
      }
    } catch (thrown) {
      this.failure = thrown;
    } finally {
      this.running = undefined;
    }
  }

  private async writeSome(): Promise<void> {
    const pieces: Waiting[] = [];
    let rows = 0;
    for (const piece of this.queue) {
      const more = piece.to - piece.from;
      if (pieces.length > 0 && rows + more > SINK_ROWS_MAX) break;
      pieces.push(piece);
      rows += more;
    }
    let waitMs = RETRY_MS_FIRST;
    while (!this.stopped) {
      try {
        await this.parts.sink.write(pieces);
        break;
      } catch (thrown) {
        // The values are absolute, so a write whose outcome is unknown may be written again.
        const known = findMillraceError(thrown);
        if (known?.kind !== 'unavailable') throw thrown;
        this.reachable = false;
        this.parts.log.warn({ error: known.toLine(), retryMs: waitMs }, 'sink unavailable');
        await this.parts.sleep(waitMs);
        waitMs = Math.min(waitMs * 2, RETRY_MS_MAX);
      }
    }
    if (this.stopped) return;
    this.reachable = true;
    this.queue.splice(0, pieces.length);
    this.rowsWaiting -= rows;
    this.parts.onWritten(rows, (this.parts.clock.monotonicMs() - (pieces[0] as Waiting).firedAt) / 1000);
  }
}
