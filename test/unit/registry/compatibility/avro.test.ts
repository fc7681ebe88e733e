/** Avro verdict, finding by finding: message, position and route; and the linear cost of hostile
 *  pairs of schemas. The property test shows that the verdicts are correct. */

import { describe, expect, it } from 'vitest';
import { parseAvroSchema } from '../../../../src/formats/avro/schema.ts';
import type { AvroNode } from '../../../../src/formats/avro/syntax/tree.ts';
import { checkAvro } from '../../../../src/registry/compatibility/avro/checker.ts';
import { checkStrictAvro } from '../../../../src/registry/compatibility/avro/strict.ts';
import { type Finding, stepsOf } from '../../../../src/registry/compatibility/finding.ts';
import { worked } from '../../../work.ts';

/** Maximum number of function calls of one comparison; a quadratic walk needs many times as
 *  many. */
const CALLS_MAX = 5_000_000;

const treeOf = (json: unknown): AvroNode => parseAvroSchema(JSON.stringify(json), { lenient: true }).tree;
const check = (reader: unknown, writer: unknown): readonly Finding[] =>
  checkAvro(treeOf(reader), treeOf(writer));
const indexes = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
const record = (name: string, fields: readonly unknown[], more: object = {}): object => ({
  type: 'record',
  name,
  fields,
  ...more,
});
const field = (name: string, type: unknown, more: object = {}): object => ({ name, type, ...more });
const described = (findings: readonly Finding[]): string[] =>
  findings.map(({ severity, rule, path }) => `${severity} ${rule} ${path}`);
const routeOf = ({ route }: Finding): string =>
  stepsOf(route)
    .map((step) =>
      step.kind === 'field'
        ? `.${step.key}`
        : step.kind === 'branch'
          ? `|${step.index}`
          : step.kind === 'item'
            ? '[]'
            : '{}',
    )
    .join('');

function bounded<T>(run: () => T, callsMax = CALLS_MAX): T {
  const { result, calls } = worked(run);
  expect(calls).toBeLessThan(callsMax);
  return result;
}

describe('finding messages', () => {
  const order = (...fields: readonly unknown[]): object => record('Order', fields);
  const status = (symbols: readonly string[], more: object = {}): object => ({
    type: 'enum',
    name: 'Status',
    symbols,
    ...more,
  });
  it.each([
    [
      order(field('region', 'string')),
      order(),
      'field "region" has no default, and the writer does not write it',
    ],
    [
      order(field('memo', 'string')),
      order(field('note', 'string')),
      'field "memo" has no default, and the writer does not write it; if it is the old "note", give it the alias "note"',
    ],
    [
      order(field('memo', 'string', { default: '' })),
      order(field('note', 'string')),
      'field "memo" gets its default; if it is the old "note", give it the alias "note"',
    ],
    [
      order(field('note', 'string', { default: '' })),
      order(field('memo', 'string', { aliases: ['note'] })),
      'the writer renamed "note" to "memo", which this reader does not know: it gets the default instead of the value',
    ],
    [
      order(field('count', 'int', { default: 'none' })),
      order(),
      'the writer does not write field "count", and its default does not fit its type: "none" is not an int',
    ],
    [
      order(field('a', 'int', { aliases: ['b', 'c'] })),
      order(field('b', 'int'), field('c', 'int')),
      'field "a" matches several written fields: b, c',
    ],
    [
      order(field('a', 'int', { aliases: ['b'] }), field('b', 'int')),
      order(field('b', 'int')),
      'fields "a" and "b" both read the written field "b"',
    ],
    [
      order(),
      order(field('gone', 'int')),
      'the written field "gone" is not in the reader\'s Order, which skips it',
    ],
    ['string', 'long', 'a reader of type string cannot read long'],
    [
      'string',
      ['null', 'string'],
      "a reader of type string cannot read null, which is a branch of the writer's union",
    ],
    [['null', 'string'], 'long', "the reader's union has no branch for long"],
    ['float', 'long', 'long read as float is rounded where it has too many digits'],
    ['string', 'bytes', 'bytes read as string are refused where they are not UTF-8'],
    [status(['A']), status(['A', 'B']), "the reader's Status lacks B and has no default symbol"],
    [status(['A'], { default: 'A' }), status(['A', 'B']), 'B is read as A'],
    [
      record('Line', []),
      record('Item', []),
      "the reader's type is named Line, the writer's Item, and no alias says they are the same",
    ],
    [
      { type: 'long', logicalType: 'timestamp-micros' },
      { type: 'long', logicalType: 'timestamp-millis' },
      'timestamp-millis is read as timestamp-micros: the same bytes mean another value',
    ],
    [
      { type: 'bytes', logicalType: 'decimal', precision: 12, scale: 2 },
      { type: 'bytes', logicalType: 'decimal', precision: 10, scale: 2 },
      'decimal(10,2) is read as decimal(12,2): decimals match by precision and scale, and the precision is another',
    ],
    [
      { type: 'long', logicalType: 'timestamp-micros' },
      'long',
      "the logical type timestamp-micros exists on the reader's side only; the value is read as it was written",
    ],
    [
      { type: 'fixed', name: 'Digest', size: 20 },
      { type: 'fixed', name: 'Digest', size: 16 },
      'the reader takes 20 bytes, the writer writes 16',
    ],
  ])('a reader of %j for %j gets the message: %s', (reader, writer, message) => {
    expect(check(reader, writer).map((one) => one.message)).toContain(message);
  });
});

