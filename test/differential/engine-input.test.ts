/** Inputs of the engine on both sets of kernels, against a tree walk over the decoded values:
 *  random Avro schemas and values, damaged frames, and random conditions. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { EVENT_STATUS } from '../../src/core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../src/core/layout/record-batch.ts';
import type { InputDefinition } from '../../src/engine/source/input/definition.ts';
import { avroDecoder } from '../../src/formats/avro/codec/decoder.ts';
import type { AvroSchema } from '../../src/formats/schema.ts';
import { runs } from '../tier.ts';
import { avro, json, MemoryRegistry, openedInput, recordsOf, SIDES } from '../unit/engine/input/input-kit.ts';

type Value = Readonly<Record<string, unknown>>;
const I64_MIN = -(1n << 63n);
const I64_MAX = (1n << 63n) - 1n;
const TS_LIMIT = 1n << 52n;

const longs = fc.oneof(
  fc.bigInt({ min: -5n, max: 5n }),
  fc.bigInt({ min: I64_MIN, max: I64_MAX }),
  fc.constantFrom(
    I64_MIN,
    I64_MAX,
    TS_LIMIT,
    TS_LIMIT - 1n,
    -TS_LIMIT,
    -TS_LIMIT - 1n,
    1n << 32n,
    -(1n << 32n),
  ),
);
const ints = fc.oneof(fc.integer({ min: -5, max: 5 }), fc.integer());

interface FieldDraw {
  readonly type: unknown;
  readonly value: fc.Arbitrary<unknown>;
}
const optional = ({ type, value }: FieldDraw): FieldDraw => ({
  type: ['null', type],
  value: fc.option(value, { freq: 3 }),
});
const LONG: FieldDraw = { type: 'long', value: longs };
const INT: FieldDraw = { type: 'int', value: ints };
const stamp = (unit: string): FieldDraw => ({
  type: { type: 'long', logicalType: `timestamp-${unit}` },
  value: longs,
});
const integers = fc.constantFrom(LONG, INT, optional(LONG), optional(INT));
const times = fc.constantFrom(
  ...['millis', 'micros', 'nanos'].flatMap((unit) => [stamp(unit), optional(stamp(unit))]),
);
const STATUS: FieldDraw = {
  type: { type: 'enum', name: 'Status', symbols: ['PAID', 'OPEN', 'E'] },
  value: fc.constantFrom('PAID', 'OPEN', 'E'),
};
const others = fc.constantFrom<FieldDraw>(
  { type: 'string', value: fc.string() },
  { type: 'bytes', value: fc.uint8Array({ maxLength: 5 }).map((bytes) => Buffer.from(bytes)) },
  { type: { type: 'array', items: 'string' }, value: fc.array(fc.string(), { maxLength: 3 }) },
);

/** Schema with the fields of the job in any order and among others, and values of it. */
const drawn = fc
  .record({
    id: integers,
    at: times,
    v: integers,
    s: fc.constantFrom(STATUS, optional(STATUS)),
    x: others,
    n: fc.boolean(),
  })
  .chain(({ n: isNested, ...fields }) =>
    fc.shuffledSubarray(Object.entries(fields), { minLength: 5 }).chain((list) => {
      const own = list.map(([name, { type }]) => ({ name, type }));
      const values = fc.record(Object.fromEntries(list.map(([name, { value }]) => [name, value])));
      const inner = { type: 'record', name: 'Inner', fields: own };
      return fc.record({
        isNested: fc.constant(isNested),
        text: fc.constant(isNested ? avro({ name: 'in', type: ['null', inner] }) : avro(...own)),
        values: fc.array(
          isNested
            ? fc.option(values, { freq: 8 }).map((one) => ({ in: one }))
            : (values as fc.Arbitrary<Value>),
          { minLength: 1, maxLength: 40 },
        ),
      });
    }),
  );

const damage = fc.array(fc.tuple(fc.nat(), fc.nat(), fc.nat(255), fc.nat(2)), { maxLength: 6 });
type Damage = ReadonlyArray<readonly [row: number, at: number, byte: number, how: number]>;

function damaged(frames: readonly Buffer[], list: Damage): Buffer[] {
  const made: Buffer[] = frames.map((frame) => Buffer.from(frame));
  for (const [row, at, byte, how] of list) {
    const index = row % made.length;
    const frame = made[index] as Buffer;
    if (how === 0) made[index] = frame.subarray(0, at % (frame.length + 1));
    else if (frame.length > 0) frame[at % frame.length] = byte;
    if (how === 2) made[index] = Buffer.concat([frame, Buffer.of(byte)]);
  }
  return made;
}

