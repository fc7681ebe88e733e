/** Smoke run of the engine bench: every part runs on real processes, all sides compute the same
 *  answer, and each goal has its figure. */
import { expect, it } from 'vitest';
import { hasDiskState } from '../../bench/engine/drains.ts';
import { bench } from '../../bench/engine.ts';
import { goalsOf, smoke } from './effects-bench-kit.ts';

it('the engine bench measures drains beside a bare loop, memory, latencies and PostgreSQL', async () => {
  const results = await smoke(bench);
  const onDisk = results.filter(({ metric }) => metric.includes('disk state'));
  const fits = ['us CPU/event', 'events/s'];
  const ofKind = ['events/s', 'us CPU/event', 'bytes'];
  expect(onDisk.map(({ unit }) => unit)).toEqual(
    hasDiskState() ? [...ofKind, ...ofKind, ...ofKind, ...fits, ...fits, 'bytes', 's'] : [],
  );
  expect(goalsOf(results.filter((one) => !onDisk.includes(one)))).toEqual([
    ['180000 events of 256 B, lz4, from Kafka: CPU', 'ratio >= 0.8'],
    ['180000 events of 256 B, lz4, from Kafka: rate', 'ratio >= 0.8'],
    ['Avro events of 120 B: rate', 'ratio >= 0.75'],
    ['Avro events of 120 B: CPU', 'ratio >= 0.625'],
    ['JSON events of 190 B: rate', 'ratio >= 0.35'],
    ['Avro events with string keys of 16 B: rate', 'ratio >= 0.75'],
    ['Avro events with string keys of 16 B: CPU', 'ratio >= 0.625'],
    ['Avro events with string keys of 16 B: rate beside u64 keys', 'ratio >= 0.6'],
    ['-aggregate=count,sum(value),min(value),max(value),avg(value): CPU', 'ratio >= 0.909'],
    ['-aggregate=count,p99(value): CPU', 'ratio >= 0.5'],
    ['sliding 5m by 1m, firing apart: CPU', 'ratio >= 0.8333'],
    ['rate reached, at 80% of the ceiling', 'ratio >= 0.98'],
    ['an event to its accumulator, at 80% of the ceiling, p99 at most', 'value < 5'],
    ['a firing of 2000 windows to durable in the sink, p99 at most', 'value <= 1000'],
    ['a firing of 44000 windows in memory to durable in the sink, p99 at most', 'value <= 3000'],
    ['an event to its accumulator beside firings of 44000 windows in memory, p99 at most', 'value < 25'],
    ['a firing of 44000 windows on disk to durable in the sink, p99 at most', 'value <= 3000'],
    ['an event to its accumulator beside firings of 44000 windows on disk, p99 at most', 'value < 25'],
    [
      'a session on disk from its end to durable in the sink, 20000 events/s, a gap of 2000 ms, p99 at most',
      'value <= 1000',
    ],
  ]);
  // A small state may fit into the smallest budget.
  for (const { metric, value } of results.filter((one) => !one.metric.endsWith('spilled')))
    expect(value, metric).toBeGreaterThan(0);
  for (const name of ['firing included', 'resident size', 'ceiling beside', 'new rows', 'unchanged rows'])
    expect(results.filter(({ metric }) => metric.includes(name))).toHaveLength(1);
});
