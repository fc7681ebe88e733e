/** A member of the payments group whose database becomes unreachable while a batch is being
 *  collected. */
import { expect, it } from 'vitest';
import { coreError } from '../../../../src/core/errors.ts';
import type { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import type { BatchConsumer, ConsumeResult, TopicPartition } from '../../../../src/io/kafka/port.ts';
import type { SqlPool, SqlSession, SqlValue } from '../../../../src/io/postgres/sql/port.ts';
import { UuidV7 } from '../../../../src/outbox/ids.ts';
import { PaymentsConsumer } from '../../../../src/outbox/payments/consumer.ts';
import { DuplicateInjector } from '../../../../src/outbox/payments/duplicates.ts';
import { paymentsMetrics } from '../../../../src/outbox/payments/metrics.ts';
import { SeededRandom } from '../../../../src/sim/clock.ts';
import { pause, realClock, turn } from '../../../wait.ts';

const BATCH_ROWS = 51;
const notUsed = (): Promise<never> => Promise.reject(new Error('not used'));

/** Topic with two partitions in memory. A pause loses the position: without a seek nothing more is
 *  read. */
class Topic implements BatchConsumer {
  readonly topics = ['t'];
  readonly highs = [1, 0];
  readonly paused = new Set<number>();
  readonly places: (number | undefined)[] = [0, 0];
  busy = false;
  /** Number of pauses, resumes and seeks in flight. */
  changesInFlight = 0;
  faults: string[] = [];

  async consume(into: RecordBatch, waitMs: number): Promise<ConsumeResult> {
    if (this.busy) this.faults.push('two concurrent reads');
    if (this.changesInFlight > 0) this.faults.push('a read during a pause, a resume or a seek');
    this.busy = true;
    into.rowCount = 0;
    into.clear();
    for (let waited = 0; waited < waitMs; waited += 5) {
      await pause(5);
      this.fill(into);
      if (into.rowCount > 0) break;
    }
    this.busy = false;
    return { rowCount: into.rowCount, ends: [], events: [] };
  }

  private fill(into: RecordBatch): void {
    for (const partition of [0, 1]) {
      let place = this.places[partition];
      if (place === undefined || this.paused.has(partition)) continue;
      const high = this.highs[partition] as number;
      const value = new TextEncoder().encode('no event');
      while (
        place < high &&
        into.append({ topicIndex: 0, partition, offset: BigInt(place), timestamp: 0n, value })
      )
        place++;
      this.places[partition] = place;
    }
  }

  private async turn(change: () => void): Promise<void> {
    this.changesInFlight++;
    if (this.busy) this.faults.push('a pause, a resume or a seek during a read');
    // Long enough that a read which begins during the change is detected.
    for (let i = 0; i < 20; i++) await turn();
    change();
    this.changesInFlight--;
  }
  pause = (at: readonly TopicPartition[]): Promise<void> =>
    this.turn(() => {
      for (const { partition } of at) {
        this.paused.add(partition);
        this.places[partition] = undefined;
      }
    });
  resume = (at: readonly TopicPartition[]): Promise<void> =>
    this.turn(() => {
      for (const { partition } of at) this.paused.delete(partition);
    });
  seek = ({ partition, offset }: { partition: number; offset: bigint }): Promise<void> =>
    this.turn(() => {
      this.places[partition] = Number(offset);
    });
  assignment = (): readonly TopicPartition[] => [0, 1].map((partition) => ({ topic: 't', partition }));
  subscribe = (): Promise<void> => Promise.resolve();
  commit = (): ReturnType<BatchConsumer['commit']> => Promise.resolve('committed');
  reach = (): Promise<void> => Promise.resolve();
  lag = (): Promise<readonly never[]> => Promise.resolve([]);
  close = (): Promise<void> => Promise.resolve();
  committed = (): Promise<readonly never[]> => Promise.resolve([]);
  assign = notUsed;
  watermarkOffsets = notUsed;
}

it('a member runs one poll at a time during a database outage, and afterwards processes every record once in order', async () => {
  const topic = new Topic();
  const written: string[] = [];
  let failures = 0;
  const pool: SqlPool = {
    transaction: async (work) => {
      // Fails as long as the member collects a batch; the second partition gets its records while
      // the member waits.
      if (failures < 4) {
        failures++;
        topic.highs[1] = BATCH_ROWS * 2;
        throw coreError('unreachable', 'away');
      }
      let rows: string[] = [];
      const query = (text: string, params: readonly SqlValue[] = []) => {
        if (!text.includes('INTO payments_batches')) throw new Error(`unexpected statement: ${text}`);
        const [partitions, offsets] = [params[12], params[13]] as unknown as (readonly unknown[])[];
        rows = (offsets ?? []).map((offset, i) => `${partitions?.[i]}/${offset}`);
        return Promise.resolve({ rows: [{ id: 1n, xid: '1' }], rowCount: 1 });
      };
      const value = await work({ query: query as SqlSession['query'], copyIn: notUsed });
      written.push(...rows);
      return value;
    },
    query: notUsed,
    copyIn: notUsed,
    systemIdentifier: notUsed,
    close: () => Promise.resolve(),
  };
  const clock = realClock;
  const consumer = new PaymentsConsumer({
    connect: () => Promise.resolve(topic),
    topic: 't',
    pool,
    ids: new UuidV7(clock, new SeededRandom(1)),
    inbox: { claim: () => Promise.resolve({ unseen: new Set(), seen: new Set(), undecidable: new Set() }) },
    injector: new DuplicateInjector(1, 0),
    metrics: paymentsMetrics(new Metrics()),
    clock,
    log: silentLogger,
    drain: new AbortController().signal,
    batchRows: BATCH_ROWS,
    batchBytes: 65_536,
    batchWaitMs: 60,
    batchEveryMs: 120,
    ends: new Map([
      [0, 1n],
      [1, BigInt(BATCH_ROWS * 2)],
    ]),
    crashPoint: () => Promise.resolve(),
    onCommitted: () => {},
  });
  await consumer.run();
  expect(topic.faults).toEqual([]);
  expect(written).toEqual(['0/0', ...Array.from({ length: BATCH_ROWS * 2 }, (_, i) => `1/${i}`)]);
  expect(consumer.isHealthy()).toBe(true);
});
