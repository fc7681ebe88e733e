/** The position at which an engine begins without a checkpoint. */
import { describe, expect, it } from 'vitest';
import { Oracle } from '../../../bench/peers/oracle/windows.ts';
import { startOf } from '../../../src/bin/engine/source/start.ts';
import { parseStart } from '../../../src/bin/registry-clients/start.ts';
import type { Job } from '../../../src/engine/job.ts';
import { type BrokerDriver, OFFSET_END } from '../../../src/io/kafka/port.ts';
import { SimDisk } from '../../../src/sim/disk.ts';
import {
  engineIn,
  feedOracle,
  MemorySink,
  MemorySource,
  oracleRows,
  rulesOf,
  type TestEvent,
  untilKilled,
} from '../../property/engine-kit.ts';

const JOB: Job = {
  topic: 't',
  window: 'tumbling',
  sizeMs: 10,
  skewMs: 0,
  latenessMs: 0,
  watermark: 'partition',
};
const PARTITIONS = 2;
const EVENTS: readonly TestEvent[] = Array.from({ length: 60 }, (_, i) => ({
  ...{ partition: i % PARTITIONS, accountId: BigInt(i % 5), value: BigInt(i), eventTs: BigInt(i) },
}));

/** Events from these offsets on. */
function from(offsets: readonly number[]): readonly TestEvent[] {
  const next = offsets.map(() => 0);
  return EVENTS.filter(({ partition }) => {
    const offset = next[partition] as number;
    next[partition] = offset + 1;
    return offset >= (offsets[partition] as number);
  });
}

const expectedFrom = (offsets: readonly number[]): string[] => {
  const oracle = new Oracle(rulesOf(JOB), PARTITIONS);
  feedOracle(oracle, from(offsets));
  return oracleRows(oracle).sort();
};

function lifeOf(
  disk: SimDisk,
  sink: MemorySink,
  offsets: readonly number[],
  batches = Number.POSITIVE_INFINITY,
) {
  const source = new MemorySource(EVENTS, PARTITIONS, 7);
  source.batchesLeft = batches;
  const setup = { job: JOB, partitions: PARTITIONS, shards: 2, disk, sink, source };
  return engineIn({ ...setup, checkpointIntervalMs: 1_000_000 }, { startAt: async () => offsets });
}

async function run(
  disk: SimDisk,
  sink: MemorySink,
  offsets: readonly number[],
  batches?: number,
): Promise<void> {
  const engine = lifeOf(disk, sink, offsets, batches);
  await engine.restore();
  await engine.run(new AbortController().signal);
}

describe('an engine with a start position', () => {
  it('an engine without a checkpoint reads from the position, and a killed one resumes from its first position', async () => {
    for (const batches of [0, 1, 3]) {
      const [disk, sink] = [new SimDisk(), new MemorySink()];
      await untilKilled(run(disk, sink, [10, 17], batches));
      // Records that arrived meanwhile have moved "latest"; they belong to the job all the same.
      await run(disk, sink, [29, 29]);
      expect(sink.sorted()).toEqual(expectedFrom([10, 17]));
      expect(sink.changed).toBe(0);
    }
    expect(expectedFrom([10, 17])).not.toEqual(expectedFrom([29, 29]));
  });
});

describe('-start', () => {
  const asked: number[] = [];
  const driver = {
    admin: async () => ({
      offsetsForTime: async (partitions: readonly { readonly partition: number }[], ms: number) => {
        asked.push(ms);
        return partitions.map(({ partition }) => ({ partition, offset: [7n, OFFSET_END][partition] }));
      },
      close: async () => {},
    }),
  } as unknown as BrokerDriver;
  const at = (start: string) =>
    startOf(parseStart(start), driver, { brokers: 'b', topic: 't' }).startAt?.([
      { low: 5, high: 9 },
      { low: 0, high: 3 },
    ]);

  it.each([
    ['latest', [9, 3]],
    ['6', [6, 3]],
    ['2', [5, 2]],
    ['-2', [7, 1]],
    ['2026-01-31T12:00:00Z', [7, 3]],
    ['@1769860800000', [7, 3]],
  ])('the position %s is within the bounds of each partition', async (start, offsets) => {
    expect(await at(start)).toEqual(offsets);
  });

  it('a time is looked up in ms, and no other position asks the broker', () => {
    expect(asked).toEqual([1_769_860_800_000, 1_769_860_800_000]);
  });

  it('the default reads from the first record', () => {
    expect(at('earliest')).toBeUndefined();
  });
});
