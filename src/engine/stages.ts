/** Time that the engine spends, by stage; docs/explanation/engine-stages.md defines the
 *  stages.
 *
 *  Two accounts. (1) The operator's loop is in exactly one place at any time: it works in a stage
 *  or waits for a stage. The place with the largest share limits the engine. (2) Each stage has its
 *  busy time, in which overlapping work counts once. Times are taken per batch and per unit of
 *  work, never per event. */
import type { Clock } from '../core/clock.ts';

export const STAGES = ['fetch', 'decode', 'route', 'update', 'spill', 'changelog', 'sink'] as const;
export type Stage = (typeof STAGES)[number];
/** `input`: there are no records to read; `other`: time outside every stage. */
export const LIMITS = [...STAGES, 'input', 'other'] as const;
export type Limit = (typeof LIMITS)[number];

/** Position of the loop, reported by the code that it runs through. */
export interface StageCursor {
  /** The loop works in this stage from now on. */
  enter(stage: Stage): void;
  /** The loop works in no stage from now on. */
  leave(): void;
}

export const UNTIMED: StageCursor = { enter: () => {}, leave: () => {} };

export interface StageShare {
  readonly stage: Stage;
  /** Shares of the run time; `busy`, `blocked` and `idle` add up to 1. */
  readonly busy: number;
  readonly blocked: number;
  readonly idle: number;
}

/** Milliseconds since the start of the run. */
export interface StageTimes {
  readonly wallMs: number;
  readonly busyMs: Readonly<Record<Stage, number>>;
  readonly blockedMs: Readonly<Record<Stage, number>>;
  readonly limitMs: Readonly<Record<Limit, number>>;
}

export interface Limited {
  readonly by: Limit;
  readonly share: number;
}

/** Length of the union of overlapping intervals: the time in which at least one of them is open. */
class Union {
  private ms = 0;
  private count = 0;
  private since = 0;

  get isOn(): boolean {
    return this.count > 0;
  }
  begin(now: number): void {
    if (this.count++ === 0) this.since = now;
  }
  end(now: number): void {
    if (--this.count === 0) this.ms += now - this.since;
  }
  add(ms: number): void {
    this.ms += ms;
  }
  total(now: number): number {
    return this.ms + (this.count > 0 ? now - this.since : 0);
  }
}

class Account {
  /** Intervals in which the stage works. */
  readonly busy = new Union();
  /** Intervals in which the stage has work, in progress or pending. */
  readonly active = new Union();
  /** True if only the loop itself does the work of the stage. */
  readonly isInLoop: boolean;

  constructor(stage: Stage) {
    this.isInLoop = stage === 'decode' || stage === 'route' || stage === 'update';
  }
}

/** Index of each place, for speed. */
const AT = eachOf(LIMITS, (limit) => LIMITS.indexOf(limit));
const { sink: SINK, input: INPUT, other: OTHER } = AT;

/** Accounts of the loop's time by stage: wall time, latencies, and what limits the rate. */
export class Stages implements StageCursor {
  /** Called with the duration of each unit of work that ended. */
  onWorkDone: (stage: Stage, ms: number) => void = () => {};
  private readonly clock: Pick<Clock, 'monotonicMs'>;
  private readonly accounts: readonly Account[] = STAGES.map((stage) => new Account(stage));
  private readonly limitMs = new Float64Array(LIMITS.length);
  /** The part of the waits for records in which there were no records. */
  private fetchIdleMs = 0;
  private place = OTHER;
  private isWorking = false;
  private since: number;
  private startMs: number;
  private endMs: number | undefined;

  constructor(clock: Pick<Clock, 'monotonicMs'>) {
    this.clock = clock;
    this.since = clock.monotonicMs();
    this.startMs = this.since;
  }

  /** Starts the run; earlier work of the loop does not count. */
  start(): void {
    this.since = this.clock.monotonicMs();
    this.startMs = this.since;
  }

  /** Ends the run. */
  stop(): void {
    this.leave();
    this.endMs ??= this.since;
  }

  enter(stage: Stage): void {
    const now = this.endPlace();
    this.place = AT[stage];
    this.isWorking = true;
    begin(this.account(stage), now);
  }

  leave(): void {
    this.endPlace();
    this.place = OTHER;
  }

  /** The loop waits for records from now on; `input`: it has read all existing records. */
  awaitRecords(what: 'fetch' | 'input'): void {
    this.endPlace();
    this.place = AT[what];
  }

  /** Ends the wait for records. They were requested at `askedMs` and ready at `readyMs`. After
   *  `readyMs` the thread did work outside the loop; that time belongs to the sink while results
   *  are being written. */
  recordsReady(askedMs: number, readyMs: number): void {
    const now = this.clock.monotonicMs();
    const ms = Math.max(0, readyMs - askedMs);
    if (this.place === INPUT) this.fetchIdleMs += ms;
    else this.account('fetch').busy.add(ms);
    this.onWorkDone('fetch', ms);
    const ready = Math.min(Math.max(readyMs, this.since), now);
    this.charge(ready);
    this.place = this.account('sink').busy.isOn ? SINK : OTHER;
    this.charge(now);
    this.place = OTHER;
  }

