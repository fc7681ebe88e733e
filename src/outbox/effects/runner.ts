/** Runs effects: claims due rows, calls their handlers, and writes the outcomes. Several runners
 *  may share a table.
 *
 *  Invariants: (1) effects of one name and key are called one after another, in the order of their
 *  ids; (2) a handler of `at_most_once` is not called again after an attempt whose outcome is
 *  unknown; (3) a call is aborted before another runner may take its effect over; (4) an outcome is
 *  written only while the effect is this runner's; (5) a claim whose lease expired is an attempt: a
 *  delay follows it, and a dead letter follows several in a row; (6) a call that succeeded stays a
 *  success while the database can accept its outcome later.
 */
import { type Cancel, type Random, randomUuid, sleep, type Timers } from '../../core/clock.ts';
import { findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import { refusedState, type SqlPool } from '../../io/postgres/sql/port.ts';
import { outboxError } from '../errors.ts';
import { faultOfState } from '../inbox/batch-committer.ts';
import { traced } from '../tracing.ts';
import { Breaker } from './breaker.ts';
import {
  type AttemptFailure,
  type Effect,
  type EffectHandler,
  failureOf,
  type SettledHandler,
  settledHandler,
} from './handler.ts';
import { type EffectLease, EffectLeases } from './leases.ts';
import { type EffectMetrics, effectMetrics } from './metrics.ts';
import { deadReason, expiredOutcome, retryDelayMs } from './retry.ts';
import { type Claimed, EffectStore, type Ending, type Expired, type ExpiredVerdict } from './store.ts';

export interface EffectRunnerOptions {
  readonly pool: SqlPool;
  /** Table of effectsTableSql. */
  readonly table: string;
  /** Handlers by the names of their effects. Effects of other names stay waiting. */
  readonly handlers: Readonly<Record<string, EffectHandler>>;
  readonly clock: Timers;
  /** Source of the owner's id and of the jitter of retries. */
  readonly random: Random;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly drain: AbortSignal;
  /** Time after which the effects of a silent runner are taken over, ms. Default: EFFECT_TIMES. */
  readonly leaseMs?: number;
  /** Time between two looks for due effects, ms, unless `wake` is called. Default: EFFECT_TIMES. */
  readonly pollMs?: number;
  /** Time for which effects that are done stay in the table, ms. Default: EFFECT_TIMES. */
  readonly keepMs?: number;
}

/** Default times of a runner, ms. */
export const EFFECT_TIMES = { leaseMs: 30_000, pollMs: 250, keepMs: 7 * 24 * 3_600_000 } as const;

const UPKEEP_EVERY_MS = 10_000;
/** Rows of one statement that ends expired claims or deletes effects that are done. */
const BATCH_ROWS = 1000;
/** Pause between two batches of deletions, ms: the database serves other statements meanwhile. */
const PRUNE_PAUSE_MS = 10;
/** Longest turn of the deletions, ms. The next upkeep starts another one. */
const PRUNE_TURN_MS = 60_000;
const BACKOFF_MAX_MS = 5000;
/** Times that an outcome is written again after a refusal by the database, in more than a minute. A
 *  consequence that is refused for longer is the fault of `done`. */
const REFUSALS_MAX = 20;
const RETRY_MS = 100;
const DOUBLINGS_MAX = 20;

interface Kind {
  readonly name: string;
  readonly handler: SettledHandler;
  readonly breaker: Breaker;
  inFlight: number;
}

/** Calls the handlers of the effects of one table until the drain.
 *  @example
 *  const runner = new EffectRunner({ ...drivers, pool, table: 'effects', handlers, drain });
 *  await runner.run();
 */
export class EffectRunner {
  private readonly options: EffectRunnerOptions;
  private readonly store: EffectStore;
  private readonly kinds: readonly Kind[];
  private readonly metrics: EffectMetrics;
  private readonly leaseMs: number;
  private readonly leases: EffectLeases;
  private readonly running = new Set<Promise<void>>();
  private failures = 0;
  private failure: string | undefined;
  private wakePending = false;
  private woken: (() => void) | undefined;
  private upkeepMs = Number.NEGATIVE_INFINITY;
  /** Turn of the deletions that is in progress. */
  private pruning: Promise<void> | undefined;

  /** @throws bad_table_name, bad_option */
  constructor(options: EffectRunnerOptions) {
    this.options = options;
    this.leaseMs = options.leaseMs ?? EFFECT_TIMES.leaseMs;
    this.leases = new EffectLeases(options.clock, this.leaseMs);
    this.store = new EffectStore(options.pool, options.table, randomUuid(options.random));
    this.metrics = effectMetrics(options.metrics);
    this.kinds = Object.entries(options.handlers).map(([name, given]) => {
      if (typeof given?.call !== 'function')
        throw outboxError('bad_option', `the handler ${name} has no function call`, {
          next: 'give call: async (effect) => …',
        });
      const handler = settledHandler(name, given);
      // A counter that begins with its first dead letter has no increase that an alert could see.
      for (const outcome of ATTEMPT_OUTCOMES) this.metrics.attempts.series(name, outcome);
      return { name, handler, breaker: new Breaker(handler.breaker), inFlight: 0 };
    });
  }

  /** Looks for due effects immediately, e.g. after a commit that added one. */
  wake(): void {
    this.wakePending = true;
    this.woken?.();
  }

  /** Reason why due effects are not called; undefined while they are. */
  unreadyReason(): string | undefined {
    return this.failure;
  }

  /** Runs until the drain, then waits for the calls in flight. */
  async run(): Promise<void> {
    const { drain, log } = this.options;
    const renewing = this.renewLeases();
    const end = (): void => this.wake();
    drain.addEventListener('abort', end, { once: true });
    while (!drain.aborted) {
      try {
        await this.upkeep();
        await this.claimAll();
        this.failures = 0;
        this.failure = undefined;
      } catch (thrown) {
        const error = findMillraceError(thrown);
        if (error === undefined || error.code === 'tables_missing') throw thrown;
        this.failures++;
        this.failure = error.message;
        log.warn(
          { code: error.code, error: error.message },
          'effects could not be claimed; a claim without an answer ends with its lease',
        );
      }
      await this.pause();
    }
    drain.removeEventListener('abort', end);
    while (this.running.size > 0) await Promise.race(this.running);
    await renewing;
    await this.pruning;
  }

  private async pause(): Promise<void> {
    const { clock, drain, pollMs = EFFECT_TIMES.pollMs } = this.options;
    const backoffMs = Math.min(BACKOFF_MAX_MS, pollMs * 2 ** Math.min(this.failures, DOUBLINGS_MAX));
    if (!this.wakePending && !drain.aborted) {
      let cancel: Cancel = () => {};
      await new Promise<void>((resolve) => {
        this.woken = resolve;
        cancel = clock.after(this.failures === 0 ? pollMs : backoffMs, resolve);
      });
      cancel();
      this.woken = undefined;
    }
    this.wakePending = false;
  }

  private async claimAll(): Promise<void> {
    const { clock } = this.options;
    for (const kind of this.kinds) {
      const { handler, breaker, name } = kind;
      const limit = breaker.room(clock.monotonicMs(), handler.concurrency - kind.inFlight);
      if (limit <= 0 || this.options.drain.aborted) continue;
      const askedMs = clock.monotonicMs();
      for (const claimed of await this.store.claim(name, limit, this.leaseMs))
        this.start(kind, claimed, askedMs);
    }
  }

  private start(kind: Kind, claimed: Claimed, claimedMs: number): void {
    kind.inFlight++;
    kind.breaker.started();
    const lease = this.leases.begin(claimed, claimedMs);
    const working = this.execute(kind, claimed, lease).finally(() => {
      kind.inFlight--;
      this.leases.release(lease);
      this.running.delete(working);
      // The next effect of the key may be due.
      this.wake();
    });
    this.running.add(working);
  }

  /** One attempt, and its outcome in the table; never rejects. */
  private async execute(kind: Kind, claimed: Claimed, lease: EffectLease): Promise<void> {
    const { clock, log } = this.options;
    const { name } = kind;
    const startMs = clock.monotonicMs();
    const attempt = lease.isHeld ? await this.attempt(kind.handler, claimed, lease) : LATE;
    const tookMs = clock.monotonicMs() - startMs;
    if (attempt !== LATE) this.metrics.seconds.observe(tookMs / 1000, this.metrics.seconds.series(name));
    this.judgeThirdParty(kind, attempt);
    const outcome = await this.settle(kind, claimed, lease, attempt, tookMs);
    this.metrics.attempts.add(1, this.metrics.attempts.series(name, outcome));
    if (outcome === 'dead' || outcome === 'lost')
      log.warn({ effect: claimed.id, name, key: claimed.key, outcome }, 'an effect has no result');
  }

  private judgeThirdParty({ name, breaker }: Kind, attempt: Attempt): void {
    if (attempt === LATE || attempt === LAPSED) breaker.skipped();
    else if ('failure' in attempt && attempt.failure.kind !== 'refused')
      breaker.failed(this.options.clock.monotonicMs());
    else breaker.succeeded();
    this.metrics.open.set(breaker.isOpen ? 1 : 0, this.metrics.open.series(name));
  }

  private async attempt(handler: SettledHandler, claimed: Claimed, lease: EffectLease): Promise<Attempt> {
    const { clock } = this.options;
    const control = new AbortController();
    const { row: _row, triedMs: _triedMs, ...effect } = claimed;
    let cancel: Cancel = () => {};
    let lapse = (): void => {};
    const ended = new Promise<Attempt>((resolve) => {
      const endWith = (attempt: Attempt): void => {
        resolve(attempt);
        control.abort();
      };
      cancel = clock.after(handler.timeoutMs, () => endWith(OVERDUE));
      lapse = () => endWith(LAPSED);
      lease.ended.addEventListener('abort', lapse, { once: true });
    });
    try {
      const call = this.call(handler, effect, control.signal).then((result) => ({ result }));
      // A rejection after the timeout has no reader.
      call.catch(() => {});
      return await Promise.race([call, ended]);
    } catch (thrown) {
      return { failure: failureOf(thrown) };
    } finally {
      cancel();
      lease.ended.removeEventListener('abort', lapse);
    }
  }

  /** Calls the handler, in a span of the trace that added the effect. */
  private call(handler: SettledHandler, effect: Effect, signal: AbortSignal): Promise<unknown> {
    const { id, name, attempt, traceparent, tracestate } = effect;
    const cause = traceparent === undefined ? undefined : { traceparent, tracestate };
    const attributes = { 'millrace.effect.id': id, 'millrace.effect.attempt': attempt };
    return traced(`effect ${name}`, 'client', attributes, cause, async () => handler.call(effect, signal));
  }

  /** New state of the effect after this attempt. */
  private endingOf({ handler }: Kind, claimed: Claimed, attempt: Attempt, tookMs: number): Ending {
    if (!('failure' in attempt)) return { state: 'done', result: attempt.result };
    const { kind, message: error, retryAfterMs } = attempt.failure;
    const reason = deadReason(handler, { kind }, claimed.triedMs + tookMs);
    if (reason !== undefined) return { state: 'dead', reason, error, blocks: handler.onDead === 'block' };
    const backoffMs = retryDelayMs(handler.retry, claimed.attempt, this.options.random.fraction());
    return { state: 'waiting', delayMs: Math.max(retryAfterMs, backoffMs), error };
  }

  /** Writes the outcome; repeats that while the lease lasts, unless the database refuses it for
   *  good. Never rejects. */
  private async settle(
    kind: Kind,
    claimed: Claimed,
    lease: EffectLease,
    attempt: Attempt,
    tookMs: number,
  ): Promise<Outcome> {
    const { clock, log } = this.options;
    const fields = { effect: claimed.id, name: kind.name };
    let ending = this.endingOf(kind, claimed, attempt, tookMs);
    let isUnanswered = false;
    for (let failures = 0, refusals = 0; ; failures++) {
      try {
        if (await this.write(kind, claimed, ending)) return OUTCOMES[ending.state];
        const isWritten = isUnanswered && (await this.store.hasEnding(claimed, ending));
        return isWritten ? OUTCOMES[ending.state] : 'lost';
      } catch (thrown) {
        const fault = writeFault(thrown);
        const error = thrown instanceof Error ? thrown.message : String(thrown);
        if (fault === 'unanswered') isUnanswered = true;
        else if (fault === 'final' || ++refusals > REFUSALS_MAX) {
          log.error({ ...fields, error }, 'the outcome of an effect could not be written');
          if (ending.state !== 'done') return 'lost';
          ending = this.endingOf(kind, claimed, { failure: failureOf(thrown) }, tookMs);
          continue;
        }
        if (!lease.isInTime) return 'lost';
        log.warn({ ...fields, error }, 'the outcome of an effect is written again');
        await sleep(clock, Math.min(BACKOFF_MAX_MS, RETRY_MS * 2 ** Math.min(failures, DOUBLINGS_MAX)));
      }
    }
  }

  /** Writes the ending once. False: the effect is another runner's, or has an ending already. */
  private async write({ handler }: Kind, claimed: Claimed, ending: Ending): Promise<boolean> {
    if (ending.state === 'waiting') return this.store.retry(claimed, ending.delayMs, ending.error);
    if (ending.state === 'dead') return this.store.bury(claimed, ending.reason, ending.error, ending.blocks);
    const { row: _row, triedMs: _triedMs, ...effect } = claimed;
    const { result } = ending;
    const text = result === undefined ? null : JSON.stringify(result);
    return this.store.finish(claimed, text ?? null, async (tx) => {
      await handler.done?.(tx, effect, result);
    });
  }

  private async renewLeases(): Promise<void> {
    const { clock, drain } = this.options;
    const everyMs = this.leaseMs / RENEWALS_PER_LEASE;
    let dueMs = clock.monotonicMs() + everyMs;
    while (!drain.aborted || this.running.size > 0) {
      // During the drain, the last call may end at any time.
      const waitMs = Math.max(1, dueMs - clock.monotonicMs());
      if (drain.aborted) await sleep(clock, Math.min(waitMs, DRAIN_LOOK_MS));
      else await sleep(clock, waitMs, drain);
      if (clock.monotonicMs() < dueMs) continue;
      dueMs = clock.monotonicMs() + everyMs;
      if (this.running.size > 0) await this.renewOnce();
    }
  }

  private async renewOnce(): Promise<void> {
    try {
      await this.leases.renew((held) => this.store.renew(held, this.leaseMs));
    } catch (thrown) {
      this.options.log.warn(
        { error: (thrown as Error).message },
        'the leases of effects could not be renewed',
      );
    }
  }

  /** Ends the claims of silent runners, counts, and starts the deletions, at most every 10 s. */
  private async upkeep(): Promise<void> {
    const { clock } = this.options;
    const nowMs = clock.monotonicMs();
    if (nowMs - this.upkeepMs < Math.min(UPKEEP_EVERY_MS, this.leaseMs)) return;
    await this.endExpired();
    this.pruning ??= this.prune().finally(() => {
      this.pruning = undefined;
    });
    const counts = await this.store.counts();
    for (const { name } of this.kinds)
      for (const state of ['waiting', 'running', 'dead', 'released']) {
        const found = counts.find((one) => one.name === name && one.state === state);
        this.metrics.rows.set(found?.n ?? 0, this.metrics.rows.series(name, state));
      }
    this.upkeepMs = nowMs;
  }

  /** Ends the claims whose runners were silent for a lease: each was an attempt. */
  private async endExpired(): Promise<void> {
    const { log, random, drain } = this.options;
    const handlers = new Map(this.kinds.map(({ name, handler }) => [name, handler]));
    const judge = (expired: Expired): ExpiredVerdict => {
      const handler = handlers.get(expired.name) as SettledHandler;
      const outcome = expiredOutcome(handler, expired, random.fraction());
      return { ...outcome, blocks: outcome.state === 'waiting' || handler.onDead === 'block' };
    };
    for (;;) {
      const ended = await this.store.endExpired([...handlers.keys()], BATCH_ROWS, judge);
      for (const [{ id, name, key, attempt }, verdict] of ended) {
        const outcome = verdict.state === 'dead' ? 'dead' : 'retry';
        this.metrics.attempts.add(1, this.metrics.attempts.series(name, outcome));
        log.warn(
          { effect: id, name, key, attempt, outcome },
          'the runner of an effect ended during an attempt',
        );
      }
      if (ended.length < BATCH_ROWS || drain.aborted) return;
    }
  }

  /** Deletes effects that were done before `keepMs`, batch by batch. Never rejects. */
  private async prune(): Promise<void> {
    const { clock, drain, log, keepMs = EFFECT_TIMES.keepMs } = this.options;
    const endMs = clock.monotonicMs() + PRUNE_TURN_MS;
    try {
      while ((await this.store.prune(keepMs, BATCH_ROWS)) === BATCH_ROWS) {
        if (drain.aborted || clock.monotonicMs() >= endMs) return;
        await sleep(clock, PRUNE_PAUSE_MS, drain, 'background');
      }
    } catch (thrown) {
      log.warn({ error: (thrown as Error).message }, 'effects that are done could not be deleted');
    }
  }
}

type Attempt = { readonly result: unknown } | { readonly failure: AttemptFailure };
const ATTEMPT_OUTCOMES = ['done', 'retry', 'dead', 'lost'] as const;
type Outcome = (typeof ATTEMPT_OUTCOMES)[number];

/** Outcomes of attempts by the state of the effect after them. */
const OUTCOMES = { done: 'done', waiting: 'retry', dead: 'dead' } as const;
const RENEWALS_PER_LEASE = 3;
/** Time between two looks at the end of the calls in flight, ms. */
const DRAIN_LOOK_MS = 50;

const unknownOutcome = (message: string): Attempt => ({
  failure: { kind: 'unknown', message, retryAfterMs: 0 },
});
const OVERDUE = unknownOutcome('the call did not end in time');
/** Attempt whose lease ended. It says nothing about the third party. */
const LAPSED = unknownOutcome('the lease of the effect ended during the call');
/** Attempt that was not made, because the process was suspended after the claim. */
const LATE: Attempt = {
  failure: { kind: 'not_done', message: 'the claim was too old to begin the call', retryAfterMs: 0 },
};

/** Fault of a write: `unanswered`: it may have taken effect; `refused`: the database may accept it
 *  later; `final`: it would be refused again, or `done` threw. */
function writeFault(thrown: unknown): 'unanswered' | 'refused' | 'final' {
  const error = findMillraceError(thrown);
  if (error?.code === 'unreachable' || error?.code === 'commit_unknown') return 'unanswered';
  if (error?.code === 'sql_unavailable') return 'refused';
  const sqlstate = refusedState(error);
  return sqlstate !== undefined && faultOfState(sqlstate) === 'contention' ? 'refused' : 'final';
}
