/** Embedded stores of the state folder that a run has open, by the name of their folder. */
import type { KvStore } from '../../io/rocksdb/port.ts';

type OpenStores = Map<string, KvStore>;

/** Stores of each run, by its metrics. */
const runs = new WeakMap<object, OpenStores>();

export function openStoresOf({ metrics }: { readonly metrics: object }): OpenStores {
  const known = runs.get(metrics);
  if (known !== undefined) return known;
  const stores: OpenStores = new Map();
  runs.set(metrics, stores);
  return stores;
}
