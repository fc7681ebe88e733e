/** Schedule of requests as an open model: a slow server delays no due time.
 *  Pure: the caller passes times in ms since the start. Intent i is due at i * interval; repeats
 *  and resends wait in a heap. Invariants: (1) Sends leave in order of due time, ties in the order
 *  in which they were planned. (2) `due` returns only sends whose time has come. */
import { type Intents, REPEATS_MEAN } from './intents.ts';

type SendKind = 'first' | 'repeat' | 'resend';

export interface Send {
  readonly index: number;
  readonly kind: SendKind;
  /** Due time in ms, from which latency is measured. A resend keeps the due time of its request. */
  readonly dueMs: number;
  /** Number of failed attempts before this one. */
  readonly failures: number;
}

export interface ScheduleOptions {
  /** Requests per second, first sends and repeats together. */
  readonly rate: number;
  readonly retryRate: number;
  /** Number of intents; Infinity: no limit. */
  readonly count: number;
  /** Time in ms until which intents are planned; Infinity: no limit. */
  readonly durationMs: number;
}

interface Waiting {
  readonly atMs: number;
  readonly order: number;
  readonly send: Send;
}

const before = (a: Waiting, b: Waiting): boolean =>
  a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);

/** Binary min-heap by time, ties in order of insertion. */
class Heap {
  private readonly items: Waiting[] = [];

  get size(): number {
    return this.items.length;
  }

  peek(): Waiting | undefined {
    return this.items[0];
  }

  push(item: Waiting): void {
    const { items } = this;
    let at = items.push(item) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!before(item, items[parent] as Waiting)) break;
      items[at] = items[parent] as Waiting;
      at = parent;
    }
    items[at] = item;
  }

  pop(): Waiting | undefined {
    const { items } = this;
    const top = items[0];
    const last = items.pop();
    if (top === undefined || last === undefined || items.length === 0) return top;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && before(items[child + 1] as Waiting, items[child] as Waiting)) child++;
      if (!before(items[child] as Waiting, last)) break;
      items[at] = items[child] as Waiting;
      at = child;
    }
    items[at] = last;
    return top;
  }
}

export class Schedule {
  private readonly intents: Intents;
  private readonly intervalMs: number;
  private readonly end: number;
  private readonly waiting = new Heap();
  private nextIndex = 0;
  private order = 0;
  private stopped = false;

  constructor(intents: Intents, options: ScheduleOptions) {
    this.intents = intents;
    this.intervalMs = (1000 * (1 + REPEATS_MEAN * options.retryRate)) / options.rate;
    this.end = Math.min(options.count, Math.ceil(options.durationMs / this.intervalMs));
  }

  /** Number of intents planned so far. */
  get planned(): number {
    return this.nextIndex;
  }

  /** Number of repeats and resends that wait to be sent. */
  get waitingCount(): number {
    return this.waiting.size;
  }

  /** Ends the planning of intents; repeats and resends continue. */
  stop(): void {
    this.stopped = true;
  }

  /** True if the last intent was planned; only repeats and resends are left. */
  get isPlanned(): boolean {
    return !this.hasNext();
  }

  /** True if nothing is left to send unless a resend is requested. */
  get isDone(): boolean {
    return this.waiting.size === 0 && !this.hasNext();
  }

  /** Returns the time of the next send; Infinity if nothing is left. */
  nextDueMs(): number {
    const intentMs = this.hasNext() ? this.nextIndex * this.intervalMs : Number.POSITIVE_INFINITY;
    return Math.min(intentMs, this.waiting.peek()?.atMs ?? Number.POSITIVE_INFINITY);
  }

  /** Removes and returns the sends that are due at `nowMs`, at most `most`. */
  due(nowMs: number, most: number): Send[] {
    const sends: Send[] = [];
    while (sends.length < most && this.nextDueMs() <= nowMs) {
      const intentMs = this.hasNext() ? this.nextIndex * this.intervalMs : Number.POSITIVE_INFINITY;
      const first = this.waiting.peek();
      if (first !== undefined && first.atMs < intentMs) {
        sends.push((this.waiting.pop() as Waiting).send);
        continue;
      }
      const index = this.nextIndex++;
      sends.push({ index, kind: 'first', dueMs: intentMs, failures: 0 });
      for (const repeat of this.intents.repeatsAfter(index)) {
        const dueMs = intentMs + repeat.afterMs;
        this.wait(dueMs, { index: repeat.index, kind: 'repeat', dueMs, failures: 0 });
      }
    }
    return sends;
  }

  /** Schedules a send again that got no final answer. */
  resend(send: Send, atMs: number): void {
    this.wait(atMs, { index: send.index, kind: 'resend', dueMs: send.dueMs, failures: send.failures + 1 });
  }

  private hasNext(): boolean {
    return !this.stopped && this.nextIndex < this.end;
  }

  private wait(atMs: number, send: Send): void {
    this.waiting.push({ atMs, order: this.order++, send });
  }
}
