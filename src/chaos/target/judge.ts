/** Queries that find violations of a target, and the verdict over them. */
import { missingRepeats } from '../coverage.ts';
import type { FaultOutcome } from '../run.ts';
import { faultText } from '../schedule.ts';
import type { ChaosVerdict, UnplannedEnd } from '../verdict.ts';
import type { ChaosTarget, TablePair } from './document.ts';

/** Table of the session that reconciles: the requests that were sent, by key. */
export const SENT_TABLE = 'chaos_sent';
export const SENT_COLUMNS = ['key', 'n', 'account', 'amount', 'status', 'acknowledged'] as const;
export const SENT_DDL = `CREATE TEMP TABLE IF NOT EXISTS ${SENT_TABLE}
  (key text PRIMARY KEY, n bigint NOT NULL, account bigint NOT NULL, amount bigint NOT NULL, status int, acknowledged boolean NOT NULL)`;

/** Violations that are read at most; more are counted as more. */
export const VIOLATIONS_MAX = 1000;
/** Violations that a report shows. */
const SHOWN_MAX = 20;
const NAMED_MAX = 3;

/** Query whose rows are the violations of a target, each as a document. */
export function violationsQuery(reconcile: ChaosTarget['reconcile']): string {
  const text = typeof reconcile === 'string' ? reconcile : pairQuery(reconcile);
  // The name of the row must not be that of a column of the query.
  return `SELECT to_jsonb(chaos_row)::text AS violation FROM (${text}\n) AS chaos_row LIMIT ${VIOLATIONS_MAX + 1}`;
}

/** Intents without an effect, effects without an intent, and intents with several effects. */
function pairQuery({ intents, effects }: TablePair): string {
  return `SELECT coalesce(i.key, e.key) AS key,
    CASE WHEN e.key IS NULL THEN 'missing_effect' WHEN i.key IS NULL THEN 'effect_without_intent' ELSE 'repeated_effect' END AS violation,
    coalesce(e.effects, 0) AS effects
  FROM (SELECT DISTINCT ${intents.key}::text AS key FROM ${intents.table}) i
  FULL JOIN (SELECT ${effects.key}::text AS key, count(*) AS effects FROM ${effects.table} GROUP BY 1) e ON e.key = i.key
  WHERE i.key IS NULL OR e.key IS NULL OR e.effects > 1`;
}

export interface Violations {
  readonly count: number;
  /** True: there are more than `count`. */
  readonly isMore: boolean;
  readonly rows: readonly unknown[];
}

/** @param texts documents of the query, in its order */
export function violationsOf(texts: readonly string[]): Violations {
  return {
    count: Math.min(texts.length, VIOLATIONS_MAX),
    isMore: texts.length > VIOLATIONS_MAX,
    rows: texts.slice(0, SHOWN_MAX).map((text) => JSON.parse(text) as unknown),
  };
}

export interface TargetFacts {
  readonly violations: Violations;
  /** Intents, those with a 2xx answer, and those without a final answer. */
  readonly intents: number;
  readonly acknowledged: number;
  readonly unanswered: number;
  /** Requests that repeated a key, and the share of intents that they follow. */
  readonly repeats: number;
  readonly retryRate: number;
  /** Keys with two different answers; undefined: they are not compared. */
  readonly changedAnswers: readonly string[] | undefined;
  readonly outcomes: readonly FaultOutcome[];
  readonly ends: readonly UnplannedEnd[];
  /** Processes whose unplanned end fails the run. */
  readonly mustStay: readonly string[];
  readonly undrained: string | undefined;
}

/** Judges a run: no violation, every planned fault applied, every request answered, repeats as the
 *  settings ask for, and a drained service. A run without an acknowledged request shows nothing. */
export function judgeTarget(facts: TargetFacts): ChaosVerdict {
  const { violations, changedAnswers = [], undrained } = facts;
  const reasons: string[] = [];
  if (facts.acknowledged === 0)
    reasons.push(`none of ${facts.intents} requests was acknowledged with a 2xx answer`);
  if (violations.count > 0)
    reasons.push(
      `${violations.count}${violations.isMore ? ' or more' : ''} violations: ${violations.rows
        .slice(0, NAMED_MAX)
        .map((row) => JSON.stringify(row))
        .join(', ')}`,
    );
  if (changedAnswers.length > 0)
    reasons.push(
      `${changedAnswers.length} keys got two different answers (${changedAnswers.slice(0, NAMED_MAX).join(', ')})`,
    );
  if (facts.unanswered > 0) reasons.push(`${facts.unanswered} requests never got a final answer`);
  for (const { fault, applied, detail } of facts.outcomes)
    if (!applied) reasons.push(`fault ${fault.id}, ${faultText(fault)}, was not applied: ${detail}`);
  for (const { service, code, signal, logPath } of facts.ends)
    if (facts.mustStay.includes(service))
      reasons.push(`${service} ended by itself with ${signal ?? `code ${code}`}; see ${logPath}`);
  if (undrained !== undefined) reasons.push(undrained);
  reasons.push(...missingRepeats(facts.retryRate, facts.repeats, facts.intents));
  return { holds: reasons.length === 0, reasons };
}
