/** Memory of `millrace engine`: open windows are unbounded in memory, or within -mem-budget with
 *  the rest spilled to disk. */
import { join } from 'node:path';
import type { SettingsOf, SettingTable } from '../../core/settings.ts';
import { type MemoryShares, sharesOf } from '../../engine/durability/spill/budget.ts';
import { PIECE_FAMILIES, PieceStore } from '../../engine/durability/spill/pieces.ts';
import { type Job, pieceOrderOf, rowFormOf } from '../../engine/job.ts';
import type { CommandContext } from '../../shell/command.ts';
import { kvDriver } from '../../shell/drivers.ts';
import { openStoresOf } from './stores.ts';

export const MEMORY_SETTINGS = {
  state: {
    type: 'string',
    choices: ['mem', 'disk'],
    default: 'disk',
    help: 'where open windows are held: disk, in memory up to -mem-budget and then in the folder spill of -state-dir; mem, in memory without a bound',
  },
  'mem-budget': {
    type: 'size',
    default: '1GiB',
    min: 1,
    max: 1_099_511_627_776,
    needs: ['state=disk'],
    help: 'memory for tables, batches, changelog, copies of late and invalid records, identifiers (a quarter, with -dedup) and the caches of the stores; the runtime needs up to 100 MiB in addition',
  },
} as const satisfies SettingTable;

/** Settings of other tables that this module reads. */
interface OtherSettings {
  readonly 'state-dir': string;
  readonly 'batch-rows': number;
  readonly 'batch-bytes': number;
  readonly native: string;
}
type Context = Omit<CommandContext<SettingTable>, 'settings'> & {
  readonly settings: SettingsOf<typeof MEMORY_SETTINGS> & OtherSettings;
};

/** Undefined if the state stays in memory without a bound. @param sides number of side outputs
 *  @param hasIds true: the job compares identifiers
 *  @throws bad_setting */
export function memoryOf(
  { settings }: Pick<Context, 'settings'>,
  sides: number,
  hasIds: boolean,
): MemoryShares | undefined {
  if (settings.state !== 'disk') return undefined;
  const batch = { rows: settings['batch-rows'], bytes: settings['batch-bytes'] };
  return sharesOf(settings['mem-budget'], batch, sides, hasIds);
}

/** @throws state_corrupt */
export async function openSpill(
  context: Context,
  shares: MemoryShares,
  job: Job,
): Promise<{ readonly pieces: PieceStore; readonly bytesMax: number }> {
  const driver = await kvDriver(context);
  const options = { budgetBytes: shares.spillStoreBytes, families: PIECE_FAMILIES };
  const pieces = await PieceStore.open(
    async () => {
      const store = await driver.open(join(context.settings['state-dir'], 'spill'), options);
      context.onClose(() => store.close());
      openStoresOf(context).set('spill', store);
      return store;
    },
    pieceOrderOf(job),
    rowFormOf(job).bytes,
  );
  return { pieces, bytesMax: shares.stateBytes };
}
