/** The Protobuf verdict against a live decode. The oracle encodes and decodes with protobufjs, without asking the
 *  checker, and compares by field number. Exact: every witness comes back. Lossy: none is refused, some are cast. */
import fc from 'fast-check';
import protobuf from 'protobufjs';
import { describe, expect, it } from 'vitest';
import { checkPair, isCompatible, parseSchema } from '../../src/registry/index.ts';

const SCALARS = [
  'int32',
  'int64',
  'uint32',
  'uint64',
  'sint32',
  'sint64',
  'fixed32',
  'fixed64',
  'sfixed32',
  'sfixed64',
  'bool',
  'float',
  'double',
  'string',
  'bytes',
] as const;
type Scalar = (typeof SCALARS)[number];

const INTEGERS: Readonly<Record<string, readonly bigint[]>> = {
  signed32: [0n, 1n, -1n, -3n, 300n, 2n ** 31n - 1n, -(2n ** 31n)],
  unsigned32: [0n, 1n, 7n, 300n, 2n ** 32n - 1n],
  signed64: [0n, 1n, -1n, -3n, 4_294_967_301n, 2n ** 63n - 1n, -(2n ** 63n)],
  unsigned64: [0n, 1n, 7n, 4_294_967_301n, 2n ** 64n - 1n],
};

function witnesses(type: Scalar): readonly unknown[] {
  if (type === 'bool') return [false, true];
  if (type === 'float') return [0, 1.5, -2.25];
  if (type === 'double') return [0, 0.1, -1e300];
  if (type === 'string') return ['', 'ascii', 'größe 本町 🚚', '\u0001\u0002'];
  if (type === 'bytes') return [Buffer.alloc(0), Buffer.from('plain'), Buffer.from([0xff, 0xfe, 0x80])];
  const sign = type.startsWith('u') || type.startsWith('fixed') ? 'unsigned' : 'signed';
  return INTEGERS[`${sign}${type.endsWith('64') ? '64' : '32'}`] as readonly bigint[];
}

/** Numbers as decimal text, bytes and text as their bytes, so that types compare by value. */
function comparable(value: unknown): unknown {
  if (typeof value === 'boolean') return value ? '1' : '0';
  if (typeof value === 'string') return `bytes ${Buffer.from(value, 'utf8').toString('hex')}`;
  if (value instanceof Uint8Array) return `bytes ${Buffer.from(value).toString('hex')}`;
  return value === undefined || value === null ? null : String(value);
}

interface Field {
  readonly name: string;
  readonly number: number;
  readonly type: Scalar;
  readonly optional: boolean;
}

const textOf = (fields: readonly Field[]): string =>
  `syntax = "proto3"; message Order { ${fields.map((f) => `${f.optional ? 'optional ' : ''}${f.type} ${f.name} = ${f.number};`).join(' ')} }`;

const typeOf = (text: string): protobuf.Type =>
  protobuf.parse(text, { keepCase: true }).root.lookupType('Order');

/** What protobufjs takes for an integer: a number, or two words. */
function wireInteger(value: bigint, type: Scalar): unknown {
  if (!type.endsWith('64')) return Number(value);
  const unsigned = type === 'uint64' || type === 'fixed64';
  return { low: Number(BigInt.asIntN(32, value)), high: Number(BigInt.asIntN(32, value >> 32n)), unsigned };
}

type Outcome = 'exact' | 'lossy' | 'refused';

/** What a live decode does to one event; `expected` by field number. */
function decodeOne(
  writer: protobuf.Type,
  reader: protobuf.Type,
  readers: readonly Field[],
  event: ReadonlyMap<number, unknown>,
  writers: readonly Field[],
): Outcome {
  const object: Record<string, unknown> = {};
  for (const field of writers) {
    const value = event.get(field.number);
    if (value === undefined) continue;
    object[field.name] = typeof value === 'bigint' ? wireInteger(value, field.type) : value;
  }
  let decoded: Record<string, unknown>;
  try {
    const message = reader.decode(Buffer.from(writer.encode(object).finish()));
    decoded = reader.toObject(message, { longs: String, defaults: true }) as Record<string, unknown>;
  } catch {
    return 'refused';
  }
  const same = readers.every((field) => {
    if (!writers.some((one) => one.number === field.number)) return true;
    const value = decoded[field.name];
    const isInteger = value !== undefined && /int|fixed/.test(field.type);
    return comparable(event.get(field.number)) === comparable(isInteger ? BigInt(value as string) : value);
  });
  return same ? 'exact' : 'lossy';
}

