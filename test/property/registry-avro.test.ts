/** The Avro verdict against a live decode: each accepted pair gives every witness back as the specification promises,
 *  each refused pair has a witness that is refused or comes back wrong. It decodes without asking the checker first,
 *  and projects by rules written here. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { checkPair, type Finding, isCompatible, parseSchema, writerCodec } from '../../src/registry/index.ts';
import type { AvroSchema } from '../../src/registry/schemas/schema.ts';
import { avroDecoder } from '../../src/registry/serde/avro-decoder.ts';
import { Payloads } from '../../src/registry/serde/payloads.ts';

type Json = Record<string, unknown>;
interface FieldJson {
  name: string;
  type: unknown;
  default?: unknown;
  aliases?: string[];
}

const PRIMITIVES = ['null', 'boolean', 'int', 'long', 'float', 'double', 'bytes', 'string'] as const;
type Primitive = (typeof PRIMITIVES)[number];

const WITNESSES: Readonly<Record<Primitive, readonly unknown[]>> = {
  null: [null],
  boolean: [true, false],
  int: [0, 1, -1, 2 ** 31 - 1, -(2 ** 31), 16_777_217],
  long: [0n, -1n, 2n ** 63n - 1n, -(2n ** 63n), 2n ** 53n + 1n],
  float: [0, 1.5, -2.25, 3.4028234663852886e38],
  double: [0, 0.1, -1e300],
  bytes: [Buffer.from('plain'), Buffer.from([0xff, 0xfe, 0x00]), Buffer.alloc(0)],
  string: ['', 'ascii', 'größe 本町 🚚'],
};
const DEFAULTS: Readonly<Record<Primitive, unknown>> = {
  null: null,
  boolean: true,
  int: 7,
  long: 8,
  float: 1.5,
  double: 2.5,
  bytes: '\u0001',
  string: 'none',
};

const WRONG = Symbol('no promise');

/** What the specification promises for one value, or WRONG where it allows no reading. */
function promote(value: unknown, writer: Primitive, reader: Primitive): unknown {
  if (writer === reader) return value;
  const ladder: readonly Primitive[] = ['int', 'long', 'float', 'double'];
  const from = ladder.indexOf(writer);
  const to = ladder.indexOf(reader);
  if (from >= 0 && to > from) {
    if (reader === 'long') return BigInt(value as number);
    return reader === 'float' ? Math.fround(Number(value)) : Number(value);
  }
  if (writer === 'string' && reader === 'bytes') return Buffer.from(value as string, 'utf8');
  if (writer === 'bytes' && reader === 'string') {
    const text = (value as Buffer).toString('utf8');
    return Buffer.from(text, 'utf8').equals(value as Buffer) ? text : WRONG;
  }
  return WRONG;
}

const isPrimitive = (type: unknown): type is Primitive => (PRIMITIVES as readonly unknown[]).includes(type);

function defaultValue(value: unknown, type: unknown): unknown {
  if (type === 'long') return BigInt(value as number);
  if (type === 'bytes') return Buffer.from(value as string, 'latin1');
  if (Array.isArray(type)) return null;
  if (typeof type === 'object') {
    const { type: kind, items, fields } = type as { type: string; items?: unknown; fields?: FieldJson[] };
    if (kind === 'array') return (value as unknown[]).map((item) => defaultValue(item, items));
    if (kind === 'record') {
      return Object.fromEntries(
        (fields as FieldJson[]).map((field) => [
          field.name,
          defaultValue((value as Json)[field.name], field.type),
        ]),
      );
    }
  }
  return value;
}

