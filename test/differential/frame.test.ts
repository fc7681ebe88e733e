/** Wire frames: a table of known bytes, an oracle that follows the grammar, and both kernels. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FrameBatch } from '../../src/core/layout/frame-batch.ts';
import { FRAME_STATUS, SPAN } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { runs } from '../tier.ts';
import { batchOf, batchPlans, both, fillWithPattern, native, outcome, reference } from './kernel-kit.ts';

const { OK, BAD_MAGIC, TRUNCATED, BAD_MESSAGE_INDEX, NULL_VALUE } = FRAME_STATUS;

interface Read {
  readonly status: number;
  readonly schemaId: number;
  readonly path: readonly number[];
  /** Offset of the payload in the value. */
  readonly payload: number;
}

/** Reads one value by the grammar, in big integers. */
function readFrame(value: Uint8Array | null, protobuf: boolean): Read {
  const refuse = (status: number): Read => ({ status, schemaId: 0, path: [], payload: 0 });
  if (value === null) return refuse(NULL_VALUE);
  if (value.length === 0) return refuse(TRUNCATED);
  if (value[0] !== 0) return refuse(BAD_MAGIC);
  if (value.length < 5) return refuse(TRUNCATED);
  const schemaId = Buffer.from(value).readUInt32BE(1);
  if (!protobuf) return { status: OK, schemaId, path: [], payload: 5 };
  let at = 5;
  const varint = (): number | 'cut' | 'bad' => {
    const end = value.subarray(at, at + 5).findIndex((byte) => byte < 0x80);
    if (end < 0) return value.length - at < 5 ? 'cut' : 'bad';
    const bytes = [...value.subarray(at, at + end + 1)];
    at += bytes.length;
    const number = bytes.reduceRight((sum, byte) => (sum << 7n) | BigInt(byte & 0x7f), 0n);
    if (number >= 2n ** 32n || (bytes.length > 1 && bytes.at(-1) === 0)) return 'bad';
    return Number(number % 2n === 0n ? number / 2n : -(number + 1n) / 2n);
  };
  const depth = varint();
  if (depth === 'cut') return refuse(TRUNCATED);
  if (depth === 'bad' || depth < 0 || depth > 16) return refuse(BAD_MESSAGE_INDEX);
  const path: number[] = [];
  while (path.length < depth) {
    const index = varint();
    if (index === 'cut') return refuse(TRUNCATED);
    if (index === 'bad' || index < 0) return refuse(BAD_MESSAGE_INDEX);
    path.push(index);
  }
  return { status: OK, schemaId, path: depth === 0 ? [0] : path, payload: at };
}

function scanOne(kernels: typeof native, value: Uint8Array | null, protobuf: boolean) {
  const records = RecordBatch.create(1, (value?.length ?? 0) + 3);
  records.arenaUsed = 3;
  records.append({ value });
  const into = fillWithPattern(FrameBatch.create(1), 9);
  const framed = kernels.scanFrames(records, protobuf, into);
  const c = into.columns;
  return {
    framed,
    status: c.status[0],
    schemaId: c.schemaId[0],
    payloadStart: c.payloadStart[0],
    payloadLength: c.payloadLength[0],
    messageIndex: c.messageIndex[0],
    indexStart: c.indexStart[0],
  };
}

const hex = (text: string): Uint8Array => Uint8Array.from(Buffer.from(text.replaceAll(' ', ''), 'hex'));

/** Bytes that resemble frames, sometimes cut or corrupted. */
const frameLike = fc
  .record({
    magic: fc.oneof({ weight: 12, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.nat(255) }),
    id: fc.uint8Array({ minLength: 4, maxLength: 4 }),
    indexes: fc.oneof(
      fc.constantFrom('00', '02 00', '02 02', '04 00 00', '06 04 02 00', '22', '20', '01', '03 00', '02 01'),
      fc.constantFrom('80 00', '02 80 00', 'ff ff ff ff 0f', 'fe ff ff ff 0f', 'ff ff ff ff ff 01'),
      fc.constantFrom('02 fe ff ff ff 0f', '02 ff ff ff ff 10', '80 80 80 80 80', '02 fe ff ff ff 1f'),
      fc.uint8Array({ maxLength: 8 }).map((bytes) => Buffer.from(bytes).toString('hex')),
    ),
    payload: fc.uint8Array({ maxLength: 20 }),
    keep: fc.oneof({ weight: 3, arbitrary: fc.constant(99) }, { weight: 1, arbitrary: fc.nat(14) }),
  })
  .map(({ magic, id, indexes, payload, keep }) =>
    Uint8Array.from([magic, ...id, ...hex(indexes), ...payload]).subarray(0, keep),
  );

