/** Columns of Avro payloads: layouts, resolution, projection, limits and hostile bytes. */
import { describe, expect, it } from 'vitest';
import { ColumnBatch } from '../../../../src/core/columns/batch.ts';
import { decodeColumns } from '../../../../src/core/columns/kernel.ts';
import { AVRO_OP, COLUMN_SLOT, COLUMN_STATUS } from '../../../../src/core/layout/layouts.gen.ts';
import { avroDecoder } from '../../../../src/formats/avro/codec/decoder.ts';
import { encodeAvro } from '../../../../src/formats/avro/codec/encoder.ts';
import { compileColumns } from '../../../../src/formats/avro/columns/compile.ts';
import { avroColumnDecoder } from '../../../../src/formats/avro/columns/decoder.ts';
import type { AvroDatum } from '../../../../src/formats/datum.ts';
import {
  columnKernels,
  compare,
  noCounts,
  oracle,
  parse,
  spansOf,
} from '../../../differential/avro-columns-kit.ts';

const field = (name: string, type: unknown, more: object = {}): object => ({ name, type, ...more });
const record = (name: string, ...fields: object[]): object => ({ type: 'record', name, fields });
const bytes = (...parts: number[]): Buffer => Buffer.from(parts);

/** Decodes payloads of one pair and returns the row of each: a value, or its status. */
function rowsOf(
  kernels: (typeof columnKernels)[number],
  reader: unknown,
  writer: unknown,
  payloads: readonly Buffer[],
  fields?: readonly string[],
): unknown[] {
  const decoder = avroColumnDecoder(kernels, parse(reader), parse(writer), fields);
  const batch = decoder.createBatch(payloads.length);
  expect(decoder.decode(spansOf(payloads), 0, payloads.length, batch)).toBe(payloads.length);
  const rows = decoder.rows();
  rows.attach(batch);
  const status = [...batch.status];
  decoder.close();
  return status.map((one, row) => (one === COLUMN_STATUS.OK ? rows.value(row) : one));
}

/** Encodes data of a schema. */
const encoded = (json: unknown, data: readonly AvroDatum[]): Buffer[] =>
  data.map((datum) => encodeAvro(parse(json).tree, datum));

describe('columns of a reader', () => {
  it('each type has its memory layout, null beside one type is a nullable column', () => {
    const { program } = compileColumns(
      ...(Array(2).fill(
        parse(
          record(
            'R',
            field('b', 'boolean'),
            field('i', ['null', { type: 'int', logicalType: 'date' }]),
            field('l', { type: 'long', logicalType: 'timestamp-micros' }),
            field('u', { type: 'string', logicalType: 'uuid' }),
            field('d', { type: 'fixed', name: 'D', size: 5, logicalType: 'decimal', precision: 9, scale: 2 }),
            field('w', { type: 'fixed', name: 'W', size: 17, logicalType: 'decimal', precision: 20 }),
            field('v', { type: 'bytes', logicalType: 'decimal', precision: 9 }),
            field('e', { type: 'enum', name: 'E', symbols: ['A', 'B'] }),
            field('m', { type: 'map', values: ['double', 'null'] }),
            field('x', ['null', 'string', { type: 'array', items: 'float' }]),
            field('n', 'null'),
          ),
        ).tree,
      ) as [never, never]),
      new Map(),
    );
    const shape = program.schema.all.map(
      ({ name, kind, nullable, logical }) =>
        `${name}: ${kind}${nullable ? '?' : ''}${logical === undefined ? '' : ` ${logical.type}`}`,
    );
    expect(shape).toEqual([
      'b: bool',
      'i: int32? date',
      'l: int64 timestamp',
      'u: utf8 uuid',
      'd: decimal128 decimal',
      'w: decimal256 decimal',
      'v: binary decimal',
      'e: dictionary',
      'm: map',
      'entries: struct',
      'key: utf8',
      'value: float64?',
      'x: union',
      'null: null',
      'string: utf8',
      'array: list',
      'item: float32',
      'n: null',
    ]);
  });

  it('a reader that is no record has the one column value', () => {
    const { schema } = compileColumns(parse('string').tree, parse('string').tree, new Map()).program;
    expect(schema.top.map(({ name, kind }) => [name, kind])).toEqual([['value', 'utf8']]);
  });

  it('records that multiply the columns end as binary columns', () => {
    const wide = (depth: number): object =>
      record(
        `R${depth}`,
        ...Array.from({ length: 4 }, (_, i) =>
          field(`f${i}`, depth === 0 ? 'int' : i === 0 ? wide(depth - 1) : `R${depth - 1}`),
        ),
      );
    const { tree } = parse(wide(9));
    const { schema } = compileColumns(tree, tree, new Map()).program;
    expect(schema.all.length).toBeLessThan(10_000);
    expect(schema.all.some(({ kind }) => kind === 'binary')).toBe(true);
  });
});

