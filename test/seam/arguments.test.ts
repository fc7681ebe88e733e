/** Calls the addon functions with every argument that a caller can get wrong. No kernel may see a
 *  wrong argument. */
import { describe, expect, it } from 'vitest';
import { loadKernels } from '../../src/addon/load.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { FrameBatch } from '../../src/core/layout/frame-batch.ts';
import { BATCH_HEADER } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { isBatch, type RawFunction, raw, records, thrownBy, VALID } from './kit.ts';

const WRONG_TYPE = { name: 'TypeError', code: 'ERR_INVALID_ARG_TYPE' };
const NAMES = Object.keys(VALID);
const call = (name: string, args: readonly unknown[]): unknown => (raw[name] as RawFunction)(...args);

/** Values of every kind; none is valid where a batch or a typed array is expected. */
const FOREIGN: ReadonlyArray<readonly [string, unknown]> = [
  ['undefined', undefined],
  ['a string', 'batch'],
  ['a symbol', Symbol('batch')],
  ['a bigint', 7n],
  ['an object', {}],
  ['an array', [1, 2, 3]],
  ['a function', () => 0],
  ['a date', new Date(0)],
  ['a proxy of a view', new Proxy(new Uint8Array(4), {})],
  ['an object that says it is a view', Object.create(Uint8Array.prototype)],
  ['a shared buffer itself', new SharedArrayBuffer(4096)],
  [
    'a throwing object',
    {
      get buffer() {
        throw new Error('touched');
      },
    },
  ],
];

/** Typed arrays of the wrong kind. */
const OTHER_VIEWS = [
  new Int8Array(8),
  new Int16Array(8),
  new Float32Array(8),
  new Float64Array(8),
  new BigInt64Array(8),
  new Uint8ClampedArray(8),
  new DataView(new ArrayBuffer(64)),
];

describe.each(NAMES)('%s', (name) => {
  const valid = VALID[name] as (shared?: boolean) => unknown[];

  it('an addon function accepts valid arguments in ordinary and in shared memory', () => {
    expect(thrownBy(() => call(name, valid()))).toBeNull();
    expect(thrownBy(() => call(name, valid(true)))).toBeNull();
  });

  it('an addon function refuses another number of arguments', () => {
    expect(thrownBy(() => call(name, valid().slice(0, -1)))).toEqual(WRONG_TYPE);
    expect(thrownBy(() => call(name, [...valid(), 1]))).toEqual(WRONG_TYPE);
    expect(thrownBy(() => call(name, []))).toEqual(WRONG_TYPE);
    expect(thrownBy(() => call(name, new Array(40).fill(null)))).toEqual(WRONG_TYPE);
  });

  it('an addon function refuses a foreign value in every place', () => {
    for (let place = 0; place < valid().length; place++) {
      for (const [kind, value] of [...FOREIGN, ...OTHER_VIEWS.map((view) => [view.constructor.name, view])]) {
        const args = valid();
        // Any view may be a batch; bytes that are no batch are another error.
        const batch = isBatch(name, place, args[place]);
        if (ArrayBuffer.isView(value) && batch) continue;
        if (value?.constructor === (args[place] as object).constructor) continue;
        args[place] = value;
        expect(
          thrownBy(() => call(name, args)),
          `${place}: ${kind}`,
        ).toEqual(WRONG_TYPE);
      }
      const args = valid();
      const nullable = name === 'writeFrames' && place === 5;
      args[place] = null;
      expect(
        thrownBy(() => call(name, args)),
        `${place}: null`,
      ).toEqual(nullable ? null : WRONG_TYPE);
    }
  });

  it('an addon function refuses a detached buffer in every place', () => {
    valid().forEach((argument, place) => {
      if (!ArrayBuffer.isView(argument)) return;
      const args = valid();
      structuredClone((args[place] as Uint8Array).buffer, {
        transfer: [(args[place] as Uint8Array<ArrayBuffer>).buffer],
      });
      expect(
        thrownBy(() => call(name, args)),
        `${place}`,
      ).toEqual(WRONG_TYPE);
    });
  });

  it('an addon function refuses a batch that is cut, shifted, empty or of another kind', () => {
    valid().forEach((argument, place) => {
      if (!isBatch(name, place, argument)) return;
      const cuts = [0, 1, 8, 63, 64, 65, argument.length - 64, argument.length - 1];
      for (const size of cuts) {
        const args = valid();
        args[place] = argument.slice(0, size);
        expect(thrownBy(() => call(name, args))?.code, `${place}: ${size} bytes`).toBe('layout_mismatch');
        args[place] = (args[place] as Uint8Array).buffer;
        expect(thrownBy(() => call(name, args))?.code, `${place}: ${size} bytes`).toBe('layout_mismatch');
      }
      for (const shift of [1, 4, 7]) {
        const args = valid();
        const room = new Uint8Array(argument.length + 8);
        room.set(argument, shift);
        args[place] = room.subarray(shift, shift + argument.length);
        expect(thrownBy(() => call(name, args))?.code, `${place}: ${shift}`).toBe('layout_mismatch');
      }
      const others = [records(), EventBatch.create(4), FrameBatch.create(4)];
      const own = new Int32Array(argument.buffer)[1];
      for (const other of others) {
        if (other.columns.header[1] === own) continue;
        const args = valid();
        args[place] = new Uint8Array(other.buffer);
        expect(thrownBy(() => call(name, args))?.code).toBe('layout_mismatch');
      }
    });
  });

  it('an addon function never writes outside the view it was given, whatever the header says', () => {
    const extremes = [0, 1, 3, 5, 255, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x1000_0000, 0x7fff_ffbf];
    const fence = 512;
    valid().forEach((argument, place) => {
      if (!isBatch(name, place, argument)) return;
      for (let word = 0; word < BATCH_HEADER.BYTES / 4; word++) {
        for (const value of extremes) {
          const room = new Uint8Array(argument.length + 2 * fence).fill(0xa5);
          room.set(argument, fence);
          new DataView(room.buffer).setUint32(fence + word * 4, value, true);
          const args = valid();
          args[place] = room.subarray(fence, fence + argument.length);
          const thrown = thrownBy(() => call(name, args));
          expect([undefined, 'layout_mismatch', 'out_of_range'], `${word}=${value}`).toContain(thrown?.code);
          expect(room.subarray(0, fence).every((byte) => byte === 0xa5)).toBe(true);
          expect(room.subarray(fence + argument.length).every((byte) => byte === 0xa5)).toBe(true);
        }
      }
    });
  });
});

