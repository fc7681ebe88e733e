/** The order in which an engine met the records of several partitions, as text, and its replay.
 *
 *  One line an entry: `run P N` (the next N records of partition P), `idle P` (P is idle before its
 *  next record), `added`. A result that depends on that order (one watermark for all partitions,
 *  idle partitions) can be judged only beside it.
 */
import type { LogEntry } from './rules.ts';

export type OrderEntry =
  | { readonly kind: 'run'; readonly partition: number; readonly count: number }
  | { readonly kind: 'idle'; readonly partition: number }
  | { readonly kind: 'added' };

export function parseArrivalOrder(text: string): OrderEntry[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .map((line, at) => {
      const match = /^(?:run (\d{1,9}) (\d{1,12})|idle (\d{1,9})|(added))$/.exec(line);
      if (match === null)
        throw new Error(
          `line ${at + 1} of the arrival order is ${JSON.stringify(line)}: give run P N, idle P or added`,
        );
      if (match[4] !== undefined) return { kind: 'added' };
      if (match[3] !== undefined) return { kind: 'idle', partition: Number(match[3]) };
      return { kind: 'run', partition: Number(match[1]), count: Number(match[2]) };
    });
}

/** The arrival log of these records, which stand in the order of their partitions. @throws where
 *  the order asks for more records than there are, or leaves some out */
export function* replay(
  order: readonly OrderEntry[],
  partitions: readonly (readonly LogEntry[])[],
): Iterable<LogEntry> {
  const next = partitions.map(() => 0);
  for (const entry of order) {
    if (entry.kind !== 'run') {
      yield entry;
      continue;
    }
    const records = partitions[entry.partition] ?? [];
    const from = next[entry.partition] ?? 0;
    if (from + entry.count > records.length)
      throw new Error(
        `the arrival order asks partition ${entry.partition} for more than its ${records.length} records`,
      );
    next[entry.partition] = from + entry.count;
    yield* records.slice(from, from + entry.count);
  }
  partitions.forEach((records, partition) => {
    const taken = next[partition] as number;
    if (taken < records.length)
      throw new Error(
        `the arrival order leaves ${records.length - taken} records of partition ${partition} out`,
      );
  });
}
