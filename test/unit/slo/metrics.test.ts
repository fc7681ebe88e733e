/** The measures behind the limits: the observations of the registry's client and of the framed
 *  producer, with a test clock. */
import { describe, expect, it } from 'vitest';
import { referenceKernels } from '../../../src/addon/reference/kernels.ts';
import type { RecordBatch } from '../../../src/core/layout/record-batch.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { parseSchema } from '../../../src/formats/schema.ts';
import { FramedProducer, producerMetrics } from '../../../src/registry/producer/instance.ts';
import { RegistryClient } from '../../../src/serde/client.ts';
import { writerCodec } from '../../../src/serde/codec.ts';
import type { TransportAnswer } from '../../../src/serde/transport.ts';
import { SeededRandom } from '../../../src/sim/clock.ts';
import { realClock } from '../../wait.ts';

const TEXT = JSON.stringify({ type: 'record', name: 'R', fields: [{ name: 'n', type: 'int' }] });

/** Samples of a metric, by the values of their labels. */
function samples(
  metrics: Metrics,
  name: string,
): Map<string, { value?: number; count?: number; sum?: number }> {
  const found = metrics.snapshot().find((one) => one.name === name)?.samples ?? [];
  return new Map(found.map((sample) => [Object.values(sample.labels).join(' '), sample]));
}

describe('client metrics', () => {
  function setUp() {
    const metrics = new Metrics();
    let nowMs = 0;
    const client = new RegistryClient({
      transport: {
        async request(_method, path): Promise<TransportAnswer> {
          nowMs += 20;
          if (path.endsWith('/404')) return { status: 404, body: '{"error_code":40403,"message":"no"}' };
          const document = path.includes('/ids/')
            ? { schema: TEXT }
            : path.endsWith('/latest')
              ? { schema: TEXT, id: 7, version: 1 }
              : { id: 9 };
          return { status: 200, body: JSON.stringify(document) };
        },
      },
      clock: { ...realClock, wallNowMs: () => nowMs, monotonicMs: () => nowMs },
      random: new SeededRandom(1),
      metrics,
      unknownForMs: 1000,
      retries: 0,
      retryDelayMs: 1,
    });
    return { client, metrics };
  }

  it('the client distinguishes a cached look-up from one with a round trip', async () => {
    const { client, metrics } = setUp();
    await client.version('s', 'latest');
    await Promise.all([client.schemaById(1), client.schemaById(1)]);
    for (let i = 0; i < 5; i++) await client.schemaById(1);
    client.countHits(100, 0.5);
    client.countHits(0, 0.5);
    await client.schemaById(404).catch(() => {});
    const seconds = samples(metrics, 'schema_lookup_seconds');
    expect(seconds.get('warm')).toMatchObject({ count: 105 });
    expect(seconds.get('warm')?.sum).toBeCloseTo(0.0005);
    expect(seconds.get('cold')).toMatchObject({ count: 1 });
    expect(seconds.get('cold')?.sum).toBeCloseTo(0.02);
  });

  it('the client counts requested ids, cached schemas, and each round trip', async () => {
    const { client, metrics } = setUp();
    await client.version('s', 'latest');
    await client.schemaById(7);
    await client.schemaById(1);
    await client.schemaById(2);
    await client.schemaById(404).catch(() => {});
    await client.register('s', 'AVRO', TEXT);
    await client.register('s', 'AVRO', TEXT);
    expect(samples(metrics, 'registry_client_distinct_ids').get('')?.value).toBe(2);
    const entries = samples(metrics, 'schema_cache_entries');
    expect([entries.get('id_to_schema')?.value, entries.get('schema_to_id')?.value]).toEqual([3, 1]);
    const requests = samples(metrics, 'registry_client_request_seconds');
    expect([...requests].map(([operation, { count }]) => [operation, count])).toEqual([
      ['version', 1],
      ['schema_by_id', 3],
      ['register', 1],
    ]);
  });
});

describe('producer metrics', () => {
  it('the producer observes the cost of encoding and framing each record, without the network', async () => {
    const metrics = new Metrics();
    let nowMs = 0;
    const sent: number[] = [];
    const producer = new FramedProducer({
      producer: {
        async produce(batch: RecordBatch) {
          sent.push(batch.rowCount);
          nowMs += 1000;
          return {
            delivered: batch.rowCount,
            failed: 0,
            status: new Int32Array(batch.rowCount),
            offset: new BigInt64Array(batch.rowCount),
            events: [],
          };
        },
        flush: async () => {},
        close: async () => {},
      } as never,
      topic: 't',
      codec: writerCodec(parseSchema('AVRO', TEXT)),
      schemaId: async () => 1,
      kernels: referenceKernels,
      // Each read of the clock advances it by a hundredth of a millisecond.
      clock: {
        wallNowMs: () => nowMs,
        monotonicMs: () => {
          nowMs += 0.01;
          return nowMs;
        },
      },
      batchRows: 10,
      keyOf: () => 'key',
      metrics: producerMetrics(metrics),
    });
    await producer.send(Array.from({ length: 25 }, (_, n) => ({ n })));
    await producer.finish();
    expect(sent).toEqual([10, 10, 5]);
    const encode = samples(metrics, 'serde_encode_seconds').get('');
    const overhead = samples(metrics, 'serde_overhead_seconds').get('');
    expect([encode?.count, overhead?.count]).toEqual([25, 25]);
    expect(encode?.sum).toBeCloseTo(25 * 1e-5);
    // One more clock read per batch, shared by its rows.
    expect(overhead?.sum).toBeCloseTo(25 * 1e-5 + 3 * 1e-5);
  });
});
