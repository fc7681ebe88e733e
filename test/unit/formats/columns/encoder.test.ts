/** Encoder of columns: verdicts of single values, growth, limits, programs that break a rule. */
import { describe, expect, it } from 'vitest';
import { ColumnBatch } from '../../../../src/core/columns/batch.ts';
import { EncodedFrames } from '../../../../src/core/columns/frames.ts';
import type { ColumnKernels } from '../../../../src/core/columns/kernel.ts';
import { ColumnSchema } from '../../../../src/core/columns/schema.ts';
import { findMillraceError } from '../../../../src/core/errors.ts';
import {
  AVRO_PUT,
  COLUMN_SLOT,
  COLUMN_STATE,
  ENCODE_STATUS,
  FRAMES_STATE,
  PROTO_PUT,
} from '../../../../src/core/layout/layouts.gen.ts';
import { encodeAvro } from '../../../../src/formats/avro/codec/encoder.ts';
import { avroColumnDecoder } from '../../../../src/formats/avro/columns/decoder.ts';
import { compileEncode } from '../../../../src/formats/avro/columns/encode.ts';
import { batchEncoder } from '../../../../src/formats/columns/encoder.ts';
import type { AvroDatum } from '../../../../src/formats/datum.ts';
import { Payloads } from '../../../../src/formats/payloads.ts';
import { protoWriter } from '../../../../src/formats/protobuf/codec/record-codec.ts';
import { protoColumnDecoder } from '../../../../src/formats/protobuf/columns/decoder.ts';
import { compileProtoEncode } from '../../../../src/formats/protobuf/columns/encode.ts';
import { parseSchema, type Schema } from '../../../../src/formats/schema.ts';
import { columnKernels, parse, spansOf } from '../../../differential/avro-columns-kit.ts';

const field = (name: string, type: unknown): object => ({ name, type });
const record = (name: string, ...fields: object[]): object => ({ type: 'record', name, fields });
const NO_PREFIX = Buffer.alloc(0);

/** Columns of Avro data. */
function avroBatch(kernels: ColumnKernels, json: unknown, data: readonly AvroDatum[]): ColumnBatch {
  const schema = parse(json);
  const decoder = avroColumnDecoder(kernels, schema, schema);
  const batch = decoder.createBatch(data.length);
  decoder.decode(spansOf(data.map((datum) => encodeAvro(schema.tree, datum))), 0, data.length, batch);
  decoder.close();
  return batch;
}

/** Columns of values of the first message of a Protobuf text. */
function protoBatch(kernels: ColumnKernels, text: string, values: readonly unknown[]): ColumnBatch {
  const schema = parseSchema('PROTOBUF', text);
  if (schema.format !== 'PROTOBUF') throw new Error('the text is Protobuf');
  const message = schema.tree.messages[0];
  if (message === undefined) throw new Error('the text has a message');
  const payloads = new Payloads(values.length, 1024);
  const { encode } = protoWriter(schema, undefined);
  for (const value of values) encode(value, payloads);
  const decoder = protoColumnDecoder(kernels, message);
  const batch = decoder.createBatch(values.length);
  decoder.decode(payloads, 0, values.length, batch);
  decoder.close();
  return batch;
}

/** The batch with other values in the nullable binary column `index`. */
function withBinary(batch: ColumnBatch, index: number, values: readonly Buffer[]): ColumnBatch {
  const { schema } = batch;
  const bytes = Buffer.concat(values);
  const slots = schema.all.flatMap((_, i) =>
    [COLUMN_SLOT.VALIDITY, COLUMN_SLOT.OFFSETS, COLUMN_SLOT.VALUES].map((slot) =>
      i === index && slot === COLUMN_SLOT.VALUES ? bytes : batch.bytesOf(i, slot),
    ),
  );
  const lengths = schema.all.map((_, i) => batch.lengthOf(i));
  const made = ColumnBatch.sized(
    schema,
    batch.rowCount,
    lengths,
    slots.map(({ length }) => length),
  );
  slots.forEach((slot, i) => {
    const at = made.offsetOf(Math.floor(i / COLUMN_SLOT.COUNT), i % COLUMN_SLOT.COUNT);
    new Uint8Array(made.buffer).set(slot, at);
  });
  let at = 0;
  const ends = values.map(({ length }) => (at += length));
  new Int32Array(made.buffer, made.offsetOf(index, COLUMN_SLOT.OFFSETS), ends.length + 1).set([0, ...ends]);
  return made;
}

