/** The addon's generator compared with the reference implementation: the same bytes, state
 *  and refusals. */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { loadGenKernels } from '../../src/addon/gen.ts';
import type { GenKernels } from '../../src/addon/gen-surface.ts';
import { xxh32Create, xxh32Digest } from '../../src/addon/reference/xxh32.ts';
import { MillraceError } from '../../src/core/errors.ts';
import { ArrivalQueue } from '../../src/core/layout/arrival-queue.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import {
  ARRIVAL_STATE,
  BATCH_HEADER,
  EVENT,
  GEN,
  GEN_PARAMS,
  XXH32,
} from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { ZipfTable } from '../../src/core/random/zipf.ts';
import { DEFAULT_EVENTS, type EventOptions, eventParams } from '../../src/gen/event-options.ts';
import { EventGenerator, noiseOf } from '../../src/gen/events.ts';
import { runs } from '../tier.ts';

const native = loadGenKernels('native');
const reference = loadGenKernels('reference');
const BOTH = [native, reference] as const;

const optionsArbitrary: fc.Arbitrary<EventOptions> = fc.record({
  seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  count: fc.constant(Number.POSITIVE_INFINITY),
  accounts: fc.oneof(fc.integer({ min: 1, max: 300 }), fc.constantFrom(10_000_000, 4_294_967_295)),
  zipf: fc.oneof(fc.constantFrom(0, 1, 1.1, 2, 4), fc.double({ min: 0, max: 4, noNaN: true })),
  accountBase: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  valueMin: fc.integer({ min: -(2 ** 52), max: 0 }),
  valueMax: fc.integer({ min: 0, max: 2 ** 51 }),
  baseMs: fc.integer({ min: 0, max: 2 ** 52 }),
  perMs: fc.oneof(fc.constantFrom(1, 20, 1 / 3), fc.double({ min: 0.01, max: 500, noNaN: true })),
  order: fc.constantFrom('true', 'delayed'),
  delays: fc.record({
    tail: fc.double({ min: 0, max: 0.5, noNaN: true }),
    stragglers: fc.double({ min: 0, max: 0.5, noNaN: true }),
    typicalMaxMs: fc.integer({ min: 0, max: 5000 }),
    tailMaxMs: fc.integer({ min: 5000, max: 2 ** 20 }),
    stragglerMaxMs: fc.integer({ min: 2 ** 20, max: 2 ** 30 - 2 ** 20 }),
  }),
});

describe('generators of both kernels', () => {
  test('both generators give the same records, columns and digest', () => {
    fc.assert(
      fc.property(optionsArbitrary, fc.integer({ min: 1, max: 300 }), (options, rows) => {
        const results = BOTH.map((kernels) => {
          const generator = new EventGenerator(options, kernels);
          const records = RecordBatch.create(rows, rows * EVENT.BYTES);
          const events = EventBatch.create(rows);
          const state = xxh32Create();
          const parts = createHash('sha256');
          for (let turn = 0; turn < 3; turn++) {
            generator.fillRecords(records);
            kernels.genDigest(state, records);
            parts.update(new Uint8Array(records.buffer));
            generator.fillEvents(events);
            parts.update(new Uint8Array(events.buffer));
          }
          return { bytes: parts.digest('hex'), digest: xxh32Digest(state) };
        });
        expect(results[0]).toEqual(results[1]);
      }),
      { numRuns: runs(60) },
    );
  });

  test('both generators keep the same arrival queue, byte for byte, for any step sizes', () => {
    fc.assert(
      fc.property(
        optionsArbitrary,
        fc.array(fc.integer({ min: 0, max: 200 }), { minLength: 1, maxLength: 20 }),
        (options, steps) => {
          const params = eventParams({ ...options, count: 2000 }, new ZipfTable(10, 1));
          const ends = BOTH.map((kernels) => {
            const queue = new ArrivalQueue(16);
            const out: number[] = [];
            for (const step of steps) {
              const seqs = new Float64Array(step);
              const count = kernels.genArrivals(params, queue, seqs);
              out.push(...seqs.subarray(0, count));
              if (queue.isFull) queue.grow();
            }
            return {
              out,
              state: queue.state,
              wheel: new Uint8Array(queue.wheelBuffer),
              pool: new Uint8Array(queue.poolBuffer),
            };
          });
          expect(ends[0]).toEqual(ends[1]);
        },
      ),
      { numRuns: runs(30) },
    );
  });

  test('both generators digest values of any length to the same hash', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 70 }), { maxLength: 20 }), (values) => {
        const batch = RecordBatch.create(32, 4096);
        for (const value of values) batch.append({ value: value.length === 3 ? null : value });
        const digests = BOTH.map((kernels) => {
          const state = xxh32Create();
          kernels.genDigest(state, batch);
          return [xxh32Digest(state), [...state]];
        });
        expect(digests[0]).toEqual(digests[1]);
      }),
    );
  });
});

