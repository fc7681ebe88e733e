/** Invalid records on their way to the quarantine: their encoding in the changelog, which rows go
 *  where, and the records that the quarantine topic has. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EventBatch } from '../../../src/core/layout/event-batch.ts';
import { EVENT_STATUS, REFUSAL, TIMESTAMP_TYPE } from '../../../src/core/layout/layouts.gen.ts';
import { RecordBatch, type RecordHeader } from '../../../src/core/layout/record-batch.ts';
import { RefusedBatch } from '../../../src/core/layout/refused-batch.ts';
import { silentLogger } from '../../../src/core/log.ts';
import { decodeLate } from '../../../src/engine/output/late/rows.ts';
import {
  decodeQuarantine,
  encodeQuarantine,
  type InvalidRow,
  isQuarantined,
  type QuarantineCopy,
} from '../../../src/engine/output/quarantine/rows.ts';
import { KafkaQuarantine } from '../../../src/engine/output/quarantine/topic.ts';
import { SideOutputs, type SideOutputsParts } from '../../../src/engine/output/side/outputs.ts';
import {
  decodeSections,
  encodeSections,
  noneUnsent,
  type SideBytes,
} from '../../../src/engine/output/side/sections.ts';
import type { BrokerDriver } from '../../../src/io/kafka/port.ts';
import { OFFSET_BEGINNING } from '../../../src/io/kafka/port.ts';
import { readQuarantined, restored } from '../../../src/registry/quarantine/record.ts';
import { simBrokerDriver } from '../../../src/sim/broker.ts';
import { realClock } from '../../wait.ts';

const REASONS = [
  'missing_field',
  'bad_key',
  'bad_time',
  'bad_value',
  'bad_magic',
  'malformed_payload',
] as const;
const statusOf = (reason: string): number => EVENT_STATUS[reason.toUpperCase() as keyof typeof EVENT_STATUS];

interface Row {
  readonly partition: number;
  readonly offset: bigint;
  readonly timestamp: bigint | undefined;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: readonly RecordHeader[];
  readonly reason: (typeof REASONS)[number];
  readonly schemaId: number;
  readonly error: string;
}

const bytes = fc.option(fc.uint8Array({ maxLength: 100 }));
const rows: fc.Arbitrary<Row> = fc.record({
  partition: fc.nat(99_999),
  offset: fc.bigInt({ min: 0n, max: 2n ** 53n }),
  timestamp: fc.option(fc.bigInt({ min: 0n, max: 2n ** 52n }), { nil: undefined }),
  key: bytes,
  value: bytes,
  headers: fc.array(fc.tuple(fc.string({ maxLength: 20, unit: 'grapheme' }), bytes), { maxLength: 3 }),
  reason: fc.constantFrom(...REASONS),
  schemaId: fc.nat(),
  error: fc.string({ maxLength: 50, unit: 'grapheme' }),
});
const some = fc.array(rows, { minLength: 1, maxLength: 5 });

function recordsOf(given: readonly Omit<Row, 'reason' | 'schemaId' | 'error'>[]): RecordBatch {
  const records = RecordBatch.create(given.length, 1 << 16);
  for (const { timestamp, ...record } of given) {
    const timestampType = timestamp === undefined ? TIMESTAMP_TYPE.NONE : TIMESTAMP_TYPE.CREATE;
    expect(records.append({ ...record, timestamp: timestamp ?? 0n, timestampType })).toBe(true);
  }
  return records;
}

const invalidOf = (given: readonly Row[]): InvalidRow[] =>
  given.map(({ reason, schemaId, error }, row) => ({ row, status: statusOf(reason), schemaId, error }));
const encoded = (given: readonly Row[]): SideBytes => encodeQuarantine(recordsOf(given), invalidOf(given));
const plain = (value: Uint8Array | null): readonly number[] | null => (value === null ? null : [...value]);
const plainHeaders = (headers: readonly RecordHeader[]) =>
  headers.map(([name, value]) => [name, plain(value)]);

describe('encoded invalid records', () => {
  it('invalid records are decoded whole, with their headers, their reason and their error', () => {
    fc.assert(
      fc.property(some, (given) => {
        const sections = encodeSections({ quarantine: encoded(given) }) as Uint8Array;
        const decoded = decodeSections(sections);
        if ('fault' in decoded) throw new Error(decoded.fault);
        const side = decodeQuarantine(decoded.sections.quarantine as SideBytes);
        if ('fault' in side) throw new Error(side.fault);
        expect(side.copies.map((copy) => ({ ...copy, ...shown(copy) }))).toEqual(
          given.map(({ timestamp: timestampMs, ...row }) => ({ ...row, ...shown(row), timestampMs })),
        );
      }),
    );
  });

  it('damaged invalid records are refused, whatever the bytes are', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.uint8Array({ maxLength: 200 }).map((raw) => ({ count: 1, bytes: raw })),
          some.map((given) => encoded(given)),
        ),
        fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 3 }),
        fc.nat(),
        (original, flips, cut) => {
          const { length } = original.bytes;
          const spoilt = original.bytes.slice(0, cut % 2 === 0 ? length : cut % (length + 1));
          for (const [at, by] of flips) if (spoilt.length > 0) spoilt[at % spoilt.length] = by;
          const decoded = decodeQuarantine({ count: original.count, bytes: spoilt });
          if ('fault' in decoded) expect(decoded.fault).toMatch(/quarantined record/);
          else expect(decoded.copies.length).toBe(original.count);
          const sections = decodeSections(spoilt);
          if ('fault' in sections) expect(sections.fault).toMatch(/section/);
        },
      ),
    );
  });

  const shown = (row: Pick<Row, 'key' | 'value' | 'headers'>) => ({
    key: plain(row.key),
    value: plain(row.value),
    headers: plainHeaders(row.headers),
  });
});

describe('side outputs', () => {
  const { OK, NULL, BAD_LENGTH, MISSING_FIELD, BAD_TIME } = EVENT_STATUS;
  /** Rows of a batch: their status and the reason of their refusal. */
  const REFUSED = [
    [OK, REFUSAL.LATE],
    [MISSING_FIELD, REFUSAL.INVALID],
    [NULL, REFUSAL.INVALID],
    [BAD_LENGTH, REFUSAL.INVALID],
    [BAD_TIME, REFUSAL.INVALID],
    [OK, REFUSAL.LATE_AFTER_IDLE],
  ] as const;

  const frame = Buffer.from([0, 0, 0, 0, 7, 1]);
  const nothing = { send: async (): Promise<void> => {} };
  const opened = (parts: Pick<SideOutputsParts, 'late' | 'quarantine'>): SideOutputs =>
    new SideOutputs(
      {
        latenessMs: 10,
        checkpointer: { durable: async () => {}, sent: () => {} },
        log: silentLogger,
        sleep: async () => {},
        onSent: () => {},
        input: { describe: (_, row) => `fault of row ${row}` },
        ...parts,
      },
      noneUnsent(),
    );

  function offsets(parts: Pick<SideOutputsParts, 'late' | 'quarantine'>) {
    const base = { partition: 0, timestamp: 1n, key: null, value: frame, headers: [] };
    const records = recordsOf(REFUSED.map((_, i) => ({ ...base, offset: BigInt(i) })));
    const events = EventBatch.create(REFUSED.length);
    const refused = RefusedBatch.create(REFUSED.length);
    REFUSED.forEach(([status, reason], i) => {
      events.columns.status[i] = status;
      refused.columns.row[i] = i;
      refused.columns.reason[i] = reason;
    });
    refused.rowCount = REFUSED.length;
    const { late, quarantine } = opened(parts).encode(records, events, refused);
    const copiesOf = <C>(decoded: { readonly copies: readonly C[] } | object | undefined): readonly C[] =>
      decoded !== undefined && 'copies' in decoded ? (decoded.copies as readonly C[]) : [];
    return {
      late: copiesOf<{ offset: bigint }>(late && decodeLate(late)).map(({ offset }) => Number(offset)),
      quarantine: copiesOf<QuarantineCopy>(quarantine && decodeQuarantine(quarantine)),
    };
  }

  it('late events go to the late topic and invalid records to the quarantine, each once', () => {
    const { late, quarantine } = offsets({ late: nothing, quarantine: nothing });
    // Tombstones and records of the fixed layout are not quarantined.
    expect(late).toEqual([0, 2, 3, 5]);
    expect(
      quarantine.map(({ offset, reason, schemaId, error }) => [Number(offset), reason, schemaId, error]),
    ).toEqual([
      [1, 'missing_field', 7, 'the record has no value of a field that the job reads: fault of row 1'],
      [4, 'bad_time', 7, 'the record has no valid event time: fault of row 4'],
    ]);
  });

  it('an invalid record goes nowhere without a quarantine, and a late event nowhere without a late topic', () => {
    expect(offsets({ late: nothing })).toEqual({ late: [0, 2, 3, 5], quarantine: [] });
    expect(offsets({ quarantine: nothing })).toMatchObject({ late: [], quarantine: [{}, {}] });
    expect(offsets({})).toEqual({ late: [], quarantine: [] });
  });

  it('a start without the quarantine is refused while invalid records wait for it', () => {
    const row = { partition: 0, offset: 4n, timestamp: 1n, key: null, value: frame, headers: [] };
    const quarantine = encoded([{ ...row, reason: 'bad_key', schemaId: 0, error: 'e' }]);
    const unsent = { ...noneUnsent(), quarantine: [{ seq: 3, ...quarantine }] };
    const parts = {
      checkpointer: { durable: async () => {}, sent: () => {} },
      ...{ latenessMs: 10, log: silentLogger, sleep: async () => {}, onSent: () => {} },
    };
    expect(() => new SideOutputs(parts, unsent)).toThrow(
      expect.objectContaining({
        code: 'quarantine_waiting',
        next: expect.stringContaining('-quarantine=off'),
      }),
    );
    expect(new SideOutputs({ ...parts, quarantine: nothing }, unsent).waitingCopies('quarantine')).toBe(1);
  });

  it('every status of an invalid record is quarantined, except those of the fixed layout and null values', () => {
    const counted = Object.entries(EVENT_STATUS).filter(([, status]) => !isQuarantined(status));
    expect(counted.map(([name]) => name).sort()).toEqual([
      'BAD_LENGTH',
      'FILTERED',
      'NO_EVENT',
      'NULL',
      'OK',
    ]);
  });
});

