/** Result of a reconciliation as text. */
import { formatDuration } from '../../core/quantity.ts';
import type { LateEffects, Reconciliation } from './comparison.ts';
import type { PairFinding } from './pairs/findings.ts';
import type { PairComparison } from './pairs/run.ts';
import type { WatchedResult } from './watch/run.ts';

const LABEL_WIDTH = 18;

export function reconciliationText(result: Reconciliation): string {
  const line = (name: string, value: number, note = ''): string =>
    `${name.padEnd(LABEL_WIDTH)} ${value}${note === '' ? '' : `  (${note})`}`;
  const lines = [
    line(
      'produced_intents',
      result.produced_intents,
      result.intents_from === 'ledger'
        ? 'from the ledger'
        : 'stored idempotency keys; give -ledger to use those of the clients',
    ),
    line('distinct_orders', result.distinct_orders),
    line('distinct_charges', result.distinct_charges),
  ];
  if (result.unanswered_intents > 0)
    lines.push(line('unanswered_intents', result.unanswered_intents, 'no answer and no order'));
  if (result.refused_intents > 0)
    lines.push(line('refused_intents', result.refused_intents, 'refused and no order'));
  if (result.expired_keys > 0)
    lines.push(line('expired_keys', result.expired_keys, 'orders whose key has expired'));
  const reasons = (counts: Readonly<Record<string, number>>): string =>
    Object.entries(counts)
      .map(([reason, count]) => `${count} ${reason}`)
      .join(', ');
  const sum = (counts: Readonly<Record<string, number>>): number =>
    Object.values(counts).reduce((all, count) => all + count, 0);
  if (sum(result.suppressed) > 0)
    lines.push(
      line('suppressed', sum(result.suppressed), `deliveries absorbed: ${reasons(result.suppressed)}`),
    );
  if (sum(result.parked) > 0)
    lines.push(line('parked', sum(result.parked), `records set aside: ${reasons(result.parked)}`));
  lines.push(
    line(
      'deltas',
      result.deltas.reduce((sum, delta) => sum + delta.count, 0),
    ),
  );
  for (const { class: name, count, meaning, idsOf, ids } of result.deltas) {
    lines.push(`  ${name}: ${count}, ${meaning}`);
    for (const id of ids) lines.push(`    ${idsOf} ${id}`);
    if (count > ids.length) lines.push(`    and ${count - ids.length} more`);
  }
  if (result.late !== undefined && result.late.count > 0) lines.push(...lateLines(result.late));
  if (result.from !== null || result.to !== null)
    lines.push(`${'compared'.padEnd(LABEL_WIDTH)} rows ${rangeText(result)}`);
  lines.push(
    result.holds
      ? 'The invariant holds: distinct effects equal distinct intents.'
      : 'The invariant is broken: distinct effects differ from distinct intents.',
  );
  return lines.join('\n');
}

/** Late effects stand apart from the deltas, because they break nothing. */
function lateLines({ after_ms, count, ids }: LateEffects): string[] {
  const lines = [
    `${'late'.padEnd(LABEL_WIDTH)} ${count}  (effects that came more than ${formatDuration(after_ms)} after their intent; no delta)`,
    ...ids.map((id) => `    msg_id ${id}`),
  ];
  if (count > ids.length) lines.push(`    and ${count - ids.length} more`);
  return lines;
}

const rangeText = ({ from, to }: Reconciliation): string =>
  [from === null ? '' : `from ${from}`, to === null ? '' : `up to ${to}`]
    .filter((part) => part !== '')
    .join(' ');

function findingLines(findings: readonly PairFinding[]): string[] {
  return findings.flatMap(({ class: name, meaning, count, ids }) => [
    `  ${name}: ${count}, ${meaning}`,
    ...ids.map((id) => `    ${id}`),
    ...(count > ids.length ? [`    and ${count - ids.length} more`] : []),
  ]);
}

const sumOf = (findings: readonly PairFinding[]): number =>
  findings.reduce((sum, { count }) => sum + count, 0);

/** Result of a comparison of configured pairs. */
export function pairsText(results: readonly PairComparison[]): string {
  const lines = results.flatMap((one) => [
    `${one.pair}: ${one.left} rows of the outbox, ${one.right} of the inbox, ${sumOf(one.deltas)} deltas`,
    ...findingLines(one.deltas),
    ...(one.late.count > 0 ? findingLines([one.late]) : []),
  ]);
  const holds = results.every((one) => one.holds);
  lines.push(
    holds
      ? 'The invariant holds: each message has one effect.'
      : 'The invariant is broken: messages and effects differ.',
  );
  return lines.join('\n');
}

/** Result of a watch at its end. */
export function watchText(results: readonly WatchedResult[]): string {
  const lines = results.flatMap((one) => [
    `${one.pair}: ${one.rows} rows in ${one.buckets} comparisons, ${one.complete_passes} complete passes, ${sumOf(one.deltas)} deltas, ${one.late} late`,
    ...findingLines(one.deltas),
  ]);
  const holds = results.every(({ deltas }) => deltas.length === 0);
  lines.push(
    holds ? 'No bucket that was compared differs.' : 'Buckets differ: messages and effects are not equal.',
  );
  return lines.join('\n');
}