async function columnsOf(
  side: (typeof SIDES)[number],
  registry: MemoryRegistry,
  job: InputDefinition,
  records: RecordBatch,
) {
  const { input } = openedInput({ format: 'avro' }, { side, registry });
  input.resume(job);
  const events = EventBatch.create(records.rowCapacity);
  await input.decode(records, events);
  const { status, accountId, value, eventTs, seq } = events.columns;
  const rows = records.rowCount;
  expect(events.rowCount).toBe(rows);
  return [status, accountId, value, eventTs, seq].map((column) => [...column.subarray(0, rows)]);
}

const UNIT: Readonly<Record<string, bigint>> = {
  'timestamp-millis': 1n,
  'timestamp-micros': 1000n,
  'timestamp-nanos': 1_000_000n,
};

/** Row of one record by a walk over its value. */
function expectedRow(schema: AvroSchema, frame: Buffer, isNested: boolean, units: bigint) {
  const row = (status: number, key = 0n, value = 0n, at = 0n) => [status, key, value, at, 0n];
  if (frame.length === 0) return row(EVENT_STATUS.TRUNCATED_FRAME);
  if (frame[0] !== 0) return row(EVENT_STATUS.BAD_MAGIC);
  if (frame.length < 5) return row(EVENT_STATUS.TRUNCATED_FRAME);
  if (frame.readUInt32BE(1) !== 1) return row(EVENT_STATUS.UNKNOWN_SCHEMA_ID);
  let whole: Value;
  try {
    whole = avroDecoder(schema.tree, schema.tree)(frame, 5, frame.length) as Value;
  } catch {
    return row(EVENT_STATUS.MALFORMED_PAYLOAD);
  }
  const fields = (isNested ? (whole['in'] ?? {}) : whole) as Value;
  const { id, at, v } = fields;
  if (at === null || at === undefined) return row(EVENT_STATUS.MISSING_FIELD);
  const time = at as bigint;
  const rest = ((time % units) + units) % units;
  const ms = (time - rest) / units;
  if (ms < -TS_LIMIT || ms >= TS_LIMIT) return row(EVENT_STATUS.BAD_TIME);
  if (id === null || v === null) return row(EVENT_STATUS.MISSING_FIELD);
  return row(EVENT_STATUS.OK, BigInt.asUintN(64, BigInt(id as bigint)), BigInt(v as bigint), ms);
}

function unitOf(text: string): bigint {
  const found = /"logicalType":"(timestamp-\w+)"/.exec(text)?.[1] ?? '';
  return UNIT[found] as bigint;
}

describe('inputs on both sets of kernels', () => {
  it('random schemas, values and damaged frames give the rows of a walk over the values', async () => {
    await fc.assert(
      fc.asyncProperty(drawn, damage, async ({ text, values, isNested }, list) => {
        const registry = new MemoryRegistry();
        registry.add('AVRO', text);
        const frames = damaged(
          values.map((value) => registry.frame(1, value)),
          list,
        );
        const path = (name: string): string => (isNested ? `in.${name}` : name);
        const job: InputDefinition = { format: 'avro', key: path('id'), time: path('at'), value: path('v') };
        const records = recordsOf(frames);
        const [native, reference] = [
          await columnsOf('native', registry, job, records),
          await columnsOf('reference', registry, job, records),
        ];
        expect(native).toEqual(reference);
        const rows = frames.map((frame) =>
          expectedRow(registry.schemas[0] as AvroSchema, frame, isNested, unitOf(text)),
        );
        expect(native).toEqual([0, 1, 2, 3, 4].map((column) => rows.map((row) => row[column])));
      }),
      { numRuns: runs(300) },
    );
  });
});

/** Condition as a tree, with its text. */
type Tree =
  | { readonly op: 'and' | 'or'; readonly parts: readonly Tree[] }
  | { readonly op: 'not'; readonly part: Tree }
  | { readonly op: 'null'; readonly field: string; readonly isNegated: boolean }
  | { readonly op: 'in'; readonly field: string; readonly literals: readonly Literal[] }
  | { readonly op: '=' | '!=' | '<' | '<=' | '>' | '>='; readonly field: string; readonly literal: Literal };
type Literal = string | bigint | number | boolean;

const FIELDS = ['i', 'l', 'd', 't', 'b', 'e', 'r.o', 'gone'];
const literals: fc.Arbitrary<Literal> = fc.oneof(
  fc.constantFrom<Literal>('PAID', 'OPEN', "it's", 'é', true, false, 1n << 53n, (1n << 53n) + 1n, 0.5),
  fc.bigInt({ min: -3n, max: 3n }),
);
const trees = fc.letrec<{ tree: Tree }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 4 },
    fc.record({
      op: fc.constantFrom('=', '!=', '<', '<=', '>', '>=' as const),
      field: fc.constantFrom(...FIELDS),
      literal: literals,
    }),
    fc.record({
      op: fc.constant('in' as const),
      field: fc.constantFrom(...FIELDS),
      literals: fc.array(literals, { minLength: 1, maxLength: 3 }),
    }),
    fc.record({
      op: fc.constant('null' as const),
      field: fc.constantFrom(...FIELDS),
      isNegated: fc.boolean(),
    }),
    fc.record({ op: fc.constant('not' as const), part: tie('tree') }),
    fc.record({
      op: fc.constantFrom('and', 'or' as const),
      parts: fc.array(tie('tree'), { minLength: 2, maxLength: 3 }),
    }),
  ) as fc.Arbitrary<Tree>,
})).tree;

