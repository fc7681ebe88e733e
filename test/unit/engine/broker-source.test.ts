/** Events of the broker client that end a run: records would be missing from the results. */
import { describe, expect, it } from 'vitest';
import { BrokerSource } from '../../../src/engine/source/events.ts';
import { brokerEvent, OVERSIZE_CODE } from '../../../src/io/kafka/errors.ts';
import type { BatchConsumer, BrokerEvent, ConsumeResult } from '../../../src/io/kafka/port.ts';
import { VirtualClock } from '../../../src/sim/clock.ts';

const CODES = {
  _BAD_MSG: -199,
  _BAD_COMPRESSION: -198,
  _AUTO_OFFSET_RESET: -140,
  OFFSET_OUT_OF_RANGE: 1,
} as const;
const DISKS =
  'check the disks of the broker; raise receive.message.max.bytes for a batch that inflates to more';
const RETENTION = 'check the topic and its retention, then start again';

const at = (code: number, message: string, fatal = false): BrokerEvent =>
  brokerEvent(code, message, { topic: 'orders', partition: 1 }, fatal);
const readOf = (rowCount: number, events: readonly BrokerEvent[] = []): ConsumeResult => ({
  ...{ rowCount, ends: [], events },
});

/** A source over a client that answers with these results, then with nothing. */
function sourceOver(results: readonly ConsumeResult[]) {
  const left = [...results];
  const reported: BrokerEvent[] = [];
  const decoded: number[] = [];
  const consumer: Pick<BatchConsumer, 'assign' | 'consume'> = {
    assign: async () => {},
    consume: async () => left.shift() ?? readOf(0),
  };
  const source = new BrokerSource({
    ...{ consumer: consumer as BatchConsumer, clock: new VirtualClock(), topic: 'orders', partitionCount: 2 },
    ...{ rowCapacity: 4, arenaBytes: 64, findTopic: async () => ({ partitions: 2, id: undefined }) },
    input: {
      isReady: true,
      decode: () => {
        decoded.push(decoded.length);
        return undefined;
      },
    },
    onEvent: (event) => reported.push(event),
    stages: { recordsReady: () => {}, enter: () => {} },
  });
  return { source, reported, decoded };
}

describe('events after which records would be missing', () => {
  it.each(Object.entries(CODES))('the event %s ends the run with source_failed', async (name, code) => {
    const event = at(code, 'the batch at offset 7 is lost');
    expect(event.name).toBe(name);
    const { source, reported, decoded } = sourceOver([readOf(3), readOf(2, [event])]);
    await source.start([0, 0]);
    expect(await source.next(10)).toBeDefined();
    await expect(source.next(10)).rejects.toMatchObject({
      code: 'source_failed',
      message: 'reading orders failed: the batch at offset 7 is lost',
      next: name.startsWith('_BAD') ? DISKS : RETENTION,
    });
    // Rows of the failed read are not used, and the event is an error, not a warning.
    expect(decoded).toHaveLength(1);
    expect(reported).toEqual([]);
  });

  it.each(Object.entries(CODES))('the event %s of a read ahead fails the next start', async (_name, code) => {
    const { source } = sourceOver([readOf(1), readOf(0, [at(code, 'lost')])]);
    await source.start([0, 0]);
    await source.next(10);
    await expect(source.start([5, 0])).rejects.toMatchObject({ code: 'source_failed' });
  });

  it('a fatal error of the client ends the run with source_failed', async () => {
    const { source } = sourceOver([readOf(0, [at(-195, 'the client cannot continue', true)])]);
    await source.start([0, 0]);
    await expect(source.next(10)).rejects.toMatchObject({ code: 'source_failed', next: RETENTION });
  });

  it('a record that exceeds the batch ends the run with oversize_record', async () => {
    const { source } = sourceOver([readOf(0, [at(OVERSIZE_CODE, 'it has 99 bytes')])]);
    await source.start([0, 0]);
    await expect(source.next(10)).rejects.toMatchObject({
      code: 'oversize_record',
      message: 'a record of partition 1 exceeds the batch size: it has 99 bytes',
    });
  });
});

describe('events after which the client reads on', () => {
  it.each([
    ['_TRANSPORT', -195],
    ['_ALL_BROKERS_DOWN', -187],
    ['_UNSUPPORTED_FEATURE', -165],
  ])('the event %s is reported, and the rows of the read are used', async (name, code) => {
    const { source, reported } = sourceOver([readOf(2, [at(code, 'away')]), readOf(2)]);
    await source.start([0, 0]);
    expect(await source.next(10)).toBeDefined();
    expect(await source.next(10)).toBeDefined();
    expect(reported.map((event) => event.name)).toEqual([name]);
  });
});
