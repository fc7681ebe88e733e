/** `-source` of `millrace engine`: reads all partitions, or reads while a consumer group assigns
 *  them to this process. */
import { sleep } from '../../../core/clock.ts';
import { coreError } from '../../../core/errors.ts';
import type { SettingsOf, SettingTable } from '../../../core/settings.ts';
import { engineError } from '../../../engine/errors.ts';
import type { EventSource } from '../../../engine/source/events.ts';
import { GroupLease } from '../../../engine/source/group.ts';
import { LeasedSource } from '../../../engine/source/leased.ts';
import { openDisk } from '../../../io/disk/node.ts';
import type { Disk } from '../../../io/disk/port.ts';
import type { BrokerDriver } from '../../../io/kafka/port.ts';
import { systemRandom } from '../../../shell/clock.ts';
import type { CommandContext } from '../../../shell/command.ts';
import { lockDriver } from '../../../shell/drivers.ts';

export const SOURCE_SETTINGS = {
  source: {
    type: 'string',
    choices: ['assign', 'group'],
    default: 'assign',
    help: 'assign: read every partition. group: read while -group assigns every partition to this process, commit offsets for monitoring tools, and wait as a standby while another process holds -state-dir or the partitions',
  },
  group: { type: 'string', needs: ['source=group'], help: 'consumer group of -source=group' },
} as const satisfies SettingTable;

/** Session timeout: how long a standby waits for the partitions after a SIGKILL. */
const SESSION_MS = 10_000;
const HEARTBEAT_MS = 1_000;
/** Interval at which a standby tries to lock the folder. */
const LOCK_POLL_MS = 500;
/** Share of -drain-timeout for the last offset commit; the rest is for leaving the group and
 *  closing. */
const COMMIT_SHARE = 0.5;

type Settings = SettingsOf<typeof SOURCE_SETTINGS> & {
  readonly native: string;
  readonly 'state-dir': string;
  readonly 'partition-interval': number;
  readonly 'drain-timeout': number;
  readonly topic: string;
};
type Context = Omit<CommandContext<SettingTable>, 'settings'> & { readonly settings: Settings };

/** Name of the consumer group; undefined without -source=group. @throws usage */
export function groupName({ settings }: Context): string | undefined {
  if (settings.source === 'assign') return undefined;
  if (settings.group === undefined || settings.group === '')
    throw coreError('usage', '-source=group needs -group', {
      next: 'give -group=ID',
      details: { setting: 'source' },
    });
  return settings.group;
}

/** Locks the state folder. A member of a group waits for the process that holds it; undefined if
 *  the drain starts meanwhile.
 *  @throws state_locked, not_writable, lock_unavailable */
export async function openStateDir(context: Context): Promise<Disk | undefined> {
  const disk = await openDisk(context.settings['state-dir']);
  const locks = await lockDriver(context);
  const isStandby = groupName(context) !== undefined;
  for (let waited = 0; ; waited++) {
    const outcome = await locks.tryLock(disk.where);
    if ('lock' in outcome) {
      context.onClose(() => outcome.lock.release());
      return disk;
    }
    const { holder } = outcome;
    if (!isStandby) {
      throw engineError('state_locked', `${disk.where} is in use by ${holder}`, {
        next: 'stop that engine, or give another -state-dir',
      });
    }
    if (waited === 0) context.log.info({ folder: disk.where, holder }, 'standby: the folder is in use');
    if (context.drain.aborted) return undefined;
    await sleep(context.clock, LOCK_POLL_MS, context.drain);
  }
}

/** Wraps the source so that it is read only while the group assigns its partitions. */
export function leased(
  context: Context,
  driver: BrokerDriver,
  {
    brokers,
    group,
    source,
  }: { readonly brokers: string; readonly group: string; readonly source: EventSource },
): { readonly source: EventSource; readonly lease: GroupLease } {
  const { settings, clock, log } = context;
  const interval = settings['partition-interval'];
  const pause = (ms: number): Promise<void> => sleep(clock, ms);
  const lease = new GroupLease({
    topic: settings.topic,
    partitionCount: () => source.partitionCount,
    join: (onRebalance) =>
      driver.consumer({
        ...{ brokers, group, onRebalance, clientId: 'millrace-engine-group' },
        // This consumer reads no records; without an offset it starts at the end.
        autoOffsetReset: 'latest',
        properties: {
          'enable.auto.commit': false,
          'session.timeout.ms': SESSION_MS,
          'heartbeat.interval.ms': HEARTBEAT_MS,
          'queued.min.messages': 1,
          'queued.max.messages.kbytes': 64,
          ...(interval === 0 ? {} : { 'topic.metadata.refresh.interval.ms': Math.max(10, interval) }),
        },
      }),
    ...{ clock, log, sleep: pause, random: () => systemRandom.fraction() },
  });
  let drainedAtMs: number | undefined;
  const onDrain = (): void => {
    drainedAtMs ??= clock.monotonicMs();
  };
  context.drain.addEventListener('abort', onDrain);
  context.onClose(() => {
    const spentMs = drainedAtMs === undefined ? 0 : clock.monotonicMs() - drainedAtMs;
    return lease.close(Math.max(0, settings['drain-timeout'] * COMMIT_SHARE - spentMs));
  });
  return { source: new LeasedSource(source, lease, pause), lease };
}
