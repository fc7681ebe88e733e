/** `-savepoint` of a run: begins its state with the savepoint, and serves savepoints of it. */
import { findMillraceError } from '../../../core/errors.ts';
import type { SettingTable } from '../../../core/settings.ts';
import type { Job } from '../../../engine/job.ts';
import { validateCheckpoint } from '../../../engine/validate-checkpoint.ts';
import type { Disk } from '../../../io/disk/port.ts';
import type { BrokerAdmin } from '../../../io/kafka/port.ts';
import type { CommandContext } from '../../../shell/command.ts';
import { loadSavepoint } from './load.ts';
import { PinnedCheckpoints, type PinnedState } from './pins.ts';

type Context = Omit<CommandContext<SettingTable>, 'settings'> & {
  readonly settings: { readonly savepoint: string | undefined; readonly state: string };
};

/** Loads the savepoint that -savepoint names into a state folder without a checkpoint.
 *  @param plans windows of the run; a state of another window stays in the folder, unused
 *  @param openAdmin opens a connection that this closes
 *  @throws savepoint_missing, savepoint_damaged, job_changed, topic_changed, bad_setting */
export async function beginWithSavepoint(
  { settings, log }: Context,
  {
    disk,
    plans,
    openAdmin,
  }: {
    readonly disk: Disk;
    readonly plans: readonly { readonly name: string | undefined; readonly job: Job }[];
    readonly openAdmin: () => Promise<BrokerAdmin>;
  },
): Promise<void> {
  const folder = settings.savepoint;
  if (folder === undefined) return;
  await loadSavepoint({
    ...{ disk, folder, log },
    windows: plans.flatMap(({ name }) => name ?? []),
    validate: async (states) => {
      const admin = await openAdmin();
      try {
        const { job } = plans[0] as { readonly job: Job };
        const found = (await admin.listTopics()).find(({ topic }) => topic === job.topic);
        const partitionCount = found?.partitions.length ?? 0;
        const topicId = found === undefined ? undefined : await admin.topicId(job.topic);
        const spill = settings.state === 'disk' ? {} : undefined;
        const run = { clusterId: await admin.clusterId(), topicId, source: { partitionCount }, spill };
        for (const { name, job: own } of plans) {
          const state = states.find(({ window }) => window === name);
          if (state === undefined) continue;
          validateCheckpoint(
            state.manifest,
            { ...run, job: own },
            {
              text: `${name === undefined ? '' : `window ${name} of `}the savepoint ${folder}`,
              otherwise: 'leave -savepoint out to compute everything; -state-dir is unchanged',
            },
          );
        }
      } finally {
        await admin.close();
      }
    },
  });
}

const served = new WeakMap<object, PinnedCheckpoints>();

/** Checkpoints of a run for readers; undefined until the engine exists. */
export const savepointsOf = ({ metrics }: { readonly metrics: object }): PinnedCheckpoints | undefined =>
  served.get(metrics);

/** Serves checkpoints of the windows until the run closes. */
export async function serveSavepoints(
  context: Context,
  disk: Disk,
  states: readonly PinnedState[],
): Promise<void> {
  const { clock, metrics, log } = context;
  await PinnedCheckpoints.clear(disk);
  const pins = new PinnedCheckpoints({ disk, states, clock });
  served.set(metrics, pins);
  context.onClose(() =>
    pins.close().catch((thrown: unknown) => {
      log.warn({ error: findMillraceError(thrown)?.toLine() ?? String(thrown) }, 'cannot release savepoints');
    }),
  );
}