interface Verdict {
  readonly status: number;
  readonly path: unknown;
  readonly why: string;
}

/** Verdict of each row of a batch, and what the error of a refused row states. */
function verdictsOf(kernels: ColumnKernels, schema: Schema, batch: ColumnBatch): Verdict[] {
  const encoder = batchEncoder(kernels, schema);
  const frames = EncodedFrames.create(batch.rowCount);
  expect(encoder.encode(batch, 0, batch.rowCount, NO_PREFIX, frames)).toBe(batch.rowCount);
  const verdicts = Array.from({ length: batch.rowCount }, (_, row) => {
    const error = encoder.errorOf(frames, row);
    expect(frames.frame(row) === null).toBe(frames.status[row] !== ENCODE_STATUS.OK);
    return {
      status: frames.status[row] as number,
      path: error?.details['path'],
      why: error?.message ?? '',
    };
  });
  encoder.close();
  return verdicts;
}

const codeOf = (work: () => unknown): string | undefined => {
  try {
    work();
    return undefined;
  } catch (thrown) {
    return findMillraceError(thrown)?.code;
  }
};

const NESTED = record(
  'R',
  field('e', { type: 'enum', name: 'E', symbols: ['A', 'B'] }),
  field(
    'in',
    record('In', field('d', { type: 'fixed', name: 'D', size: 2, logicalType: 'decimal', precision: 4 })),
  ),
  field('s', { type: 'array', items: 'string' }),
  field('u', ['int', 'string']),
);
const nested = (text: string): AvroDatum => ({
  fields: ['B', { fields: [Buffer.of(0xff, 0x7f)] }, [text], { branch: 0, value: 7 }],
});

