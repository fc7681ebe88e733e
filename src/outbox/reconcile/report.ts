/** Result of a reconciliation as text. */
import type { Reconciliation } from './run.ts';

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
  if (result.from !== null || result.to !== null)
    lines.push(`${'compared'.padEnd(LABEL_WIDTH)} rows ${rangeText(result)}`);
  lines.push(
    result.holds
      ? 'The invariant holds: distinct effects equal distinct intents.'
      : 'The invariant is broken: distinct effects differ from distinct intents.',
  );
  return lines.join('\n');
}

const rangeText = ({ from, to }: Reconciliation): string =>
  [from === null ? '' : `from ${from}`, to === null ? '' : `up to ${to}`]
    .filter((part) => part !== '')
    .join(' ');
