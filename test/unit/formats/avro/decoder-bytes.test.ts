/** Limits on the content of an Avro payload, positions in errors, and results for unusual bytes. */
import { describe, expect, it } from 'vitest';
import { avroDecoder } from '../../../../src/formats/avro/codec/decoder.ts';
import { encodeAvro } from '../../../../src/formats/avro/codec/encoder.ts';
import type { AvroNode } from '../../../../src/formats/avro/syntax/tree.ts';
import type { AvroDatum } from '../../../../src/formats/datum.ts';
import { stepsOf } from '../../../steps.ts';
import {
  branch,
  decodeBytes,
  enumOf,
  errorOf,
  type Field,
  fields,
  fixed,
  malformation,
  read,
  record,
  tree,
  zigzag,
} from './decoder-kit.ts';

describe('recursion', () => {
  const node = record('N', ['v', 'int'], ['next', ['null', 'N']]);
  const chain = (length: number): AvroDatum => {
    let datum: AvroDatum = fields(0, branch(0, null));
    for (let i = 1; i < length; i++) datum = fields(i, branch(1, datum));
    return datum;
  };

  it('recursive payloads are read by types that refer to themselves and to each other', () => {
    const reader = record('N', ['next', ['null', 'N']], ['v', 'long'], ['w', 'int', { default: 1 }]);
    expect(read(node, reader, chain(3))).toEqual({
      v: 2n,
      w: 1,
      next: { v: 1n, w: 1, next: { v: 0n, w: 1, next: null } },
    });
    const pair = record('A', ['b', ['null', record('B', ['a', { type: 'array', items: 'A' }])]]);
    const datum = fields(branch(1, fields([fields(branch(0, null))])));
    expect(read(pair, pair, datum)).toEqual({ b: { a: [{ b: null }] } });
  });

  it('recursive payloads are refused beyond 256 nested values', () => {
    const schema = tree(node);
    expect(() => decodeBytes(schema, schema, encodeAvro(schema, chain(256)))).not.toThrow();
    const deep = Buffer.concat([Buffer.from(Array(300).fill([0, 2]).flat()), Buffer.from([0, 0])]);
    const error = errorOf(() => decodeBytes(schema, schema, deep));
    expect(error.message).toMatch(
      /values are nested deeper than 256, in ….*\.next at byte 512 of the payload/,
    );
    expect(errorOf(() => decodeBytes(tree(record('N')), schema, deep)).code).toBe('malformed_payload');
    expect(malformation(node, Buffer.alloc(1_000_000, 2)).message.length).toBeLessThan(700);
  });

  it('recursion through arrays and maps has the same limit', () => {
    const arrays = record('A', ['a', { type: 'array', items: 'A' }]);
    expect(malformation(arrays, Buffer.alloc(400, 2)).message).toMatch(/nested deeper/);
    const maps = record('M', ['m', { type: 'map', values: 'M' }]);
    expect(malformation(maps, Buffer.from(Array(400).fill([2, 0]).flat())).message).toMatch(/nested deeper/);
  });

  it('recursion of a type without finite values is refused too', () => {
    expect(malformation(record('N', ['n', 'N']), []).message).toMatch(/nested deeper/);
    let type: unknown = record('N0');
    for (let i = 1; i < 40; i++) type = record(`N${i}`, ['a', type], ['b', `N${i - 1}`]);
    expect(malformation(type, []).message).toMatch(/more than 65536 values take no byte/);
    expect(errorOf(() => decodeBytes(tree(record('N39')), tree(type), Buffer.alloc(0))).message).toMatch(
      /take no byte/,
    );
  });

  it('a chain of types longer than the stack is deep is compiled', () => {
    const types: object[] = [record('T0', ['v', 'int'])];
    for (let i = 1; i < 4_900; i++) types.push(record(`T${i}`, ['t', ['null', `T${i - 1}`]]));
    const schema = tree(types);
    const other = tree([...types, 'null']);
    expect(
      decodeBytes(other, schema, encodeAvro(schema, branch(2, fields(branch(1, fields(branch(0, null))))))),
    ).toEqual({ T2: { t: { t: null } } });
  });
});

