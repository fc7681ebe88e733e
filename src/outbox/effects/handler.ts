/** Handlers of effects, and the errors by which a handler tells what happened. */
import { findMillraceError } from '../../core/errors.ts';
import type { SqlSession } from '../../io/postgres/sql/port.ts';
import { outboxError } from '../errors.ts';
import type { BreakerSettings } from './breaker.ts';

/** One effect as its handler sees it. */
export interface Effect {
  /** Idempotency key for the third party, the same at each attempt. */
  readonly id: string;
  readonly name: string;
  readonly key: string;
  /** Value that `effect` was given. */
  readonly input: unknown;
  /** 1 at the first attempt. */
  readonly attempt: number;
  readonly traceparent: string | undefined;
  /** Data of tracing systems that belongs to `traceparent`. */
  readonly tracestate: string | undefined;
}

/** Retries: exponential backoff with full jitter, within a budget. */
export interface EffectRetry {
  /** Upper bound of the first delay, ms; it doubles with each failure. */
  readonly firstDelayMs: number;
  /** Maximum of the upper bound, ms. */
  readonly maxDelayMs: number;
  /** Time from the first attempt to the last, ms. */
  readonly budgetMs: number;
  /** Number of attempts in a row that end with their runner, such as those that crash its process,
   *  until the effect becomes a dead letter. Each attempt with an outcome resets the count. */
  readonly runnerEndsMax: number;
}

export interface EffectHandler {
  /** Calls the third party with `effect.id` as its idempotency key. The signal is aborted after
   *  `timeoutMs`, and when another runner may take the effect over.
   *  @returns a JSON value that is kept as the result */
  readonly call: (effect: Effect, signal: AbortSignal) => Promise<unknown>;
  /** Writes the local consequence of the call, in the transaction that marks the effect as done. If
   *  it throws, the attempt has failed. */
  readonly done?: (tx: SqlSession, effect: Effect, result: unknown) => Promise<void>;
  /** `at_least_once`: an attempt with an unknown outcome is repeated under the same id.
   *  `at_most_once`: it becomes a dead letter. Default: at_least_once. */
  readonly delivery?: 'at_least_once' | 'at_most_once';
  /** `block`: later effects of the key wait for the dead letter. `release`: they do not.
   *  Default: block. */
  readonly onDead?: 'block' | 'release';
  /** Longest time of one attempt, ms. Default: EFFECT_DEFAULTS. */
  readonly timeoutMs?: number;
  /** Maximum number of calls of this handler in flight. Default: EFFECT_DEFAULTS. */
  readonly concurrency?: number;
  readonly retry?: Partial<EffectRetry>;
  readonly breaker?: Partial<BreakerSettings>;
}

/** Options that fit most third parties: attempts of up to 30 s, retried for a day, or until ten
 *  attempts in a row have ended with their runner. */
export const EFFECT_DEFAULTS = {
  timeoutMs: 30_000,
  concurrency: 16,
  retry: { firstDelayMs: 500, maxDelayMs: 15 * 60_000, budgetMs: 24 * 3_600_000, runnerEndsMax: 10 },
  breaker: { failures: 10, openMs: 5000, openMaxMs: 5 * 60_000 },
} as const;

export type SettledHandler = Required<Omit<EffectHandler, 'done' | 'retry' | 'breaker'>> &
  Pick<EffectHandler, 'done'> & { readonly retry: EffectRetry; readonly breaker: BreakerSettings };

/** Completes the options of a handler. @throws bad_option */
export function settledHandler(name: string, given: EffectHandler): SettledHandler {
  const { retry, breaker, ...rest } = given;
  const settled: SettledHandler = {
    ...{ delivery: 'at_least_once', onDead: 'block' },
    timeoutMs: EFFECT_DEFAULTS.timeoutMs,
    concurrency: EFFECT_DEFAULTS.concurrency,
    ...rest,
    retry: { ...EFFECT_DEFAULTS.retry, ...retry },
    breaker: { ...EFFECT_DEFAULTS.breaker, ...breaker },
  };
  const numbers = {
    timeoutMs: settled.timeoutMs,
    concurrency: settled.concurrency,
    ...settled.retry,
    ...settled.breaker,
  };
  for (const [option, value] of Object.entries(numbers)) {
    if (Number.isFinite(value) && value > 0) continue;
    throw outboxError('bad_option', `${option} of the handler ${name} is ${value}, not a number above 0`, {
      next: 'give times in ms, and counts from 1 on',
    });
  }
  return settled;
}

/** Outcome of a failed attempt, as far as it is known. */
export interface AttemptFailure {
  /** `refused`: the third party will never do it. `not_done`: it did nothing. `unknown`: it may
   *  have acted. */
  readonly kind: 'refused' | 'not_done' | 'unknown';
  readonly message: string;
  /** Least time until the next attempt, ms. */
  readonly retryAfterMs: number;
}

/** Error for a call that the third party refused for good, such as a declined card: the effect
 *  becomes a dead letter without a retry.
 *  @example
 *  if (response.status === 402) throw effectRefused('the card was declined');
 */
export const effectRefused = (why: string, cause?: unknown): Error =>
  outboxError('effect_refused', why, { cause });

/** Error for a call of which it is certain that the third party did nothing, such as a refused
 *  connection or status 429: it is retried, also at most once.
 *  @param retryAfterMs least time until the next attempt
 *  @example
 *  if (response.status === 429) throw effectNotDone('too many requests', 30_000);
 */
export const effectNotDone = (why: string, retryAfterMs = 0, cause?: unknown): Error =>
  outboxError('effect_not_done', why, { cause, details: { retryAfterMs } });

/** Classifies the error of an attempt. */
export function failureOf(thrown: unknown): AttemptFailure {
  const error = findMillraceError(thrown);
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  if (error?.code === 'effect_refused') return { kind: 'refused', message, retryAfterMs: 0 };
  if (error?.code !== 'effect_not_done') return { kind: 'unknown', message, retryAfterMs: 0 };
  const afterMs = Number(error.details['retryAfterMs']);
  return { kind: 'not_done', message, retryAfterMs: Number.isFinite(afterMs) ? Math.max(0, afterMs) : 0 };
}
