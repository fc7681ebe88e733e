/** Copies of refused events: their encoding, their records in the changelog, and their way to the
 *  late topic. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EVENT_STATUS, REFUSAL, TIMESTAMP_TYPE } from '../../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../../src/core/layout/record-batch.ts';
import { NO_BOUND, RefusedBatch } from '../../../src/core/layout/refused-batch.ts';
import { createClock, createProgress } from '../../../src/core/layout/window-clock.ts';
import { silentLogger } from '../../../src/core/log.ts';
import {
  decodeRecord,
  encodeMove,
  encodeSent,
  RECORD,
} from '../../../src/engine/durability/changelog/records.ts';
import { engineError } from '../../../src/engine/errors.ts';
import {
  decodeLate,
  encodeLate,
  type LateCopy,
  PAYLOAD_BYTES_MAX,
} from '../../../src/engine/output/late/rows.ts';
import { KafkaLateTopic } from '../../../src/engine/output/late/topic.ts';
import { LATE_SIDE } from '../../../src/engine/output/side/outputs.ts';
import { encodeSections, type SideBytes } from '../../../src/engine/output/side/sections.ts';
import { SideOutput, type SideTopic } from '../../../src/engine/output/side/sender.ts';
import { ListRows } from '../../../src/engine/source/list/rows.ts';
import type { BrokerDriver } from '../../../src/io/kafka/port.ts';
import { simBrokerDriver } from '../../../src/sim/broker.ts';
import { realClock } from '../../wait.ts';

interface Row {
  readonly partition: number;
  readonly offset: bigint;
  readonly timestamp: bigint | undefined;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly reason: number;
  readonly bound: bigint;
}

const bytes = fc.option(fc.uint8Array({ maxLength: 300 }));
const rows: fc.Arbitrary<Row> = fc.record({
  partition: fc.nat(99_999),
  offset: fc.bigInt({ min: 0n, max: 2n ** 53n }),
  timestamp: fc.option(fc.bigInt({ min: 0n, max: 2n ** 52n }), { nil: undefined }),
  key: bytes,
  value: bytes,
  reason: fc.constantFrom(REFUSAL.LATE, REFUSAL.LATE_AFTER_IDLE, REFUSAL.INVALID),
  bound: fc.oneof(fc.constant(NO_BOUND), fc.bigInt({ min: -(2n ** 52n), max: 2n ** 52n })),
});

function encoded(some: readonly Row[], arenaBytes = 1 << 20): SideBytes {
  const records = RecordBatch.create(some.length, arenaBytes);
  const refused = RefusedBatch.create(some.length);
  some.forEach(({ partition, offset, timestamp, key, value, reason, bound }, i) => {
    const timestampType = timestamp === undefined ? TIMESTAMP_TYPE.NONE : TIMESTAMP_TYPE.CREATE;
    records.append({ partition, offset, timestamp: timestamp ?? 0n, timestampType, key, value });
    // Fill from the last row: copies are in the order of the refusals.
    const at = some.length - 1 - i;
    refused.columns.row[at] = i;
    refused.columns.reason[at] = reason;
    refused.columns.bound[at] = bound;
  });
  refused.rowCount = some.length;
  return encodeLate(records, refused);
}

const plain = (value: Uint8Array | null): readonly number[] | null => (value === null ? null : [...value]);

describe('encoded late copies', () => {
  const some = fc.array(rows, { minLength: 1, maxLength: 6 });

  it('late copies are decoded unchanged', () => {
    fc.assert(
      fc.property(some, (given) => {
        const own = encoded(given);
        const decoded = decodeLate(own);
        if ('fault' in decoded) throw new Error(decoded.fault);
        expect(own.bytes.length % 8).toBe(0);
        expect(own.count).toBe(given.length);
        const expected = [...given].reverse().map(({ timestamp, bound, key, value, ...one }) => ({
          ...one,
          timestampMs: timestamp,
          boundMs: bound === NO_BOUND ? undefined : bound,
          key: plain(key),
          value: plain(value),
          valueBytes: value?.length ?? 0,
        }));
        const found = decoded.copies.map((copy) => ({
          ...copy,
          key: plain(copy.key),
          value: plain(copy.value),
        }));
        expect(found).toEqual(expected);
      }),
    );
  });

  it('the late elements of a record share a copy of it, which names them', () => {
    const lists = ListRows.create(16, 1 << 12);
    const records = RecordBatch.create(3, 1 << 12);
    for (const offset of [4n, 5n, 6n])
      records.append({ partition: 1, offset, value: Buffer.from(`v${offset}`) });
    lists.add(records, 0, 3, EVENT_STATUS.OK);
    lists.add(records, 1, 2, EVENT_STATUS.OK);
    lists.add(records, 2, 0, EVENT_STATUS.NULL);
    const refused = RefusedBatch.create(16);
    const reasons = [REFUSAL.LATE, REFUSAL.LATE, REFUSAL.LATE_AFTER_IDLE, REFUSAL.INVALID];
    [0, 2, 4, 5].forEach((row, at) => {
      refused.columns.row[at] = row;
      refused.columns.reason[at] = reasons[at] as number;
    });
    refused.rowCount = 4;
    const decoded = decodeLate(encodeLate(lists.records, refused));
    if ('fault' in decoded) throw new Error(decoded.fault);
    expect(
      decoded.copies.map(({ offset, elements, value }) => [
        offset,
        elements,
        String(Buffer.from(value ?? [])),
      ]),
    ).toEqual([
      [4n, '0,2', 'v4'],
      [5n, '1', 'v5'],
      [6n, undefined, 'v6'],
    ]);
  });

  it('damaged late copies are refused, whatever the bytes are', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.uint8Array({ maxLength: 200 }),
          some.map((given) => encoded(given).bytes),
        ),
        fc.nat({ max: 6 }),
        fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 3 }),
        fc.nat(),
        (original, count, flips, cut) => {
          const spoilt = original.slice(0, cut % 2 === 0 ? original.length : cut % (original.length + 1));
          for (const [at, by] of flips) if (spoilt.length > 0) spoilt[at % spoilt.length] = by;
          const decoded = decodeLate({ count, bytes: spoilt });
          if ('fault' in decoded) expect(decoded.fault).toMatch(/late cop/);
          else expect(decoded.copies.length).toBe(count);
        },
      ),
    );
  });

  it('a late copy keeps the head of a value that is too long, and its original length', () => {
    const long = new Uint8Array(PAYLOAD_BYTES_MAX + 5).fill(7);
    const row = { partition: 0, offset: 4n, timestamp: undefined, reason: REFUSAL.INVALID, bound: NO_BOUND };
    const decoded = decodeLate(encoded([{ ...row, key: long, value: long }]));
    const [copy] = 'copies' in decoded ? decoded.copies : [];
    expect(copy?.value?.length).toBe(PAYLOAD_BYTES_MAX);
    expect(copy?.key?.length).toBe(PAYLOAD_BYTES_MAX);
    expect(copy?.valueBytes).toBe(PAYLOAD_BYTES_MAX + 5);
  });

  it('late copies precede the deltas of their record, and are recorded as sent by its number', () => {
    const times = { mode: 'partition', sizeMs: 10, slideMs: 10, skewMs: 0, latenessMs: 0 } as const;
    const late = encoded([
      { partition: 0, offset: 4n, timestamp: 1n, key: null, value: null, reason: REFUSAL.LATE, bound: 9n },
    ]);
    const move = encodeMove(createProgress(1), createClock(times), [0], new Uint32Array(0));
    const head = new Uint8Array(8);
    new DataView(head.buffer).setUint32(0, 8 + late.bytes.length, true);
    new DataView(head.buffer).setUint32(4, late.count, true);
    const deltas = new Uint8Array(16).fill(3);
    const forms = [
      [RECORD.REFUSED_BATCH, encodeSections({ late }) as Uint8Array],
      // As earlier versions wrote it.
      [RECORD.LATE_BATCH, Buffer.concat([head, late.bytes])],
    ] as const;
    for (const [kind, copies] of forms) {
      const body = new Uint8Array(Buffer.concat([move, copies, deltas]));
      const decoded = decodeRecord(kind, body);
      if ('fault' in decoded || decoded.record.kind !== 'batch') throw new Error('no batch');
      expect(decoded.record.sections).toEqual({ late });
      expect([...decoded.record.deltas]).toEqual([...deltas]);
      for (const cutAt of [4, 8, 24, copies.length - 8]) {
        const cut = decodeRecord(kind, body.slice(0, move.length + cutAt));
        expect(cut).toEqual({ fault: expect.stringMatching(/late cop|sections/) });
      }
    }
    for (const side of ['late', 'quarantine'] as const)
      expect(decodeRecord(RECORD.SENT, encodeSent(side, 12))).toEqual({
        record: { kind: 'sent', side, seq: 12 },
      });
  });
});

describe('late outlet', () => {
  const copy = encoded([
    { partition: 0, offset: 4n, timestamp: 1n, key: null, value: null, reason: REFUSAL.LATE, bound: 9n },
  ]);
  const never = new AbortController().signal;
  const sleep = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

  interface Steps {
    readonly log: string[];
    readonly topic: SideTopic<LateCopy>;
    readonly bytesMax?: number;
  }
  const outletOf = ({ log, topic, bytesMax }: Steps): SideOutput<LateCopy> =>
    new SideOutput({
      kind: LATE_SIDE,
      topic,
      bytesMax,
      checkpointer: {
        durable: async () => void log.push('durable'),
        sent: (side, seq) => void log.push(`sent ${side} ${seq}`),
      },
      log: silentLogger,
      sleep,
      onSent: (copies) => void log.push(`${copies} copies`),
    });

  it('the outlet makes the refusals durable, sends the copies, and then records them as sent', async () => {
    const log: string[] = [];
    const topic = { send: async (copies: readonly LateCopy[]) => void log.push(`send ${copies.length}`) };
    const outlet = outletOf({ log, topic });
    outlet.offer(3, copy);
    outlet.offer(5, copy);
    await outlet.flushed(never);
    expect(log).toEqual(['durable', 'send 2', 'sent late 5', '2 copies']);
    expect(outlet.waitingCopies).toBe(0);
  });

  it('the outlet sends copies that are offered at the moment when it becomes empty', async () => {
    const log: string[] = [];
    const topic = { send: async () => {} };
    const outlet: SideOutput<LateCopy> = new SideOutput({
      kind: LATE_SIDE,
      topic,
      checkpointer: { durable: async () => {}, sent: (_, seq) => void log.push(`sent ${seq}`) },
      log: silentLogger,
      sleep,
      onSent: () => {
        if (log.length === 1) queueMicrotask(() => outlet.offer(5, copy));
      },
    });
    outlet.offer(3, copy);
    for (let turn = 0; turn < 50 && log.length < 2; turn++) await sleep();
    expect(log).toEqual(['sent 3', 'sent 5']);
  });

  it('the outlet pauses reading while too many copies wait, and retries an unreachable topic', async () => {
    const log: string[] = [];
    let isAway = true;
    const send = async (): Promise<void> => {
      if (isAway) throw engineError('late_failed', 'away');
    };
    const outlet = outletOf({ log, topic: { send }, bytesMax: copy.bytes.length - 1 });
    outlet.offer(1, copy);
    let isHeld = true;
    const room = outlet.room(never).then(() => {
      isHeld = false;
    });
    while (outlet.ready) await sleep();
    for (let turn = 0; turn < 20; turn++) await sleep();
    expect([isHeld, outlet.ready, outlet.waitingCopies]).toEqual([true, false, 1]);
    await outlet.room(AbortSignal.abort());
    isAway = false;
    await room;
    expect([outlet.ready, outlet.waitingCopies]).toEqual([true, 0]);
    await outlet.flushed(never);
  });

  it('the outlet fails on an error that no retry can fix', async () => {
    const send = async (): Promise<void> => {
      throw engineError('late_refused', 'too large');
    };
    const outlet = outletOf({ log: [], topic: { send } });
    outlet.offer(1, copy);
    await expect(outlet.flushed(never)).rejects.toMatchObject({ code: 'late_refused' });
    await expect(outlet.room(never)).rejects.toMatchObject({ code: 'late_refused' });
  });
});

describe('late topic', () => {
  const broker = (lostRow: number): BrokerDriver => {
    const clock = { ...realClock, wallNowMs: () => 5_000 };
    const driver = simBrokerDriver({ seed: 7, brokers: 'b:1', clock, faults: { lostRow } });
    // The simulated broker knows no client properties.
    return { ...driver, producer: ({ properties: _, ...options }) => driver.producer(options) };
  };
  const parts = { brokers: 'b:1', topic: 'late', sourceTopic: 'events', latenessMs: 10 };
  const some: readonly LateCopy[] = Array.from({ length: 5000 }, (_, i) => ({
    partition: 3,
    offset: BigInt(i),
    reason: i === 0 ? REFUSAL.INVALID : REFUSAL.LATE_AFTER_IDLE,
    timestampMs: i === 0 ? undefined : 77n,
    boundMs: i === 0 ? undefined : 100n,
    key: null,
    value: Uint8Array.of(i & 255),
    valueBytes: i === 0 ? PAYLOAD_BYTES_MAX + 9 : 1,
  }));
  const made = async (driver: BrokerDriver, topic: string): Promise<KafkaLateTopic> => {
    const admin = await driver.admin({ brokers: 'b:1', clientId: 'test' });
    await admin.createTopics([{ topic: 'late', partitions: 1 }]);
    await admin.close();
    return new KafkaLateTopic({ ...parts, topic, driver });
  };

  it('the late topic has the copies in order, each with the outcome of its event', async () => {
    const driver = broker(0);
    const topic = await made(driver, 'late');
    await topic.send(some);
    await topic.close();
    const consumer = await driver.consumer({ brokers: 'b:1', clientId: 'test' });
    await consumer.assign([{ topic: 'late', partition: 0, offset: 0n }]);
    const batch = RecordBatch.create(8000, 1 << 22);
    await consumer.consume(batch, 0);
    expect(batch.rowCount).toBe(some.length);
    const headers = (row: number): Record<string, string> =>
      Object.fromEntries(
        batch.headers(row).map(([name, value]) => [name, Buffer.from(value ?? []).toString()]),
      );
    expect(headers(0)).toEqual({
      'millrace.reason': 'invalid',
      'millrace.source_topic': 'events',
      'millrace.source_partition': '3',
      'millrace.source_offset': '0',
      'millrace.value_bytes': String(PAYLOAD_BYTES_MAX + 9),
    });
    expect(headers(4999)).toEqual({
      'millrace.reason': 'late_after_idle',
      'millrace.source_topic': 'events',
      'millrace.source_partition': '3',
      'millrace.source_offset': '4999',
      'millrace.watermark_ms': '110',
      'millrace.timestamp_ms': '77',
    });
    expect(batch.value(4999)).toEqual(Uint8Array.of(4999 & 255));
    expect(batch.columns.timestamp[4999]).toBe(5_000n);
    await consumer.close();
  });

  it('an error of the late topic states whether a retry can help', async () => {
    const lossy = await made(broker(1), 'late');
    await expect(lossy.send(some)).rejects.toMatchObject({ code: 'late_failed', kind: 'unavailable' });
    const missing = await made(broker(0), 'none');
    await expect(missing.send(some)).rejects.toMatchObject({ code: 'late_refused', kind: 'invalid' });
  });
});