describe('numeric arguments', () => {
  const bad = [-1, 0.5, Number.NaN, Infinity, -Infinity, 2 ** 32, 2 ** 53, -(2 ** 53), 1e300];

  it.each([
    ['shardOf', 1, [...bad, 0, 2 ** 31]],
    ['writeFrames', 3, [...bad, 3]],
    ['writeFrames', 4, bad],
    ['probeKeys', 4, [...bad, 1]],
    ['probeKeys', 8, [...bad.filter((value) => value !== -1), 2 ** 31]],
    ['probeKeys', 9, bad],
    ['copyKeys', 1, [...bad, 15]],
    ['copyKeys', 2, [...bad, 21]],
    ['copyKeys', 3, [...bad, 5]],
    ['copyKeys', 4, [...bad, 5]],
  ] as const)('the function %s refuses numbers outside the range of argument %i', (name, place, values) => {
    for (const value of values) {
      const args = VALID[name]?.() as unknown[];
      args[place] = value;
      expect(
        thrownBy(() => call(name, args)),
        `${value}`,
      ).toEqual({ name: 'Error', code: 'out_of_range' });
    }
  });

  it('the addon functions accept the least and the greatest number', () => {
    const events = new Uint8Array(EventBatch.create(1).buffer);
    for (const shards of [1, 0x7fff_ffff])
      expect(thrownBy(() => call('shardOf', [events, shards, new Int32Array(1)]))).toBeNull();
    for (const id of [0, 0xffff_ffff]) {
      const args = VALID['writeFrames']?.() as unknown[];
      args[4] = id;
      expect(call('writeFrames', args)).toBe(2);
    }
  });
});

describe('message indexes', () => {
  it.each([
    ['none', Int32Array.of()],
    ['a negative one', Int32Array.of(0, -1)],
    ['seventeen', new Int32Array(17)],
  ])('the addon refuses invalid message indexes: %s', (_, indexes) => {
    const args = VALID['writeFrames']?.() as unknown[];
    args[5] = indexes;
    expect(thrownBy(() => call('writeFrames', args))).toEqual({ name: 'Error', code: 'out_of_range' });
  });
});