describe('finding places', () => {
  it('a finding has a path for a person and a route for an event, through lists, maps and branches', () => {
    const card = (type: string): object => record('pay.Card', [field('number', type)]);
    const shop = (type: string): object =>
      record('shop.Order', [
        field('items', { type: 'array', items: record('Item', [field('qty', type)]) }),
        field('paid', ['null', card(type), 'string']),
        field('coupon', ['null', { type: 'map', values: ['null', type] }]),
      ]);
    const findings = check(shop('int'), shop('string'));
    expect(findings.map((one) => [one.rule, one.path, routeOf(one)])).toEqual([
      ['AVRO_TYPE_CHANGED', 'Order.items[].qty', '.items[].qty'],
      ['AVRO_TYPE_CHANGED', 'Order.paid(Card).number', '.paid|1.number'],
      ['AVRO_UNION_BRANCH_MISSING', 'Order.coupon{}', '.coupon|1{}|1'],
    ]);
  });

  it('a finding has a place in either text, and a type from elsewhere is placed at its field', () => {
    const reader = '{"type":"record","name":"R","fields":[{"name":"a","type":"F"},{"name":"b","type":"F"}]}';
    const fixed = '{"type":"fixed","name":"F","size":2}';
    const parsed = parseAvroSchema(reader, {
      lenient: true,
      references: [{ name: 'f.avsc', subject: 'f', version: 1, format: 'AVRO', text: fixed, references: [] }],
    }).tree;
    const writer =
      '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}';
    const findings = checkAvro(parsed, parseAvroSchema(writer, {}).tree);
    expect(findings.map((one) => [one.reader, one.writer])).toEqual([
      [{ at: reader.indexOf('{"name":"a"') }, { at: writer.indexOf('"int"') }],
      [{ at: reader.indexOf('{"name":"b"') }, { at: writer.lastIndexOf('"int"') }],
    ]);
    const sized = checkAvro(parsed, parseAvroSchema(reader.replace('"F"', fixed.replace('2', '3')), {}).tree);
    expect(sized.map((one) => [one.rule, one.reader])).toEqual([
      ['AVRO_FIXED_SIZE_CHANGED', { at: 0, from: 'f.avsc' }],
    ]);
  });

  it('a default misfit is placed at the default', () => {
    const text =
      '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":"int"},"default":[1,"x"]}]}';
    const [finding] = checkAvro(parseAvroSchema(text, { lenient: true }).tree, treeOf(record('R', [])));
    expect(finding?.reader).toEqual({ at: text.indexOf('"x"') });
  });
});

describe('recursive schemas', () => {
  const tree = (type: string): object =>
    record('Tree', [
      field('kids', { type: 'array', items: ['null', 'Tree'] }),
      field('up', ['null', 'Tree']),
      field('leaf', record('Leaf', [field('value', type), field('tree', ['null', 'Tree'])])),
    ]);
  it('a finding in a recursive schema is reported once, by a shortest route', () => {
    const findings = check(tree('int'), tree('string'));
    expect(findings.map((one) => [one.rule, one.path, routeOf(one)])).toEqual([
      ['AVRO_TYPE_CHANGED', 'Tree.leaf.value', '.leaf.value'],
    ]);
    expect(check(tree('int'), tree('int'))).toEqual([]);
  });

  it('the check finds a finding that appears only in the second round of a recursion', () => {
    const writer = record('A', [field('next', ['null', record('B', [field('next', ['null', 'A'])])])]);
    const reader = record('A', [
      field('next', [
        'null',
        record('B', [field('next', ['null', record('C', [field('n', 'int')], { aliases: ['A'] })])]),
      ]),
    ]);
    expect(described(check(reader, writer)).filter((one) => one.startsWith('fail'))).toEqual([
      'fail AVRO_READER_FIELD_WITHOUT_DEFAULT A.next.next.n',
    ]);
  });

  it('a record used in twenty places is compared once', () => {
    const used = (type: string): object =>
      record('R', [
        field('f0', record('P', [field('cents', type)])),
        ...indexes(20).map((i) => field(`g${i}`, i % 2 === 0 ? 'P' : ['null', 'P'])),
      ]);
    expect(described(check(used('int'), used('string')))).toEqual(['fail AVRO_TYPE_CHANGED R.f0.cents']);
  });
});

