/** Progress of the consumer groups of a rollout by their committed offsets. */
import { sleep, type Timers } from '../../core/clock.ts';
import { coreError } from '../../core/errors.ts';
import type { BatchConsumer, TopicPartition } from '../../io/kafka/port.ts';

const POLL_MS = 200;
const OFFSETS_MS_MAX = 10_000;

export interface GroupOffsets {
  readonly clock: Timers;
  readonly partitions: readonly TopicPartition[];
  /** Clients of the groups, which read committed offsets and never join. */
  readonly groups: ReadonlyMap<string, BatchConsumer>;
}

/** Waits until each group has committed up to the end offsets of now.
 *  @returns false after `timeoutMs`, or when the signal is aborted */
export async function isDrained(
  { clock, partitions, groups }: GroupOffsets,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<boolean> {
  const [first] = groups.values();
  if (first === undefined) throw coreError('internal', 'a rollout has no consumer group');
  const ends = new Map(
    await Promise.all(
      partitions.map(async (at) => [at.partition, await first.watermarkOffsets(at, OFFSETS_MS_MAX)] as const),
    ),
  );
  const endMs = clock.monotonicMs() + timeoutMs;
  for (;;) {
    const all = await Promise.all([...groups.values()].map((one) => one.committed(partitions)));
    const isRead = all.every((group) =>
      group.every(({ partition, offset }) => {
        const { low, high } = ends.get(partition) ?? { low: 0n, high: 0n };
        return offset >= high || low === high;
      }),
    );
    if (isRead) return true;
    if (signal.aborted || clock.monotonicMs() >= endMs) return false;
    await sleep(clock, POLL_MS, signal);
  }
}
