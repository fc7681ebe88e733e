/** The way of refused events to the late topic: held until the record of the changelog that refused
 *  them is durable, then sent, then noted in the changelog as sent.
 *
 *  Invariants: (1) a copy is sent only of an event whose refusal is durable, so the topic never has
 *  one that was accepted after a crash; (2) the changelog has a copy until the topic has
 *  acknowledged it, so a crash loses none: what was sent and not noted is sent again, with the same
 *  partition and offset; (3) a topic that cannot be reached is tried again for ever.
 */
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { Checkpointer } from '../../durability/checkpoint/checkpointer.ts';
import { engineError } from '../../errors.ts';
import { decodeLate, type LateCopy, type LateRows, lateCount } from './rows.ts';

/** Bytes of copies that may wait, unless memory is bounded; more, and reading pauses. */
export const LATE_BYTES_MAX = 64 * 1024 * 1024;
/** Sent at once, unless the copies of one batch are more. */
const SEND_BYTES = 4 * 1024 * 1024;
/** How long copies gather: each sending makes the changelog durable first. */
const GATHER_MS = 20;
const RETRY_MS_FIRST = 100;
const RETRY_MS_MAX = 5_000;
/** A wait looks this often whether the run has ended. */
const RETRY_LOOK_MS = 250;

export interface LateTopic {
  /** Settles when all are acknowledged; borrows them until then. @throws late_failed when it may
   *  help to try again */
  send(copies: readonly LateCopy[]): Promise<void>;
}

export interface SideOutputParts {
  readonly topic: LateTopic;
  readonly checkpointer: Pick<Checkpointer, 'durable' | 'lateSent'>;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  /** Bytes of copies that may wait; LATE_BYTES_MAX where it is absent. */
  readonly bytesMax?: number | undefined;
  /** After each sending: how many copies were acknowledged. */
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

  /** False while the topic cannot be reached. */
  get ready(): boolean {
    return this.isReachable;
  }
  /** Copies that are not known to be acknowledged. */
  get waitingCopies(): number {
    return this.waiting;
  }

  /** Takes the copies of a record, which came after those offered before. */
  offer(seq: number, bytes: Uint8Array): void {
    if (this.over) return;
    this.queue.push({ seq, bytes });
    this.bytes += bytes.length;
    this.waiting += lateCount(bytes);
    this.running ??= this.run();
  }

  /** Settles when reading may go on: what waits is within the limit, or the signal is given.
   *  @throws what ended the sending */
  async room(signal: AbortSignal): Promise<void> {
    if (this.bytes > this.bytesMax)
      await this.waitWhile(() => this.bytes > this.bytesMax && !signal.aborted, signal);
    this.rethrow();
  }

  /** Settles when everything offered so far is acknowledged, and the changelog has been told. Once
   *  the signal is given it does not wait for a topic that cannot be reached. @throws as room;
   *  late_failed when copies still wait */
  async flushed(signal: AbortSignal): Promise<void> {
    await this.waitWhile(() => this.running !== undefined && (this.isReachable || !signal.aborted), signal);
    this.rethrow();
    if (this.queue.length === 0) return;
    throw engineError('late_failed', 'the late topic cannot be reached, so the last copies are not sent', {
      next: 'start again when it is back: they are sent then',
    });
  }

  /** Gives up what still waits; the changelog has it. */
  stop(): void {
    this.stopped = true;
    this.wake();
  }

  private get over(): boolean {
    return this.stopped || this.failure !== undefined;
  }
  private rethrow(): void {
    if (this.failure !== undefined) throw this.failure;
  }
  private async waitWhile(isSo: () => boolean, signal: AbortSignal): Promise<void> {
    const wake = (): void => this.wake();
    signal.addEventListener('abort', wake);
    try {
      while (isSo() && !this.over) await new Promise<void>((resolve) => this.waiters.push(resolve));
    } finally {
      signal.removeEventListener('abort', wake);
    }
  }
  private wake(): void {
    const woken = this.waiters;
    this.waiters = [];
    for (const one of woken) one();
  }

  private async run(): Promise<void> {
    try {
      while (this.queue.length > 0 && !this.over) {
        await this.parts.sleep(GATHER_MS);
        const some = this.next();
        await this.parts.checkpointer.durable();
        if (!(await this.send(some.flatMap((rows) => copiesOf(rows))))) return;
        this.settle(some);
      }
    } catch (thrown) {
      this.failure ??= thrown;
    } finally {
      // In the turn in which the queue was found empty: what is offered later begins anew.
      this.running = undefined;
      this.wake();
    }
  }

  /** The head of the queue, as much as is sent at once. */
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

  /** False when it was given up. */
  private async send(copies: readonly LateCopy[]): Promise<boolean> {
    const { topic, log, sleep } = this.parts;
    let waitMs = RETRY_MS_FIRST;
    while (!this.over) {
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
        for (let left = waitMs; left > 0 && !this.over; left -= RETRY_LOOK_MS)
          await sleep(Math.min(left, RETRY_LOOK_MS));
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