describe('unwritable records', () => {
  const endless = (more: readonly unknown[] = []): object =>
    record('Endless', [field('self', 'Endless'), ...more]);
  it.each([
    ['a record that requires itself', endless([field('n', 'int')]), endless([field('n', 'string')])],
    [
      'two that require each other',
      record('A', [field('b', record('B', [field('a', 'A')])), field('n', 'int')]),
      record('A', [field('b', record('B', [field('a', 'A')])), field('n', 'string')]),
    ],
    ['an enum without symbols', 'int', { type: 'enum', name: 'E', symbols: [] }],
    ['an empty union', 'int', []],
    ['a branch of these', ['null', 'int'], ['null', endless()]],
    ['items of these', { type: 'array', items: 'int' }, { type: 'array', items: endless() }],
  ])('the check ignores values that no writer can write: %s', (_name, reader, writer) => {
    expect(check(reader, writer)).toEqual([]);
  });

  it('the check compares recursive records that can end', () => {
    const ends = (type: string): object =>
      record('E', [field('self', { type: 'array', items: 'E' }), field('n', type)]);
    expect(described(check(ends('int'), ends('string')))).toEqual(['fail AVRO_TYPE_CHANGED E.n']);
    expect(described(check(endless([field('n', 'int', { default: 1 })]), record('Endless', [])))).toEqual([
      'fail AVRO_READER_FIELD_WITHOUT_DEFAULT Endless.self',
    ]);
  });
});

describe('union branches', () => {
  const a = (space: string, name: string, more: object = {}): object =>
    record(`${space}.A`, [field(name, 'int')], more);
  const fails = (reader: unknown, writer: unknown): string[] =>
    described(check(reader, writer)).filter((one) => !one.startsWith('note'));
  it('two records of one unqualified name are matched by their full names in any order', () => {
    expect(check([a('x', 'p'), a('y', 'q')], [a('y', 'q'), a('x', 'p')])).toEqual([]);
  });
  it('a branch is matched by an alias second, and by the first unqualified name third', () => {
    expect(fails([a('x', 'p'), record('B', [field('q', 'int')], { aliases: ['z.A'] })], a('z', 'q'))).toEqual(
      [],
    );
    expect(fails([a('x', 'p'), a('y', 'q')], a('z', 'q'))).toEqual([
      'fail AVRO_READER_FIELD_WITHOUT_DEFAULT union.p',
    ]);
    expect(fails([a('x', 'p', { aliases: ['y.A'] }), a('y', 'q')], a('y', 'q'))).toEqual([]);
  });
  it('a branch is matched by kind before names', () => {
    const fixed = { type: 'fixed', name: 'x.A', size: 1 };
    expect(fails([fixed, a('y', 'p')], a('z', 'p'))).toEqual([]);
    expect(fails([fixed], a('x', 'p'))).toEqual(['fail AVRO_UNION_BRANCH_MISSING union']);
  });
  it('the exact type precedes a promotion, and the first promotion precedes the others', () => {
    expect(check(['float', 'int'], ['float', 'int'])).toEqual([]);
    expect(fails(['float', 'int'], 'int')).toEqual([]);
    expect(fails(['float', 'double'], 'long')).toEqual(['lossy AVRO_PROMOTION_ROUNDS union']);
    expect(fails(['double', 'float'], 'int')).toEqual([]);
    expect(fails(['bytes', 'string'], 'string')).toEqual([]);
  });
  it('each written branch is compared as its own pair', () => {
    expect(fails('double', ['int', 'long', 'string', 'null'])).toEqual([
      'lossy AVRO_PROMOTION_ROUNDS double',
      'fail AVRO_TYPE_CHANGED double',
      'fail AVRO_TYPE_CHANGED double',
    ]);
  });
});

