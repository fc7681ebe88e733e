/** Side outputs of `millrace engine`: the late topic and the quarantine. */
import type { SettingTable } from '../../core/settings.ts';
import type { Job } from '../../engine/job.ts';
import type { EngineParts } from '../../engine/parts.ts';
import type { BrokerDriver } from '../../io/kafka/port.ts';
import type { CommandContext } from '../../shell/command.ts';
import { lateTopicName, openLateTopic } from './late.ts';
import { openQuarantine, quarantineName } from './quarantine.ts';

type Context = Parameters<typeof quarantineName>[0] &
  Parameters<typeof openQuarantine>[0] &
  Parameters<typeof openLateTopic>[0] &
  Omit<CommandContext<SettingTable>, 'settings'>;

/** Topics of the side outputs; absent: the rows are only counted. */
export interface SideNames {
  readonly late: string | undefined;
  readonly quarantine: string | undefined;
}

/** @throws bad_value, usage */
export const sideNames = (context: Context, { topic }: Pick<Job, 'topic'>): SideNames => ({
  late: lateTopicName(context, topic),
  quarantine: quarantineName(context),
});

/** Number of side outputs. */
export const sideCount = (names: SideNames): number =>
  Object.values(names).filter((name) => name !== undefined).length;

export function openSides(
  context: Context,
  driver: BrokerDriver,
  {
    brokers,
    job,
    names: { late, quarantine },
  }: { readonly brokers: string; readonly job: Job; readonly names: SideNames },
): Pick<EngineParts, 'late' | 'quarantine'> {
  return {
    ...(late === undefined ? {} : { late: openLateTopic(context, driver, { brokers, name: late, job }) }),
    ...(quarantine === undefined
      ? {}
      : { quarantine: openQuarantine(context, driver, { brokers, name: quarantine }) }),
  };
}
