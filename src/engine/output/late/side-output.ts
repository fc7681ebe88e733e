/** Side output: forwards copies of refused events to the late topic. A copy is held until the
 *  changelog record of the refusal is durable, then sent, then recorded as sent.
 *
 *  Invariants: (1) only an event whose refusal is durable is copied, so the topic never holds an
 *  event that is accepted after a crash; (2) the changelog keeps a copy until the topic has
 *  acknowledged it, so a crash loses none. A copy that was sent and not recorded is sent again,
 *  with the same partition and offset; (3) an unreachable topic is retried without limit. */
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { Checkpointer } from '../../durability/checkpoint/checkpointer.ts';
import { engineError } from '../../errors.ts';
import { decodeLate, type LateCopy, type LateRows, lateCount } from './rows.ts';

/** Bytes of unsent copies at which reading pauses, without a memory budget. */
export const LATE_BYTES_MAX = 64 * 1024 * 1024;
/** Bytes of one send; the copies of one batch are never split. */
const SEND_BYTES = 4 * 1024 * 1024;
/** Time in which copies are gathered for a send, because each send first makes the changelog
 *  durable. */
const GATHER_MS = 20;
const RETRY_MS_FIRST = 100;
const RETRY_MS_MAX = 5_000;
/** Longest sleep before a retry checks again if the run has ended. */
const RETRY_CHECK_MS = 250;

export interface LateTopic {
  /** Settles when all copies are acknowledged; borrows them until then. @throws late_failed when a
   *  retry may succeed */
  send(copies: readonly LateCopy[]): Promise<void>;
}

export interface SideOutputParts {
  readonly topic: LateTopic;
  readonly checkpointer: Pick<Checkpointer, 'durable' | 'lateSent'>;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  /** Bytes of unsent copies at which reading pauses; absent: LATE_BYTES_MAX. */
  readonly bytesMax?: number | undefined;
  /** Called after each send with the number of acknowledged copies. */
  readonly onSent: (copies: number) => void;
}

export class SideOutput {
  private readonly parts: SideOutputParts;
  private readonly bytesMax: number;
  private readonly queue: LateRows[] = [];
  private bytes = 0;
  private waiting = 0;
  private isReachable = true;
  private stopped = false;
  private failure: unknown;
  private running: Promise<void> | undefined;
  private waiters: Array<() => void> = [];

  constructor(parts: SideOutputParts) {
    this.parts = parts;
    this.bytesMax = parts.bytesMax ?? LATE_BYTES_MAX;
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
  offer(seq: number, bytes: Uint8Array): void {
    if (this.isOver) return;
    this.queue.push({ seq, bytes });
    this.bytes += bytes.length;
    this.waiting += lateCount(bytes);
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
   *  late_failed when unsent copies remain */
  async flushed(signal: AbortSignal): Promise<void> {
    await this.waitWhile(() => this.running !== undefined && (this.isReachable || !signal.aborted), signal);
    this.rethrow();
    if (this.queue.length === 0) return;
    throw engineError('late_failed', 'the late topic is unreachable, so the last copies are not sent', {
      next: 'restart when the topic is reachable; the copies are sent then',
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
        if (!(await this.send(batch.flatMap((rows) => copiesOf(rows))))) return;
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
  private next(): readonly LateRows[] {
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
  private async send(copies: readonly LateCopy[]): Promise<boolean> {
    const { topic, log, sleep } = this.parts;
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
        log.warn({ error: known.toLine(), retryMs: waitMs }, 'late topic unavailable');
        for (let left = waitMs; left > 0 && !this.isOver; left -= RETRY_CHECK_MS)
          await sleep(Math.min(left, RETRY_CHECK_MS));
        waitMs = Math.min(waitMs * 2, RETRY_MS_MAX);
      }
    }
    return false;
  }

  private settle(sent: readonly LateRows[]): void {
    if (this.stopped) return;
    let copies = 0;
    for (const { bytes } of this.queue.splice(0, sent.length)) {
      this.bytes -= bytes.length;
      copies += lateCount(bytes);
    }
    this.waiting -= copies;
    this.parts.checkpointer.lateSent((sent.at(-1) as LateRows).seq);
    this.parts.onSent(copies);
    this.wake();
  }
}

function copiesOf({ seq, bytes }: LateRows): readonly LateCopy[] {
  const decoded = decodeLate(bytes);
  if ('copies' in decoded) return decoded.copies;
  throw engineError('state_corrupt', `record ${seq} of the changelog: ${decoded.fault}`);
}
