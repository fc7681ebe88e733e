/** Common parts of the registry benchmark: sizes, the names of a run, and rows for each peer. */
import { type BenchContext, type BenchResult, result, type Series } from './harness.ts';
import type { LoadSizes } from './registry-loads.ts';

export const MIB = 1024 * 1024;

export const more = { unit: 'requests/s', better: 'more' } as const;
export const lessMs = { unit: 'ms', better: 'less' } as const;

export interface Sizes extends LoadSizes {
  /** Number of schemas for the lookups and the start. */
  readonly schemas: number;
  readonly largeSchemas: number;
}

export interface Run {
  readonly context: BenchContext;
  readonly sizes: Sizes;
  /** Folder on the file system of the package, like the folder of a store; removed at the end. */
  readonly dir: string;
  /** Makes names unique on a registry that outlives the run. */
  readonly name: string;
}

/** Result row, and a second row for the peer if there is one. */
export function beside(
  row: Parameters<typeof result>[0],
  peer: string | undefined,
  series: Series | undefined,
): BenchResult[] {
  const { goal: _, against: __, ...plain } = row;
  const own = [result(row)];
  if (peer !== undefined && series !== undefined)
    own.push(result({ ...plain, against: { name: peer, series } }));
  return own;
}
