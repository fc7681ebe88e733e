/** Writes firings to the sinks while reading continues: one write at a time, in the order of the
 *  firings.
 *
 *  Invariants: (1) rows leave the state through two buffers of at most the rows of one write: the
 *  next rows are read while those before are written, because each waits for a disk; (2) a firing
 *  is closed when all of its rows are durable in every sink, or when the writer stops; (3)
 *  `flushed` settles when all firings offered before it are durable, so that a checkpoint may
 *  record them; (4) a write to an unreachable sink is retried without limit, any other failure ends
 *  the run. */
import type { Clock } from '../../../core/clock.ts';
import { findMillraceError } from '../../../core/errors.ts';
import { ACCUMULATOR } from '../../../core/layout/layouts.gen.ts';
import type { Logger } from '../../../core/log.ts';
import { engineError } from '../../errors.ts';
import type { Stages } from '../../stages.ts';
import type { FiredPage, Firing } from '../../window/firing.ts';
import type { WindowSink } from './port.ts';
import { ResultRows } from './rows.ts';

const ROW_BYTES = ACCUMULATOR.BYTES;
/** Rows of fired windows that may wait beside the firing in progress; above it reading pauses. They
 *  occupy memory of the state, with 64 bytes each. */
export const SINK_ROWS_WAITING_MAX = 4 * 1024 * 1024;
/** Number of firings that may wait, however few rows they have. */
export const SINK_FIRINGS_WAITING_MAX = 10_000;
const RETRY_MS_FIRST = 100;
const RETRY_MS_MAX = 5_000;
/** Interval at which a waiting retry checks whether the run has ended. */
const RETRY_LOOK_MS = 250;

interface Waiting {
  readonly firing: Firing;
  /** Rows that remain to be read, at most. */
  left: number;
}

/** Rows of one write. */
interface Batch {
  readonly pages: readonly FiredPage[];
  readonly parts: ReadonlyArray<{
    readonly waiting: Waiting;
    readonly rows: number;
    /** Absent without rows. */
    readonly page: FiredPage | undefined;
    /** True: these are the last rows of the firing. */
    readonly ended: boolean;
  }>;
}

export interface SinkWriterParts {
  /** Rows are durable when they are durable in all sinks. */
  readonly sinks: readonly WindowSink[];
  readonly clock: Clock;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  /** Called after each write for rows that were due together: their number, and the seconds since
   *  the watermark made them due. */
  readonly onWritten: (rows: number, seconds: number) => void;
  /** Measures the time of the sinks; absent: not measured. */
  readonly stages?: Pick<Stages, 'during'>;
}

export class SinkWriter {
  private readonly parts: SinkWriterParts;
  private readonly rowsMax: number;
  private readonly reachable: boolean[];
  private readonly queue: Waiting[] = [];
  /** Firings of the queue with rows to copy. */
  private readonly unread: Waiting[] = [];
  private rowsWaiting = 0;
  private offered = 0;
  private done = 0;
  /** The next rows go into the first buffer. */
  private copies: readonly [Uint8Array, Uint8Array] = [new Uint8Array(0), new Uint8Array(0)];
  private running = false;
  private failure: unknown;
  private stopped = false;
  private waiters: Array<() => void> = [];

  constructor(parts: SinkWriterParts) {
    this.parts = parts;
    this.rowsMax = Math.min(...parts.sinks.map((sink) => sink.writeRowsMax));
    this.reachable = parts.sinks.map(() => true);
  }

  /** False while a sink is unreachable. */
  get ready(): boolean {
    return this.reachable.every((one) => one);
  }
  /** Upper bound of the rows that have fired and are not durable in every sink. */
  get waitingRows(): number {
    return this.rowsWaiting;
  }
  /** Bytes of the two buffers; waiting rows are memory of the state. */
  get bytes(): number {
    return this.copies.reduce((sum, copy) => sum + copy.length, 0);
  }

  /** Accepts firings, which it closes. They come after those of earlier calls. */
  offer(firings: readonly Firing[]): void {
    for (const firing of firings) {
      const waiting = { firing, left: firing.rowsMax };
      this.queue.push(waiting);
      this.unread.push(waiting);
      this.rowsWaiting += firing.rowsMax;
    }
    this.offered += firings.length;
    if (this.running) return;
    if (this.over) this.closeAll();
    else if (this.unread.length > 0) void this.work();
  }

  /** Settles when reading may continue: waiting rows are within the limits, or the signal is given.
   *  @throws errors of a sink */
  async room(signal: AbortSignal): Promise<void> {
    if (this.isFull && !signal.aborted) {
      const wake = (): void => this.wake();
      signal.addEventListener('abort', wake);
      try {
        while (this.isFull && !this.over && !signal.aborted) await this.change();
      } finally {
        signal.removeEventListener('abort', wake);
      }
    }
    this.rethrow();
  }

  /** Settles when all firings offered so far are durable. @throws errors of a sink; sink_failed
   *  when stopped */
  async flushed(): Promise<void> {
    const last = this.offered;
    while (this.done < last && !this.over) await this.change();
    this.rethrow();
    if (this.done < last)
      throw engineError('sink_failed', 'results still waited for the sink when the run ended');
  }

  /** Throws the failure that ended the writing, if there is one. */
  rethrow(): void {
    if (this.failure !== undefined) throw this.failure;
  }

  /** Drops waiting firings. */
  stop(): void {
    this.stopped = true;
    if (!this.running) this.closeAll();
    this.wake();
  }

