/** Decisions after an attempt without a result: retry or dead letter, and the delay. Pure. */
import type { AttemptFailure, EffectRetry, SettledHandler } from './handler.ts';

/** Reason of a dead letter: the third party refused, the time for retries is used up, the outcome
 *  of a call at most once is unknown, or several attempts in a row ended with their runner. */
export type DeadReason = 'refused' | 'budget' | 'unknown_outcome' | 'runner_ended';

/** Doublings after which any delay has reached its maximum. */
const DOUBLINGS_MAX = 40;

/** Returns the delay after the attempt with this number: exponential backoff with full jitter.
 *  @param fraction uniform in [0, 1) */
export function retryDelayMs(
  { firstDelayMs, maxDelayMs }: EffectRetry,
  attempt: number,
  fraction: number,
): number {
  return fraction * Math.min(maxDelayMs, firstDelayMs * 2 ** Math.min(attempt - 1, DOUBLINGS_MAX));
}

/** Returns why the effect becomes a dead letter; undefined: it is tried again.
 *  @param triedMs time since the first attempt */
export function deadReason(
  { delivery, retry }: Pick<SettledHandler, 'delivery' | 'retry'>,
  { kind }: Pick<AttemptFailure, 'kind'>,
  triedMs: number,
): DeadReason | undefined {
  if (kind === 'refused') return 'refused';
  if (kind === 'unknown' && delivery === 'at_most_once') return 'unknown_outcome';
  return triedMs >= retry.budgetMs ? 'budget' : undefined;
}

/** Attempt whose lease expired without an outcome. */
export interface ExpiredAttempt {
  readonly attempt: number;
  /** Time since the first attempt, ms. */
  readonly triedMs: number;
  /** Attempts in a row that ended with their runner, this one included; undefined: the table has no
   *  column for the count. */
  readonly runnerEnds: number | undefined;
}

/** New state of an effect whose attempt ended with its runner. */
export type ExpiredOutcome =
  | { readonly state: 'waiting'; readonly delayMs: number; readonly error: string }
  | { readonly state: 'dead'; readonly reason: DeadReason; readonly error: string };

/** Decides about an attempt that ended with its runner. It counts as an attempt of unknown outcome,
 *  because a call that ends its process would otherwise be repeated for ever, and end each process.
 *  @param fraction uniform in [0, 1) */
export function expiredOutcome(
  handler: Pick<SettledHandler, 'delivery' | 'retry'>,
  { attempt, triedMs, runnerEnds }: ExpiredAttempt,
  fraction: number,
): ExpiredOutcome {
  const { retry } = handler;
  const error = `its runner ended during attempt ${attempt}, or was silent until the lease expired`;
  const reason = deadReason(handler, { kind: 'unknown' }, triedMs);
  if (reason === 'unknown_outcome') return { state: 'dead', reason, error };
  const isSpent = reason === 'budget' || (runnerEnds ?? 0) >= retry.runnerEndsMax;
  if (!isSpent) return { state: 'waiting', delayMs: retryDelayMs(retry, attempt, fraction), error };
  // The constraint of a table without the count admits no other reason.
  return { state: 'dead', reason: runnerEnds === undefined ? 'budget' : 'runner_ended', error };
}
