/** Settings of topics that a command creates. */
import type { SettingTable } from '../core/settings.ts';

export const REPLICATION_FACTOR = {
  type: 'int',
  default: '0',
  min: 0,
  max: 32_767,
  help: 'replicas of a created topic; 0: three, or the number of brokers if there are fewer',
} as const satisfies SettingTable[string];
