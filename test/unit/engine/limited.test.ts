/** The engine names its limiting stage: simulated engines under virtual time in which one stage is
 *  slow. */
import { describe, expect, it } from 'vitest';
import { loadWindowKernels } from '../../../src/addon/windows.ts';
import type { Clock } from '../../../src/core/clock.ts';
import { EVENT_STATUS } from '../../../src/core/layout/layouts.gen.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { type Job, stateOf, watermarksOf } from '../../../src/engine/job.ts';
import { engineMetrics } from '../../../src/engine/metrics.ts';
import { BrokerSource } from '../../../src/engine/source/events.ts';
import { binary256Input } from '../../../src/engine/source/input/binary256.ts';
import { type Limit, type Stage, Stages } from '../../../src/engine/stages.ts';
import type { Disk } from '../../../src/io/disk/port.ts';
import type { BatchConsumer } from '../../../src/io/kafka/port.ts';
import { SimDisk } from '../../../src/sim/disk.ts';
import { engineIn, MemorySink, MemorySource } from '../../property/engine-kit.ts';

const EVENTS = 6_000;
const BATCH = 50;
/** The reference kernels finish synchronously, so that virtual time does not depend on threads. */
const KERNELS = loadWindowKernels('reference');
const JOB: Job = {
  ...{ topic: 'events', skewMs: 0, latenessMs: 0, watermark: 'partition' },
  ...{ window: 'tumbling', sizeMs: 10 },
};

/** Stages of the loop. The end of their work is noticed immediately; the end of concurrent work up
 *  to one step later. */
const IN_LOOP: ReadonlySet<Stage> = new Set(['fetch', 'decode', 'route', 'update']);

/** Clock that advances when all work waits, or when work reports its CPU time. */
class VirtualTime implements Clock {
  private now = 0;
  private sleepers: Array<{ readonly at: number; readonly wake: () => void }> = [];
  wallNowMs(): number {
    return this.now;
  }
  monotonicMs(): number {
    return this.now;
  }
  spend(ms: number): void {
    this.now += ms;
  }
  sleep(ms: number): Promise<void> {
    return new Promise((wake) => {
      this.sleepers.push({ at: this.now + ms, wake });
    });
  }
  async runWhile<T>(work: Promise<T>): Promise<T> {
    const over = work.then(
      () => true,
      () => true,
    );
    while (!(await Promise.race([over, new Promise((resolve) => setImmediate(resolve, false))]))) {
      const next = this.sleepers.sort((a, b) => a.at - b.at).shift();
      if (next === undefined) continue;
      this.now = Math.max(this.now, next.at);
      next.wake();
    }
    return work;
  }
}

/** Duration in ms per batch, changelog record or write. `sinkCpu` is CPU time of a write of
 *  results. */
type Costs = Record<'fetch' | 'decode' | 'route' | 'update' | 'encode' | 'disk' | 'sink' | 'sinkCpu', number>;
const QUICK: Costs = { fetch: 1, decode: 1, route: 1, update: 1, encode: 1, disk: 1, sink: 1, sinkCpu: 0 };

function slowDisk(disk: Disk, time: VirtualTime, ms: number): Disk {
  return {
    ...disk,
    append: async (name) => {
      const file = await disk.append(name);
      return {
        get size() {
          return file.size;
        },
        write: (chunks) => file.write(chunks),
        sync: async () => {
          await time.sleep(ms);
          await file.sync();
        },
        close: () => file.close(),
      };
    },
  };
}

/** Summary of a run in which one stage is slow.
 *  @param waits true: the source has no records between two batches
 *  @param queuedMs time that the second half of a batch spent in the queue of the broker client */
