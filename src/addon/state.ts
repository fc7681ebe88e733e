/** Loads the state addon: the embedded store, built apart from the kernels because its library may
 *  be missing. */
import { createRequire } from 'node:module';
import { coreError } from '../core/errors.ts';
import { buildCommand, findAddon } from './load.ts';
import { STATE_ABI, type StateAddon } from './state-functions.ts';

const FILE = 'millrace_state.node';

const buildHint = (): string =>
  `install librocksdb-dev (brew: rocksdb) and run \`${buildCommand()}\`: docs/how-to/install.md`;

/** Path of the state addon; null when it was not built. */
export function findStateAddon(root?: string): string | null {
  return findAddon(root, FILE);
}

const loaded = new Map<string, StateAddon>();

/** Loads the state addon, once in each thread.
 *  @throws addon_missing when it was not built or does not load
 *  @throws addon_mismatch when it was built from other sources */
export function loadStateAddon(path: string | null = findStateAddon()): StateAddon {
  if (path === null) throw coreError('addon_missing', 'the state addon is not built', { next: buildHint() });
  const known = loaded.get(path);
  if (known !== undefined) return known;
  let addon: Partial<StateAddon>;
  try {
    addon = createRequire(import.meta.url)(path) as Partial<StateAddon>;
  } catch (cause) {
    const why = (cause as Error).message.split('\n')[0];
    throw coreError('addon_missing', `the state addon does not load: ${why}`, { next: buildHint(), cause });
  }
  if (addon.stateAbi !== STATE_ABI) {
    const message = `the state addon was built from other sources: abi=${addon.stateAbi}, not ${STATE_ABI}`;
    throw coreError('addon_mismatch', message, { next: buildHint() });
  }
  loaded.set(path, addon as StateAddon);
  return addon as StateAddon;
}
