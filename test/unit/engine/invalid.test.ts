/** Records that are no events: how a run reports them, and that a partition with only such records
 *  delays no result. */
import { describe, expect, it } from 'vitest';
import type { Logger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import type { Job } from '../../../src/engine/job.ts';
import { engineMetrics } from '../../../src/engine/metrics.ts';
import type { Totals } from '../../../src/engine/source/admission.ts';
import type { EventRows } from '../../../src/engine/source/events.ts';
import { demandValidInput, INVALID_REASONS } from '../../../src/engine/source/invalid.ts';
import { SimDisk } from '../../../src/sim/disk.ts';
import { batchOf, engineIn, MemorySink, MemorySource, type TestEvent } from '../../property/engine-kit.ts';

const JOB: Job = {
  ...{ topic: 'events', skewMs: 0, latenessMs: 0, watermark: 'partition' },
  ...{ window: 'tumbling', sizeMs: 10 },
};
const valid = (eventTs: bigint): TestEvent => ({ partition: 0, accountId: 1n, value: 1n, eventTs });
const broken = (partition = 0): TestEvent => ({ ...valid(0n), partition, broken: true });
const outOfRange = valid(1n << 60n);

const worldOf = (source: MemorySource, sink = new MemorySink()) => ({
  ...{ job: JOB, partitions: source.partitionCount, shards: 1, disk: new SimDisk(), sink, source },
  checkpointIntervalMs: 1000,
});

async function bounded(events: readonly TestEvent[]) {
  const warnings: unknown[] = [];
  const log = { debug() {}, info() {}, error() {}, warn: (fields: unknown) => void warnings.push(fields) };
  const metrics = new Metrics();
  const engine = engineIn(worldOf(new MemorySource(events, 1, 2)), {
    metrics: engineMetrics(metrics),
    log: log as unknown as Logger,
  });
  await engine.restore();
  const summary = await engine.run(new AbortController().signal);
  const { before, invalidRecords: invalid } = summary;
  const judged = () => demandValidInput('events', { totals: summary, before, invalid });
  const counted = metrics.snapshot().find(({ name }) => name === 'engine_invalid_records_total');
  return { judged, warnings, counted };
}

describe('invalid records', () => {
  it('invalid records alone fail a bounded run, with the counts by reason and the first record', async () => {
    const { judged } = await bounded([broken(), outOfRange, broken(), broken()]);
    expect(judged).toThrow(
      'none of the 4 records read from topic events is an event: 3 have a value that is not 256 bytes long, 1 have an event_ts out of range; the first: partition 0 offset 0 has a value that is not 256 bytes long but 0',
    );
  });

  it('invalid records do not fail a bounded run that also read an event, and an empty run does not fail', async () => {
    expect((await bounded([broken(), valid(1n)])).judged).not.toThrow();
    expect((await bounded([])).judged).not.toThrow();
  });

  it('invalid records do not fail a restored run whose earlier records were events', () => {
    const before = { consumed: 10, invalid: 0 } as Totals;
    const totals = { consumed: 11, invalid: 1 } as Totals;
    const invalid = { reasons: { value_length: 1 }, sample: null };
    expect(() => demandValidInput('events', { totals, before, invalid })).not.toThrow();
  });

  it('invalid records are logged once a minute and counted by reason', async () => {
    const { warnings, counted } = await bounded([valid(1n), broken(), outOfRange, broken()]);
    expect(warnings).toEqual([
      {
        ...{ topic: 'events', value_length: 1 },
        first: { partition: 0, offset: 1, reason: 'value_length', valueBytes: 0 },
      },
    ]);
    expect(counted?.samples).toHaveLength(INVALID_REASONS.length);
    expect(counted?.samples.filter(({ value }) => (value ?? 0) > 0)).toEqual([
      { labels: { reason: 'value_length' }, value: 2 },
      { labels: { reason: 'event_ts' }, value: 1 },
    ]);
  });

  it('a run without an end stops once its first 1,000 records are all invalid', async () => {
    const events = Array.from({ length: 1500 }, () => broken());
    const run = async (first: readonly TestEvent[]) => {
      const source = new MemorySource([...first, ...events], 1, 250);
      const drain = new AbortController();
      const engine = engineIn(worldOf(source), {
        stop: 'never',
        onConsumed: (consumed) => {
          if (consumed === events.length + first.length) drain.abort();
        },
      });
      await engine.restore();
      return engine.run(drain.signal);
    };
    await expect(run([])).rejects.toMatchObject({
      code: 'no_valid_events',
      message: expect.stringContaining('none of the 1000 records read from topic events is an event'),
    });
    expect((await run([valid(1n)])).invalid).toBe(1500);
  });

  it('a partition of invalid records becomes idle, so that the other partitions fire', async () => {
    const events = Array.from({ length: 50 }, (_, i) => valid(BigInt(i)));
    const source = new Tombstones(events, 2, 10);
    const sink = new MemorySink();
    const drain = new AbortController();
    const engine = engineIn(worldOf(source, sink), {
      idleTimeoutMs: 500,
      stop: 'never',
      onConsumed: (consumed) => {
        // Far more reads than the timeout needs.
        if (sink.rows.size > 0 || consumed > 20_000) drain.abort();
      },
    });
    await engine.restore();
    await engine.run(drain.signal);
    expect(sink.rows.size).toBe(4);
    expect(engine.progress().map(({ idle }) => idle)).toEqual([false, true]);
  });
});

/** The events of partition 0, then endless invalid records of partition 1. */
class Tombstones extends MemorySource {
  private offset = 0;
  override async next(): Promise<EventRows | undefined> {
    const rows = await super.next();
    return rows ?? batchOf([broken(1)], [this.offset++]);
  }
  /** No end is ever reported. */
  override endOf(): number {
    return -1;
  }
}
