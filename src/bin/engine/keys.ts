/** Dictionary of keys that are no integers, in the folder keys of -state-dir. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { loadKeyKernels } from '../../addon/keys.ts';
import { chooseNative } from '../../addon/load.ts';
import type { SettingTable } from '../../core/settings.ts';
import { keySharesOf, type MemoryShares } from '../../engine/durability/spill/budget.ts';
import type { Job } from '../../engine/job.ts';
import { KeyDictionary } from '../../engine/keys/dictionary.ts';
import { KEY_FAMILIES, SECRET_BYTES } from '../../engine/keys/store.ts';
import type { CommandContext } from '../../shell/command.ts';
import { kvDriver } from '../../shell/drivers.ts';
import { openStoresOf } from './stores.ts';

const MIB = 1024 * 1024;
/** Memory without a budget. */
const UNBOUNDED = { cacheBytes: 128 * MIB, storeBytes: 32 * MIB };

type Context = Omit<CommandContext<SettingTable>, 'settings'> & {
  readonly settings: { readonly 'state-dir': string; readonly native: string };
};

/** Creates the dictionary. It opens its store, and takes memory, only if the job has such keys. */
export function openKeys(context: Context, job: Job, shares: MemoryShares | undefined): KeyDictionary {
  const folder = join(context.settings['state-dir'], 'keys');
  const { cacheBytes, storeBytes } = shares === undefined ? UNBOUNDED : keySharesOf(shares.stateBytes);
  return new KeyDictionary({
    open: async () => {
      const driver = await kvDriver(context);
      const store = await driver.open(folder, { budgetBytes: storeBytes, families: KEY_FAMILIES });
      context.onClose(() => store.close());
      openStoresOf(context).set('keys', store);
      return store;
    },
    kernels: loadKeyKernels(chooseNative(context.settings.native).mode),
    secret: () => new Uint8Array(randomBytes(SECRET_BYTES)),
    bytesMax: cacheBytes,
    storeBytes,
    spanMs: job.window === 'session' ? job.gapMs : job.sizeMs,
  });
}
