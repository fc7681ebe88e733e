/** Settings of topics that a command creates. */
import type { SettingTable } from '../core/settings.ts';

export const REPLICATION_FACTOR = {
  type: 'int',
  default: '0',
  min: 0,
  max: 32_767,
  help: 'replicas of a created topic; 0: three, or the number of brokers if there are fewer',
} as const satisfies SettingTable[string];

/** Largest segment: a broker deletes whole segments, and never the active segment. */
const SEGMENT_BYTES_MAX = 64 * 1024 ** 2;
/** Least segment that a broker accepts. */
const SEGMENT_BYTES_MIN = 1024 ** 2;
/** Least number of segments of a partition at its largest size. */
const SEGMENTS_MIN = 4;

/** Configuration of a topic that keeps at most about `bytesMax` bytes over all its partitions. It
 *  exceeds them by what is written between two checks of the broker. */
export function sizeRetention(bytesMax: number, partitions: number): Readonly<Record<string, string>> {
  const share = Math.floor(bytesMax / partitions);
  const segment = Math.min(SEGMENT_BYTES_MAX, Math.max(SEGMENT_BYTES_MIN, Math.floor(share / SEGMENTS_MIN)));
  return {
    // A segment is deleted when those after it have this size, so a partition holds one more.
    'retention.bytes': String(Math.max(segment, share - segment)),
    'segment.bytes': String(segment),
    'file.delete.delay.ms': '1000',
  };
}
