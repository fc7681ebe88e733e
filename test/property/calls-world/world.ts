/** Runners of effects under virtual time: the product's own EffectRunner in several processes, over
 *  a simulated table (table.ts), a network that loses requests and answers, and a third party. The
 *  oracle looks at the calls alone, and at the table when a call begins.
 *
 *  Safety: no call begins while the table has an earlier open effect of its key; two calls of a key
 *  are in flight together at most for the time that the plan allows; an effect at most once is not
 *  called again after a call that may have acted. Liveness: each effect ends.
 */
import { coreError } from '../../../src/core/errors.ts';
import { silentLogger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import {
  type SqlPool,
  type SqlResult,
  type SqlSession,
  sqlError,
} from '../../../src/io/postgres/sql/port.ts';
import { type EffectHandler, effectNotDone, effectRefused } from '../../../src/outbox/effects/handler.ts';
import { EffectRunner } from '../../../src/outbox/effects/runner.ts';
import { SeededRandom, VirtualClock } from '../../../src/sim/clock.ts';
import { SimProcess } from '../relay-world/process.ts';
import { CallsTable, type StoredEffect, type Tx, type Values } from './table.ts';

export const LEASE_MS = 3000;
const LATENCY_MS = 5;
const RESTART_MS = 400;
/** Time until the server ends the sessions of a killed process or of a lost request. */
const SESSION_END_MS = 40;
/** Virtual time in which all effects must end, ms. */
const SETTLE_MS = 3_600_000;
const TEMPORARY = ['53100', '25006', '40P01', '40001', '55P03'];

export interface CallsPlan {
  readonly effects: number;
  readonly keys: number;
  readonly runners: number;
  readonly delivery: 'at_least_once' | 'at_most_once';
  /** Longest call, ms. */
  readonly callMs: number;
  /** Probabilities while the faults last: of a lost request, and of a lost answer to a claim, to a
   *  COMMIT and to any other statement. */
  readonly lostRequest?: number;
  readonly lostClaim?: number;
  readonly lostCommit?: number;
  readonly lostAnswer?: number;
  /** Probability that a consequence meets a refusal that passes. */
  readonly refusedConsequence?: number;
  /** Probability that the database cancels a statement that writes an outcome. */
  readonly canceledWrite?: number;
  /** Probabilities that the third party refuses, did nothing, or fails after it may have acted. */
  readonly refusedCall?: number;
  readonly notDone?: number;
  readonly failedCall?: number;
  /** Longest time for which two calls of a key may be in flight together, ms. Absent: any. */
  readonly overlapMs?: number;
}

interface Call {
  readonly row: StoredEffect;
  readonly process: SimProcess;
  readonly startMs: number;
}

interface Running {
  readonly process: SimProcess;
  readonly drain: AbortController;
  readonly metrics: Metrics;
  readonly ended: Promise<void>;
}

const CANCELED = sqlError('sql_failed', 'canceled by the statement timeout', {
  details: { sqlstate: '57014' },
});
const gone = (): Error => coreError('unreachable', 'the connection was lost');

export class CallsWorld {
  readonly clock = new VirtualClock();
  readonly table = new CallsTable(this.clock);
  readonly violations: string[] = [];
  readonly running: Running[] = [];
  /** Number of calls of each effect. */
  readonly calls = new Map<StoredEffect, number>();
  /** Number of faults by kind, so that a test can require its faults. */
  readonly met = new Map<string, number>();
  isFaulty = true;
  isDown = false;
  readonly random: SeededRandom;
  private readonly plan: CallsPlan;
  private readonly inFlight = new Set<Call>();
  /** Effects at most once that a third party may have done. */
  private readonly mayBeDone = new Set<StoredEffect>();
  private readonly open = new Map<SimProcess, Set<Tx>>();

  constructor(seed: number, plan: CallsPlan) {
    this.random = new SeededRandom(seed);
    this.plan = plan;
    for (let n = 0; n < plan.runners; n++) this.start();
    for (let n = 0; n < plan.effects; n++)
      this.clock.after(this.below(3000), () => this.table.add('pay', `key ${this.below(plan.keys)}`));
  }

  below(count: number): number {
    return Math.floor(this.random.fraction() * count);
  }

  /** Adds an effect whose call lasts until the end of the faults. */
  addBusy(key: string): void {
    this.table.add('busy', key);
  }

  /** Effects without those that keep a runner busy. */
  get payments(): readonly StoredEffect[] {
    return this.table.rows.filter(({ name }) => name === 'pay');
  }

  /** Waits until all payments have ended. */
  async settle(): Promise<void> {
    const isComplete = (): boolean =>
      this.payments.length === this.plan.effects &&
      this.payments.every(({ state }) => state === 'done' || state === 'dead');
    const isOver = (): boolean => this.violations.length > 0 || isComplete();
    await this.clock.until('the end of each effect', isOver, SETTLE_MS);
  }

  /** Ends the faults and drains the runners. */
  async end(): Promise<void> {
    this.heal();
    for (const { drain } of this.running) drain.abort();
    await this.clock.run(Promise.all(this.running.map(({ ended }) => ended)));
  }

  /** Attempts with this outcome, as the runners that are not killed count them. */
  counted(outcome: string): number {
    let sum = 0;
    for (const { metrics } of this.running)
      for (const { name, samples } of metrics.snapshot())
        for (const sample of name === 'effect_attempts_total' ? samples : [])
          if (sample.labels['outcome'] === outcome) sum += sample.value ?? 0;
    return sum;
  }

  start(): void {
    const process = new SimProcess(this.clock);
    const drain = new AbortController();
    const metrics = new Metrics();
    const shared = {
      timeoutMs: 600_000,
      concurrency: 4,
      delivery: this.plan.delivery,
      onDead: 'release',
    } as const;
    const retry = { firstDelayMs: 20, maxDelayMs: 200, budgetMs: 36_000_000, runnerEndsMax: 10_000 };
    const breaker = { failures: 5, openMs: 50, openMaxMs: 200 };
    const runner = new EffectRunner({
      ...{ pool: this.poolOf(process), table: 'effects', clock: process.clock, random: this.random },
      ...{ metrics, log: silentLogger, drain: drain.signal, leaseMs: LEASE_MS, pollMs: 100 },
      handlers: {
        pay: { ...shared, call: this.callOf(process), done: this.consequence, retry, breaker },
        busy: { ...shared, call: (_, signal) => this.busyCall(process, signal), retry, breaker },
      },
    });
    this.open.set(process, new Set());
    this.running.push({ process, drain, metrics, ended: runner.run() });
  }

  /** SIGKILL, and another process after a while. */
  kill(place: number): void {
    const [one] = this.running.splice(place, 1);
    if (one === undefined) return;
    const { process } = one;
    process.isDead = true;
    for (const call of this.inFlight) if (call.process === process) this.inFlight.delete(call);
    this.clock.after(SESSION_END_MS, () => {
      for (const tx of this.open.get(process) ?? []) this.table.rollback(tx);
    });
    this.clock.after(RESTART_MS, () => this.start());
  }

  /** A kill, a suspension, a step of the database's clock, or an outage, by chance. */
  strike(): void {
    const kind = this.below(4);
    const forMs = 200 + this.below(2 * LEASE_MS);
    const process = this.running[this.below(this.running.length)]?.process;
    if (kind === 0) {
      this.meet('a kill');
      this.kill(this.below(this.running.length));
    } else if (kind === 1) {
      this.meet('a suspension');
      process?.stop();
      this.clock.after(forMs, () => process?.resume());
    } else if (kind === 2) {
      this.meet('a step of the clock');
      this.table.stepMs += forMs;
    } else {
      this.meet('an outage');
      this.isDown = true;
      this.clock.after(forMs, () => {
        this.isDown = false;
      });
    }
  }

  heal(): void {
    this.isFaulty = false;
    this.isDown = false;
    for (const { process } of this.running) process.resume();
  }

  meet(what: string): void {
    this.met.set(what, (this.met.get(what) ?? 0) + 1);
  }

  private occurs(what: string, chance = 0): boolean {
    const does = this.isFaulty && chance > 0 && this.random.fraction() < chance;
    if (does) this.meet(what);
    return does;
  }

  private busyCall(process: SimProcess, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => reject(new Error('aborted')));
      const check = (): void => {
        if (this.isFaulty) process.clock.after(100, check);
        else resolve();
      };
      check();
    });
  }

  private callOf(process: SimProcess): EffectHandler['call'] {
    const { plan } = this;
    return ({ id }, signal) => {
      const row = this.table.rows[Number(id) - 1] as StoredEffect;
      const call: Call = { row, process, startMs: this.clock.monotonicMs() };
      this.began(call);
      return new Promise((resolve, reject) => {
        const end = (settle: () => void): void => {
          if (!this.inFlight.delete(call)) return;
          this.checkOverlap(call);
          settle();
        };
        signal.addEventListener('abort', () => end(() => reject(new Error('aborted'))));
        process.clock.after(1 + this.below(plan.callMs), () =>
          end(() => {
            if (this.occurs('a call that did nothing', plan.notDone)) {
              this.mayBeDone.delete(row);
              reject(effectNotDone('too many requests', 10));
            } else if (this.occurs('a refused call', plan.refusedCall)) reject(effectRefused('declined'));
            else if (this.occurs('a failed call', plan.failedCall)) reject(new Error('no answer'));
            else resolve({ id });
          }),
        );
      });
    };
  }

  private began(call: Call): void {
    const { row } = call;
    this.calls.set(row, (this.calls.get(row) ?? 0) + 1);
    if (this.plan.overlapMs === 0)
      for (const other of this.table.blockersOf(row))
        this.violations.push(`effect ${row.id} was called while effect ${other.id} is ${other.state}`);
    if (this.plan.delivery === 'at_most_once' && this.mayBeDone.has(row))
      this.violations.push(`effect ${row.id} was called again after a call that may have acted`);
    this.mayBeDone.add(row);
    this.inFlight.add(call);
    if (this.plan.overlapMs === 0) this.checkOverlap(call);
  }

  /** Checks how long the call was in flight beside another call of its key. */
  private checkOverlap(call: Call): void {
    const { overlapMs } = this.plan;
    if (overlapMs === undefined) return;
    const nowMs = this.clock.monotonicMs();
    for (const other of this.inFlight) {
      if (other === call || other.row.key !== call.row.key) continue;
      const ms = nowMs - Math.max(call.startMs, other.startMs);
      if (overlapMs === 0 || ms > overlapMs)
        this.violations.push(`calls of effects ${call.row.id} and ${other.row.id} overlap for ${ms} ms`);
    }
  }

  private readonly consequence = async (): Promise<void> => {
    if (!this.occurs('a refused consequence', this.plan.refusedConsequence)) return;
    const sqlstate = TEMPORARY[this.below(TEMPORARY.length)] as string;
    const code = /^[25]/.test(sqlstate) && sqlstate !== '55P03' ? 'sql_unavailable' : 'sql_failed';
    throw sqlError(code, 'not now', { details: { sqlstate } });
  };

  private async request<T>(
    process: SimProcess,
    lost: number | undefined,
    execute: () => Promise<T>,
  ): Promise<T> {
    if (process.isDead) return new Promise<never>(() => {});
    const travel = (): Promise<void> =>
      new Promise((resolve) => this.clock.after(this.random.fraction() * LATENCY_MS, () => resolve()));
    await travel();
    if (this.isDown || this.occurs('a lost request', this.plan.lostRequest))
      throw await process.receive(gone());
    const result = await execute();
    await travel();
    if (this.isDown || this.occurs('a lost answer', lost)) throw await process.receive(gone());
    return process.receive(result);
  }

  private poolOf(process: SimProcess): SqlPool {
    const { table, plan } = this;
    const notUsed = (): never => {
      throw new Error('not used');
    };
    const statement = async (tx: Tx, text: string, values: Values, isAlone: boolean): Promise<SqlResult> => {
      const lost = text.startsWith('WITH heads') ? plan.lostClaim : plan.lostAnswer;
      const isWrite = /SET state = '\w+', owner = NULL/.test(text);
      const answer = await this.request(process, lost, async () => {
        if (isWrite && this.occurs('a canceled write', plan.canceledWrite)) return CANCELED;
        const rows = await table.execute(tx, text, values);
        if (isAlone) table.commit(tx);
        return { rows, rowCount: rows.length };
      });
      if (answer instanceof Error) throw answer;
      return answer;
    };
    const query = (text: string, values: Values = []): Promise<SqlResult> =>
      statement(table.begin(), text, values, true);
    const sessionOf = (tx: Tx): SqlSession => ({
      query: ((text: string, values: Values = []) =>
        statement(tx, text, values, false)) as SqlSession['query'],
      copyIn: notUsed,
    });
    return {
      query: query as SqlPool['query'],
      transaction: async (work) => {
        const tx = table.begin();
        this.open.get(process)?.add(tx);
        const rollback = (): void => void this.clock.after(SESSION_END_MS, () => table.rollback(tx));
        try {
          const value = await work(sessionOf(tx));
          await this.request(process, plan.lostCommit, async () => table.commit(tx)).catch(
            (thrown: unknown) => {
              throw sqlError('commit_unknown', 'COMMIT had no answer', { cause: thrown });
            },
          );
          return value;
        } catch (thrown) {
          rollback();
          throw thrown;
        } finally {
          this.open.get(process)?.delete(tx);
        }
      },
      systemIdentifier: async () => '7',
      copyIn: notUsed,
      close: async () => {},
    };
  }
}
