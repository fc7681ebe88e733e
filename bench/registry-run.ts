/** What the parts of the registry's bench share: sizes, one run's names, rows beside each peer. */
import { type BenchContext, type BenchResult, result, type Series } from './harness.ts';
import type { LoadSizes } from './registry-loads.ts';

export const MIB = 1024 * 1024;

export const more = { unit: 'requests/s', better: 'more' } as const;
export const lessMs = { unit: 'ms', better: 'less' } as const;

export interface Sizes extends LoadSizes {
  /** Schemas behind the lookups and the start. */
  readonly schemas: number;
  readonly largeSchemas: number;
}

export interface Run {
  readonly context: BenchContext;
  readonly sizes: Sizes;
  /** On the file system of the package, like a store's folder would be; removed at the end. */
  readonly dir: string;
  /** Makes names unique on a registry that lives on. */
  readonly name: string;
}

/** A row beside each peer there is. */
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