describe('scanFrames', () => {
  const table: ReadonlyArray<[string, string | null, boolean, number, number[]?]> = [
    ['an Avro frame', '00 00000007 aabb', false, OK, [7, 5, 2, 0]],
    ['an Avro frame without payload', '00 ffffffff', false, OK, [0xffffffff, 5, 0, 0]],
    ['path [0] as one byte', '00 00000007 00 aa', true, OK, [7, 6, 1, 0]],
    ['path [0] in full', '00 00000007 02 00 aa', true, OK, [7, 7, 1, 0]],
    ['path [1]', '00 00000007 02 02 aa', true, OK, [7, 7, 1, 1]],
    ['path [0,0]', '00 00000007 04 00 00', true, OK, [7, 8, 0, -1]],
    ['path [2,1,0]', '00 00000007 06 04 02 00 aa', true, OK, [7, 9, 1, -1]],
    ['the greatest index', '00 00000007 02 fe ff ff ff 0f', true, OK, [7, 11, 0, 0x7fffffff]],
    ['the deepest path', `00 00000007 20 ${'02 '.repeat(16)}`, true, OK, [7, 22, 0, -1]],
    ['a path too deep', `00 00000007 22 ${'02 '.repeat(17)}`, true, BAD_MESSAGE_INDEX],
    ['a negative length', '00 00000007 01', true, BAD_MESSAGE_INDEX],
    ['a negative index', '00 00000007 02 01', true, BAD_MESSAGE_INDEX],
    ['an index past 32 bits', '00 00000007 02 ff ff ff ff 10', true, BAD_MESSAGE_INDEX],
    ['a varint of six bytes', '00 00000007 02 80 80 80 80 80 00', true, BAD_MESSAGE_INDEX],
    ['a varint longer than it need be', '00 00000007 82 00 00', true, BAD_MESSAGE_INDEX],
    ['no message indexes', '00 00000007', true, TRUNCATED],
    ['a path cut short', '00 00000007 04 00', true, TRUNCATED],
    ['a varint cut short', '00 00000007 02 80', true, TRUNCATED],
    ['a header cut short', '00 000000', false, TRUNCATED],
    ['an empty value', '', false, TRUNCATED],
    ['a null value', null, false, NULL_VALUE],
    ['another magic', '01 00000007 aa', false, BAD_MAGIC],
    ['one foreign byte', '7b', false, BAD_MAGIC],
  ];
  for (const kernels of [reference, native]) {
    it.each(table)(`scanFrames reads %s: ${kernels.name}`, (_, text, protobuf, status, columns) => {
      const [schemaId, payload, payloadLength, messageIndex] = columns ?? [0, -3, 0, 0];
      expect(scanOne(kernels, text === null ? null : hex(text), protobuf)).toEqual({
        framed: status === OK ? 1 : 0,
        status,
        schemaId,
        payloadStart: (payload as number) + 3,
        payloadLength,
        messageIndex,
        indexStart: status === OK ? 8 : 0,
      });
    });

    it(`scanFrames reads every prefix of a frame as the grammar defines: ${kernels.name}`, () => {
      const whole = hex(`00 00000007 08 fe ff ff ff 0f 02 00 80 01 aabbcc`);
      for (let cut = 0; cut <= whole.length; cut++) {
        const value = whole.subarray(0, cut);
        expect(scanOne(kernels, value, true).status, `${cut} bytes`).toBe(readFrame(value, true).status);
      }
    });

    it(`scanFrames reads any bytes as the grammar defines: ${kernels.name}`, () => {
      fc.assert(
        fc.property(fc.option(frameLike, { freq: 20 }), fc.boolean(), (value, protobuf) => {
          const read = readFrame(value, protobuf);
          const good = read.status === OK;
          expect(scanOne(kernels, value, protobuf)).toEqual({
            framed: good ? 1 : 0,
            status: read.status,
            schemaId: read.schemaId,
            payloadStart: good ? 3 + read.payload : 0,
            payloadLength: good ? (value as Uint8Array).length - read.payload : 0,
            messageIndex: read.path.length > 1 ? -1 : (read.path[0] ?? 0),
            indexStart: good ? 8 : 0,
          });
        }),
        { numRuns: runs(500) },
      );
    });
  }

  it('scanFrames writes the same bytes in both kernels, for any spans and headers', () => {
    fc.assert(
      fc.property(
        batchPlans(frameLike),
        fc.integer({ min: 1, max: 16 }),
        fc.boolean(),
        fc.nat(255),
        (plan, rows, protobuf, pattern) => {
          const [fromReference, addon] = both(
            () => ({ records: batchOf(plan), into: fillWithPattern(FrameBatch.create(rows), pattern) }),
            (kernels, { records, into }) => kernels.scanFrames(records, protobuf, into),
            ({ records, into }) => [records, into],
          );
          expect(addon).toEqual(fromReference);
        },
      ),
      { numRuns: runs(500) },
    );
  });
});

