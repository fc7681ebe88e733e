/** Sender of a side output: forwards copies of refused rows to their destination. A copy is held
 *  until the changelog record of the refusal is durable, then sent, then recorded as sent.
 *
 *  Invariants: (1) only a row whose refusal is durable is copied, so the topic never holds an
 *  event that is accepted after a crash; (2) the changelog keeps a copy until the topic has
 *  acknowledged it, so a crash loses none. A copy that was sent and not recorded is sent again,
 *  with the same partition and offset; (3) an unreachable topic is retried without limit. */
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { Checkpointer } from '../../durability/checkpoint/checkpointer.ts';
import { engineError } from '../../errors.ts';
import type { SideBytes, SideName, SideRows } from './sections.ts';

/** Bytes of unsent copies at which reading pauses, without a memory budget. */
export const SIDE_BYTES_MAX = 64 * 1024 * 1024;
/** Bytes of one send; the copies of one batch are never split. */
const SEND_BYTES = 4 * 1024 * 1024;
/** Time in which copies are gathered for a send, because each send first makes the changelog
 *  durable. */
const GATHER_MS = 20;
const RETRY_MS_FIRST = 100;
const RETRY_MS_MAX = 5_000;
/** Longest sleep before a retry checks again if the run has ended. */
const RETRY_CHECK_MS = 250;

/** Destination of copies. */
export interface SideTopic<C> {
  /** Settles when all copies are acknowledged; borrows them until then. @throws an error of kind
   *  `unavailable` when a retry may succeed */
  send(copies: readonly C[]): Promise<void>;
}

/** Kind of a side output: its place in the changelog, the form of its copies, and its words. */
export interface SideKind<C> {
  readonly name: SideName;
  /** Name for messages. */
  readonly what: string;
  readonly decode: (side: SideBytes) => { readonly copies: readonly C[] } | { readonly fault: string };
  /** Code of the error for copies that cannot be sent before the run ends. */
  readonly failedCode: 'late_failed' | 'quarantine_failed' | 'sink_failed';
}

export interface SideOutputParts<C> {
  readonly kind: SideKind<C>;
  readonly topic: SideTopic<C>;
  readonly checkpointer: Pick<Checkpointer, 'durable' | 'sent'>;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  /** Bytes of unsent copies at which reading pauses; absent: SIDE_BYTES_MAX. */
  readonly bytesMax?: number | undefined;
  /** Called after each send with the number of acknowledged copies. */
  readonly onSent: (copies: number) => void;
}

/** Side output without the form of its copies. */
export type AnySideOutput = Pick<
  SideOutput<never>,
  'ready' | 'waitingCopies' | 'offer' | 'room' | 'flushed' | 'stop'
>;

export class SideOutput<C> {
  private readonly parts: SideOutputParts<C>;
  private readonly bytesMax: number;
  private readonly queue: SideRows[] = [];
  private bytes = 0;
  private waiting = 0;
  private isReachable = true;
  private stopped = false;
  private failure: unknown;
  private running: Promise<void> | undefined;
  private waiters: Array<() => void> = [];

  constructor(parts: SideOutputParts<C>) {
    this.parts = parts;
    this.bytesMax = parts.bytesMax ?? SIDE_BYTES_MAX;
  }

  /** False while the topic is unreachable. */
  get ready(): boolean {
    return this.isReachable;
  }
  /** Copies that are not acknowledged yet. */
  get waitingCopies(): number {
    return this.waiting;
  }

  /** Queues the copies of a changelog record; `seq` is larger than in any call before. */
  offer(seq: number, { count, bytes }: SideBytes): void {
    if (this.isOver) return;
    this.queue.push({ seq, count, bytes });
    this.bytes += bytes.length;
    this.waiting += count;
    this.running ??= this.run();
  }

  /** Settles when reading may continue: the backlog is within its limit, or the signal is aborted.
   *  @throws the error that ended the sending */
  async room(signal: AbortSignal): Promise<void> {
    if (this.bytes > this.bytesMax)
      await this.waitWhile(() => this.bytes > this.bytesMax && !signal.aborted, signal);
    this.rethrow();
  }