describe('defaults', () => {
  const fails = (reader: unknown): string[] => described(check(reader, record('R', [])));
  it('a default that never ends cannot be filled in', () => {
    expect(fails(record('R', [field('r', 'R', { default: {} })]))).toEqual(['fail AVRO_DEFAULT_MISFIT R.r']);
  });
  it('a default must fit inside a nested record, too', () => {
    const inner = record('I', [field('n', 'int', { default: 'x' })]);
    const [finding] = check(record('R', [field('i', inner, { default: {} })]), record('R', []));
    expect(finding?.message).toMatch(/in it the default of "n" does not fit: "x" is not an int$/);
    expect(fails(record('R', [field('i', inner, { default: { n: 1 } })]))).toEqual([]);
  });
  it('a default of a union fits one of its branches', () => {
    expect(fails(record('R', [field('u', ['null', 'int'], { default: null })]))).toEqual([]);
    expect(fails(record('R', [field('u', ['null', 'int'], { default: 3 })]))).toEqual([]);
    expect(fails(record('R', [field('u', ['null', 'int'], { default: '3' })]))).toEqual([
      'fail AVRO_DEFAULT_MISFIT R.u',
    ]);
  });
  it('a default has no effect if the field is written', () => {
    expect(
      check(record('R', [field('n', 'int', { default: 'x' })]), record('R', [field('n', 'int')])),
    ).toEqual([]);
  });
});

describe('hostile and wide schemas', () => {
  const wide = (count: number, type: string, more: object = {}): object =>
    record(
      'R',
      indexes(count).map((i) => field(`f${i}`, type, more)),
    );
  it('ten thousand fields are checked in bounded time', () => {
    const [ints, longs, texts] = ['int', 'long', 'string'].map((type) => treeOf(wide(10_000, type)));
    for (const run of [checkAvro, checkStrictAvro]) {
      expect(bounded(() => run(longs as AvroNode, ints as AvroNode))).toEqual([]);
      expect(bounded(() => run(texts as AvroNode, ints as AvroNode))).toHaveLength(100);
    }
  });

  it('a lossy finding is not crowded out by notes', () => {
    const written = [
      ...indexes(300).map((i) => field(`n${i}`, ['null', 'int'])),
      field('x', 'long'),
      field('y', 'int'),
    ];
    const severities = (fields: readonly unknown[]): Set<string> =>
      new Set(check(record('R', fields), record('R', written)).map(({ severity }) => severity));
    expect(severities([field('x', 'double')])).toEqual(new Set(['note', 'lossy']));
    expect(severities([field('y', 'string'), field('x', 'double')])).toEqual(
      new Set(['note', 'lossy', 'fail']),
    );
  });

  it('a chain of thousands of records is checked in bounded time', () => {
    const chain = (last: string): AvroNode => {
      const tree = treeOf(
        record(
          'R',
          indexes(4_000).map((i) =>
            field(`f${i}`, record(`C${i}`, [field('n', i === 0 ? last : `C${i - 1}`)])),
          ),
        ),
      );
      if (tree.kind !== 'record') throw new Error(`the type is ${tree.kind} instead of record`);
      return { ...tree, fields: tree.fields.slice(-1) };
    };
    for (const run of [checkAvro, checkStrictAvro]) {
      const [finding] = bounded(() => run(chain('int'), chain('string')));
      expect(stepsOf(finding?.route)).toHaveLength(4_001);
    }
  });

  it('records that all contain each other are checked in bounded time', () => {
    const web = (extra: number): AvroNode =>
      treeOf(
        indexes(90).map((i) =>
          record(
            `A${i}`,
            indexes(i + 1).map((k) => field(`f${k}`, ['null', `A${Math.min(k, i)}`])),
            { aliases: indexes(90).map((k) => `A${(k + extra) % 90}`) },
          ),
        ),
      );
    for (const run of [checkAvro, checkStrictAvro])
      expect(bounded(() => run(web(1), web(7))).filter(({ severity }) => severity === 'fail')).toEqual([]);
  });

  it('defaults that require one another are checked in bounded time', () => {
    const levels = indexes(40).map((i) =>
      field(
        `x${i}`,
        record(
          `L${i}`,
          indexes(40).map((k) =>
            field(`f${k}`, i === 0 ? 'int' : `L${i - 1}`, { default: i === 0 ? 1 : {} }),
          ),
        ),
        { default: {} },
      ),
    );
    // Every level is visited, up to the budget of a comparison.
    const found = bounded(() => check(record('R', levels), record('R', [])), 60_000_000);
    const rules = found.map(({ rule }) => rule);
    expect(rules).toContain('AVRO_DEFAULT_MISFIT');
  });

  it('unions of unions of the same few types are checked in bounded time', () => {
    const nest = (depth: number): unknown =>
      depth === 0
        ? 'int'
        : ['null', { type: 'array', items: nest(depth - 1) }, { type: 'map', values: nest(depth - 1) }];
    for (const run of [checkAvro, checkStrictAvro])
      expect(bounded(() => run(treeOf(nest(10)), treeOf(nest(10))))).toEqual([]);
  });
});
