/** Partitions that are added to a topic while the engine runs, with crashes. The results equal
 *  those of an oracle that adds each partition where the engine added it. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import type { Logger } from '../../src/core/log.ts';
import { silentLogger } from '../../src/core/log.ts';
import type { EventRows } from '../../src/engine/source/events.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { runs } from '../tier.ts';
import {
  drawFrom,
  engineIn,
  feedOracle,
  jobs,
  MemorySink,
  MemorySource,
  oracleRows,
  rulesOf,
  streams,
  type TestEvent,
} from './engine-kit.ts';

const PARTITIONS = 4;

/** Topic that gets one more partition after every `batchesEach` batches. */
class GrowingSource extends MemorySource {
  visible: number;
  private readonly batchesEach: number;
  private read = 0;
  private batches = 0;
  /** Called when everything was read and the engine reads every partition. */
  onIdle = (): void => {};

  constructor(events: readonly TestEvent[], visible: number, batchRows: number, batchesEach: number) {
    super(events, PARTITIONS, batchRows);
    this.visible = visible;
    this.batchesEach = batchesEach;
  }

  override async bounds() {
    return (await super.bounds()).slice(0, this.visible);
  }
  override async start(offsets: readonly number[]): Promise<void> {
    this.read = offsets.length;
    await super.start(offsets);
  }
  override async added(): Promise<readonly number[]> {
    return new Array<number>(this.visible - this.read).fill(0);
  }
  override async next(): Promise<EventRows | undefined> {
    if (++this.batches % this.batchesEach === 0 && this.visible < PARTITIONS) this.visible++;
    const rows = await super.next();
    if (rows === undefined && this.read === PARTITIONS) this.onIdle();
    return rows;
  }
}

/** Next offsets of the earlier partitions when the engine began to read a partition. */
type StartOffsets = readonly number[];

const lives = fc.array(
  fc.record({
    batchRows: fc.integer({ min: 1, max: 8 }),
    batchesEach: fc.integer({ min: 1, max: 8 }),
    batches: fc.integer({ min: 0, max: 14 }),
    diskChanges: fc.oneof(fc.constant(1_000_000), fc.integer({ min: 0, max: 30 })),
    left: fc.nat(),
    interval: fc.constantFrom(1, 20, 1000),
  }),
  { maxLength: 4 },
);

describe('added partitions', () => {
  it('an added partition starts at the watermark where the engine added it, through crashes anywhere', async () => {
    let addedLive = 0;
    await fc.assert(
      fc.asyncProperty(jobs, streams(PARTITIONS), lives, async (job, events, crashes) => {
        const disk = new SimDisk();
        const sink = new MemorySink();
        const startOffsets = new Map<number, StartOffsets>();
        let visible = 1;
        const life = async (source: GrowingSource, shards: number, interval: number) => {
          const drain = new AbortController();
          source.onIdle = () => drain.abort();
          let isRunning = false;
          const info = (fields: object, message: string): void => {
            if (!message.startsWith('partitions were added')) return;
            const { from, to } = fields as { from: number; to: number };
            const at = engine.progress().map(({ offset }) => offset);
            for (let partition = from; partition < to; partition++)
              startOffsets.set(partition, at.slice(0, partition));
            if (isRunning) addedLive++;
          };
          const engine = engineIn(
            { job, partitions: 1, shards, disk, sink, source, checkpointIntervalMs: interval },
            { stop: 'never', partitionIntervalMs: 1, log: { ...silentLogger, info } as Logger },
          );
          await engine.restore();
          isRunning = true;
          await engine.run(drain.signal);
          return engine;
        };
        for (const [i, crash] of crashes.entries()) {
          const source = new GrowingSource(events, visible, crash.batchRows, crash.batchesEach);
          source.batchesLeft = crash.batches;
          disk.changesLeft = crash.diskChanges;
          await life(source, 1 + (i % 3), crash.interval).catch((thrown: unknown) => {
            if (!/killed|machine is off/.test(String(thrown))) throw thrown;
          });
          visible = source.visible;
          sink.crash();
          disk.crash(drawFrom(crash.left));
        }
        disk.changesLeft = Number.POSITIVE_INFINITY;
        const last = await life(new GrowingSource(events, visible, 5, 3), 2, 50);
        const oracle = new Oracle(rulesOf(job), 1);
        const byPartition = Array.from({ length: PARTITIONS }, (_, p) =>
          events.filter(({ partition }) => partition === p),
        );
        const fedTo = new Array<number>(PARTITIONS).fill(0);
        const feedUpTo = (offsets: readonly number[]): void => {
          offsets.forEach((offset, p) => {
            feedOracle(oracle, (byPartition[p] as TestEvent[]).slice(fedTo[p], offset));
            fedTo[p] = Math.max(offset, fedTo[p] as number);
          });
        };
        for (let partition = 1; partition < PARTITIONS; partition++) {
          feedUpTo(startOffsets.get(partition) as StartOffsets);
          oracle.apply({ kind: 'added' });
        }
        feedUpTo(byPartition.map(({ length }) => length));
        expect(sink.sorted()).toEqual(oracleRows(oracle, true).sort());
        expect(sink.changed).toBe(0);
        expect(last.progress().map((one) => BigInt(one.droppedLate))).toEqual(oracle.droppedLate);
      }),
      { numRuns: runs(100) },
    );
    expect(addedLive).toBeGreaterThan(runs(100));
  });
});