for (const kernels of columnKernels)
  describe(`columns encoded by the ${kernels.name} kernel`, () => {
    it('a value that the schema refuses costs its row, and the error names the column', () => {
      const schema = parse(NESTED);
      const batch = avroBatch(
        kernels,
        NESTED,
        Array.from({ length: 6 }, (_, i) => nested(`text ${i}`)),
      );
      const at = (name: string): number => batch.schema.all.findIndex((column) => column.name === name);
      const values = (name: string): Uint8Array => batch.bytesOf(at(name), COLUMN_SLOT.VALUES);
      // Row 1: a symbol beyond the enum. Row 2: a decimal of three bytes. Row 3: a byte that UTF-8
      // lacks. Row 4: a branch that the union lacks. Row 5: items beyond their column.
      values('e')[4] = 2;
      values('d')[2 * 16 + 2] = 1;
      values('item')[3 * 6] = 0xff;
      values('u')[4] = 2;
      new DataView(batch.buffer, batch.offsetOf(at('s'), COLUMN_SLOT.OFFSETS)).setInt32(6 * 4, 7, true);
      expect(verdictsOf(kernels, schema, batch)).toEqual([
        { status: ENCODE_STATUS.OK, path: undefined, why: '' },
        {
          status: ENCODE_STATUS.REFUSED,
          path: 'R.e',
          why: 'row 1: R.e has an index that is none of its 2 symbols',
        },
        {
          status: ENCODE_STATUS.REFUSED,
          path: 'R.in.d',
          why: "row 2: R.in.d has a number with more bytes than the schema's fixed",
        },
        {
          status: ENCODE_STATUS.REFUSED,
          path: 'R.s.item',
          why: 'row 3: R.s.item has a text that is not UTF-8',
        },
        {
          status: ENCODE_STATUS.BROKEN,
          path: 'R.u',
          why: 'row 4: R.u has an offset or a type id that leaves its column',
        },
        {
          status: ENCODE_STATUS.BROKEN,
          path: 'R.s',
          why: 'row 5: R.s has an offset or a type id that leaves its column',
        },
      ]);
    });

    it('a negative decimal of fewer bytes than its fixed is extended with its sign', () => {
      const schema = parse(NESTED);
      const batch = avroBatch(kernels, NESTED, [nested('')]);
      const encoder = batchEncoder(kernels, schema);
      const frames = EncodedFrames.create(1);
      encoder.encode(batch, 0, 1, NO_PREFIX, frames);
      expect(frames.frame(0)).toEqual(encodeAvro(schema.tree, nested('')));
      encoder.close();
    });

    it('bytes of a recursive type are copied where they are a value of it, within the nesting limit', () => {
      const tree = record('Tree', field('v', 'int'), field('next', ['null', 'Tree']));
      const schema = parse(tree);
      const deep = (depth: number): AvroDatum => ({
        fields: [depth, depth === 1 ? { branch: 0, value: null } : { branch: 1, value: deep(depth - 1) }],
      });
      const bytes = (depth: number): Buffer => encodeAvro(schema.tree, deep(depth));
      const batch = avroBatch(kernels, tree, [deep(2), deep(2), deep(2), deep(2)]);
      // The record around each value counts as a level: 256 are allowed.
      const values = [bytes(255), bytes(256), bytes(3).subarray(0, -1), Buffer.concat([bytes(3), bytes(1)])];
      const given = withBinary(batch, 1, values);
      expect(verdictsOf(kernels, schema, given).map(({ status }) => status)).toEqual([
        ENCODE_STATUS.OK,
        ENCODE_STATUS.REFUSED,
        ENCODE_STATUS.REFUSED,
        ENCODE_STATUS.REFUSED,
      ]);
    });

    it('bytes of a recursive message are copied where they are one, within the nesting limit', () => {
      const text = 'syntax = "proto3"; message M { int32 v = 1; M next = 2; }';
      const schema = parseSchema('PROTOBUF', text);
      const message = (depth: number): Buffer => {
        if (depth === 0) return Buffer.from([8, 1]);
        const inner = message(depth - 1);
        const length = inner.length < 128 ? [inner.length] : [(inner.length & 127) | 128, inner.length >>> 7];
        return Buffer.concat([Buffer.from([0x12, ...length]), inner]);
      };
      const batch = protoBatch(kernels, text, Array(4).fill({ next: { v: 1 } }));
      // 100 messages inside the outermost are allowed, and the value is the first of them.
      const values = [message(99), message(100), Buffer.of(0x12, 5), Buffer.of(0x0c)];
      const verdicts = verdictsOf(kernels, schema, withBinary(batch, 1, values));
      expect(verdicts.map(({ status }) => status)).toEqual([
        ENCODE_STATUS.OK,
        ENCODE_STATUS.REFUSED,
        ENCODE_STATUS.REFUSED,
        ENCODE_STATUS.REFUSED,
      ]);
    });

    it('a message without a required field, or with two members of a oneof, is refused', () => {
      const text = `syntax = "proto2"; message M { required int32 a = 1; oneof o { string s = 2; bool b = 3; } }`;
      const schema = parseSchema('PROTOBUF', text);
      const batch = protoBatch(kernels, text, [
        { a: 1, s: 'x' },
        { a: 2, b: true },
        { a: 3, s: 'y' },
      ]);
      const validity = (index: number): Uint8Array => batch.bytesOf(index, COLUMN_SLOT.VALIDITY);
      validity(0)[0] = 0b101;
      validity(2)[0] = (validity(2)[0] as number) | 0b100;
      const verdicts = verdictsOf(kernels, schema, batch);
      expect(verdicts.map(({ status, path }) => [status, path])).toEqual([
        [ENCODE_STATUS.OK, undefined],
        [ENCODE_STATUS.REFUSED, 'M.a'],
        [ENCODE_STATUS.REFUSED, 'M.b'],
      ]);
      expect(verdicts[1]?.why).toContain('no value although it is required');
    });

    it('a closed enum is written by its number, and an index that it lacks is refused', () => {
      const text =
        'syntax = "proto2"; message M { repeated E e = 1 [packed = true]; enum E { X = 7; Y = -2; } }';
      const schema = parseSchema('PROTOBUF', text);
      const batch = protoBatch(kernels, text, [{ e: ['X', 'Y'] }, { e: ['Y'] }]);
      new Int32Array(batch.buffer, batch.offsetOf(1, COLUMN_SLOT.VALUES), 3)[2] = -1;
      const encoder = batchEncoder(kernels, schema);
      const frames = EncodedFrames.create(2);
      encoder.encode(batch, 0, 2, NO_PREFIX, frames);
      expect(frames.frame(0)?.toString('hex')).toBe('0a0b07feffffffffffffffff01');
      expect(frames.status[1]).toBe(ENCODE_STATUS.REFUSED);
      encoder.close();
    });

    it('the buffer grows to what the kernel names, and a full one ends before the row', () => {
      const schema = parse('string');
      const batch = avroBatch(kernels, 'string', ['x'.repeat(1000), 'y'.repeat(1000), 'z'.repeat(5000)]);
      const opened = kernels.openAvroEncoder(compileEncode(schema.tree).program);
      const exact = EncodedFrames.create(3, undefined, 8);
      expect(opened.encode(batch, 0, 3, NO_PREFIX, exact, false)).toBe(0);
      // One column: 128 spare bytes.
      expect(exact.state[FRAMES_STATE.NEED_BYTES]).toBe(128);
      opened.close();
      const encoder = batchEncoder(kernels, schema);
      const small = EncodedFrames.create(3, 3000, 8);
      expect(encoder.encode(batch, 0, 3, NO_PREFIX, small)).toBe(2);
      expect(small.frame(1)?.length).toBe(1002);
      small.clear();
      expect(encoder.encode(batch, 2, 3, NO_PREFIX, small)).toBe(1);
      expect(small.status[0]).toBe(ENCODE_STATUS.TOO_LARGE);
      expect(encoder.errorOf(small, 0)?.message).toContain('longer than');
      encoder.close();
    });

    it('a payload above its limit is refused', () => {
      const schema = parse({ type: 'array', items: 'bytes' });
      const batch = avroBatch(kernels, { type: 'array', items: 'bytes' }, [[Buffer.alloc(1 << 20)], []]);
      // 70 items that are all the same MiB.
      const lengths = [2, 70];
      const sized = ColumnBatch.sized(batch.schema, 2, lengths, [0, 12, 0, 0, 71 * 4, 70 << 20]);
      new Int32Array(sized.buffer, sized.offsetOf(0, COLUMN_SLOT.OFFSETS), 3).set([0, 70, 70]);
      new Int32Array(sized.buffer, sized.offsetOf(1, COLUMN_SLOT.OFFSETS), 71).set(
        Array.from({ length: 71 }, (_, i) => i << 20),
      );
      expect(verdictsOf(kernels, schema, sized).map(({ status }) => status)).toEqual([
        ENCODE_STATUS.TOO_LARGE,
        ENCODE_STATUS.OK,
      ]);
    });

    it('a batch of other columns, rows that it lacks and a closed encoder are errors of the call', () => {
      const encoder = batchEncoder(kernels, parse('string'));
      const frames = EncodedFrames.create(4);
      const batch = avroBatch(kernels, 'string', ['a']);
      const encode = (columns: ColumnBatch, to: number) => () =>
        encoder.encode(columns, 0, to, NO_PREFIX, frames);
      expect(codeOf(encode(avroBatch(kernels, 'bytes', [Buffer.of(1)]), 1))).toBe('layout_mismatch');
      expect(codeOf(encode(batch, 2))).toBe('out_of_range');
      expect(codeOf(() => encoder.encode(batch, 0, 1, Buffer.alloc(2000), frames))).toBe('out_of_range');
      const { state } = batch;
      state[COLUMN_STATE.HEAD] = 0;
      expect(codeOf(encode(batch, 1))).toBe('layout_mismatch');
      encoder.close();
      encoder.close();
      expect(codeOf(encode(batch, 1))).toBe('closed');
      expect(codeOf(() => batchEncoder(kernels, parseSchema('JSON', '{}')))).toBe('invalid_schema');
    });

    it('words that break a rule are no program', () => {
      const { program } = compileEncode(parse(NESTED).tree);
      const bad = (at: number, word: number): string | undefined => {
        const code = program.code.slice();
        code[at] = word;
        return codeOf(() => kernels.openAvroEncoder({ ...program, code }));
      };
      const column = (name: string): number =>
        program.schema.all.findIndex((one) => one.name === name) * AVRO_PUT.COUNT;
      expect(bad(0, -1)).toBeUndefined();
      expect(bad(column('e') + AVRO_PUT.OPERAND, -1)).toBe('out_of_range');
      expect(bad(column('d') + AVRO_PUT.OPERAND, 17)).toBe('out_of_range');
      expect(bad(column('item') + AVRO_PUT.VALUE_BRANCH, 64)).toBe('out_of_range');
      expect(bad(column('item') + AVRO_PUT.NULL_BRANCH, 0)).toBe('out_of_range');
      expect(codeOf(() => kernels.openAvroEncoder({ ...program, code: new Int32Array(2) }))).toBe(
        'out_of_range',
      );
      expect(codeOf(() => kernels.openAvroEncoder({ ...program, tables: Int32Array.of(5, 0) }))).toBe(
        'out_of_range',
      );

      const text = 'syntax = "proto3"; message M { repeated int32 a = 1; map<string, M> b = 2; }';
      const schema = parseSchema('PROTOBUF', text);
      if (schema.format !== 'PROTOBUF') throw new Error('the text is Protobuf');
      const proto = compileProtoEncode(schema.tree.messages[0] as never).program;
      const badProto = (at: number, word: number): string | undefined => {
        const code = proto.code.slice();
        code[at] = word;
        return codeOf(() => kernels.openProtobufEncoder({ ...proto, code }));
      };
      expect(badProto(PROTO_PUT.NUMBER, 1)).toBeUndefined();
      expect(badProto(PROTO_PUT.NUMBER, 0)).toBe('out_of_range');
      expect(badProto(PROTO_PUT.KIND, 99)).toBe('out_of_range');
      expect(badProto(PROTO_PUT.FLAGS, 0)).toBe('out_of_range');
      expect(badProto(2 * PROTO_PUT.COUNT + PROTO_PUT.OPERAND, 3)).toBe('out_of_range');
      expect(badProto(2 * PROTO_PUT.COUNT + PROTO_PUT.KEY, -1)).toBe('out_of_range');
    });

    it('a schema without columns writes one empty payload a row', () => {
      const schema = parse(record('Nothing'));
      const batch = ColumnBatch.create(new ColumnSchema([]), 2);
      batch.state[COLUMN_STATE.ROW_COUNT] = 2;
      const encoder = batchEncoder(kernels, schema);
      const frames = EncodedFrames.create(2);
      expect(encoder.encode(batch, 0, 2, Buffer.of(1, 2), frames)).toBe(2);
      expect([frames.frame(0), frames.frame(1)]).toEqual([Buffer.of(1, 2), Buffer.of(1, 2)]);
      encoder.close();
    });
  });
