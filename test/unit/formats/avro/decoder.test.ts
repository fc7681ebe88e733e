/** Rules of Avro's schema resolution, and the decoded values. */
import { describe, expect, it } from 'vitest';
import { encodeAvro } from '../../../../src/formats/avro/codec/encoder.ts';
import type { AvroDatum } from '../../../../src/formats/datum.ts';
import { stepsOf } from '../../../steps.ts';
import {
  branch,
  decodeBytes,
  enumOf,
  errorOf,
  fields,
  fixed,
  read,
  record,
  refusal,
  tree,
} from './decoder-kit.ts';

describe('promotions', () => {
  it.each<readonly [string, string, AvroDatum, unknown]>([
    ['int', 'long', -5, -5n],
    ['int', 'float', 16_777_217, 16_777_216],
    ['int', 'double', 2 ** 31 - 1, 2 ** 31 - 1],
    ['long', 'float', 2n ** 24n + 1n, 2 ** 24],
    ['long', 'float', 2n ** 24n + 3n, 2 ** 24 + 4],
    // Rounding to a double first would give a tie, and round it down.
    ['long', 'float', 2n ** 60n + 2n ** 36n + 1n, 2 ** 60 + 2 ** 37],
    ['long', 'float', -(2n ** 60n) - 2n ** 36n - 1n, -(2 ** 60) - 2 ** 37],
    ['long', 'float', 2n ** 60n + 2n ** 36n, 2 ** 60],
    ['long', 'float', 2n ** 63n - 1n, 2 ** 63],
    ['long', 'float', -(2n ** 63n), -(2 ** 63)],
    ['long', 'double', 2n ** 53n + 1n, 2 ** 53],
    ['long', 'double', 2n ** 53n + 3n, 2 ** 53 + 4],
    ['long', 'double', -(2n ** 63n), -(2 ** 63)],
    ['float', 'double', Math.fround(0.1), Math.fround(0.1)],
    ['string', 'bytes', 'größe', Buffer.from('größe')],
    ['bytes', 'string', Buffer.from('größe'), 'größe'],
    ['bytes', 'string', Buffer.from([0xef, 0xbf, 0xbd]), '\ufffd'],
  ])('a written %s is read as %s: %s', (writer, reader, datum, expected) => {
    expect(read(writer, reader, datum)).toEqual(expected);
    expect(read({ type: 'array', items: writer }, { type: 'array', items: reader }, [datum])).toEqual([
      expected,
    ]);
    expect(
      read({ type: 'map', values: writer }, { type: 'map', values: reader }, new Map([['k', datum]])),
    ).toEqual({
      k: expected,
    });
  });

  it('no other pair of primitive types is read', () => {
    const data: Readonly<Record<string, AvroDatum>> = {
      null: null,
      boolean: true,
      int: 1,
      long: 1n,
      float: 1,
      double: 1,
      bytes: Buffer.of(1),
      string: 's',
    };
    const allowed = ['int>long', 'int>float', 'int>double', 'long>float', 'long>double', 'float>double'];
    allowed.push('string>bytes', 'bytes>string');
    for (const [writer, datum] of Object.entries(data)) {
      for (const reader of Object.keys(data)) {
        if (writer === reader || allowed.includes(`${writer}>${reader}`)) continue;
        const { message } = refusal(writer, reader, datum);
        expect(message).toContain(`a reader of type ${reader} cannot read the writer's ${writer}`);
      }
    }
  });

  it('bytes that are not UTF-8 are refused as a string', () => {
    const error = errorOf(() => read('bytes', 'string', Buffer.from([65, 0xc3, 0x28])));
    expect([error.code, error.details]).toEqual(['malformed_payload', { at: 0, path: 'bytes' }]);
  });

  it('different kinds of types are never read as each other', () => {
    const all: ReadonlyArray<readonly [unknown, AvroDatum]> = [
      ['int', 1],
      [{ type: 'array', items: 'int' }, []],
      [{ type: 'map', values: 'int' }, new Map()],
      [record('N'), fields()],
      [enumOf('N', ['A']), 'A'],
      [fixed('N', 1), Buffer.of(1)],
    ];
    all.forEach(([writer, datum], w) => {
      all.forEach(([reader], r) => {
        if (w !== r)
          expect(refusal(writer, reader, datum).message).toMatch(/a reader of type .* cannot read/);
      });
    });
  });
});