  /** Settles when everything offered so far is acknowledged and recorded in the changelog. After
   *  the signal is aborted it does not wait for an unreachable topic. @throws as `room`;
   *  an error when unsent copies remain */
  async flushed(signal: AbortSignal): Promise<void> {
    await this.waitWhile(() => this.running !== undefined && (this.isReachable || !signal.aborted), signal);
    this.rethrow();
    if (this.queue.length === 0) return;
    const { failedCode, what } = this.parts.kind;
    throw engineError(failedCode, `the ${what} is unreachable, so the last copies are not sent`, {
      next: 'restart when it is reachable; the copies are sent then',
    });
  }

  /** Stops sending; the changelog keeps the unsent copies. */
  stop(): void {
    this.stopped = true;
    this.wake();
  }

  private get isOver(): boolean {
    return this.stopped || this.failure !== undefined;
  }
  private rethrow(): void {
    if (this.failure !== undefined) throw this.failure;
  }
  private async waitWhile(condition: () => boolean, signal: AbortSignal): Promise<void> {
    const wake = (): void => this.wake();
    signal.addEventListener('abort', wake);
    try {
      while (condition() && !this.isOver) await new Promise<void>((resolve) => this.waiters.push(resolve));
    } finally {
      signal.removeEventListener('abort', wake);
    }
  }
  private wake(): void {
    const woken = this.waiters;
    this.waiters = [];
    for (const resolve of woken) resolve();
  }

  private async run(): Promise<void> {
    try {
      while (this.queue.length > 0 && !this.isOver) {
        await this.parts.sleep(GATHER_MS);
        const batch = this.next();
        await this.parts.checkpointer.durable();
        if (!(await this.send(batch.flatMap((rows) => this.copiesOf(rows))))) return;
        this.settle(batch);
      }
    } catch (thrown) {
      this.failure ??= thrown;
    } finally {
      // Cleared in the turn in which the queue was found empty, so a later offer starts a new run.
      this.running = undefined;
      this.wake();
    }
  }

  /** The head of the queue, as much as one send takes. */
  private next(): readonly SideRows[] {
    let bytes = 0;
    let count = 0;
    for (const rows of this.queue) {
      bytes += rows.bytes.length;
      if (count > 0 && bytes > SEND_BYTES) break;
      count++;
    }
    return this.queue.slice(0, count);
  }

  /** Retries until the topic has acknowledged the copies; false if the run ended first. */
  private async send(copies: readonly C[]): Promise<boolean> {
    const { topic, log, sleep, kind } = this.parts;
    let waitMs = RETRY_MS_FIRST;
    while (!this.isOver) {
      try {
        await topic.send(copies);
        this.isReachable = true;
        return true;
      } catch (thrown) {
        const known = findMillraceError(thrown);
        if (known?.kind !== 'unavailable') throw thrown;
        this.isReachable = false;
        this.wake();
        log.warn({ error: known.toLine(), retryMs: waitMs }, `${kind.what} unavailable`);
        for (let left = waitMs; left > 0 && !this.isOver; left -= RETRY_CHECK_MS)
          await sleep(Math.min(left, RETRY_CHECK_MS));
        waitMs = Math.min(waitMs * 2, RETRY_MS_MAX);
      }
    }
    return false;
  }

  private settle(sent: readonly SideRows[]): void {
    if (this.stopped) return;
    let copies = 0;
    for (const { bytes, count } of this.queue.splice(0, sent.length)) {
      this.bytes -= bytes.length;
      copies += count;
    }
    this.waiting -= copies;
    const { checkpointer, kind, onSent } = this.parts;
    checkpointer.sent(kind.name, (sent.at(-1) as SideRows).seq);
    onSent(copies);
    this.wake();
  }

  private copiesOf(rows: SideRows): readonly C[] {
    const decoded = this.parts.kind.decode(rows);
    if ('copies' in decoded) return decoded.copies;
    throw engineError('state_corrupt', `record ${rows.seq} of the changelog: ${decoded.fault}`);
  }
}