const literalText = (one: Literal): string =>
  typeof one === 'string' ? `'${one.replaceAll("'", "\\'")}'` : String(one);

function textOf(tree: Tree): string {
  switch (tree.op) {
    case 'and':
    case 'or':
      return tree.parts.map((part) => `(${textOf(part)})`).join(` ${tree.op} `);
    case 'not':
      return `not (${textOf(tree.part)})`;
    case 'null':
      return `${tree.field} is ${tree.isNegated ? 'not ' : ''}null`;
    case 'in':
      return `${tree.field} in (${tree.literals.map(literalText).join(', ')})`;
    default:
      return `${tree.field} ${tree.op} ${literalText(tree.literal)}`;
  }
}

/** -1, 0 or 1 for values of one type; undefined for others. */
function order(value: unknown, literal: Literal): number | undefined {
  const isNumber = (one: unknown): one is number | bigint =>
    typeof one === 'number' || typeof one === 'bigint';
  if (isNumber(value) && isNumber(literal)) return value < literal ? -1 : value > literal ? 1 : 0;
  if (typeof value !== typeof literal) return undefined;
  const [a, b] = [value as string, literal as string];
  return a < b ? -1 : a > b ? 1 : 0;
}

function holds(tree: Tree, read: (field: string) => unknown): boolean {
  switch (tree.op) {
    case 'and':
      return tree.parts.every((part) => holds(part, read));
    case 'or':
      return tree.parts.some((part) => holds(part, read));
    case 'not':
      return !holds(tree.part, read);
    case 'null':
      return (read(tree.field) == null) !== tree.isNegated;
    case 'in':
      return tree.literals.some((literal) => order(read(tree.field), literal) === 0);
    default: {
      const found = order(read(tree.field), tree.literal);
      if (found === undefined) return false;
      const { op } = tree;
      return (
        (found === 0 && ['=', '<=', '>='].includes(op)) ||
        (found < 0 && ['<', '<=', '!='].includes(op)) ||
        (found > 0 && ['>', '>=', '!='].includes(op))
      );
    }
  }
}

const maybe = (type: unknown) => ['null', type];
const RECORD = avro(
  { name: 'id', type: 'long' },
  { name: 'i', type: maybe('int') },
  { name: 'l', type: 'long' },
  { name: 'd', type: maybe('double') },
  { name: 't', type: maybe('string') },
  { name: 'b', type: 'boolean' },
  { name: 'e', type: STATUS.type },
  { name: 'r', type: maybe({ type: 'record', name: 'R', fields: [{ name: 'o', type: maybe('long') }] }) },
);
const small = fc.integer({ min: -3, max: 3 });
const records = fc.record({
  id: fc.constant(1n),
  i: fc.option(small),
  l: fc.oneof(small.map(BigInt), fc.constantFrom(1n << 53n, (1n << 53n) + 1n)),
  d: fc.option(fc.constantFrom(0.5, -1, 2)),
  t: fc.option(fc.constantFrom('PAID', "it's", 'é', '')),
  b: fc.boolean(),
  e: fc.constantFrom('PAID', 'OPEN', 'E'),
  r: fc.option(fc.record({ o: fc.option(small.map(BigInt)) })),
});

describe('conditions', () => {
  it('a condition over columns and over JSON holds exactly for the records of a tree walk', async () => {
    await fc.assert(
      fc.asyncProperty(trees, fc.array(records, { minLength: 1, maxLength: 12 }), async (tree, values) => {
        const where = textOf(tree);
        const registry = new MemoryRegistry();
        registry.add('AVRO', RECORD);
        const read = (value: Value) => (field: string) =>
          field === 'r.o' ? (value['r'] as Value | null)?.['o'] : value[field];
        const expected = values.map((value) =>
          holds(tree, read(value)) ? EVENT_STATUS.OK : EVENT_STATUS.FILTERED,
        );
        const job = { key: 'id', time: '@timestamp', where };
        const framed = recordsOf(values.map((value) => registry.frame(1, value)));
        for (const side of SIDES)
          expect((await columnsOf(side, registry, { format: 'avro', ...job }, framed))[0]).toEqual(expected);
        const digits = (_name: string, one: unknown): unknown => (typeof one === 'bigint' ? `#${one}#` : one);
        const texts = values.map((value) => json(JSON.stringify(value, digits).replace(/"#|#"/g, '')));
        const found = await columnsOf('native', registry, { format: 'json', ...job }, recordsOf(texts));
        expect(found[0]).toEqual(expected);
      }),
      { numRuns: runs(400) },
    );
  });
});