describe('names', () => {
  const kinds: ReadonlyArray<readonly [string, (name: string, more?: object) => object, AvroDatum, unknown]> =
    [
      ['record', (name, more) => ({ ...record(name, ['a', 'int']), ...more }), fields(5), { a: 5 }],
      ['enum', (name, more) => enumOf(name, ['A'], more), 'A', 'A'],
      ['fixed', (name, more) => fixed(name, 2, more), Buffer.of(1, 2), Buffer.of(1, 2)],
    ];
  it.each(kinds)(
    'a named type matches without its namespace, or by a full alias: %s',
    (_kind, make, datum, value) => {
      expect(read(make('n.T'), make('n.T'), datum)).toEqual(value);
      expect(read(make('n.T'), make('m.T'), datum)).toEqual(value);
      expect(read(make('n.T'), make('T'), datum)).toEqual(value);
      expect(read(make('n.T'), make('n.U', { aliases: ['T'] }), datum)).toEqual(value);
      expect(read(make('n.T'), make('m.U', { aliases: ['n.T'] }), datum)).toEqual(value);
      for (const [writer, reader] of [
        [make('n.T'), make('n.U')],
        // A reader ignores the writer's aliases, and an alias is a full name.
        [make('n.T', { aliases: ['U'] }), make('n.U')],
        [make('n.T'), make('m.U', { aliases: ['T'] })],
      ])
        expect(refusal(writer, reader, datum).message).toMatch(
          /the writer's \w+ n\.T is [mn]\.U for the reader/,
        );
    },
  );

  it('a fixed type must have the same size on both sides', () => {
    expect(refusal(fixed('F', 2), fixed('F', 3), Buffer.of(1, 2)).message).toMatch(
      /F has 2 bytes for the writer, 3 for the reader/,
    );
  });
});

describe('logical types', () => {
  const of = (type: string, logicalType: string, more = {}): object => ({ type, logicalType, ...more });
  it('differing logical types are refused, and a single or equal one is read', () => {
    expect(read(of('int', 'date'), of('int', 'date'), 7)).toBe(7);
    expect(read(of('int', 'date'), 'int', 7)).toBe(7);
    expect(read('int', of('int', 'date'), 7)).toBe(7);
    expect(refusal(of('int', 'date'), of('int', 'time-millis'), 7).message).toMatch(
      /the logical type is date for the writer and time-millis for the reader/,
    );
    expect(refusal(of('int', 'date'), of('long', 'timestamp-millis'), 7).message).toMatch(/logical type/);
    const decimal = (precision: number, scale?: number): object =>
      of('bytes', 'decimal', { precision, ...(scale === undefined ? {} : { scale }) });
    expect(read(decimal(4), decimal(4, 0), Buffer.of(1))).toEqual(Buffer.of(1));
    expect(refusal(decimal(4, 2), decimal(4, 1), Buffer.of(1)).message).toMatch(
      /decimal\(4, 2\).*decimal\(4, 1\)/,
    );
    expect(refusal(decimal(4, 2), decimal(5, 2), Buffer.of(1)).code).toBe('incompatible_schema');
  });

  it('logical types that the specification ignores are ignored', () => {
    expect(read(of('string', 'date'), of('string', 'time-micros'), 'x')).toBe('x');
  });
});