function project(value: unknown, writer: unknown, reader: unknown): unknown {
  if (isPrimitive(writer) && isPrimitive(reader)) return promote(value, writer, reader);
  if (JSON.stringify(writer) === JSON.stringify(reader)) return value;
  const w = writer as {
    type?: string;
    items?: unknown;
    fields?: FieldJson[];
    symbols?: string[];
    name?: string;
  };
  const r = reader as typeof w;
  if (w.type !== r.type) return WRONG;
  if (w.type === 'array') {
    const items = (value as unknown[]).map((item) => project(item, w.items, r.items));
    return items.includes(WRONG) ? WRONG : items;
  }
  if (w.type === 'enum') return (r.symbols as string[]).includes(value as string) ? value : WRONG;
  const out: Json = {};
  for (const field of r.fields as FieldJson[]) {
    const names = [field.name, ...(field.aliases ?? [])];
    const matches = (w.fields as FieldJson[]).filter((one) => names.includes(one.name));
    if (matches.length > 1) return WRONG;
    const [match] = matches;
    if (match === undefined) {
      if (!('default' in field)) return WRONG;
      out[field.name] = defaultValue(field.default, field.type);
    } else {
      const inner = project((value as Json)[match.name], match.type, field.type);
      if (inner === WRONG) return WRONG;
      out[field.name] = inner;
    }
  }
  return out;
}

const parse = (json: unknown): AvroSchema => parseSchema('AVRO', JSON.stringify(json)) as AvroSchema;

const plain = (value: unknown): string =>
  JSON.stringify(value, (_key, item: unknown) =>
    typeof item === 'bigint' ? `${item}n` : Object.is(item, -0) ? 0 : item,
  );

/** True: every witness comes back as promised. */
function liveDecode(writer: unknown, reader: unknown, witnesses: readonly unknown[]): boolean {
  const writerSchema = parse(writer);
  const encode = writerCodec(writerSchema).encode;
  const decode = avroDecoder(parse(reader).tree, writerSchema.tree);
  try {
    return witnesses.every((witness) => {
      const promised = project(witness, writer, reader);
      const into = new Payloads(1, 64);
      encode(witness, into);
      return promised !== WRONG && plain(decode(into.bytes, 0, into.used)) === plain(promised);
    });
  } catch (thrown) {
    if (findMillraceError(thrown)?.row.kind === 'corrupt') return false;
    throw thrown;
  }
}

function verdict(writer: unknown, reader: unknown): readonly Finding[] {
  return checkPair(parse(reader), parse(writer));
}

function agree(writer: unknown, reader: unknown, witnesses: readonly unknown[]): void {
  const findings = verdict(writer, reader);
  expect({ accepted: isCompatible(findings), findings, writer, reader }).toMatchObject({
    accepted: liveDecode(writer, reader, witnesses),
  });
}

const record = (fields: readonly FieldJson[]): Json => ({ type: 'record', name: 'Order', fields });

describe('every pair of primitive types', () => {
  for (const writer of PRIMITIVES) {
    it(`${writer} read as each type`, () => {
      for (const reader of PRIMITIVES) {
        const witnesses = WITNESSES[writer].map((value) => ({ f: value }));
        agree(record([{ name: 'f', type: writer }]), record([{ name: 'f', type: reader }]), witnesses);
      }
    });
  }
});

const primitive = fc.constantFrom(...PRIMITIVES.slice(1));
const STATUS = { type: 'enum', name: 'Status', symbols: ['A', 'B', 'C'] };
const ITEM = (type: Primitive): Json => ({
  type: 'array',
  items: {
    type: 'record',
    name: 'Item',
    fields: [
      { name: 'sku', type: 'string' },
      { name: 'n', type },
    ],
  },
});

/** A type that a field may have, with its witnesses and a default. */
const fieldType: fc.Arbitrary<{ type: unknown; values: readonly unknown[]; default: unknown }> = fc.oneof(
  primitive.map((type) => ({ type: type as unknown, values: WITNESSES[type], default: DEFAULTS[type] })),
  fc.constant({ type: STATUS as unknown, values: ['A', 'B', 'C'], default: 'B' }),
  fc.constant({ type: ['null', 'string'] as unknown, values: [null, 'x'], default: null }),
  primitive.map((type) => ({
    type: ITEM(type) as unknown,
    values: [[], WITNESSES[type].map((n) => ({ sku: 's', n }))],
    default: [],
  })),
);

interface Shape {
  readonly writer: FieldJson[];
  readonly values: ReadonlyArray<readonly unknown[]>;
}

