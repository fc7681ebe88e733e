/** The reader of the Kafka store next to the writer of its process: which records it applies, and
 *  which count as the writer's own. */
import { describe, expect, it } from 'vitest';
import { RecordBatch } from '../../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../../src/core/log.ts';
import type { BatchProducer } from '../../../src/io/kafka/port.ts';
import { KafkaTail } from '../../../src/registry/store/kafka/tail.ts';
import type { LogRecord } from '../../../src/registry/store/log.ts';
import { simBrokerDriver } from '../../../src/sim/broker.ts';
import { VirtualClock } from '../../../src/sim/clock.ts';

const TOPIC = '_schemas';
const BROKER = { brokers: 'sim', clientId: 'test' };

const record = (key: string, value: string): LogRecord => ({
  key: new Uint8Array(Buffer.from(key)),
  value: new Uint8Array(Buffer.from(value)),
  ts: 0,
});
const textOf = ({ key, value }: LogRecord): string =>
  `${Buffer.from(key).toString()}=${Buffer.from(value ?? []).toString()}`;

async function scene() {
  const clock = new VirtualClock();
  const driver = simBrokerDriver({ brokers: 'sim', seed: 1, clock });
  const admin = await clock.run(driver.admin(BROKER));
  await clock.run(admin.createTopics([{ topic: TOPIC, partitions: 1, replicationFactor: 1 }]));
  const producer: BatchProducer = await clock.run(
    driver.producer({ ...BROKER, acks: -1, idempotence: true }),
  );
  const applied: string[] = [];
  const tail = new KafkaTail({
    driver,
    clock,
    broker: BROKER,
    topic: TOPIC,
    leaderTopic: undefined,
    log: silentLogger,
    apply: (records) => applied.push(...records.map(textOf)),
    failed: () => {},
    announced: () => {},
  });
  await clock.run(tail.open(5000));
  /** Appends records.
   *  @param by producer; default: another process */
  const append = async (by: BatchProducer | undefined, ...records: readonly LogRecord[]): Promise<void> => {
    const batch = RecordBatch.create(16, 1024);
    for (const { key, value } of records) batch.append({ topicIndex: 0, partition: 0, key, value });
    expect((await clock.run((by ?? producer).produce(batch, [TOPIC]))).failed).toBe(0);
  };
  const read = (offset: bigint): Promise<void> => clock.run(tail.reach('schemas', offset, 60_000));
  return { clock, driver, tail, applied, append, read };
}

describe('the reader of the Kafka store', () => {
  it('own records reach the sink before their writer knows the outcome', async () => {
    const { clock, tail, applied, append, read } = await scene();
    const own = tail.expect([0n, 1n]);
    await append(undefined, record('a', '1'), record('b', '1'));
    await read(2n);
    expect([tail.outcome(own), applied]).toEqual(['kept', ['a=1', 'b=1']]);
    await clock.run(tail.close());
  });

  it('an own run reaches the sink whole, also if it is read in parts', async () => {
    const { clock, tail, applied, append, read } = await scene();
    await append(undefined, record('a', '1'));
    const own = tail.expect([1n, 2n]);
    await append(undefined, record('a', '2'));
    await clock.until('the first record of the run', () => tail.outcome(own) === 'kept');
    expect([tail.applied, applied]).toEqual([1n, ['a=1']]);
    await append(undefined, record('b', '2'));
    await read(3n);
    expect(applied).toEqual(['a=1', 'a=2', 'b=2']);
    await clock.run(tail.close());
  });

  it('a run that was read in part reaches the sink once its writer waits no longer', async () => {
    const { clock, tail, applied, append, read } = await scene();
    const own = tail.expect([0n, 1n]);
    await append(undefined, record('a', '1'));
    await clock.until('the first record of the run', () => tail.outcome(own) === 'kept');
    tail.forget(own);
    await read(1n);
    expect(applied).toEqual(['a=1']);
    await clock.run(tail.close());
  });

  it('a record of another process between own records reaches the sink at its position in the log', async () => {
    const { clock, tail, applied, append, read } = await scene();
    const run = [record('a', '1'), record('b', '1'), record('c', '1')];
    const own = tail.expect([0n, 2n, 3n]);
    await append(undefined, ...run.slice(0, 1), record('b', 'foreign'), ...run.slice(1));
    await read(4n);
    expect(applied).toEqual(['a=1', 'b=foreign', 'b=1', 'c=1']);
    expect(tail.outcome(own)).toBe('kept');
    await clock.run(tail.close());
  });

  it('an aborted run is lost, also if a record of another process is between its offsets', async () => {
    const { clock, driver, tail, applied, append, read } = await scene();
    const run = [record('a', '1'), record('b', '1')];
    const own = tail.expect([0n, 2n]);
    const producer = await clock.run(driver.transactional({ ...BROKER, transactionalId: 'registry' }));
    await clock.run(producer.init(5000));
    await clock.run(producer.begin());
    await append(producer, run[0] as LogRecord);
    await append(undefined, record('a', 'foreign'));
    await append(producer, run[1] as LogRecord);
    expect(tail.outcome(own)).toBe('open');
    await clock.run(producer.abort(5000));
    await read(4n);
    expect([tail.outcome(own), applied]).toEqual(['lost', ['a=foreign']]);
    await clock.run(tail.close());
  });
});
