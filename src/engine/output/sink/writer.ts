/** Writes firings to the sinks, concurrently with the reading: one write at a time, in the order in
 *  which they fired.
 *
 *  Invariants: (1) rows leave the state through two buffers of at most one write each. The next
 *  rows are read while the previous ones are written, because both may wait for a disk; (2) a
 *  firing is closed when all of its rows are durable in every sink, or when the writer stops; (3)
 *  `flushed` settles when everything offered before it is durable, so a checkpoint may record these
 *  results as fired; (4) an unreachable sink is retried without limit; any other failure ends the
 *  run. */
import type { Clock } from '../../../core/clock.ts';
import { findMillraceError } from '../../../core/errors.ts';
import { portionRows, RowForm } from '../../../core/layout/row-form.ts';
import type { Logger } from '../../../core/log.ts';
import { engineError } from '../../errors.ts';
import type { KeyDictionary } from '../../keys/dictionary.ts';
import type { Stages } from '../../stages.ts';
import type { FiredPage, Firing } from '../../window/firing.ts';
import type { WindowSink } from './port.ts';
import { ResultRows } from './rows.ts';

/** Rows of pending firings at which reading pauses, besides the firing being written. They are part
 *  of the state's memory, 64 bytes each. */
export const SINK_ROWS_WAITING_MAX = 4 * 1024 * 1024;
/** Number of pending firings at which reading pauses, however few rows they have. */
export const SINK_FIRINGS_WAITING_MAX = 10_000;
const RETRY_MS_FIRST = 100;
const RETRY_MS_MAX = 5_000;
/** Longest sleep before a retry checks again if the run has ended. */
const RETRY_CHECK_MS = 250;

interface PendingFiring {
  readonly firing: Firing;
  /** Upper bound of the rows that are not written yet. */
  left: number;
}

/** Bytes of a row of a firing. */
const rowBytesOf = ({ form = RowForm.HEADS }: Pick<Firing, 'form'>): number => form.bytes;

/** False if a key of the firing may be in the same write already, which a sink that writes a set of
 *  rows cannot take. @param rounds rounds of early results of the write, by the end of their window
 */
function isDistinct(
  { bounds, round }: Pick<Firing, 'bounds' | 'round'>,
  rounds: Map<number, number>,
): boolean {
  if (bounds.kind !== 'window') return true;
  const other = rounds.get(bounds.end);
  if (round !== undefined) rounds.set(bounds.end, round);
  return other === undefined || other === round;
}

/** Rows of one write. */
interface Batch {
  readonly pages: readonly FiredPage[];
  readonly parts: ReadonlyArray<{
    readonly pending: PendingFiring;
    readonly rows: number;
    /** Absent if there are no rows. */
    readonly page: FiredPage | undefined;
    /** True if these are the last rows of the firing. */
    readonly ended: boolean;
  }>;
}

export interface SinkWriterParts {
  /** Rows count as durable once they are durable in every sink. */
  readonly sinks: readonly WindowSink[];
  readonly clock: Clock;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  /** Called after each write for each group of rows that became due together: the number of rows,
   *  and the seconds since the watermark made them due. */
  readonly onWritten: (rows: number, seconds: number) => void;
  /** Called with each page once it is durable in every sink; borrows the page. */
  readonly onPage?: ((page: FiredPage) => void) | undefined;
  /** Returns the dictionary of the keys if they are no integers; absent: they are integers. */
  readonly keys?: (() => Pick<KeyDictionary, 'column'> | undefined) | undefined;
  /** Receives the times in which the writer works; absent: not timed. */
  readonly stages?: Pick<Stages, 'during'>;
}