const shape: fc.Arbitrary<Shape> = fc
  .array(fc.tuple(fieldType, fc.boolean()), { minLength: 1, maxLength: 5 })
  .map((parts) => {
    // One enum and one item type a record: a name is defined once.
    const seen = new Set<string>();
    const kept = parts.filter(([{ type }]) => {
      const text = JSON.stringify(type);
      const name = text.includes('"Item"') ? 'Item' : text.includes('"Status"') ? 'Status' : undefined;
      if (name === undefined) return true;
      if (seen.has(name)) return false;
      seen.add(name);
      return true;
    });
    return {
      writer: kept.map(([part, hasDefault], i) => ({
        name: `f${i}`,
        type: part.type,
        ...(hasDefault ? { default: part.default } : {}),
      })),
      values: kept.map(([part]) => part.values),
    };
  });

/** One change of the five classes, at one field. */
const change = fc.record({
  kind: fc.constantFrom(
    'add optional',
    'add required',
    'remove',
    'rename',
    'rename with alias',
    'retype',
    'retype inside',
    'reorder',
  ),
  at: fc.nat(),
  type: primitive,
});

function changed(
  fields: readonly FieldJson[],
  { kind, at, type }: { kind: string; at: number; type: Primitive },
): FieldJson[] {
  const index = at % fields.length;
  const field = fields[index] as FieldJson;
  const replaced = (by: FieldJson): FieldJson[] => fields.map((one, i) => (i === index ? by : one));
  switch (kind) {
    case 'add optional':
      return [
        ...fields.slice(0, index),
        { name: 'added', type, default: DEFAULTS[type] },
        ...fields.slice(index),
      ];
    case 'add required':
      return [...fields, { name: 'added', type }];
    case 'remove':
      return fields.filter((_, i) => i !== index);
    case 'rename':
      return replaced({ ...field, name: 'renamed' });
    case 'rename with alias':
      return replaced({ ...field, name: 'renamed', aliases: [field.name] });
    case 'retype':
      return Array.isArray(field.type)
        ? [...fields]
        : replaced({ name: field.name, type, default: DEFAULTS[type] });
    case 'retype inside':
      return JSON.stringify(field.type).includes('"Item"')
        ? replaced({ name: field.name, type: ITEM(type) })
        : [...fields];
    default:
      return [...fields].reverse();
  }
}

/** Every witness value of every field, each in some event. */
function events({ writer, values }: Shape): Json[] {
  const most = Math.max(...values.map((list) => list.length));
  return Array.from({ length: most }, (_, i) =>
    Object.fromEntries(
      writer.map((field, at) => [
        field.name,
        (values[at] as readonly unknown[])[i % (values[at] as readonly unknown[]).length],
      ]),
    ),
  );
}

describe('generated records, one or two changes of the five classes', () => {
  it('the verdict of both directions agrees with a live decode', () => {
    fc.assert(
      fc.property(shape, fc.array(change, { minLength: 1, maxLength: 2 }), (start, changes) => {
        let fields = start.writer;
        for (const one of changes)
          if (fields.length > 0 && !fields.some(({ name }) => name === 'added' || name === 'renamed'))
            fields = changed(fields, one);
        agree(record(start.writer), record(fields), events(start));
      }),
      { numRuns: 400 },
    );
  });

  it('and the other way round: the changed record is the writer', () => {
    fc.assert(
      fc.property(shape, change, (start, one) => {
        const fields = changed(start.writer, one);
        // The witnesses of the changed record: its own types at full range.
        const witnesses = fields.map((field): readonly unknown[] => {
          const known = start.writer.findIndex(
            ({ name, type }) => name === field.name && type === field.type,
          );
          if (known >= 0) return start.values[known] as readonly unknown[];
          if (isPrimitive(field.type)) return WITNESSES[field.type];
          if (field.name === 'renamed')
            return start.values[one.at % start.writer.length] as readonly unknown[];
          return [[], WITNESSES[one.type].map((n) => ({ sku: 's', n }))];
        });
        fc.pre(fields.length > 0);
        agree(record(fields), record(start.writer), events({ writer: fields, values: witnesses }));
      }),
      { numRuns: 400 },
    );
  });
});