  /** Charges the time of a wait of the loop to the stage. */
  async waiting<T>(stage: Stage, wait: () => Promise<T>): Promise<T> {
    this.endPlace();
    this.place = AT[stage];
    try {
      return await wait();
    } finally {
      this.leave();
    }
  }

  /** Counts the work as busy time of the stage; it runs concurrently with the loop. */
  async during<T>(stage: Stage, work: () => Promise<T>): Promise<T> {
    const from = this.clock.monotonicMs();
    const account = this.account(stage);
    begin(account, from);
    try {
      return await work();
    } finally {
      const now = this.clock.monotonicMs();
      end(account, now);
      this.onWorkDone(stage, now - from);
    }
  }

  /** The stage has pending work from now on; each call needs one `taskDone`. */
  taskQueued(stage: Stage): void {
    this.account(stage).active.begin(this.clock.monotonicMs());
  }
  taskDone(stage: Stage): void {
    this.account(stage).active.end(this.clock.monotonicMs());
  }

  times(): StageTimes {
    const now = this.endMs ?? this.clock.monotonicMs();
    const wallMs = now - this.startMs;
    const hereMs = this.endMs === undefined ? now - this.since : 0;
    const limitMs = eachOf(LIMITS, (limit) => {
      const at = AT[limit];
      return (this.limitMs[at] as number) + (at === this.place ? hereMs : 0);
    });
    const busyMs = eachOf(STAGES, (stage) => this.account(stage).busy.total(now));
    const blockedMs = eachOf(STAGES, (stage) => {
      const busy = busyMs[stage];
      const { isInLoop, active } = this.account(stage);
      if (stage === 'fetch') return Math.max(0, wallMs - busy - this.fetchIdleMs);
      if (isInLoop) return Math.max(0, wallMs - busy - limitMs.fetch - limitMs.input);
      return Math.max(0, active.total(now) - busy);
    });
    return { wallMs, busyMs, blockedMs, limitMs };
  }

  private account(stage: Stage): Account {
    return this.accounts[AT[stage]] as Account;
  }

  /** Ends the stay at the current place; returns the time. */
  private endPlace(): number {
    const now = this.clock.monotonicMs();
    const ms = now - this.since;
    this.charge(now);
    if (!this.isWorking) return now;
    this.isWorking = false;
    const account = this.accounts[this.place] as Account;
    end(account, now);
    if (account.isInLoop) this.onWorkDone(LIMITS[this.place] as Stage, ms);
    return now;
  }

  private charge(now: number): void {
    this.limitMs[this.place] = (this.limitMs[this.place] as number) + now - this.since;
    this.since = now;
  }
}

function begin({ busy, active }: Account, now: number): void {
  busy.begin(now);
  active.begin(now);
}

function end({ busy, active }: Account, now: number): void {
  busy.end(now);
  active.end(now);
}

function eachOf<K extends string, T>(keys: readonly K[], make: (key: K) => T): Record<K, T> {
  return Object.fromEntries(keys.map((key) => [key, make(key)])) as Record<K, T>;
}

/** Finds the stage in which the loop spent most of the time between two snapshots of the stage
 *  times.
 *  @param from default: the start
 *  @returns undefined when no time has passed
 *  @example
 *  console.log(limitedText(limitedBy(stages.times())));
 */
export function limitedBy(until: StageTimes, from?: StageTimes): Limited | undefined {
  const ofLimit = (limit: Limit): number => until.limitMs[limit] - (from?.limitMs[limit] ?? 0);
  const wallMs = LIMITS.reduce((sum, limit) => sum + ofLimit(limit), 0);
  if (!(wallMs > 0)) return undefined;
  const by = LIMITS.reduce((most, limit) => (ofLimit(limit) > ofLimit(most) ? limit : most));
  return { by, share: ofLimit(by) / wallMs };
}

/** `limited by: update (62%)` */
export const limitedText = (limited: Limited | undefined): string =>
  `limited by: ${limited === undefined ? 'nothing yet' : `${limited.by} (${Math.round(limited.share * 100)}%)`}`;

/** Busy, blocked and idle shares of each stage since the start. */
export const stageShares = ({ wallMs, busyMs, blockedMs }: StageTimes): readonly StageShare[] =>
  STAGES.map((stage) => {
    const part = (ms: number): number => (wallMs > 0 ? Math.min(1, ms / wallMs) : 0);
    const busy = part(busyMs[stage]);
    const blocked = Math.min(1 - busy, part(blockedMs[stage]));
    return { stage, busy, blocked, idle: 1 - busy - blocked };
  });