export class SinkWriter {
  private readonly parts: SinkWriterParts;
  private readonly rowsMax: number;
  private readonly reachable: boolean[];
  private readonly queue: PendingFiring[] = [];
  /** Firings of the queue that still have rows to copy. */
  private readonly unread: PendingFiring[] = [];
  private rowsWaiting = 0;
  private offered = 0;
  private written = 0;
  /** Two buffers; the next rows go into the first. */
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
    return this.reachable.every((isReachable) => isReachable);
  }
  /** Upper bound of the rows that have fired and are not durable in every sink. */
  get waitingRows(): number {
    return this.rowsWaiting;
  }
  /** Bytes of the write buffers; rows that are not copied yet count as memory of the state. */
  get bytes(): number {
    return this.copies.reduce((sum, copy) => sum + copy.length, 0);
  }

  /** Takes ownership of the firings, including their `close`. They fired after those offered
   *  before. */
  offer(firings: readonly Firing[]): void {
    for (const firing of firings) {
      const pending = { firing, left: firing.rowsMax };
      this.queue.push(pending);
      this.unread.push(pending);
      this.rowsWaiting += firing.rowsMax;
    }
    this.offered += firings.length;
    if (this.running) return;
    if (this.isOver) this.closeAll();
    else if (this.unread.length > 0) void this.work();
  }

  /** Settles when reading may continue: the backlog is within its limits, or the signal is aborted.
   *  @throws the error of a sink */
  async room(signal: AbortSignal): Promise<void> {
    if (this.isFull && !signal.aborted) {
      const wake = (): void => this.wake();
      signal.addEventListener('abort', wake);
      try {
        while (this.isFull && !this.isOver && !signal.aborted) await this.nextChange();
      } finally {
        signal.removeEventListener('abort', wake);
      }
    }
    this.rethrow();
  }

  /** Settles when everything offered so far is durable. @throws the error of a sink; sink_failed
   *  when the writer was stopped */
  async flushed(): Promise<void> {
    const last = this.offered;
    while (this.written < last && !this.isOver) await this.nextChange();
    this.rethrow();
    if (this.written < last)
      throw engineError('sink_failed', 'the run ended before all results were durable in the sink');
  }

  /** Throws the error that ended the writing, if any. */
  rethrow(): void {
    if (this.failure !== undefined) throw this.failure;
  }

  /** Stops writing and closes the firings that are not written yet. */
  stop(): void {
    this.stopped = true;
    if (!this.running) this.closeAll();
    this.wake();
  }

  private get isOver(): boolean {
    return this.stopped || this.failure !== undefined;
  }
  /** True if the backlog exceeds its limits. */
  get isFull(): boolean {
    const { length } = this.queue;
    return length > SINK_FIRINGS_WAITING_MAX || (length > 1 && this.rowsWaiting > SINK_ROWS_WAITING_MAX);
  }

  private nextChange(): Promise<void> {
    return new Promise((resolve) => this.waiters.push(resolve));
  }
  private wake(): void {
    const woken = this.waiters;
    this.waiters = [];
    for (const resolve of woken) resolve();
  }

  private work(): Promise<void> {
    this.running = true;
    const { stages } = this.parts;
    return stages === undefined ? this.run() : stages.during('sink', () => this.run());
  }

  private async run(): Promise<void> {
    let next: Promise<Batch> | undefined;
    try {
      while ((next !== undefined || this.unread.length > 0) && !this.isOver) {
        const batch = await (next ?? this.fill());
        next = this.unread.length > 0 ? this.fill() : undefined;
        // The next iteration or `finally` awaits this promise; prevents an unhandled rejection
        // until then.
        next?.catch(() => {});
        if (!(await this.write(batch))) break;
        this.settle(batch);
        this.wake();
      }
    } catch (thrown) {
      this.failure = thrown;
    } finally {
      // A firing must not be closed while its rows are being read.
      if (next !== undefined) await next.catch(() => {});
      this.running = false;
      if (this.isOver) this.closeAll();
      this.wake();
    }
  }

  /** Closes firings that will not be written. */
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
    const rounds = new Map<number, number>();
    for (const pending of this.unread) {
      const { firing } = pending;
      if (!isDistinct(firing, rounds)) break;
      const rowBytes = rowBytesOf(firing);
      const from = used;
      let ended = false;
      while (copy.length - used >= rowBytes && !ended) {
        const rows = await firing.read(copy.subarray(used));
        used += rows * rowBytes;
        ended = rows === 0;
      }
      const rows = (used - from) / rowBytes;
      const page = rows > 0 ? await this.page(firing, copy.subarray(from, used), rows) : undefined;
      if (page !== undefined) pages.push(page);
      parts.push({ pending, rows, page, ended });
      if (!ended) break;
      read++;
    }
    this.unread.splice(0, read);
    return { pages, parts };
  }

  private async page(
    { bounds, form }: Pick<Firing, 'bounds' | 'form'>,
    rows: Uint8Array,
    rowCount: number,
  ): Promise<FiredPage> {
    const keys = await this.parts.keys?.()?.column(rows, rowCount, rowBytesOf({ form }));
    return { bounds, form, rows, rowCount, keys };
  }

  /** Returns a buffer for the pending rows, up to the size of one write; never the buffer that was
   *  filled last. */
  private copyFor(): Uint8Array {
    let rows = 0;
    const rowBytes = Math.max(...this.unread.map(({ firing }) => rowBytesOf(firing)));
    const rowsMax = portionRows(this.rowsMax, rowBytes);
    for (const { left } of this.unread) {
      rows += left;
      if (rows >= rowsMax) break;
    }
    const bytes = Math.max(1, Math.min(rows, rowsMax)) * rowBytes;
    const [, other] = this.copies;
    let [copy] = this.copies;
    if (copy.length < bytes)
      copy = new Uint8Array(Math.min(rowsMax * rowBytes, 2 ** Math.ceil(Math.log2(bytes))));
    this.copies = [other, copy];
    return copy;
  }

  /** Returns false if the run ended before every sink had the rows. */
  private async write({ pages, parts }: Batch): Promise<boolean> {
    const ended = parts.filter((part) => part.ended).map(({ pending }) => pending.firing.bounds);
    const outcomes = await Promise.all(
      this.parts.sinks.map(
        async (sink, index) =>
          (pages.length === 0 || (await this.repeat(sink, index, () => sink.write(pages)))) &&
          (sink.finish === undefined ||
            ended.length === 0 ||
            (await this.repeat(sink, index, async () => sink.finish?.(ended)))),
      ),
    );
    return outcomes.every((isWritten) => isWritten);
  }

  /** Repeats a step of a sink until it succeeds. Returns false if the run ended before. */
  private async repeat(sink: WindowSink, index: number, step: () => Promise<void>): Promise<boolean> {
    let waitMs = RETRY_MS_FIRST;
    while (!this.isOver) {
      try {
        await step();
        this.reachable[index] = true;
        return true;
      } catch (thrown) {
        // Values are absolute, so a write whose outcome is unknown can be repeated.
        const known = findMillraceError(thrown);
        if (known?.kind !== 'unavailable') {
          this.failure ??= thrown;
          throw thrown;
        }
        this.reachable[index] = false;
        this.parts.log.warn({ sink: sink.name, error: known.toLine(), retryMs: waitMs }, 'sink unavailable');
        for (let left = waitMs; left > 0 && !this.isOver; left -= RETRY_CHECK_MS)
          await this.parts.sleep(Math.min(left, RETRY_CHECK_MS));
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
    let finished = 0;
    for (const { pending, rows, page, ended } of parts) {
      const { firing } = pending;
      const settled = ended ? pending.left : Math.min(rows, pending.left);
      pending.left -= settled;
      this.rowsWaiting -= settled;
      if (page !== undefined) {
        this.report(firing, page, now);
        this.parts.onPage?.(page);
      }
      if (!ended) continue;
      firing.close();
      finished++;
    }
    this.queue.splice(0, finished);
    this.written += finished;
  }
}
