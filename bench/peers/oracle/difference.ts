/** Finds the first row that differs between two results, in order of (window_end, account_id), and
 *  prints it with the events of its window and their verdicts. */
import { Admission } from './admission.ts';
import type { DigestRow } from './digest.ts';
import type { LogEntry, OracleRules, PartitionCounters } from './rules.ts';

/** The arrival log from which both results were computed. */
export interface ArrivalLog {
  readonly rules: OracleRules;
  /** Number of partitions at the start. */
  readonly partitions: number;
  readonly log: readonly LogEntry[];
}

/** Most events that are printed for the row. */
const EVENTS_MAX = 40;

/** Formats a row as `engine export` does. */
export const rowText = (row: DigestRow): string =>
  [
    row.accountId,
    row.windowStart,
    row.windowEnd,
    row.count,
    row.sum,
    row.min,
    row.max,
    row.lastUpdateTs,
    row.overflow,
  ].join(',');

const ascending = (a: bigint, b: bigint): number => (a < b ? -1 : a > b ? 1 : 0);

const byEnd = (a: DigestRow, b: DigestRow): number =>
  ascending(BigInt(a.windowEnd), BigInt(b.windowEnd)) ||
  ascending(a.accountId, b.accountId) ||
  ascending(BigInt(a.windowStart), BigInt(b.windowStart));

/** Describes the first difference, as lines to print; empty if the results are equal. A duplicate
 *  row is a difference. */
export function differenceText(
  expected: Iterable<DigestRow>,
  actual: Iterable<DigestRow>,
  source?: ArrivalLog,
): string {
  const left = [...expected].sort(byEnd);
  const right = [...actual].sort(byEnd);
  let at = 0;
  while (at < left.length && at < right.length) {
    if (rowText(left[at] as DigestRow) !== rowText(right[at] as DigestRow)) break;
    at++;
  }
  if (at === left.length && at === right.length) return '';
  let [expectedRow, actualRow] = [left[at], right[at]];
  const order = expectedRow === undefined ? 1 : actualRow === undefined ? -1 : byEnd(expectedRow, actualRow);
  if (order < 0) actualRow = undefined;
  else if (order > 0) expectedRow = undefined;
  const row = (expectedRow ?? actualRow) as DigestRow;
  const lines = [
    `${left.length} rows expected, ${right.length} found; the first that differs is [${row.windowStart}, ${row.windowEnd}) of account ${row.accountId}`,
    `  expected ${expectedRow === undefined ? 'no such row' : rowText(expectedRow)}`,
    `  found    ${actualRow === undefined ? 'no such row' : rowText(actualRow)}`,
  ];
  if (source !== undefined) lines.push('  events of the account there:', ...describeEvents(row, source));
  return lines.join('\n');
}

/** Describes the counters that differ between two results; empty if they are equal. */
export function countersText(
  expected: readonly PartitionCounters[],
  actual: readonly PartitionCounters[],
): string {
  const names = [
    'consumed',
    'accepted',
    'droppedLate',
    'droppedAfterIdle',
    'invalid',
    'futureClamped',
  ] as const;
  const lines: string[] = [];
  for (let p = 0; p < Math.max(expected.length, actual.length); p++) {
    for (const name of names) {
      const [wanted, found] = [expected[p]?.[name], actual[p]?.[name]];
      if (wanted !== found)
        lines.push(
          `partition ${p}: ${name} ${found ?? 'not counted'}, expected ${wanted ?? 'no such partition'}`,
        );
    }
  }
  return lines.join('\n');
}

/** The account's events in the window and near it, with their verdicts. */
function describeEvents(row: DigestRow, source: ArrivalLog): string[] {
  const { rules, log } = source;
  const around = rules.window === 'session' ? rules.gapMs : 0n;
  const from = BigInt(row.windowStart) - around;
  const to = BigInt(row.windowEnd) + around;
  const admission = new Admission(rules, source.partitions, true);
  const next = new Map<number, number>();
  const accepted: Shown[] = [];
  const refused: Shown[] = [];
  for (const [index, entry] of log.entries()) {
    if (entry.kind === 'added') admission.add();
    if (entry.kind === 'idle') admission.idle(entry.partition);
    if (entry.kind === 'added' || entry.kind === 'idle') continue;
    const offset = next.get(entry.partition) ?? 0;
    next.set(entry.partition, offset + 1);
    if (entry.kind === 'broken') {
      admission.broken(entry.partition);
      continue;
    }
    const { partition, accountId, value, eventTs, appendTs } = entry;
    const verdict = admission.event(partition, eventTs, appendTs);
    if (accountId !== row.accountId || eventTs < from || eventTs >= to) continue;
    const line = `    #${index} partition ${partition} offset ${offset} event_ts ${eventTs} value ${value}: ${verdict}, frontier then ${admission.frontier ?? 'none'}`;
    (verdict === 'accepted' ? accepted : refused).push({ index, line });
  }
  const count = accepted.length + refused.length;
  if (count === 0) return ['    none'];
  // If there are too many, prefer refused events, because they explain more.
  const shown = [...refused, ...accepted].slice(0, EVENTS_MAX).sort((a, b) => a.index - b.index);
  const lines = shown.map(({ line }) => line);
  return count <= EVENTS_MAX ? lines : [...lines, `    and ${count - EVENTS_MAX} more`];
}

interface Shown {
  readonly index: number;
  readonly line: string;
}