describe('every pair of scalar types', () => {
  // Where the format's specification itself speaks of a cast; elsewhere a changed value is a failure.
  const CASTS = [
    ['int32', 'int64', 'uint32', 'uint64', 'bool'],
    ['sint32', 'sint64'],
    ['fixed32', 'sfixed32'],
    ['fixed64', 'sfixed64'],
  ];
  for (const writer of SCALARS) {
    it(`${writer} read as each type`, () => {
      for (const reader of SCALARS) {
        const w: Field = { name: 'f', number: 1, type: writer, optional: false };
        const r: Field = { ...w, type: reader };
        const outcomes = witnesses(writer).map((value) =>
          decodeOne(typeOf(textOf([w])), typeOf(textOf([r])), [r], new Map([[1, value]]), [w]),
        );
        const cast = CASTS.some((group) => group.includes(writer) && group.includes(reader));
        const live = outcomes.every((one) => one === 'exact')
          ? 'exact'
          : cast && !outcomes.includes('refused')
            ? 'lossy'
            : 'fail';
        const findings = checkPair(
          parseSchema('PROTOBUF', textOf([r])),
          parseSchema('PROTOBUF', textOf([w])),
        );
        const said =
          findings.length === 0
            ? 'exact'
            : findings.every(({ severity }) => severity === 'lossy')
              ? 'lossy'
              : 'fail';
        expect({ writer, reader, said }).toEqual({ writer, reader, said: live });
      }
    });
  }
});

const fields: fc.Arbitrary<readonly Field[]> = fc
  .uniqueArray(
    fc.record({
      number: fc.integer({ min: 1, max: 40 }),
      type: fc.constantFrom(...SCALARS),
      optional: fc.boolean(),
    }),
    {
      minLength: 1,
      maxLength: 6,
      selector: ({ number }) => number,
    },
  )
  .map((list) => list.map((field) => ({ ...field, name: `f${field.number}` })));

const change = fc.record({
  kind: fc.constantFrom('add', 'remove', 'rename', 'retype', 'reorder'),
  at: fc.nat(),
  type: fc.constantFrom(...SCALARS),
});

function changed(
  list: readonly Field[],
  { kind, at, type }: { kind: string; at: number; type: Scalar },
): Field[] {
  const index = at % list.length;
  const replaced = (by: Partial<Field>): Field[] =>
    list.map((field, i) => (i === index ? { ...field, ...by } : field));
  if (kind === 'add') return [...list, { name: 'added', number: 41, type, optional: at % 2 === 0 }];
  if (kind === 'remove') return list.filter((_, i) => i !== index);
  if (kind === 'rename') return replaced({ name: 'renamed' });
  if (kind === 'retype') return replaced({ type });
  return [...list].reverse();
}

describe('generated messages with a change of the five classes', () => {
  it('an accepted pair refuses no event, and gives each back unless the verdict says lossy; a refused pair hurts one', () => {
    fc.assert(
      fc.property(fields, change, fc.boolean(), (start, one, turned) => {
        const other = changed(start, one);
        const [writers, readers] = turned ? [other, start] : [start, other];
        const writer = typeOf(textOf(writers));
        const reader = typeOf(textOf(readers));
        const most = 8;
        const outcomes: Outcome[] = [];
        for (let i = 0; i < most; i++) {
          const event = new Map(
            writers.map((field) => [field.number, witnesses(field.type)[i % witnesses(field.type).length]]),
          );
          outcomes.push(decodeOne(writer, reader, readers, event, writers));
        }
        const findings = checkPair(
          parseSchema('PROTOBUF', textOf(readers)),
          parseSchema('PROTOBUF', textOf(writers)),
        );
        const isLossy = findings.some(({ severity }) => severity === 'lossy');
        const context = { writers: textOf(writers), readers: textOf(readers), findings, outcomes };
        if (!isCompatible(findings))
          expect({ ...context, hurt: outcomes.some((outcome) => outcome !== 'exact') }).toMatchObject({
            hurt: true,
          });
        else if (isLossy)
          expect({ ...context, refused: outcomes.includes('refused') }).toMatchObject({ refused: false });
        else
          expect({ ...context, exact: outcomes.every((outcome) => outcome === 'exact') }).toMatchObject({
            exact: true,
          });
      }),
      { numRuns: 300 },
    );
  });
});