async function limitIn(slow: Partial<Costs>, waits = false, queuedMs = 0) {
  const costs = { ...QUICK, ...slow };
  const time = new VirtualTime();
  const stages = new Stages(time);
  let next = 0;
  const consumer = {
    watermarkOffsets: async () => ({ low: 0n, high: BigInt(waits ? next : EVENTS) }),
    assign: async () => {},
    consume: async (into, waitMs) => {
      const tookMs = waits ? 50 : costs.fetch;
      if (next === EVENTS) {
        await time.sleep(waitMs);
        return { rowCount: 0, ends: [], events: [], tookMs: waitMs };
      }
      await time.sleep(tookMs);
      for (let row = 0; row < BATCH; row++) {
        into.columns.partition[row] = 0;
        into.columns.offset[row] = BigInt(next++);
      }
      into.rowCount = BATCH;
      const receipts = [0, queuedMs].map((ageMs) => ({ rows: BATCH / 2, ageMs }));
      return { rowCount: BATCH, ends: [], events: [], tookMs, receipts };
    },
  } as Pick<BatchConsumer, 'watermarkOffsets' | 'assign' | 'consume'> as BatchConsumer;
  const source = new BrokerSource({
    consumer,
    clock: time,
    stages,
    topic: 'events',
    partitionCount: 1,
    findTopic: async () => ({ partitions: 1, id: undefined }),
    rowCapacity: BATCH,
    arenaBytes: 64,
    onEvent: () => {},
    input: binary256Input({
      decodeEvents: (records, events) => {
        time.spend(costs.decode);
        for (let row = 0; row < records.rowCount; row++) {
          const offset = records.columns.offset[row] as bigint;
          events.columns.status[row] = EVENT_STATUS.OK;
          events.columns.accountId[row] = offset % 50n;
          events.columns.value[row] = 1n;
          events.columns.eventTs[row] = offset;
        }
        events.rowCount = records.rowCount;
        return records.rowCount;
      },
    }),
  });
  const watermarks = watermarksOf(JOB, KERNELS, 1);
  const { admit } = watermarks;
  watermarks.admit = (...args) => {
    time.spend(costs.route / 10);
    return admit.apply(watermarks, args);
  };
  const sink = new MemorySink();
  const { write } = sink;
  sink.write = async (pages) => {
    time.spend(costs.sinkCpu);
    await time.sleep(costs.sink);
    await write.call(sink, pages);
  };
  const disk = new SimDisk();
  const metrics = new Metrics();
  const engine = engineIn(
    {
      ...{ job: JOB, partitions: 1, shards: 1, disk, sink, checkpointIntervalMs: 1000 },
      source: new MemorySource([], 1, 1),
    },
    {
      ...{ source, watermarks, stages, clock: time, sleep: (ms: number) => time.sleep(ms) },
      disk: slowDisk(disk.view(), time, costs.disk),
      rowCapacity: BATCH,
      stop: waits ? 'never' : 'bounded',
      metrics: engineMetrics(metrics),
      openState: () => {
        const state = stateOf(JOB, KERNELS, 1);
        const { accumulate } = state;
        const { encodeDeltas } = state.live;
        state.accumulate = (...args) => {
          time.spend(costs.update / 10);
          accumulate.apply(state, args);
        };
        state.live.encodeDeltas = (out) => {
          time.spend(costs.encode / 10);
          return encodeDeltas(out);
        };
        return state;
      },
      onConsumed: (events) => {
        if (waits && events === EVENTS) drain.abort();
      },
    },
  );
  const drain = new AbortController();
  const summary = await time.runWhile(engine.restore().then(() => engine.run(drain.signal)));
  expect(summary.consumed).toBe(EVENTS);
  expect(sink.rows.size).toBeGreaterThan(0);
  for (const { busy, blocked, idle } of summary.stages) {
    expect(Math.min(busy, blocked, idle)).toBeGreaterThanOrEqual(0);
    expect(busy + blocked + idle).toBeCloseTo(1, 9);
  }
  const strip = new Map(summary.stages.map((one) => [one.stage, one]));
  return { limited: summary.limitedBy, strip, metrics };
}

describe('limiting stage', () => {
  const cases: ReadonlyArray<readonly [string, Partial<Costs>, Limit]> = [
    ['a slow source', { fetch: 40 }, 'fetch'],
    ['slow decoding', { decode: 40 }, 'decode'],
    ['slow admission', { route: 40 }, 'route'],
    ['slow accumulators', { update: 40 }, 'update'],
    ['slow encoding of changes', { encode: 40 }, 'changelog'],
    ['a slow disk', { disk: 100 }, 'changelog'],
    ['a slow sink', { sink: 100 }, 'sink'],
    ['a sink that uses CPU time', { sinkCpu: 40 }, 'sink'],
  ];
  it.each(cases)('the engine names its limiting stage: %s', async (_, slow, limit) => {
    const { limited, strip } = await limitIn(slow);
    expect(limited?.by).toBe(limit);
    expect(limited?.share).toBeGreaterThan(0.5);
    expect(strip.get(limit as Stage)?.busy).toBeGreaterThan(0.5);
    for (const { stage, busy } of strip.values())
      if (stage !== limit && IN_LOOP.has(stage)) expect(busy, stage).toBeLessThan(0.2);
  });

  it('the engine names the input as its limit if records are few', async () => {
    const { limited, strip } = await limitIn({}, true);
    expect(limited?.by).toBe('input');
    expect(strip.get('fetch')?.idle).toBeGreaterThan(0.5);
    expect(strip.get('update')?.idle).toBeGreaterThan(0.5);
  });
});

it('an event is timed from its receipt by the broker client until its accumulator is updated', async () => {
  const { metrics } = await limitIn({}, false, 700);
  const quantileMs = (quantile: string): number | undefined =>
    metrics
      .snapshot()
      .find(({ name }) => name === 'engine_stage_quantile_seconds')
      ?.samples.filter((sample) => 'value' in sample)
      .find(({ labels }) => labels['stage'] === 'accumulate' && labels['quantile'] === quantile)?.value;
  // Half of the events were in the queue of the client. The values are bucket bounds.
  expect(quantileMs('0.5')).toBeLessThan(0.1);
  expect(quantileMs('0.99')).toBe(0.75);
});
