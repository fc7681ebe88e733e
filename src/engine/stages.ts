/** Accounting of the engine's time by stage; docs/explanation/engine-stages.md defines the stages.
 *
 *  There are two accounts. The loop is at one place at a time, working in a stage or waiting for
 *  one, and every moment of its run belongs to one place: the greatest of these limits the rate. In
 *  addition each stage has its busy time, however many of its operations overlap. Measured for each
 *  batch and operation, never for each event. */
import type { Clock } from '../core/clock.ts';

export const STAGES = ['fetch', 'decode', 'route', 'update', 'spill', 'changelog', 'sink'] as const;
export type Stage = (typeof STAGES)[number];
/** `input`: there were no records to read; `other`: outside every stage. */
export const LIMITS = [...STAGES, 'input', 'other'] as const;
export type Limit = (typeof LIMITS)[number];

/** Receiver of the loop's present place, which the parts of the loop report. */
export interface StageCursor {
  /** From now on the loop works in the stage. */
  works(stage: Stage): void;
  /** From now on the loop works in no stage. */
  rests(): void;
}

export const UNTIMED: StageCursor = { works: () => {}, rests: () => {} };

export interface StageShare {
  readonly stage: Stage;
  /** Fractions of the time, which add up to 1. */
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

/** Sums the time in which at least one of several overlapping operations runs. */
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
  /** Time in which the stage works. */
  readonly busy = new Union();
  /** Time in which the stage has something to do, whether it works or waits. */
  readonly taken = new Union();
  /** True when only the loop itself runs the stage. */
  readonly isInLoop: boolean;

  constructor(stage: Stage) {
    this.isInLoop = stage === 'decode' || stage === 'route' || stage === 'update';
  }
}

/** Places by number, for speed. */
const AT = eachOf(LIMITS, (limit) => LIMITS.indexOf(limit));
const { sink: SINK, input: INPUT, other: OTHER } = AT;

/** Accounts of the loop's time by stage: wall time, latencies, and what limits the rate. */
export class Stages implements StageCursor {
  /** Called with each completed operation. */
  onPiece: (stage: Stage, ms: number) => void = () => {};
  private readonly clock: Pick<Clock, 'monotonicMs'>;
  private readonly accounts: readonly Account[] = STAGES.map((stage) => new Account(stage));
  private readonly limitMs = new Float64Array(LIMITS.length);
  /** Part of the time in which records were requested and none arrived. */
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

  /** Starts the run; earlier time does not count. */
  start(): void {
    this.since = this.clock.monotonicMs();
    this.startMs = this.since;
  }

  /** Ends the run. */
  stop(): void {
    this.rests();
    this.endMs ??= this.since;
  }

  works(stage: Stage): void {
    const now = this.leave();
    this.place = AT[stage];
    this.isWorking = true;
    begin(this.account(stage), now);
  }

  rests(): void {
    this.leave();
    this.place = OTHER;
  }

  /** From now on the loop waits for records; `input`: it has read all existing ones. */
  asksFor(what: 'fetch' | 'input'): void {
    this.leave();
    this.place = AT[what];
  }

  /** Ends the wait for records that were requested and ready at these times. After `readyMs` the
   *  thread was busy beside the loop: with results, where some are being written. */
  arrived(askedMs: number, readyMs: number): void {
    const now = this.clock.monotonicMs();
    const ms = Math.max(0, readyMs - askedMs);
    if (this.place === INPUT) this.fetchIdleMs += ms;
    else this.account('fetch').busy.add(ms);
    this.onPiece('fetch', ms);
    const ready = Math.min(Math.max(readyMs, this.since), now);
    this.charge(ready);
    this.place = this.account('sink').busy.isOn ? SINK : OTHER;
    this.charge(now);
    this.place = OTHER;
  }

  /** Accounts for the loop's wait for a stage. */
  async waiting<T>(stage: Stage, wait: () => Promise<T>): Promise<T> {
    this.leave();
    this.place = AT[stage];
    try {
      return await wait();
    } finally {
      this.rests();
    }
  }

  /** Accounts for an operation of the stage beside the loop. */
  async during<T>(stage: Stage, work: () => Promise<T>): Promise<T> {
    const from = this.clock.monotonicMs();
    const account = this.account(stage);
    begin(account, from);
    try {
      return await work();
    } finally {
      const now = this.clock.monotonicMs();
      end(account, now);
      this.onPiece(stage, now - from);
    }
  }

  /** From now on the stage has something to do, whether it works or waits; once for each `done`. */
  given(stage: Stage): void {
    this.account(stage).taken.begin(this.clock.monotonicMs());
  }
  done(stage: Stage): void {
    this.account(stage).taken.end(this.clock.monotonicMs());
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
      const { isInLoop, taken } = this.account(stage);
      if (stage === 'fetch') return Math.max(0, wallMs - busy - this.fetchIdleMs);
      if (isInLoop) return Math.max(0, wallMs - busy - limitMs.fetch - limitMs.input);
      return Math.max(0, taken.total(now) - busy);
    });
    return { wallMs, busyMs, blockedMs, limitMs };
  }

  private account(stage: Stage): Account {
    return this.accounts[AT[stage]] as Account;
  }

  /** Leaves the present place; returns the time. */
  private leave(): number {
    const now = this.clock.monotonicMs();
    const ms = now - this.since;
    this.charge(now);
    if (!this.isWorking) return now;
    this.isWorking = false;
    const account = this.accounts[this.place] as Account;
    end(account, now);
    if (account.isInLoop) this.onPiece(LIMITS[this.place] as Stage, ms);
    return now;
  }

  private charge(now: number): void {
    this.limitMs[this.place] = (this.limitMs[this.place] as number) + now - this.since;
    this.since = now;
  }
}

function begin({ busy, taken }: Account, now: number): void {
  busy.begin(now);
  taken.begin(now);
}

function end({ busy, taken }: Account, now: number): void {
  busy.end(now);
  taken.end(now);
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

/** Shares of the stages since the start. */
export const stripOf = ({ wallMs, busyMs, blockedMs }: StageTimes): readonly StageShare[] =>
  STAGES.map((stage) => {
    const part = (ms: number): number => (wallMs > 0 ? Math.min(1, ms / wallMs) : 0);
    const busy = part(busyMs[stage]);
    const blocked = Math.min(1 - busy, part(blockedMs[stage]));
    return { stage, busy, blocked, idle: 1 - busy - blocked };
  });
