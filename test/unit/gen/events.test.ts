import { describe, expect, test } from 'vitest';
import { loadGenKernels } from '../../../src/addon/gen.ts';
import { chooseNative } from '../../../src/addon/load.ts';
import { xxh32Create, xxh32Digest } from '../../../src/addon/reference/xxh32.ts';
import { EventBatch } from '../../../src/core/layout/event-batch.ts';
import { EVENT } from '../../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../../src/core/layout/record-batch.ts';
import { DEFAULT_EVENTS, delayMaxMs, type EventOptions } from '../../../src/gen/event-options.ts';
import { EventGenerator, noiseOf } from '../../../src/gen/events.ts';

const kernels = loadGenKernels(chooseNative(process.env['MILLRACE_NATIVE']).mode);
const delayed = (over: Partial<EventOptions> = {}): EventOptions => ({
  ...DEFAULT_EVENTS,
  count: 10_000,
  accounts: 1000,
  order: 'delayed',
  ...over,
});

interface Row {
  readonly accountId: bigint;
  readonly value: bigint;
  readonly eventTs: bigint;
  readonly seq: bigint;
}

function rowsOf(options: EventOptions, batchRows = 512): Row[] {
  const generator = new EventGenerator(options, kernels);
  const batch = EventBatch.create(batchRows);
  const rows: Row[] = [];
  while (generator.fillEvents(batch) > 0) {
    const { accountId, value, eventTs, seq } = batch.columns;
    for (let i = 0; i < batch.rowCount; i++) {
      rows.push({
        accountId: accountId[i] as bigint,
        value: value[i] as bigint,
        eventTs: eventTs[i] as bigint,
        seq: seq[i] as bigint,
      });
    }
  }
  return rows;
}

function digestOf(options: EventOptions, batchRows: number): number {
  const generator = new EventGenerator(options, kernels);
  const batch = RecordBatch.create(batchRows, batchRows * EVENT.BYTES);
  const state = xxh32Create();
  while (generator.fillRecords(batch) > 0) kernels.genDigest(state, batch);
  return xxh32Digest(state);
}

describe('generated events', () => {
  test.each(['true', 'delayed'] as const)('events in %s order do not depend on the batch size', (order) => {
    const digests = [1, 7, 4096].map((rows) => digestOf(delayed({ order }), rows));
    expect(new Set(digests).size).toBe(1);
  });

  // Test vectors; they change only when the definition in docs/reference/generator.md changes.
  test('the events have the published digests', () => {
    expect(digestOf({ ...DEFAULT_EVENTS, count: 10_000 }, 1000).toString(16)).toBe('5cc79aba');
    expect(digestOf({ ...DEFAULT_EVENTS, count: 10_000, order: 'delayed' }, 1000).toString(16)).toBe(
      '107cf08d',
    );
  });

  test('events as records carry the same fields, with the account as key and filler from the seed', () => {
    const options = delayed({
      count: 500,
      accountBase: 2n ** 64n - 3n,
      valueMin: -5_000_000_000,
      valueMax: 7_000_000_000,
    });
    const expected = rowsOf(options);
    const batch = RecordBatch.create(500, 500 * EVENT.BYTES);
    new EventGenerator(options, kernels).fillRecords(batch);
    const noise = Buffer.from(noiseOf(options.seed));
    for (let i = 0; i < 500; i++) {
      const value = Buffer.from(batch.value(i) as Uint8Array);
      const row = expected[i] as Row;
      expect(value.length).toBe(EVENT.BYTES);
      expect(value.readBigUInt64LE(EVENT.ACCOUNT_ID)).toBe(row.accountId);
      expect(value.readBigInt64LE(EVENT.VALUE)).toBe(row.value);
      expect(value.readBigInt64LE(EVENT.EVENT_TS)).toBe(row.eventTs);
      expect(value.readBigUInt64LE(EVENT.SEQ)).toBe(row.seq);
      expect(noise.includes(value.subarray(EVENT.PAD))).toBe(true);
      expect(Buffer.from(batch.key(i) as Uint8Array).readBigUInt64LE()).toBe(row.accountId);
    }
    expect(expected.some((row) => row.accountId < 1000n)).toBe(true);
    expect(expected.some((row) => row.value < -4_294_967_296n)).toBe(true);
    expect(expected.some((row) => row.value > 4_294_967_296n)).toBe(true);
  });

  test('events in true order are numbered, with event times at the requested spacing', () => {
    const rows = rowsOf(delayed({ order: 'true', perMs: 0.25, count: 1000 }));
    rows.forEach((row, i) => {
      expect(row.seq).toBe(BigInt(i));
      expect(row.eventTs).toBe(BigInt(DEFAULT_EVENTS.baseMs + i * 4));
    });
  });

  test('the events stop at the count, also in the middle of a batch and at zero', () => {
    for (const order of ['true', 'delayed'] as const) {
      for (const count of [0, 1, 511, 512, 513]) expect(rowsOf(delayed({ order, count })).length).toBe(count);
    }
  });

  test('events without a count never end', () => {
    const generator = new EventGenerator(delayed({ count: Infinity }), kernels);
    const batch = EventBatch.create(1000);
    for (let i = 0; i < 5; i++) expect(generator.fillEvents(batch)).toBe(1000);
    expect(generator.generated).toBe(5000);
  });
});

