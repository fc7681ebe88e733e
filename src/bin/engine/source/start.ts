/** `-start` of `millrace engine`: where a run without a checkpoint begins. */
import type { SettingTable } from '../../../core/settings.ts';
import type { EngineParts } from '../../../engine/parts.ts';
import type { BrokerDriver } from '../../../io/kafka/port.ts';
import { START_HELP, type StartPosition, startIn } from '../../registry-clients/start.ts';

export const START_SETTINGS = {
  start: {
    type: 'string',
    default: 'earliest',
    excludes: ['savepoint'],
    help: `${START_HELP}. It applies to a run without a checkpoint, which records it before its first event; a restart resumes there. A partition that is added later is read from its first record`,
  },
} as const satisfies SettingTable;

/** Position of a run without a checkpoint; absent: the first record of each partition.
 */
export function startOf(
  start: StartPosition,
  driver: BrokerDriver,
  { brokers, topic }: { readonly brokers: string; readonly topic: string },
): Pick<EngineParts, 'startAt'> {
  if (start.kind === 'earliest') return {};
  const offsetsAt = async (ms: number, partitions: number) => {
    const admin = await driver.admin({ brokers, clientId: 'millrace-engine-start' });
    try {
      const all = Array.from({ length: partitions }, (_, partition) => ({ topic, partition }));
      return new Map(
        (await admin.offsetsForTime(all, ms)).map(({ partition, offset }) => [partition, offset]),
      );
    } finally {
      await admin.close();
    }
  };
  return {
    startAt: async (bounds) => {
      const times = start.kind === 'timestamp' ? await offsetsAt(start.ms, bounds.length) : undefined;
      return bounds.map(({ low, high }, partition) =>
        Number(startIn(start, { low: BigInt(low), high: BigInt(high), time: times?.get(partition) })),
      );
    },
  };
}
