/** Text form of the order in which an engine read the records of several partitions, and its
 *  replay.
 *
 *  One line for each entry: `run P N` (the next N records of partition P), `idle P` (P is idle
 *  until its next record), `added`. A result that depends on the order (global watermark, idle
 *  partitions) can be checked only with it. */
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

/** Interleaves the records of each partition into the arrival log. @throws Error if the order needs
 *  more records than a partition has, or omits some */
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
        `the arrival order needs more than the ${records.length} records of partition ${entry.partition}`,
      );
    next[entry.partition] = from + entry.count;
    yield* records.slice(from, from + entry.count);
  }
  partitions.forEach((records, partition) => {
    const used = next[partition] as number;
    if (used < records.length)
      throw new Error(`the arrival order omits ${records.length - used} records of partition ${partition}`);
  });
}