describe('event decoder', () => {
  const open = (...args: readonly unknown[]): unknown => raw['eventDecoderOpen']?.(...args);
  const decode = (...args: readonly unknown[]): unknown => raw['eventDecoderDecode']?.(...args);
  const [from, into] = [records(4).buffer, EventBatch.create(4).buffer];
  const WRONG_TYPE = { name: 'TypeError', code: 'ERR_INVALID_ARG_TYPE' };

  it('an event decoder refuses a number of shards that no state has', () => {
    for (const shards of [0, 257, -1, 1.5, Number.NaN])
      expect(thrownBy(() => open(shards))?.code, `${shards}`).toBe('out_of_range');
    for (const shards of ['2', 2n, null, undefined]) expect(thrownBy(() => open(shards))).toEqual(WRONG_TYPE);
    expect(thrownBy(() => open())).toEqual(WRONG_TYPE);
    expect(() => loadKernels('native', 257)).toThrow(expect.objectContaining({ code: 'out_of_range' }));
  });

  it('an event decoder refuses foreign handles, foreign batches and a batch with too few rows', () => {
    const decoder = open(2);
    expect(decode(decoder, from, into)).toBe(4);
    for (const foreign of [
      {},
      null,
      undefined,
      1,
      raw['windowOpen']?.(10, 2, null),
      Object.create(decoder as object),
    ])
      expect(thrownBy(() => decode(foreign, from, into))).toEqual(WRONG_TYPE);
    expect(thrownBy(() => decode(decoder, from))).toEqual(WRONG_TYPE);
    for (const foreign of [null, 'batch', 7, {}]) {
      expect(thrownBy(() => decode(decoder, foreign, into))).toEqual(WRONG_TYPE);
      expect(thrownBy(() => decode(decoder, from, foreign))).toEqual(WRONG_TYPE);
    }
    expect(thrownBy(() => decode(decoder, into, from))?.code).toBe('layout_mismatch');
    expect(thrownBy(() => decode(decoder, from, EventBatch.create(3).buffer))?.code).toBe('out_of_range');
    raw['eventDecoderClose']?.(decoder);
  });

  it('tuneWorkers refuses anything but two numbers', () => {
    for (const args of [[], [1], [1, 2, 3], ['1', 2], [1, null]])
      expect(
        thrownBy(() => raw['tuneWorkers']?.(...args)),
        `${args}`,
      ).toEqual(WRONG_TYPE);
    expect(thrownBy(() => raw['tuneWorkers']?.(-1, 0))?.code).toBe('out_of_range');
    raw['tuneWorkers']?.(2048, 0);
  });
});

describe('kernel wrapper', () => {
  it('coded addon errors become MillraceErrors with their cause, and a wrong type stays a TypeError', () => {
    const kernels = loadKernels('native');
    const batch = records(3);
    expect(() => kernels.decodeEvents(batch, EventBatch.create(2))).toThrow(
      expect.objectContaining({ name: 'MillraceError', code: 'out_of_range', kind: 'invalid' }),
    );
    batch.rowCount = 4;
    expect(() => kernels.decodeEvents(batch, EventBatch.create(9))).toThrow(
      expect.objectContaining({ name: 'MillraceError', code: 'layout_mismatch' }),
    );
    expect(() => kernels.shardOf(EventBatch.create(1), 1, [0] as unknown as Int32Array)).toThrow(TypeError);
  });

  it('a view that shares its buffer with others writes only its rows', () => {
    const kernels = loadKernels('native');
    const events = EventBatch.create(4);
    events.rowCount = 2;
    const out = new Int32Array(4).fill(-7);
    kernels.shardOf(events, 5, out.subarray(1, 3));
    expect([out[0], out[3]]).toEqual([-7, -7]);
    expect(() => kernels.shardOf(events, 5, out.subarray(3))).toThrow(
      expect.objectContaining({ code: 'out_of_range' }),
    );
  });

  it('a batch in shared memory gives the same result as a batch in ordinary memory', () => {
    const kernels = loadKernels('native');
    const [plain, shared] = [false, true].map((where) => {
      const into = EventBatch.create(4, where);
      kernels.decodeEvents(records(4, where), into);
      return Buffer.from(new Uint8Array(into.buffer)).toString('hex');
    });
    expect(shared).toBe(plain);
    expect(RecordBatch.create(1, 1, true).buffer).toBeInstanceOf(SharedArrayBuffer);
  });
});