describe('records', () => {
  it('decoded fields have the order of the reader', () => {
    const value = read(
      record('R', ['a', 'int'], ['b', 'string'], ['c', 'boolean']),
      record('R', ['c', 'boolean'], ['d', 'int', { default: 4 }], ['b', 'string'], ['a', 'long']),
      fields(1, 'x', true),
    );
    expect(JSON.stringify(Object.keys(value as object))).toBe('["c","d","b","a"]');
    expect(value).toEqual({ c: true, d: 4, b: 'x', a: 1n });
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
  });

  it('written fields that the reader lacks are skipped, whatever their type', () => {
    const inner = record('I', ['x', 'int'], ['self', ['null', 'I']]);
    const writer = record(
      'R',
      ['n', 'null'],
      ['b', 'boolean'],
      ['i', 'int'],
      ['l', 'long'],
      ['f', 'float'],
      ['d', 'double'],
      ['y', 'bytes'],
      ['s', 'string'],
      ['e', enumOf('E', ['A', 'B'])],
      ['x', fixed('F', 3)],
      ['a', { type: 'array', items: 'string' }],
      ['m', { type: 'map', values: 'bytes' }],
      ['u', ['null', 'int', 'string']],
      ['r', inner],
      ['z', 'int'],
    );
    const datum = fields(
      null,
      true,
      -1,
      2n ** 62n,
      0.5,
      0.1,
      Buffer.of(1, 2),
      'é',
      'B',
      Buffer.of(1, 2, 3),
      ['a', 'b'],
      new Map([['k', Buffer.of(1)]]),
      branch(2, 'x'),
      fields(1, branch(1, fields(2, branch(0, null)))),
      77,
    );
    expect(read(writer, record('R', ['z', 'int']), datum)).toEqual({ z: 77 });
    // Skipped parts are checked as if they were read.
    const bytes = encodeAvro(tree(writer), datum);
    for (let length = 0; length < bytes.length; length++)
      expect(
        errorOf(() => decodeBytes(tree(record('R')), tree(writer), bytes.subarray(0, length))).code,
      ).toBe('malformed_payload');
  });

  it('a field is found by its aliases', () => {
    const writer = record('R', ['a', 'int'], ['b', 'int']);
    expect(read(writer, record('R', ['x', 'int', { aliases: ['b'] }]), fields(1, 2))).toEqual({ x: 2 });
    expect(read(writer, record('R', ['x', 'int', { aliases: ['q', 'a', 'a'] }]), fields(1, 2))).toEqual({
      x: 1,
    });
  });

  it('a field that matches two written fields is refused', () => {
    const writer = record('R', ['a', 'int'], ['b', 'int']);
    for (const reader of [
      record('R', ['a', 'int', { aliases: ['b'] }]),
      record('R', ['x', 'int', { aliases: ['b', 'a'] }]),
    ])
      expect(refusal(writer, reader, fields(1, 2)).message).toMatch(/R: field \w matches two written fields/);
  });

  it('two fields that read one written field are refused', () => {
    expect(
      refusal(
        record('R', ['a', 'int']),
        record('R', ['a', 'int'], ['b', 'int', { aliases: ['a'] }]),
        fields(1),
      ).message,
    ).toMatch(/fields a and b both read the written field a/);
  });

  it('a record reads itself, whatever its aliases are', () => {
    const node = tree(record('R', ['a', 'int'], ['b', 'int', { aliases: ['a'] }]));
    expect(decodeBytes(node, node, encodeAvro(node, fields(1, 2)))).toEqual({ a: 1, b: 2 });
  });

  it('an unwritten field without a default fails every event that contains its record', () => {
    const error = refusal(
      record('o.Order', ['p', 'int'], ['items', { type: 'array', items: record('I', ['n', 'int']) }]),
      record('o.Order', ['items', { type: 'array', items: record('I', ['n', 'int'], ['m', 'int']) }]),
      fields(300, [fields(1)]),
    );
    expect(error.message).toMatch(
      /o\.I: field m is not written and has no default, in Order\.items\[0\] at byte 3/,
    );
    expect(error.details).toEqual({ at: 3, path: 'Order.items[0]' });
  });

  it('an unwritten field in an array item fails only events with such an item', () => {
    const writer = record('R', ['i', { type: 'array', items: record('I') }]);
    const reader = record('R', ['i', { type: 'array', items: record('I', ['m', 'int']) }]);
    expect(read(writer, reader, fields([]))).toEqual({ i: [] });
    expect(refusal(writer, reader, fields([fields()])).details).toEqual({ at: 1, path: 'R.i[0]' });
  });

  it('a field may have any name that a stored schema gave it', () => {
    const text =
      '{"type":"record","name":"R","fields":[{"name":"__proto__","type":"int"},{"name":"toString","type":"int"},{"name":"7","type":"int"}]}';
    const node = tree(text, true);
    const value = decodeBytes(node, node, encodeAvro(node, fields(1, 2, 3))) as object;
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect(Object.entries(value)).toEqual([
      ['7', 3],
      ['__proto__', 1],
      ['toString', 2],
    ]);
  });
});