describe('delayed order', () => {
  test('the delayed order keeps every event once and delays within the stated shares', () => {
    const options = delayed({ count: 200_000, perMs: 20 });
    const rows = rowsOf(options, 4096);
    expect(new Set(rows.map((row) => row.seq)).size).toBe(options.count);
    // The distance of an event from the largest event time so far is a lower bound of its delay.
    let max = 0n;
    let behindTypical = 0;
    for (const row of rows) {
      if (row.eventTs > max) max = row.eventTs;
      const behind = Number(max - row.eventTs);
      expect(behind).toBeLessThanOrEqual(delayMaxMs(options.delays));
      if (behind > options.delays.typicalMaxMs) behindTypical++;
    }
    expect(behindTypical / options.count).toBeLessThan(0.052);
    expect(behindTypical / options.count).toBeGreaterThan(0.03);
  });

  test('a delayed order without stragglers stays within the bound', () => {
    const options = delayed({
      count: 100_000,
      delays: { tail: 0.05, stragglers: 0, typicalMaxMs: 500, tailMaxMs: 3000, stragglerMaxMs: 0 },
    });
    expect(delayMaxMs(options.delays)).toBe(3000);
    let max = 0n;
    let most = 0n;
    for (const row of rowsOf(options)) {
      if (row.eventTs > max) max = row.eventTs;
      if (max - row.eventTs > most) most = max - row.eventTs;
    }
    expect(most).toBeLessThanOrEqual(3000n);
    expect(most).toBeGreaterThan(2000n);
  });

  test('a delayed order without any delay is the true order', () => {
    const none = { tail: 0, stragglers: 0, typicalMaxMs: 0, tailMaxMs: 0, stragglerMaxMs: 0 };
    expect(rowsOf(delayed({ delays: none, count: 3000 }))).toEqual(
      rowsOf(delayed({ order: 'true', count: 3000 })),
    );
  });
});

describe('invalid options', () => {
  test.each<[string, Partial<EventOptions>]>([
    ['count', { count: -1 }],
    ['count', { count: 1.5 }],
    ['per-ms', { perMs: 0 }],
    ['base', { baseMs: -1 }],
    ['largest time', { baseMs: 9_007_199_254_740_000 }],
    ['range of whole numbers', { valueMin: 2, valueMax: 1 }],
    ['span', { valueMin: -9e15, valueMax: 9e15 }],
    ['shares', { delays: { ...DEFAULT_EVENTS.delays, tail: 0.9999 } }],
    ['out of range', { delays: { ...DEFAULT_EVENTS.delays, stragglerMaxMs: 1e12 } }],
    ['below typical-max', { delays: { ...DEFAULT_EVENTS.delays, tailMaxMs: 1 } }],
    ['below tail-max', { delays: { ...DEFAULT_EVENTS.delays, stragglerMaxMs: 1 } }],
    ['ranks', { accounts: 0 }],
    ['exponent', { zipf: 9 }],
  ])('the generator refuses an invalid %s by name: %o', (word, over) => {
    expect(() => new EventGenerator(delayed(over), kernels)).toThrow(word);
  });
});