const TREE = record('Tree', field('v', 'int'), field('kids', { type: 'array', items: 'Tree' }));

for (const kernels of columnKernels)
  describe(`columns by the ${kernels.name} kernel`, () => {
    it('a recursive type is decoded on demand from the bytes of its writer', () => {
      const leaf = (v: number): AvroDatum => ({ fields: [v, []] });
      const payloads = encoded(TREE, [leaf(1), { fields: [2, [leaf(3), { fields: [4, [leaf(5)]] }]] }]);
      expect(rowsOf(kernels, TREE, TREE, payloads)).toEqual([
        { v: 1, kids: [] },
        {
          v: 2,
          kids: [
            { v: 3, kids: [] },
            { v: 4, kids: [{ v: 5, kids: [] }] },
          ],
        },
      ]);
    });

    it('a lazy value knows which of several writers wrote it', () => {
      const list = (name: string, v: string): object =>
        record(name, field('v', v), field('next', ['null', name]));
      const writer = [list('A', 'int'), list('B', 'long')];
      const reader = record('R', field('v', 'long'), field('next', ['null', 'R'], { default: null }));
      const aliased = { ...reader, aliases: ['A', 'B'] };
      const row = (branch: number, one: number | bigint, two: number | bigint): AvroDatum => ({
        branch,
        value: { fields: [one, { branch: 1, value: { fields: [two, { branch: 0, value: null }] } }] },
      });
      const payloads = encoded(writer, [row(0, 1, 2), row(1, 3n, 4n)]);
      expect(rowsOf(kernels, aliased, writer, payloads)).toEqual([
        { v: 1n, next: { v: 2n, next: null } },
        { v: 3n, next: { v: 4n, next: null } },
      ]);
    });

    it('defaults of any shape fill columns that the writer lacks', () => {
      const inner = record('In', field('a', 'int', { default: 7 }), field('z', 'boolean'));
      const reader = record(
        'R',
        field('id', 'int'),
        field('text', 'string', { default: 'größe' }),
        field('raw', 'bytes', { default: '\u00ff\u0001' }),
        field('fix', { type: 'fixed', name: 'F', size: 2 }, { default: 'ab' }),
        field(
          'dec',
          { type: 'fixed', name: 'D', size: 2, logicalType: 'decimal', precision: 4 },
          {
            default: '\u00ff\u00fe',
          },
        ),
        field('sym', { type: 'enum', name: 'E', symbols: ['A', 'B'] }, { default: 'B' }),
        field('long', 'long', { default: -9007199254740991 }),
        field('float', 'float', { default: 0.1 }),
        field('nan', 'double', { default: 'NaN' }),
        field('list', { type: 'array', items: ['null', 'string'] }, { default: [null, 'x'] }),
        field('map', { type: 'map', values: inner }, { default: { k: { z: true } } }),
        field('any', ['int', 'string', 'null'], { default: 5 }),
        field('none', ['null', 'In'], { default: null }),
        field('self', ['null', 'R'], { default: null }),
        field('tree', TREE, { default: { v: 1, kids: [{ v: 2, kids: [] }] } }),
      );
      const writer = record('R', field('id', 'int'));
      const payloads = encoded(writer, [{ fields: [1] }, { fields: [2] }]);
      const counts = noCounts();
      compare([kernels], parse(reader).tree, parse(writer).tree, payloads, counts);
      expect(counts).toEqual({ ok: 2, malformed: 0, incompatible: 0 });
    });

    it('decimals of a fixed keep their sign and bytes', () => {
      const schema = { type: 'fixed', name: 'D', size: 3, logicalType: 'decimal', precision: 5 };
      const values = [bytes(0, 0, 1), bytes(255, 255, 254), bytes(128, 0, 0), bytes(127, 255, 255)];
      expect(rowsOf(kernels, schema, schema, values)).toEqual(values);
      const decoder = avroColumnDecoder(kernels, parse(schema), parse(schema));
      const batch = decoder.createBatch(4);
      decoder.decode(spansOf(values), 0, 4, batch);
      const cells = Buffer.from(batch.bytesOf(0, COLUMN_SLOT.VALUES));
      const read = [0, 1, 2, 3].map((row) => cells.readBigInt64LE(row * 16));
      expect(read).toEqual([1n, -2n, -8388608n, 8388607n]);
      expect(cells.readBigInt64LE(24)).toBe(-1n);
      decoder.close();
    });

    it('a bad row costs only itself, and leaves a null or a zero', () => {
      const schema = record(
        'R',
        field('a', ['null', 'int']),
        field('b', 'string'),
        field('c', { type: 'array', items: 'string' }),
        field('d', ['int', 'boolean']),
      );
      const good = encoded(schema, [
        { fields: [{ branch: 1, value: 7 }, 'one', ['x'], { branch: 1, value: true }] },
        { fields: [{ branch: 1, value: 8 }, 'two', ['y', 'z'], { branch: 0, value: 9 }] },
      ]) as [Buffer, Buffer];
      const cut = good[0].subarray(0, good[0].length - 1);
      const decoder = avroColumnDecoder(kernels, parse(schema), parse(schema));
      const batch = decoder.createBatch(5);
      decoder.decode(spansOf([good[0], cut, null, good[1], bytes(4)]), 0, 5, batch);
      const { OK, MALFORMED, NULL_VALUE } = COLUMN_STATUS;
      expect([...batch.status]).toEqual([OK, MALFORMED, NULL_VALUE, OK, MALFORMED]);
      expect(batch.errorAt[1]).toBe(cut.length);
      const rows = decoder.rows();
      rows.attach(batch);
      expect(rows.value(0)).toEqual({ a: 7, b: 'one', c: ['x'], d: true });
      expect(rows.value(3)).toEqual({ a: 8, b: 'two', c: ['y', 'z'], d: 9 });
      for (const row of [1, 2, 4]) expect(rows.value(row)).toEqual({ a: null, b: '', c: [], d: 0 });
      const spans = spansOf([good[0], cut, null]);
      expect([0, 2].map((row) => decoder.explain(spans, row))).toEqual([undefined, undefined]);
      expect(decoder.explain(spans, 1)).toMatchObject({
        code: 'malformed_payload',
        details: { at: cut.length, path: 'R.d' },
      });
      decoder.close();
    });

    it('a removed row leaves no bits behind the last value of a bitmap', () => {
      const of = (...types: unknown[]): object => ({ type: 'array', items: ['null', ...types] });
      for (const [reader, writer, bad] of [
        [of('bytes'), of('string'), bytes(4, 2, 2, 65, 2, 2, 0xff, 0)],
        [of('boolean'), of('boolean'), bytes(6, 2, 1, 2, 1, 2, 2, 0)],
      ] as const) {
        const decoder = avroColumnDecoder(kernels, parse(reader), parse(writer));
        const batch = decoder.createBatch(2);
        decoder.decode(spansOf([bytes(2, 0, 0), bad]), 0, 2, batch);
        expect([...batch.status]).toEqual([COLUMN_STATUS.OK, COLUMN_STATUS.MALFORMED]);
        expect(batch.lengthOf(1)).toBe(1);
        expect([...batch.bytesOf(1, COLUMN_SLOT.VALIDITY)]).toEqual([0]);
        decoder.close();
      }
    });

    it('only requested fields become columns; the others are checked', () => {
      const item = record('Item', field('sku', 'string'), field('qty', 'int'));
      const schema = record(
        'R',
        field('id', 'long'),
        field('items', { type: 'array', items: item }),
        field('ship', ['null', record('Ship', field('city', 'string'), field('zip', 'string'))]),
        field('tags', { type: 'map', values: 'string' }),
      );
      const payloads = encoded(schema, [
        {
          fields: [
            5n,
            [{ fields: ['a', 1] }, { fields: ['b', 2] }],
            { branch: 1, value: { fields: ['Bern', '3000'] } },
            new Map([['k', 'v']]),
          ],
        },
      ]);
      const read = (...fields: string[]) => rowsOf(kernels, schema, schema, payloads, fields);
      expect(read('id', 'items.qty', 'ship.city')).toEqual([
        { id: 5n, items: [{ qty: 1 }, { qty: 2 }], ship: { city: 'Bern' } },
      ]);
      expect(read('ship.zip', 'ship')).toEqual([{ ship: { city: 'Bern', zip: '3000' } }]);
      expect(read()).toEqual([{}]);
      const broken = Buffer.from(payloads[0] as Buffer);
      broken[broken.indexOf('Bern')] = 0xff;
      expect(rowsOf(kernels, schema, schema, [broken], ['id'])).toEqual([COLUMN_STATUS.MALFORMED]);
      for (const path of ['nope', 'id.x', 'items.nope', '', 'ship.'])
        expect(() => read('id', path)).toThrow(
          expect.objectContaining({ code: 'unknown_field', details: { path } }),
        );
    });

    it('a field that is not requested is not resolved', () => {
      const writer = record('R', field('a', 'int'), field('b', 'string'));
      const reader = record('R', field('a', 'int'), field('b', 'int'), field('c', 'int'));
      const payloads = encoded(writer, [{ fields: [3, 'x'] }]);
      expect(rowsOf(kernels, reader, writer, payloads)).toEqual([COLUMN_STATUS.INCOMPATIBLE]);
      expect(rowsOf(kernels, reader, writer, payloads, ['a'])).toEqual([{ a: 3 }]);
    });

    it('a projection of a recursive type goes as deep as its path', () => {
      const payloads = encoded(TREE, [{ fields: [1, [{ fields: [2, [{ fields: [3, []] }]] }]] }]);
      expect(rowsOf(kernels, TREE, TREE, payloads, ['kids.kids.v'])).toEqual([
        { kids: [{ kids: [{ v: 3 }] }] },
      ]);
    });

    it('a view of a row reads the fields of the reader by name', () => {
      const schema = record(
        'R',
        field('id', 'long'),
        field('__proto__', 'string'),
        field('constructor', 'int'),
      );
      const decoder = avroColumnDecoder(kernels, parse(schema), parse(schema));
      const payloads = encoded(schema, [{ fields: [2n ** 62n, 'p', 3] }]);
      const batch = decoder.createBatch(1);
      decoder.decode(spansOf(payloads), 0, 1, batch);
      const rows = decoder.rows();
      rows.attach(batch);
      const row = rows.at(0);
      expect([row['id'], Reflect.get(row, '__proto__'), row['constructor']]).toEqual([2n ** 62n, 'p', 3]);
      decoder.close();
    });

    it('hostile counts, lengths, blocks and depths end in the verdict and the byte of the decoder', () => {
      const long = (value: bigint): Buffer => encodeAvro(parse('long').tree, value);
      const nulls = { type: 'array', items: 'null' };
      const empties = { type: 'array', items: record('E') };
      const texts = { type: 'array', items: 'string' };
      const list = record('L', field('next', ['null', 'L']));
      const cases: ReadonlyArray<readonly [unknown, Buffer]> = [
        [nulls, Buffer.concat([long(2n ** 62n), bytes(0)])],
        [nulls, Buffer.concat([long(-(2n ** 63n)), long(0n), bytes(0)])],
        [nulls, Buffer.concat([long(65_536n), bytes(0)])],
        [nulls, Buffer.concat([long(65_536n), long(1n), bytes(0)])],
        [empties, Buffer.concat([long(2n ** 62n), bytes(0)])],
        [empties, Buffer.concat([long(65_537n), bytes(0)])],
        [texts, Buffer.concat([long(2n ** 62n), bytes(0)])],
        [texts, Buffer.concat([long(-1n), long(3n), bytes(2, 65), bytes(0)])],
        [texts, Buffer.concat([long(-1n), long(2n), bytes(2, 65), bytes(0)])],
        [texts, Buffer.concat([long(-1n), long(-2n), bytes(2, 65), bytes(0)])],
        ['bytes', long(2n ** 62n)],
        ['bytes', long(-1n)],
        ['string', Buffer.concat([long(2n), bytes(0xc0, 0x80)])],
        ['string', Buffer.concat([long(3n), bytes(0xed, 0xa0, 0x80)])],
        ['int', bytes(0x80, 0x80, 0x80, 0x80, 0x10)],
        ['int', bytes(0xff, 0xff, 0xff, 0xff, 0x0f)],
        ['long', Buffer.concat([Buffer.alloc(9, 0xff), bytes(0x02)])],
        ['long', Buffer.concat([Buffer.alloc(9, 0xff), bytes(0x01)])],
        ['boolean', bytes(2)],
        [list, Buffer.concat([Buffer.alloc(255, 2), bytes(0)])],
        [list, Buffer.concat([Buffer.alloc(256, 2), bytes(0)])],
        [TREE, Buffer.concat(Array.from({ length: 300 }, () => bytes(0, 2)))],
      ];
      const counts = noCounts();
      for (const [json, payload] of cases) {
        const { tree } = parse(json);
        compare([kernels], tree, tree, [payload, payload.subarray(0, -1), Buffer.alloc(0)], counts);
      }
      expect(counts.ok).toBeGreaterThan(3);
      expect(counts.malformed).toBeGreaterThan(40);
    });

    it('a batch grows for long texts and long lists, and keeps earlier rows', () => {
      const schema = record('R', field('t', 'string'), field('l', { type: 'array', items: ['null', 'int'] }));
      const data = Array.from({ length: 40 }, (_, i): AvroDatum => {
        const items = Array.from({ length: i * 50 }, (_, j) => ({
          branch: j % 2,
          value: j % 2 === 0 ? null : j,
        }));
        return { fields: ['x'.repeat(i * 100), items as AvroDatum[]] };
      });
      const counts = noCounts();
      compare([kernels], parse(schema).tree, parse(schema).tree, encoded(schema, data), counts);
      expect(counts.ok).toBe(40);
    });

    it('a full batch leaves the rest, and a row beyond the limit of any batch is too large', () => {
      const schema = parse('string');
      const { program } = compileColumns(schema.tree, schema.tree, new Map());
      const decoder = kernels.openAvro(program);
      const text = (length: number): Buffer => encodeAvro(schema.tree, 'x'.repeat(length));
      const spans = spansOf([text(900), text(900), text(9000), text(10)]);
      const batch = ColumnBatch.create(program.schema, 8, 4096);
      expect(decodeColumns(decoder, spans, 0, 4, batch)).toBe(2);
      expect([...batch.status.subarray(0, 2)]).toEqual([0, 0]);
      batch.clear();
      expect(decodeColumns(decoder, spans, 2, 4, batch)).toBe(2);
      expect([...batch.status.subarray(0, 2)]).toEqual([COLUMN_STATUS.TOO_LARGE, COLUMN_STATUS.OK]);
      expect(Buffer.from(batch.bytesOf(0, COLUMN_SLOT.VALUES)).toString()).toBe('x'.repeat(10));
      decoder.close();
    });

    it('spans outside their buffer, foreign batches and closed programs are refused', () => {
      const schema = parse('int');
      const { program } = compileColumns(schema.tree, schema.tree, new Map());
      const decoder = kernels.openAvro(program);
      const batch = ColumnBatch.create(program.schema, 2);
      const spans = { bytes: bytes(2, 4), start: Uint32Array.of(0, 1), length: Int32Array.of(1, 2) };
      expect(decoder.decode(spans, 0, 1, batch, false)).toBe(1);
      expect(() => decoder.decode(spans, 0, 2, batch, false)).toThrow('a span leaves its buffer');
      expect(() => decoder.decode(spans, 0, 3, batch, false)).toThrow('a span leaves its buffer');
      const other = parse('string');
      const foreign = ColumnBatch.create(compileColumns(other.tree, other.tree, new Map()).program.schema, 2);
      expect(() => decoder.decode(spans, 0, 1, foreign, false)).toThrow('another schema');
      const full = spansOf([bytes(2), bytes(2)]);
      expect(() => decoder.decode(full, 0, 2, batch, false)).toThrow('too few rows');
      decoder.close();
      expect(() => decoder.decode(spans, 0, 1, batch, false)).toThrow(
        expect.objectContaining({ code: 'closed' }),
      );
      decoder.close();
    });

    it('code that is no program is refused when it is opened', () => {
      const schema = parse(record('R', field('s', 'string'), field('i', 'int')));
      const { program } = compileColumns(schema.tree, schema.tree, new Map());
      const open = (...code: number[]) => kernels.openAvro({ ...program, code: Int32Array.from(code) });
      expect(() => open(AVRO_OP.END).close()).not.toThrow();
      const bad: readonly number[][] = [
        [],
        [99],
        [-1],
        [AVRO_OP.SKIP_INT],
        [AVRO_OP.JUMP, 0, AVRO_OP.END],
        [AVRO_OP.JUMP, 1, AVRO_OP.END],
        [AVRO_OP.CALL, 0, AVRO_OP.END],
        [AVRO_OP.UNION, 1, 0, AVRO_OP.END],
        [AVRO_OP.UNION, 7, 3, AVRO_OP.END],
        [AVRO_OP.UNION, -1, AVRO_OP.END],
        [AVRO_OP.INT, 0, AVRO_OP.END],
        [AVRO_OP.INT, 2, AVRO_OP.END],
        [AVRO_OP.INT, -1, AVRO_OP.END],
        [AVRO_OP.TEXT, 1, AVRO_OP.END],
        [AVRO_OP.SKIP_FIXED, -1, AVRO_OP.END],
        [AVRO_OP.CONST_BYTES, 0, 0, 1, AVRO_OP.END],
        [AVRO_OP.CONST_BYTES, 0, -1, 0, AVRO_OP.END],
        [AVRO_OP.RECORD, 0, 0, AVRO_OP.END],
        [AVRO_OP.RECORD, -1, -1, AVRO_OP.END],
        [AVRO_OP.OPTIONAL, 2, 1, 4, AVRO_OP.END],
        [AVRO_OP.LAZY, 0, -1, 5, AVRO_OP.END, AVRO_OP.END],
      ];
      for (const code of bad) expect(() => open(...code), `${code}`).toThrow('instruction');
    });
  });

describe('the oracle of columns', () => {
  it('a payload in a larger buffer is judged by its own bytes', () => {
    const { tree } = parse('int');
    const spans = spansOf([bytes(4), bytes(0x80)]);
    const judge = oracle(tree, tree);
    expect(judge(spans.bytes, spans.start[0] as number, 1)).toEqual({ status: 0, at: 0, value: 2 });
    expect(judge(spans.bytes, spans.start[1] as number, 1)).toEqual({ status: 1, at: 0 });
    expect(() => avroDecoder(tree, tree)(bytes(0x80), 0, 1)).toThrow('inside an integer');
  });
});