describe('quarantine topic', () => {
  const broker = (lostRow: number, messageBytesMax = 1_000_000): BrokerDriver => {
    const driver = simBrokerDriver({
      seed: 7,
      brokers: 'b:1',
      clock: realClock,
      faults: { lostRow },
      messageBytesMax,
    });
    // The simulated broker knows no client properties.
    return { ...driver, producer: ({ properties: _, ...options }) => driver.producer(options) };
  };
  const copy: QuarantineCopy = {
    ...{
      partition: 3,
      offset: 41n,
      reason: 'bad_time',
      timestampMs: 77n,
      schemaId: 9,
      error: 'no valid time',
    },
    ...{ key: Buffer.from('k'), value: Buffer.from('v'), headers: [['ce_source', Buffer.from('till')]] },
  };
  const large: QuarantineCopy = { ...copy, offset: 42n, value: Buffer.alloc(3 << 20, 7) };
  const made = async (
    driver: BrokerDriver,
    prepare = async (): Promise<void> => {},
  ): Promise<KafkaQuarantine> => {
    const admin = await driver.admin({ brokers: 'b:1', clientId: 'test' });
    await admin.createTopics([{ topic: 'orders.quarantine', partitions: 1 }]);
    await admin.close();
    return new KafkaQuarantine({
      ...{ driver, brokers: 'b:1', topic: 'orders.quarantine', sourceTopic: 'orders', prepare },
    });
  };

  it('a quarantined record of the engine is listed and restored as one of the consumer is, whatever its size', async () => {
    const driver = broker(0, 4 << 20);
    let prepared = 0;
    const quarantine = await made(driver, async () => void prepared++);
    await quarantine.send([copy, large]);
    await quarantine.send([copy]);
    await quarantine.close();
    expect(prepared).toBe(1);
    const consumer = await driver.consumer({ brokers: 'b:1', clientId: 'test' });
    await consumer.assign([{ topic: 'orders.quarantine', partition: 0, offset: OFFSET_BEGINNING }]);
    const records = RecordBatch.create(10, 8 << 20);
    const found: object[] = [];
    while (found.length < 3) {
      const { rowCount } = await consumer.consume(records, 100);
      for (let row = 0; row < rowCount; row++) {
        const one = readQuarantined(records, row);
        if (one.kind !== 'quarantined') throw new Error(one.why);
        const { key, value, timestamp, headers } = restored(records, row, one);
        const { id, reason, source, error, schemaId, readerVersion } = one;
        found.push({
          ...{ id, reason, source, error, schemaId, readerVersion, timestamp },
          ...{ key: plain(key ?? null), bytes: value?.length, headers: plainHeaders(headers ?? []) },
        });
      }
    }
    await consumer.close();
    const expected = {
      ...{ reason: 'bad_time', error: 'no valid time', schemaId: '9', readerVersion: '', timestamp: 77n },
      ...{ key: [107], headers: [['ce_source', [...Buffer.from('till')]]] },
    };
    const source = { topic: 'orders', partition: 3, offset: 41n };
    const id = expect.stringMatching(/^orders\/3\/41\/[\da-f]{16}$/);
    expect(found).toEqual([
      { ...expected, source, id, bytes: 1 },
      { ...expected, source: { ...source, offset: 42n }, id: expect.any(String), bytes: 3 << 20 },
      { ...expected, source, id, bytes: 1 },
    ]);
    // A copy that is sent again after a crash has the same id.
    expect((found[0] as { id: string }).id).toBe((found[2] as { id: string }).id);
  });

  it('an error of the quarantine topic states whether a retry can help', async () => {
    const lossy = await made(broker(1));
    await expect(lossy.send([copy])).rejects.toMatchObject({
      code: 'quarantine_failed',
      kind: 'unavailable',
    });
    const narrow = await made(broker(0));
    await expect(narrow.send([large])).rejects.toMatchObject({
      ...{ code: 'quarantine_refused', kind: 'invalid' },
      next: expect.stringContaining('max.message.bytes'),
    });
  });
});