const paths = fc.oneof(
  fc.constant(null),
  fc.array(fc.oneof(fc.nat(3), fc.nat(0x7fff_ffff)), { minLength: 1, maxLength: 16 }),
);
const payloadLists = fc.array(fc.option(fc.uint8Array({ maxLength: 40 }), { freq: 6 }), { maxLength: 12 });

/** Concatenates payloads and returns their spans. */
function joined(list: ReadonlyArray<Uint8Array | null>) {
  const bytes = Uint8Array.from(list.flatMap((payload) => [...(payload ?? [])]));
  const start = new Uint32Array(list.length);
  const length = new Int32Array(list.length);
  let at = 0;
  list.forEach((payload, i) => {
    start[i] = at;
    length[i] = payload === null ? SPAN.NULL : payload.length;
    at += payload?.length ?? 0;
  });
  return { bytes, start, length };
}

describe('writeFrames', () => {
  it.each([reference, native])('writeFrames writes known bytes: $name', (kernels) => {
    const table: ReadonlyArray<[number[] | null, string]> = [
      [null, '00 01020304 ee'],
      [[0], '00 01020304 00 ee'],
      [[1], '00 01020304 02 02 ee'],
      [[0, 0], '00 01020304 04 00 00 ee'],
      [[2, 1, 0], '00 01020304 06 04 02 00 ee'],
      [[64, 0x7fffffff], '00 01020304 04 80 01 fe ff ff ff 0f ee'],
    ];
    for (const [path, bytes] of table) {
      const into = RecordBatch.create(1, 64);
      const indexes = path === null ? null : Int32Array.from(path);
      const one = Uint32Array.of(0);
      expect(kernels.writeFrames(hex('ee'), one, Int32Array.of(1), 1, 0x01020304, indexes, into)).toBe(1);
      expect(Buffer.from(into.value(0) as Uint8Array).toString('hex')).toBe(
        Buffer.from(hex(bytes)).toString('hex'),
      );
    }
  });

  it.each([reference, native])(
    'scanFrames reads back what writeFrames wrote, including the header columns: $name',
    (kernels) => {
      fc.assert(
        fc.property(payloadLists, fc.integer({ min: 0, max: 0xffff_ffff }), paths, (list, schemaId, path) => {
          const { bytes, start, length } = joined(list);
          const into = fillWithPattern(RecordBatch.create(16, 3000), 5);
          into.clear();
          into.append({ key: Uint8Array.of(1), value: Uint8Array.of(2) });
          const indexes = path === null ? null : Int32Array.from(path);
          expect(kernels.writeFrames(bytes, start, length, list.length, schemaId, indexes, into)).toBe(
            list.length,
          );
          const frames = FrameBatch.create(16);
          kernels.scanFrames(into, path !== null, frames);
          list.forEach((payload, i) => {
            const row = i + 1;
            const c = into.columns;
            expect(into.key(row)).toBeNull();
            expect(into.headers(row)).toEqual([]);
            expect([c.topicIndex[row], c.partition[row], c.timestamp[row], c.timestampType[row]]).toEqual([
              0,
              -1,
              0n,
              0,
            ]);
            expect(c.offset[row]).toBe(BigInt(SPAN.NO_OFFSET));
            if (payload === null) {
              expect(into.value(row)).toBeNull();
              return;
            }
            const read = readFrame(into.value(row), path !== null);
            expect([read.status, read.schemaId]).toEqual([OK, schemaId]);
            if (path !== null) expect(read.path).toEqual(path);
            expect(into.value(row)?.subarray(read.payload)).toEqual(payload);
            const f = frames.columns;
            const from = f.payloadStart[row] as number;
            expect(c.arena.slice(from, from + (f.payloadLength[row] as number))).toEqual(payload);
            expect(f.schemaId[row]).toBe(schemaId);
          });
        }),
        { numRuns: runs(150) },
      );
    },
  );

  it('writeFrames writes the same bytes in both kernels, for any room, span, number and header', () => {
    const numbers = fc.constantFrom(0, 1, 0xffff_ffff, 0x1_0000_0000, -1, 0.5, Number.NaN);
    fc.assert(
      fc.property(
        payloadLists,
        fc.record({
          schemaId: fc.oneof(fc.nat(), numbers),
          path: fc.oneof(
            paths,
            fc.array(fc.integer(), { maxLength: 3 }),
            fc.constant(new Array<number>(17).fill(1)),
          ),
          more: fc.oneof(fc.constant(0), fc.integer({ min: -2, max: 1 }), fc.constant(0.5)),
          rows: fc.integer({ min: 1, max: 14 }),
          arena: fc.nat(400),
          used: fc.nat(60),
          filled: fc.nat(5),
          spoilt: fc.option(
            fc.record({ row: fc.nat(11), start: fc.option(fc.nat(80)), length: fc.integer() }),
            { freq: 3 },
          ),
          lie: fc.option(
            fc.record({ word: fc.constantFrom(0, 2, 3, 4, 5), value: fc.oneof(fc.nat(500), fc.integer()) }),
            { freq: 9 },
          ),
          pattern: fc.nat(255),
          shared: fc.boolean(),
        }),
        (list, plan) => {
          const { bytes, start, length } = joined(list);
          if (plan.spoilt !== null && plan.spoilt.row < list.length) {
            start[plan.spoilt.row] = plan.spoilt.start ?? (start[plan.spoilt.row] as number);
            length[plan.spoilt.row] = plan.spoilt.length;
          }
          const indexes = plan.path === null ? null : Int32Array.from(plan.path);
          const [fromReference, addon] = both(
            () => {
              const into = fillWithPattern(
                RecordBatch.create(plan.rows, plan.arena, plan.shared),
                plan.pattern,
              );
              into.rowCount = Math.min(plan.filled, plan.rows);
              into.arenaUsed = Math.min(plan.used, plan.arena);
              if (plan.lie !== null) into.columns.header[plan.lie.word] = plan.lie.value;
              return into;
            },
            (kernels, into) =>
              kernels.writeFrames(
                bytes,
                start,
                length,
                list.length + plan.more,
                plan.schemaId,
                indexes,
                into,
              ),
            (into) => [into],
          );
          expect(addon).toEqual(fromReference);
        },
      ),
      { numRuns: runs(600) },
    );
  });

  it.each([reference, native])(
    'writeFrames accepts complete payloads that fit and no part of the next payload: $name',
    (kernels) => {
      const { bytes, start, length } = joined([new Uint8Array(10), new Uint8Array(10), new Uint8Array(10)]);
      const write = (into: RecordBatch): number =>
        kernels.writeFrames(bytes, start, length, 3, 1, null, into);
      expect(write(RecordBatch.create(3, 45))).toBe(3);
      const tight = fillWithPattern(RecordBatch.create(3, 44), 1);
      const before = tight.columns.arena.slice(30);
      expect(write(tight)).toBe(2);
      expect([tight.rowCount, tight.arenaUsed]).toEqual([2, 30]);
      expect(tight.columns.arena.slice(30)).toEqual(before);
      expect(write(RecordBatch.create(2, 1000))).toBe(2);
      expect(
        outcome(() => kernels.writeFrames(bytes, start, length, 4, 1, null, RecordBatch.create(9, 99))),
      ).toBe('out_of_range');
    },
  );

  it.each([reference, native])(
    'writeFrames frames payloads that are already in the arena: $name',
    (kernels) => {
      const into = RecordBatch.create(4, 100);
      into.append({ value: Uint8Array.of(9, 8, 7) });
      const taken = kernels.writeFrames(
        into.columns.arena,
        Uint32Array.of(0, 1),
        Int32Array.of(3, 9),
        2,
        5,
        null,
        into,
      );
      expect(taken).toBe(2);
      expect([...(into.value(1) as Uint8Array)]).toEqual([0, 0, 0, 0, 5, 9, 8, 7]);
      expect([...(into.value(2) as Uint8Array)].slice(5)).toEqual([8, 7, 0, 0, 0, 0, 5, 9, 8]);
    },
  );
});
