/** The direct client is replaced by librdkafka in the middle of a stream, at a record batch of an
 *  old format: positions, starts, pauses and numbers of topics. Both clients are fakes. */
import { describe, expect, it } from 'vitest';
import type { NativeEvent, NativePlace } from '../../../../src/addon/broker-functions.ts';
import { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { DirectConsumer } from '../../../../src/io/kafka/direct/driver.ts';
import {
  type BatchConsumer,
  type ConsumeResult,
  NO_OFFSET,
  OFFSET_BEGINNING,
  OFFSET_END,
  OFFSET_STORED,
  type TopicPartition,
  type TopicPartitionOffset,
} from '../../../../src/io/kafka/port.ts';

const OLD: NativeEvent = [-165, 'the record batch at offset 7 has format 1', false, 'a', 0];
const at = (topic: string, partition: number, offset: bigint): TopicPartitionOffset => ({
  ...{ topic, partition, offset },
});

/** Rows by the numbers of their topics, and what else one call reports. */
interface Read {
  readonly rows?: readonly number[];
  readonly topics?: readonly string[];
  readonly events?: readonly NativeEvent[];
}

function fill(into: RecordBatch, rows: readonly number[] = []): number {
  for (const topicIndex of rows) into.append({ topicIndex, value: Buffer.from('v') });
  return rows.length;
}

/** A consumer over fake clients. `direct` and `control` record their calls. */
function consumerOver(committed: Readonly<Record<string, bigint>> = {}) {
  const direct: string[] = [];
  const control: string[] = [];
  /** Offsets that the direct client knows, by partition of topic `a` or `b`; others are unknown. */
  const known = new Map<string, bigint>();
  const reads: Read[] = [];
  const controlReads: Read[] = [];
  let assigned: ReadonlyArray<readonly [string, number]> = [];
  const answered = async (): Promise<readonly [null, null]> => [null, null];
  const named = (topics: readonly string[], partitions: Int32Array, offsets?: BigInt64Array): string =>
    topics
      .map((topic, i) => `${topic}/${partitions[i]}${offsets === undefined ? '' : ` ${offsets[i]}`}`)
      .join();
  const addon = {
    brokerDirectOpen: () => ({}),
    brokerDirectClose: () => void direct.push('close'),
    brokerDirectLeave: answered,
    brokerDirectAssign: (_: object, topics: string[], partitions: Int32Array, offsets: BigInt64Array) => {
      direct.push(`assign ${named(topics, partitions, offsets)}`);
      assigned = topics.map((topic, i) => [topic, partitions[i] as number]);
      for (const [i, offset] of offsets.entries())
        if (offset >= 0n) known.set(`${topics[i]}/${partitions[i]}`, offset);
      return answered();
    },
    brokerDirectSeek: (_: object, topics: string[], partitions: Int32Array, offsets: BigInt64Array) => {
      const place = named(topics, partitions);
      if ((offsets[0] as bigint) >= 0n) known.set(place, offsets[0] as bigint);
      else known.delete(place);
      return answered();
    },
    brokerDirectPause: answered,
    brokerDirectResume: answered,
    brokerDirectPositions: async (): Promise<readonly [null, readonly NativePlace[]]> => {
      direct.push('positions');
      return [null, assigned.map(([a, b]) => [a, b, known.get(`${a}/${b}`) ?? OFFSET_STORED] as const)];
    },
    brokerDirectConsume: async () => {
      const { rows, topics = [], events = [] } = reads.shift() ?? {};
      return [fill(batch, rows), [], events, topics, 1, []];
    },
  };
  const list = (places: readonly TopicPartition[]): string =>
    places.map(({ topic, partition }) => `${topic}/${partition}`).join();
  const controlTopics: string[] = [];
  const client: Partial<BatchConsumer> = {
    topics: controlTopics,
    assign: async (places) =>
      void control.push(
        `assign ${places.map((place) => `${list([place])} ${(place as TopicPartitionOffset).offset}`).join()}`,
      ),
    pause: async (places) => void control.push(`pause ${list(places)}`),
    resume: async (places) => void control.push(`resume ${list(places)}`),
    seek: async (place) => void control.push(`seek ${list([place])} ${place.offset}`),
    committed: async (places) =>
      places.map((place) => ({ ...place, offset: committed[list([place])] ?? NO_OFFSET })),
    assignment: () => [{ topic: 'of control', partition: 0 }],
    consume: async (into): Promise<ConsumeResult> => {
      into.clear();
      const { rows, topics = [] } = controlReads.shift() ?? {};
      controlTopics.push(...topics);
      return { rowCount: fill(into, rows), ends: [], events: [] };
    },
    close: async () => {},
  };
  const batch = RecordBatch.create(8, 1024);
  const consumer = new DirectConsumer(
    addon as unknown as ConstructorParameters<typeof DirectConsumer>[0],
    { brokers: 'unused', clientId: 'test' },
    client as BatchConsumer,
    undefined,
  );
  const consume = (read: Read = {}): Promise<ConsumeResult> => {
    reads.push(read);
    return consumer.consume(batch, 0);
  };
  return { consumer, batch, consume, known, direct, control, controlReads };
}

describe('positions after the direct client is replaced', () => {
  it('librdkafka continues at the positions of the direct client', async () => {
    const { consumer, consume, known, control, direct } = consumerOver();
    await consumer.assign([at('a', 0, 3n), at('a', 1, 0n)]);
    known.set('a/0', 7n);
    const { events } = await consume({ events: [OLD] });
    expect(control).toEqual(['assign a/0 7,a/1 0']);
    expect(direct.filter((call) => call === 'close')).toHaveLength(1);
    expect(events.map(({ name, message }) => [name, message])).toEqual([
      ['_UNSUPPORTED_FEATURE', `librdkafka reads instead of the direct client: ${OLD[1]}`],
    ]);
  });

  it('a partition without a position begins at the end or the beginning that its caller asked for', async () => {
    const { consumer, consume, control } = consumerOver();
    await consumer.assign([at('a', 0, 7n), at('a', 1, OFFSET_END), at('b', 0, OFFSET_BEGINNING)]);
    await consumer.seek(at('a', 0, OFFSET_END));
    await consume();
    await consume({ events: [OLD] });
    expect(control).toEqual([`assign a/0 ${OFFSET_END},a/1 ${OFFSET_END},b/0 ${OFFSET_BEGINNING}`]);
  });

  it('the last start that was asked for counts', async () => {
    const { consumer, consume, known, control } = consumerOver();
    await consumer.assign([at('a', 0, OFFSET_END), at('a', 1, OFFSET_END)]);
    await consumer.seek(at('a', 0, OFFSET_BEGINNING));
    await consumer.seek(at('a', 1, 40n));
    // The offset is outside of the partition, so the direct client has begun by auto.offset.reset.
    known.delete('a/1');
    await consume({ events: [OLD] });
    expect(control).toEqual([`assign a/0 ${OFFSET_BEGINNING},a/1 ${OFFSET_STORED}`]);
  });

  it('a position that was known and lost is not replaced by the start', async () => {
    const { consumer, consume, known, control, direct } = consumerOver();
    await consumer.assign([at('a', 0, OFFSET_END)]);
    known.set('a/0', 90n);
    await consume();
    known.delete('a/0');
    await consume();
    await consume({ events: [OLD] });
    expect(control).toEqual([`assign a/0 ${OFFSET_STORED}`]);
    // Without an unknown start no call asks for positions but the last.
    expect(direct.filter((call) => call === 'positions')).toHaveLength(2);
  });

  it('a new assignment forgets the starts of the one before', async () => {
    const { consumer, consume, known, control } = consumerOver();
    await consumer.assign([at('a', 0, OFFSET_END), at('a', 1, OFFSET_END)]);
    await consumer.assign([at('a', 0, 5n)]);
    known.delete('a/0');
    await consume({ events: [OLD] });
    expect(control).toEqual([`assign a/0 ${OFFSET_STORED}`]);
  });

  it('a stored start is the committed offset, and without one it stays with auto.offset.reset', async () => {
    const { consumer, consume, control, direct } = consumerOver({ 'a/0': 12n });
    await consumer.assign([at('a', 0, OFFSET_STORED), at('a', 1, OFFSET_STORED)]);
    expect(direct).toEqual([`assign a/0 12,a/1 ${NO_OFFSET}`]);
    await consume({ events: [OLD] });
    expect(control).toEqual([`assign a/0 12,a/1 ${OFFSET_STORED}`]);
  });
});

describe('a pause after the direct client is replaced', () => {
  it('paused partitions stay paused, and resumed ones are read', async () => {
    const { consumer, consume, control } = consumerOver();
    await consumer.assign([at('a', 0, 0n), at('a', 1, 0n), at('b', 0, 0n)]);
    await consumer.pause([at('a', 0, 0n), at('a', 1, 0n)]);
    await consumer.resume([at('a', 0, 0n)]);
    await consume({ events: [OLD] });
    expect(control).toEqual(['assign a/0 0,a/1 0,b/0 0', 'pause a/1']);
  });

  it('a pause of an earlier assignment is forgotten', async () => {
    const { consumer, consume, control } = consumerOver();
    await consumer.assign([at('a', 0, 0n)]);
    await consumer.pause([at('a', 0, 0n)]);
    await consumer.assign([at('a', 0, 0n)]);
    await consume({ events: [OLD] });
    expect(control).toEqual(['assign a/0 0']);
  });

  it('later calls are those of librdkafka', async () => {
    const { consumer, consume, control } = consumerOver();
    await consumer.assign([at('a', 0, 0n)]);
    await consume({ events: [OLD] });
    control.length = 0;
    await consumer.pause([at('a', 0, 0n)]);
    await consumer.resume([at('a', 0, 0n)]);
    await consumer.seek(at('a', 0, 4n));
    await consumer.assign([at('b', 0, OFFSET_END)]);
    expect(control).toEqual(['pause a/0', 'resume a/0', 'seek a/0 4', `assign b/0 ${OFFSET_END}`]);
    expect(consumer.assignment()).toEqual([{ topic: 'of control', partition: 0 }]);
  });
});

describe('rows when the direct client is replaced', () => {
  it('rows and other events of the last read stay valid', async () => {
    const { consumer, consume, batch } = consumerOver();
    await consumer.assign([at('a', 0, 0n)]);
    const gone: NativeEvent = [-195, 'the connection broke', false, null, -1];
    const result = await consume({ rows: [0, 0], topics: ['a'], events: [gone, OLD] });
    expect(result.rowCount).toBe(2);
    expect(batch.rowCount).toBe(2);
    expect(result.events.map(({ name }) => name)).toEqual(['_UNSUPPORTED_FEATURE', '_TRANSPORT']);
    expect((await consume()).events).toEqual([]);
  });

  it('topics keep their numbers, and topics that librdkafka names first get the next ones', async () => {
    const { consumer, consume, batch, controlReads } = consumerOver();
    await consumer.assign([at('a', 0, 0n), at('b', 0, 0n), at('c', 0, 0n)]);
    await consume({ rows: [0, 1], topics: ['a', 'b'], events: [OLD] });
    expect(consumer.topics).toEqual(['a', 'b']);
    controlReads.push({ rows: [0, 1, 0], topics: ['c', 'b'] }, { rows: [2, 1], topics: ['a'] });
    const numbers = (): number[] => Array.from(batch.columns.topicIndex.subarray(0, batch.rowCount));
    await consume();
    expect(consumer.topics).toEqual(['a', 'b', 'c']);
    expect(numbers()).toEqual([2, 1, 2]);
    await consume();
    expect(consumer.topics).toEqual(['a', 'b', 'c']);
    expect(numbers()).toEqual([0, 1]);
  });
});