describe('enums', () => {
  it('enum symbols are matched by their names', () => {
    const writer = enumOf('E', ['A', 'B', 'C']);
    const reader = enumOf('E', ['C', 'A', 'D']);
    expect(read(writer, reader, 'A')).toBe('A');
    expect(read(writer, reader, 'C')).toBe('C');
    expect(
      refusal(record('R', ['i', 'int'], ['e', writer]), record('R', ['e', reader]), fields(1, 'B')),
    ).toMatchObject({
      details: { at: 1, path: 'R.e' },
      message: expect.stringContaining("the reader's E has no symbol B"),
    });
    expect(read(writer, enumOf('E', ['C', 'X'], { default: 'X' }), 'B')).toBe('X');
    // The writer's default and the field's default do not apply to the reader's enum.
    expect(refusal(enumOf('E', ['A', 'B'], { default: 'A' }), enumOf('E', ['A']), 'B').code).toBe(
      'incompatible_schema',
    );
  });
});

describe('unions', () => {
  const list = { type: 'array', items: 'int' };
  it.each<readonly [string, unknown, unknown, AvroDatum, unknown]>([
    ['a branch is read as the same type', ['null', 'int'], ['int', 'null'], branch(1, 5), 5],
    ['null is read as null', ['null', 'int'], ['int', 'null'], branch(0, null), null],
    [
      'the same type precedes a promotion',
      ['float', 'int'],
      ['float', 'int', 'long'],
      branch(1, 16_777_217),
      16_777_217,
    ],
    ['a promotion in the order of the reader', ['int'], ['string', 'double', 'long'], branch(0, 5), 5],
    ['another order, another type', ['int'], ['string', 'long', 'double'], branch(0, 5), 5n],
    ['a float is not read as long', ['float'], ['long', 'double'], branch(0, 0.5), 0.5],
    ['string to bytes', ['string'], ['null', 'bytes'], branch(0, 'x'), Buffer.from('x')],
    ['a reader without a union', ['null', 'int'], 'long', branch(1, 5), 5n],
    ['a writer without a union', 'int', ['null', 'long'], 5, 5n],
    [
      'an array by its kind alone',
      ['null', list],
      ['null', { type: 'array', items: 'long' }],
      branch(1, [1]),
      [1n],
    ],
    [
      'an alias in full',
      [fixed('n.A', 1)],
      [fixed('n.B', 1), fixed('n.C', 1, { aliases: ['A'] })],
      branch(0, Buffer.of(7)),
      { 'n.C': Buffer.of(7) },
    ],
    [
      'the full name before an alias',
      [fixed('n.A', 1)],
      [fixed('n.C', 1, { aliases: ['A'] }), fixed('n.A', 1)],
      branch(0, Buffer.of(7)),
      { 'n.A': Buffer.of(7) },
    ],
    [
      'the full name before the unqualified',
      [enumOf('n.A', ['X'])],
      [enumOf('m.A', ['Y']), enumOf('n.A', ['X'])],
      branch(0, 'X'),
      { 'n.A': 'X' },
    ],
    [
      'the first with the unqualified name',
      [enumOf('n.A', ['X'])],
      [enumOf('m.A', ['X']), enumOf('k.A', ['X'])],
      branch(0, 'X'),
      { 'm.A': 'X' },
    ],
    [
      'a name of the same kind only',
      [enumOf('n.A', ['X'])],
      [fixed('m.A', 1), enumOf('k.A', ['X'])],
      branch(0, 'X'),
      'X',
    ],
  ])('a union is resolved as specified: %s', (_what, writer, reader, datum, expected) => {
    expect(read(writer, reader, datum)).toEqual(expected);
  });

  it('a branch that the reader lacks fails only events that contain it', () => {
    const writer = record('R', ['u', ['null', 'string', 'int']]);
    const reader = record('R', ['u', ['null', 'long']]);
    expect(read(writer, reader, fields(branch(0, null)))).toEqual({ u: null });
    expect(read(writer, reader, fields(branch(2, 3)))).toEqual({ u: 3n });
    const error = refusal(writer, reader, fields(branch(1, 'x')));
    expect(error.message).toMatch(
      /no branch of the reader's union takes the writer's string, in R\.u at byte 1/,
    );
    expect(refusal(['null', 'string'], 'int', branch(0, null)).message).toMatch(
      /a reader of type int cannot read the writer's null/,
    );
    expect(refusal(record('n.A'), ['null', record('n.B')], fields()).message).toMatch(
      /takes the writer's n\.A/,
    );
  });

  it('the content of a branch does not choose the branch', () => {
    const writer = ['null', record('A', ['a', 'string'])];
    const reader = [record('A', ['a', 'int']), record('B', ['a', 'string'], ['c', 'int', { default: 1 }])];
    expect(refusal(writer, reader, branch(1, fields('x'))).details).toEqual({ at: 1, path: 'union.a' });
  });

  it("branches that look alike in JavaScript are wrapped by the reader's name", () => {
    const plain: ReadonlyArray<readonly [unknown, AvroDatum, unknown]> = [
      [['null', 'int', 'long', 'float', 'double', 'string', 'bytes'], branch(1, 5), 5],
      [['null', 'int', 'long', 'float', 'double'], branch(2, 5n), 5n],
      [[{ type: 'map', values: 'int' }, 'string', list], branch(2, [1]), [1]],
    ];
    const wrapped: ReadonlyArray<readonly [unknown, AvroDatum, unknown]> = [
      [['null', 'string', enumOf('n.E', ['A'])], branch(2, 'A'), { 'n.E': 'A' }],
      [['null', 'string', enumOf('n.E', ['A'])], branch(1, 'A'), { string: 'A' }],
      [['null', 'string', enumOf('n.E', ['A'])], branch(0, null), null],
      [['int', 'bytes', fixed('F', 1)], branch(0, 4), { int: 4 }],
      [['bytes', fixed('F', 1)], branch(1, Buffer.of(4)), { F: Buffer.of(4) }],
      [[{ type: 'map', values: 'int' }, record('R')], branch(0, new Map([['R', 1]])), { map: { R: 1 } }],
      [[record('n.A'), record('n.B')], branch(1, fields()), { 'n.B': {} }],
    ];
    for (const [schema, datum, value] of [...plain, ...wrapped])
      expect(read(schema, schema, datum)).toEqual(value);
    expect(read(['null', record('A')], [record('m.B'), record('m.A')], branch(1, fields()))).toEqual({
      'm.A': {},
    });
  });

  it('a union reads itself branch by branch, whatever its aliases are', () => {
    const node = tree([fixed('A', 1, { aliases: ['B'] }), fixed('B', 1)]);
    expect(decodeBytes(node, node, encodeAvro(node, branch(1, Buffer.of(1))))).toEqual({ B: Buffer.of(1) });
  });

  it('unions inside arrays and maps inside unions are resolved at each depth', () => {
    let writer: unknown = 'int';
    let reader: unknown = 'long';
    let datum: AvroDatum = 7;
    let value: unknown = 7n;
    for (let depth = 0; depth < 20; depth++) {
      const kind =
        depth % 2 === 0
          ? (items: unknown) => ({ type: 'array', items })
          : (values: unknown) => ({ type: 'map', values });
      writer = ['null', kind(writer)];
      reader = [kind(reader), 'string', 'null'];
      datum = branch(1, depth % 2 === 0 ? [datum] : new Map([['k', datum]]));
      value = depth % 2 === 0 ? [value] : { k: value };
    }
    expect(read(writer, reader, datum)).toEqual(value);
  });

  it('unions of thousands of branches are compiled in steps that grow with their length', () => {
    const many = (kind: string): object[] =>
      Array.from({ length: 6_000 }, (_, i) => fixed(`${kind}.T${i}`, 1));
    const writer = tree(many('n'));
    const reader = tree(many('m').reverse());
    const bytes = encodeAvro(writer, branch(5_999, Buffer.of(3)));
    const steps = stepsOf(() =>
      expect(decodeBytes(reader, writer, bytes)).toEqual({ 'm.T5999': Buffer.of(3) }),
    );
    // About 55 steps for each branch; comparing each branch with every other would take 36 million.
    expect(steps).toBeLessThan(2_000_000);
  });
});