describe('refused generator arguments', () => {
  const zipf = new ZipfTable(100, 1.1);
  const noise = noiseOf(1n);
  const good = (): Float64Array => eventParams({ ...DEFAULT_EVENTS, order: 'delayed' }, zipf);
  const codeOf = (call: () => unknown): string => {
    try {
      call();
    } catch (thrown) {
      return thrown instanceof MillraceError ? thrown.code : String(thrown);
    }
    return 'nothing';
  };
  const codes = (call: (kernels: GenKernels) => unknown): string[] =>
    BOTH.map((kernels) => codeOf(() => call(kernels)));
  const REFUSED = ['out_of_range', 'out_of_range'];

  test('both generators refuse parameters outside their range, each cell by itself', () => {
    const bad: ReadonlyArray<readonly [number, readonly number[]]> = [
      [GEN_PARAMS.SEED_LOW, [-1, 2 ** 32, Number.NaN]],
      [GEN_PARAMS.SEED_HIGH, [-1, 2 ** 32]],
      [GEN_PARAMS.ACCOUNT_BASE_LOW, [-1, 2 ** 32]],
      [GEN_PARAMS.ACCOUNT_BASE_HIGH, [Number.POSITIVE_INFINITY]],
      [GEN_PARAMS.POWER_WHOLE, [17, -1]],
      [GEN_PARAMS.POWER_FRACTION, [2 ** 32]],
      [GEN_PARAMS.VALUE_MIN, [-1e17, Number.NaN]],
      [GEN_PARAMS.VALUE_SPAN, [0, 1e17, Number.NaN]],
      [GEN_PARAMS.BASE_TS, [-1, 1e17]],
      [GEN_PARAMS.PER_MS, [0, -1, Number.NaN, Number.POSITIVE_INFINITY]],
      [GEN_PARAMS.TYPICAL_BELOW, [-1, 1e10]],
      [GEN_PARAMS.TAIL_BELOW, [-1, 1e10]],
      [GEN_PARAMS.TYPICAL_MAX_MS, [-1, 1e13]],
      [GEN_PARAMS.TAIL_MAX_MS, [-1, 1e13]],
      [GEN_PARAMS.STRAGGLER_MAX_MS, [-1, 1e13, Number.NaN]],
      [GEN_PARAMS.COUNT, [-1, 1e17, Number.NaN]],
    ];
    for (const [cell, values] of bad) {
      for (const value of values) {
        const params = good();
        params[cell / 8] = value;
        expect(
          codes((kernels) => kernels.genArrivals(params, new ArrivalQueue(16), new Float64Array(4))),
        ).toEqual(REFUSED);
        expect(
          codes((kernels) => kernels.genEvents(params, zipf, new Float64Array(1), 1, EventBatch.create(1))),
        ).toEqual(REFUSED);
      }
    }
    expect(
      codes((kernels) => kernels.genArrivals(new Float64Array(3), new ArrivalQueue(16), new Float64Array(4))),
    ).toEqual(REFUSED);
  });

  test('both generators refuse invalid event numbers, small batches and noise of another size', () => {
    const one = (seq: number): Float64Array => new Float64Array([seq]);
    for (const seq of [-1, 2 ** 53, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(codes((kernels) => kernels.genEvents(good(), zipf, one(seq), 1, EventBatch.create(1)))).toEqual(
        REFUSED,
      );
      expect(
        codes((kernels) => kernels.genRecords(good(), zipf, noise, one(seq), 1, RecordBatch.create(1, 256))),
      ).toEqual(REFUSED);
    }
    expect(codes((kernels) => kernels.genEvents(good(), zipf, one(1), 2, EventBatch.create(2)))).toEqual(
      REFUSED,
    );
    expect(
      codes((kernels) => kernels.genEvents(good(), zipf, new Float64Array(3), 3, EventBatch.create(2))),
    ).toEqual(REFUSED);
    expect(
      codes((kernels) =>
        kernels.genRecords(good(), zipf, noise, new Float64Array(3), 3, RecordBatch.create(2, 4096)),
      ),
    ).toEqual(REFUSED);
    expect(
      codes((kernels) =>
        kernels.genRecords(good(), zipf, noise, new Float64Array(2), 2, RecordBatch.create(2, 511)),
      ),
    ).toEqual(REFUSED);
    expect(
      codes((kernels) =>
        kernels.genRecords(good(), zipf, noise.subarray(1), one(1), 1, RecordBatch.create(1, 256)),
      ),
    ).toEqual(REFUSED);
    expect(noise.length).toBe(GEN.NOISE_BYTES);
  });

  test('both generators refuse a broken digest state or span', () => {
    const batch = RecordBatch.create(1, 64);
    batch.append({ value: new Uint8Array(10) });
    expect(codes((kernels) => kernels.genDigest(new Uint32Array(3), batch))).toEqual(REFUSED);
    const kept = new Uint32Array(XXH32.WORDS);
    kept[6] = 16;
    expect(codes((kernels) => kernels.genDigest(kept, batch))).toEqual(REFUSED);
    batch.columns.valueStart[0] = 60;
    expect(codes((kernels) => kernels.genDigest(xxh32Create(), batch))).toEqual(REFUSED);
    batch.columns.header[BATCH_HEADER.ROW_COUNT / 4] = 5;
    expect(codes((kernels) => kernels.genDigest(xxh32Create(), batch))).toEqual([
      'layout_mismatch',
      'layout_mismatch',
    ]);
  });
});

describe('broken queue or table', () => {
  test('the addon reads nothing outside a broken queue and terminates', () => {
    const params = eventParams({ ...DEFAULT_EVENTS, order: 'delayed' }, new ZipfTable(10, 1));
    fc.assert(
      fc.property(
        fc.uint8Array({ minLength: 64, maxLength: 512 }),
        fc.nat(2),
        fc.nat(12_000),
        (junk, where, at) => {
          const queue = new ArrivalQueue(64);
          native.genArrivals(params, queue, new Float64Array(20));
          const target = new Uint8Array(
            [queue.wheelBuffer, queue.poolBuffer, queue.state.buffer as ArrayBuffer][where] as ArrayBuffer,
          );
          const from = where === 2 ? at % 8 : 64 + (at % (target.length - 64));
          target.set(junk.subarray(0, Math.max(0, Math.min(junk.length, target.length - from))), from);
          try {
            expect(native.genArrivals(params, queue, new Float64Array(50))).toBeLessThanOrEqual(50);
          } catch (thrown) {
            expect((thrown as MillraceError).code).toBe('out_of_range');
          }
        },
      ),
      { numRuns: runs(150) },
    );
    // The state claims that empty lists contain waiting events.
    const empty = new ArrivalQueue(16);
    empty.state[ARRIVAL_STATE.PENDING / 8] = 5;
    empty.state[ARRIVAL_STATE.NEXT_SEQ / 8] = 2 ** 53;
    expect(() => native.genArrivals(params, empty, new Float64Array(1))).toThrow('leaves');
    const queue = new ArrivalQueue(16);
    queue.state[ARRIVAL_STATE.FREE_HEAD / 8] = 99;
    expect(() => native.genArrivals(params, queue, new Float64Array(1))).toThrow(/outside its range|leaves/);
  });

  test('the addon refuses an alias that names no run, and stops on ranks that are never kept', () => {
    const table = new ZipfTable(10, 1.1);
    table.columns.cut.fill(0);
    table.columns.alias.fill(1_000_000);
    const call = (): void =>
      native.genEvents(
        eventParams(DEFAULT_EVENTS, table),
        table,
        new Float64Array(1),
        1,
        EventBatch.create(1),
      );
    expect(call).toThrow('outside its range');
    const never = new ZipfTable(10, 1.1);
    never.columns.top.fill(0);
    never.columns.sure.fill(0);
    expect(() =>
      native.genEvents(
        eventParams(DEFAULT_EVENTS, never),
        never,
        new Float64Array(1),
        1,
        EventBatch.create(1),
      ),
    ).toThrow('outside its range');
  });
});
