/** Embedded stores of the state folder that a run has open, by the name of their folder. */
import type { KvStore } from '../../io/rocksdb/port.ts';

type OpenStores = Map<string, KvStore>;

/** Stores of each run, by its metrics and the state folder of a window. */
const runs = new WeakMap<object, Map<string, OpenStores>>();

/** Stores of the window whose settings these are. */
export function openStoresOf({
  metrics,
  settings,
}: {
  readonly metrics: object;
  readonly settings: { readonly 'state-dir': string };
}): OpenStores {
  const windows = runs.get(metrics) ?? new Map<string, OpenStores>();
  runs.set(metrics, windows);
  const folder = settings['state-dir'];
  const stores: OpenStores = windows.get(folder) ?? new Map();
  windows.set(folder, stores);
  return stores;
}