  private get over(): boolean {
    return this.stopped || this.failure !== undefined;
  }
  /** True when more rows or firings wait than allowed. */
  get isFull(): boolean {
    const { length } = this.queue;
    return length > SINK_FIRINGS_WAITING_MAX || (length > 1 && this.rowsWaiting > SINK_ROWS_WAITING_MAX);
  }

  private change(): Promise<void> {
    return new Promise((resolve) => this.waiters.push(resolve));
  }
  private wake(): void {
    const woken = this.waiters;
    this.waiters = [];
    for (const one of woken) one();
  }

  private work(): Promise<void> {
    this.running = true;
    const { stages } = this.parts;
    return stages === undefined ? this.run() : stages.during('sink', () => this.run());
  }

  private async run(): Promise<void> {
    let next: Promise<Batch> | undefined;
    try {
      while ((next !== undefined || this.unread.length > 0) && !this.over) {
        const batch = await (next ?? this.fill());
        next = this.unread.length > 0 ? this.fill() : undefined;
        // Awaited below; this prevents an unhandled rejection meanwhile.
        next?.catch(() => {});
        if (batch.pages.length > 0 && !(await this.write(batch.pages))) break;
        this.settle(batch);
        this.wake();
      }
    } catch (thrown) {
      this.failure = thrown;
    } finally {
      // A firing that is being read must not be closed before.
      if (next !== undefined) await next.catch(() => {});
      this.running = false;
      if (this.over) this.closeAll();
      this.wake();
    }
  }

  /** Closes the firings that will not be written. */
  private closeAll(): void {
    for (const { firing } of this.queue.splice(0)) firing.close();
    this.unread.length = 0;
    this.rowsWaiting = 0;
  }

  /** Copies the next rows, up to the size of one write. */
  private async fill(): Promise<Batch> {
    const copy = this.copyFor();
    const pages: FiredPage[] = [];
    const parts: Array<Batch['parts'][number]> = [];
    let used = 0;
    let read = 0;
    for (const waiting of this.unread) {
      const { firing } = waiting;
      const from = used;
      let ended = false;
      while (used < copy.length && !ended) {
        const rows = await firing.read(copy.subarray(used));
        used += rows * ROW_BYTES;
        ended = rows === 0;
      }
      const rows = (used - from) / ROW_BYTES;
      const page =
        rows > 0 ? { bounds: firing.bounds, rows: copy.subarray(from, used), rowCount: rows } : undefined;
      if (page !== undefined) pages.push(page);
      parts.push({ waiting, rows, page, ended });
      if (!ended) break;
      read++;
    }
    this.unread.splice(0, read);
    return { pages, parts };
  }

  /** Returns the buffer that was not filled last, with room for the waiting rows of one write. */
  private copyFor(): Uint8Array {
    let rows = 0;
    for (const { left } of this.unread) {
      rows += left;
      if (rows >= this.rowsMax) break;
    }
    const bytes = Math.max(1, Math.min(rows, this.rowsMax)) * ROW_BYTES;
    const [, other] = this.copies;
    let [copy] = this.copies;
    if (copy.length < bytes)
      copy = new Uint8Array(Math.min(this.rowsMax * ROW_BYTES, 2 ** Math.ceil(Math.log2(bytes))));
    this.copies = [other, copy];
    return copy;
  }

  /** Writes pages to all sinks; false when the writer stopped first. */
  private async write(pages: readonly FiredPage[]): Promise<boolean> {
    const done = await Promise.all(this.parts.sinks.map((sink, index) => this.writeTo(sink, index, pages)));
    return done.every((one) => one);
  }

  private async writeTo(sink: WindowSink, index: number, pages: readonly FiredPage[]): Promise<boolean> {
    let waitMs = RETRY_MS_FIRST;
    while (!this.over) {
      try {
        await sink.write(pages);
        this.reachable[index] = true;
        return true;
      } catch (thrown) {
        // Values are absolute, so a write with unknown outcome may be repeated.
        const known = findMillraceError(thrown);
        if (known?.kind !== 'unavailable') {
          this.failure ??= thrown;
          throw thrown;
        }
        this.reachable[index] = false;
        this.parts.log.warn({ sink: sink.name, error: known.toLine(), retryMs: waitMs }, 'sink unavailable');
        for (let left = waitMs; left > 0 && !this.over; left -= RETRY_LOOK_MS)
          await this.parts.sleep(Math.min(left, RETRY_LOOK_MS));
        waitMs = Math.min(waitMs * 2, RETRY_MS_MAX);
      }
    }
    return false;
  }

  private report({ firedAtMs, reached }: Firing, page: FiredPage, now: number): void {
    const { onWritten } = this.parts;
    if (reached === undefined) {
      onWritten(page.rowCount, (now - firedAtMs) / 1000);
      return;
    }
    const rows = new ResultRows(page);
    reached.runs(
      page.rowCount,
      (row) => rows.windowEnd(row),
      (count, atMs) => onWritten(count, (now - atMs) / 1000),
    );
  }

  private settle({ parts }: Batch): void {
    const now = this.parts.clock.monotonicMs();
    let gone = 0;
    for (const { waiting, rows, page, ended } of parts) {
      const { firing } = waiting;
      const less = ended ? waiting.left : Math.min(rows, waiting.left);
      waiting.left -= less;
      this.rowsWaiting -= less;
      if (page !== undefined) this.report(firing, page, now);
      if (!ended) continue;
      firing.close();
      gone++;
    }
    this.queue.splice(0, gone);
    this.done += gone;
  }
}
