/** When each request is due: an open model, so a slow server changes no due time.
 *
 *  Pure: times are milliseconds after the start, handed in. Intent i is due at i * interval;
 *  repeats and resends wait in a heap. Invariants: (1) sends leave in order of their due time, ties
 *  in the order they were planned; (2) a due time is never after the moment it is asked for.
 */
import { type Intents, REPEATS_MEAN } from './intents.ts';

type SendKind = 'first' | 'repeat' | 'resend';

export interface Send {
  readonly index: number;
  readonly kind: SendKind;
  /** When it should have left; latency counts from here. A resend keeps the due time of what it
   *  repeats. */
  readonly dueMs: number;
  /** How often the same send failed before. */
  readonly failures: number;
}

export interface ScheduleOptions {
  /** Requests a second, first sends and repeats together. */
  readonly rate: number;
  readonly retryRate: number;
  /** Intents in all; Infinity for no bound. */
  readonly count: number;
  /** Intents are planned until here; Infinity for no bound. */
  readonly durationMs: number;
}

interface Waiting {
  readonly atMs: number;
  readonly order: number;
  readonly send: Send;
}

const before = (a: Waiting, b: Waiting): boolean =>
  a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);

/** A binary heap by time, then by order of arrival. */
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

  /** Intents planned so far. */
  get planned(): number {
    return this.nextIndex;
  }

  /** Repeats and resends that are still to leave. */
  get waitingCount(): number {
    return this.waiting.size;
  }

  /** No intent is planned any more; repeats and resends go on. */
  stop(): void {
    this.stopped = true;
  }

  /** The last intent was planned; only repeats and resends are left. */
  get isPlanned(): boolean {
    return !this.hasNext();
  }

  /** Nothing is left to send, until a resend is asked for. */
  get isDone(): boolean {
    return this.waiting.size === 0 && !this.hasNext();
  }

  /** When the next send is due; Infinity when nothing is left. */
  nextDueMs(): number {
    const intentMs = this.hasNext() ? this.nextIndex * this.intervalMs : Number.POSITIVE_INFINITY;
    return Math.min(intentMs, this.waiting.peek()?.atMs ?? Number.POSITIVE_INFINITY);
  }

  /** Takes the sends that are due at `nowMs`, at most `most`. */
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

  /** Plans a send again that brought no final answer. */
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