describe('schema combinations', () => {
  it('schemas with too many combinations of types refuse their events in a bounded number of steps', () => {
    const mutual = (namespace: string, step: number): AvroNode => {
      const types = Array.from({ length: 200 }, (_, i) =>
        record(
          `${namespace}${i}.X`,
          ...Array.from({ length: i < 2 ? 0 : 50 }, (_, j): Field => {
            return [`f${j}`, `${namespace}${(i * step + j * (step + 2)) % i}.X`];
          }),
        ),
      );
      return tree(record('R', ...types.map((type, i): Field => [`t${i}`, type])));
    };
    const [reader, writer] = [mutual('r', 7), mutual('w', 11)];
    let decode: ReturnType<typeof avroDecoder> | undefined;
    const steps = stepsOf(() => {
      decode = avroDecoder(reader, writer);
    });
    expect(steps).toBeLessThan(40_000_000);
    expect(errorOf(() => decode?.(Buffer.alloc(0), 0, 0)).message).toMatch(
      /combine their types in too many ways/,
    );
  });
});

describe('impossible bytes', () => {
  const texts = { type: 'array', items: 'string' };
  const nulls = { type: 'array', items: 'null' };
  const map = { type: 'map', values: 'int' };
  it.each<readonly [string, unknown, readonly number[], RegExp, number]>([
    ['nothing', 'int', [], /ends inside an integer/, 0],
    ['an integer cut', 'long', [0x80, 0x80], /ends inside an integer/, 0],
    ['an int of six bytes', 'int', [0xff, 0xff, 0xff, 0xff, 0xff, 1], /more than 32 bits/, 0],
    ['an int of 33 bits', 'int', [0xff, 0xff, 0xff, 0xff, 0x10], /more than 32 bits/, 0],
    ['a long of eleven bytes', 'long', [...Array(10).fill(0xff), 1], /more than 64 bits/, 0],
    ['a long of 65 bits', 'long', [...Array(9).fill(0xff), 2], /more than 64 bits/, 0],
    ['a boolean of 2', 'boolean', [2], /a boolean is 2/, 0],
    ['a float cut', 'float', [0, 0, 0], /3 of 4 bytes are there/, 0],
    ['a double cut', 'double', [0, 0, 0, 0, 0, 0, 0], /7 of 8 bytes are there/, 0],
    ['a fixed cut', fixed('F', 4), [1, 2], /2 of 4 bytes are there/, 0],
    ['a text cut', 'string', [6, 65, 65], /2 of 3 bytes are there/, 0],
    ['a negative length', 'bytes', [1], /a length is -1/, 0],
    ['a length beyond 2^53', 'bytes', zigzag(2n ** 62n), /0 of 4611686018427388000 bytes/, 0],
    ['a text that is not UTF-8', 'string', [4, 0xc3, 0x28], /not UTF-8/, 0],
    ['half a pair', 'string', [6, 0xed, 0xa0, 0x80], /not UTF-8/, 0],
    ['a key that is not UTF-8', map, [2, 2, 0xff, 0, 0], /not UTF-8/, 1],
    ['a byte left over', 'int', [2, 0], /1 bytes are left over/, 1],
    ['an index of no symbol', enumOf('E', ['A']), [2], /no symbol 1: the writer's schema has 1/, 0],
    ['a negative symbol', enumOf('E', ['A']), [1], /no symbol -1/, 0],
    ['an index of no branch', ['null', 'int'], [4], /no branch 2/, 0],
    ['a negative branch', ['null', 'int'], [1], /no branch -1/, 0],
    ['a count of billions of nothing', nulls, [...zigzag(4_000_000_000n), 0], /65536 values take no byte/, 5],
    ['a count beyond 2^53', nulls, [...zigzag(2n ** 62n), 0], /take no byte/, 10],
    ['the least count', nulls, [...zigzag(-(2n ** 63n)), 0, 0], /take no byte/, 11],
    ['empty records', { type: 'array', items: record('E') }, [...zigzag(70_000n), 0], /take no byte/, 3],
    [
      'records of nulls',
      { type: 'array', items: record('E', ['a', 'null'], ['b', 'null'], ['c', 'int']) },
      [...zigzag(40_000n), ...Array(40_000).fill(0), 0],
      /take no byte/,
      32_772,
    ],
    ['a count of billions of texts', texts, [...zigzag(4_000_000_000n), 0], /ends inside an integer/, 6],
    ['a block that is longer', texts, [...zigzag(-1n), ...zigzag(3n), 2, 65, 0], /ends 1 bytes off/, 4],
    ['a block that is shorter', texts, [...zigzag(-1n), ...zigzag(1n), 2, 65, 0], /ends 1 bytes off/, 4],
    [
      'a block beyond the end',
      texts,
      [...zigzag(-1n), ...zigzag(50n), 2, 65, 0],
      /has 50 bytes; 3 are left/,
      1,
    ],
    ['a block of a negative length', texts, [...zigzag(-1n), ...zigzag(-2n), 2, 65, 0], /has -2 bytes/, 1],
    ['an array without an end', texts, [2, 2, 65], /ends inside an integer/, 3],
  ])('a payload with %s is malformed at the named byte', (_what, schema, bytes, why, at) => {
    const error = malformation(schema, bytes);
    expect(error.message).toMatch(why);
    expect(error.details['at']).toBe(at);
    // Skipped values are checked in the same way.
    const writer = tree(record('W', ['skipped', schema]));
    expect(errorOf(() => decodeBytes(tree(record('W')), writer, Buffer.from(bytes))).code).toBe(
      'malformed_payload',
    );
  });

  it('a text that is not UTF-8 is refused for a reader of bytes too', () => {
    expect(errorOf(() => decodeBytes(tree('bytes'), tree('string'), Buffer.of(4, 65, 0xff)))).toMatchObject({
      code: 'malformed_payload',
      details: { at: 0, path: 'string' },
    });
  });

  it('an empty enum or union of a stored schema makes every payload malformed', () => {
    for (const schema of [enumOf('E', []), []]) {
      const node = tree(schema, true);
      expect(errorOf(() => decodeBytes(node, node, Buffer.of(0))).code).toBe('malformed_payload');
    }
  });

  it('any number of blocks that state their length are read', () => {
    const node = tree({ type: 'array', items: 'int' });
    const bytes = [...zigzag(-2n), ...zigzag(2n), 2, 4, 2, 6, ...zigzag(-1n), ...zigzag(1n), 8, 0];
    expect(decodeBytes(node, node, Buffer.from(bytes))).toEqual([1, 2, 3, 4]);
    const entries = tree(map);
    expect(
      decodeBytes(entries, entries, Buffer.from([...zigzag(-1n), ...zigzag(3n), 2, 97, 2, 2, 2, 97, 4, 0])),
    ).toEqual({
      a: 2,
    });
  });

  it('a span outside its buffer is an internal error', () => {
    const decode = avroDecoder(tree('int'), tree('int'));
    for (const [start, end] of [
      [0, 9],
      [-1, 1],
      [2, 1],
    ] as const)
      expect(errorOf(() => decode(Buffer.alloc(4), start, end)).code).toBe('internal');
  });
});

describe('decoded values', () => {
  it('decoded values own their bytes', () => {
    const node = tree(record('R', ['b', 'bytes'], ['f', fixed('F', 2)]));
    const bytes = encodeAvro(node, fields(Buffer.of(1, 2), Buffer.of(3, 4)));
    const value = avroDecoder(node, node)(bytes, 0, bytes.length);
    bytes.fill(0);
    expect(value).toEqual({ b: Buffer.of(1, 2), f: Buffer.of(3, 4) });
  });

  it('a map may have any key, and the last entry of a repeated key counts', () => {
    const node = tree({ type: 'map', values: 'int' });
    const bytes = [4, 18, ...Buffer.from('__proto__'), 2, 18, ...Buffer.from('__proto__'), 4];
    const value = decodeBytes(node, node, Buffer.from([...bytes, 2, 0, 6, 0])) as object;
    expect(Object.entries(value)).toEqual([
      ['__proto__', 2],
      ['', 3],
    ]);
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
  });

  it('a text keeps its byte order marks and replacement characters', () => {
    for (const text of ['\ufeffa', 'a\ufffdb', '\u0000', '😀'.repeat(1_000)])
      expect(read('string', 'string', text)).toBe(text);
  });

  it('a payload without bytes is a value of an empty type', () => {
    expect(read('null', 'null', null)).toBe(null);
    expect(read(record('R'), record('R'), fields())).toEqual({});
  });
});
