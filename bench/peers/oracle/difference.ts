/** Where two results part: the first row that differs, in order of (window_end, account_id), with
 *  the events that made it and what became of each. */
import { Admission } from './admission.ts';
import type { DigestRow } from './digest.ts';
import type { LogEntry, OracleRules, PartitionCounters } from './rules.ts';

/** The arrival log that both results claim to come from. */
export interface Told {
  readonly rules: OracleRules;
  /** At the start. */
  readonly partitions: number;
  readonly log: readonly LogEntry[];
}

/** Events of the row that are shown at most. */
const EVENTS_MAX = 40;

/** As `engine export` writes it. */
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

/** Empty where both are equal; else what differs first, as lines to print. A row that stands twice
 *  differs. */
export function differenceText(
  expected: Iterable<DigestRow>,
  actual: Iterable<DigestRow>,
  told?: Told,
): string {
  const left = [...expected].sort(byEnd);
  const right = [...actual].sort(byEnd);
  let at = 0;
  while (at < left.length && at < right.length) {
    if (rowText(left[at] as DigestRow) !== rowText(right[at] as DigestRow)) break;
    at++;
  }
  if (at === left.length && at === right.length) return '';
  let [wanted, got] = [left[at], right[at]];
  const order = wanted === undefined ? 1 : got === undefined ? -1 : byEnd(wanted, got);
  if (order < 0) got = undefined;
  else if (order > 0) wanted = undefined;
  const one = (wanted ?? got) as DigestRow;
  const lines = [
    `${left.length} rows expected, ${right.length} found; the first that differs is [${one.windowStart}, ${one.windowEnd}) of account ${one.accountId}`,
    `  expected ${wanted === undefined ? 'no such row' : rowText(wanted)}`,
    `  found    ${got === undefined ? 'no such row' : rowText(got)}`,
  ];
  if (told !== undefined) lines.push('  events of the account there:', ...eventsOf(one, told));
  return lines.join('\n');
}

/** Where the counts of two results part; empty where they are equal. */
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
      const [wanted, got] = [expected[p]?.[name], actual[p]?.[name]];
      if (wanted !== got)
        lines.push(
          `partition ${p}: ${name} ${got ?? 'not counted'}, expected ${wanted ?? 'no such partition'}`,
        );
    }
  }
  return lines.join('\n');
}

/** The account's events in the window and around it, with their verdicts. */
function eventsOf(row: DigestRow, told: Told): string[] {
  const { rules, log } = told;
  const around = rules.window === 'session' ? rules.gapMs : 0n;
  const from = BigInt(row.windowStart) - around;
  const to = BigInt(row.windowEnd) + around;
  const admission = new Admission(rules, told.partitions, true);
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
  // Where there are too many, those that were refused say more.
  const shown = [...refused, ...accepted].slice(0, EVENTS_MAX).sort((a, b) => a.index - b.index);
  const lines = shown.map(({ line }) => line);
  return count <= EVENTS_MAX ? lines : [...lines, `    and ${count - EVENTS_MAX} more`];
}

interface Shown {
  readonly index: number;
  readonly line: string;
}
