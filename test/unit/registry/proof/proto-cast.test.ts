/** Value of a field after a change of its type, with expectations written by hand from
 *  protobuf.dev: "Updating A Message Type", "Encoding", "Enum Behavior". */
import { describe, expect, it } from 'vitest';
import type { ProtoFieldDatum } from '../../../../src/formats/datum.ts';
import { expectValue, hex, PROTO2, PROTO3, project, utf8 } from './proto-kit.ts';

const NONE = Symbol('none');
type Promised = readonly [written: ProtoFieldDatum, read: unknown, lossless?: boolean];

/** Tests one field with presence whose type differs between writer and reader. */
function casts(writer: string, reader: string, rows: readonly Promised[]): void {
  it(`a written ${writer} is read as ${reader} as specified`, () => {
    for (const [written, read, lossless = true] of rows) {
      const head = (type: string): string => (type.startsWith('2:') ? PROTO2 : PROTO3);
      const text = (type: string): string =>
        `${head(type)} message M { optional ${type.replace(/^2:/, '')} f = 1; }`;
      const projection = project(text(writer), text(reader), { 1: written });
      if (read === NONE) expect({ written, kind: projection.kind }).toEqual({ written, kind: 'none' });
      else expectValue(projection, { f: read }, lossless);
    }
  });
}

describe('value casts', () => {
  casts('int32', 'int64', [
    [0, 0n],
    [-1, -1n],
    [-(2 ** 31), -(2n ** 31n)],
  ]);
  casts('int64', 'int32', [
    [5n, 5],
    [-5n, -5],
    [2n ** 31n, -(2 ** 31), false],
    [2n ** 32n + 5n, 5, false],
    [2n ** 63n - 1n, -1, false],
  ]);
  casts('int32', 'uint32', [
    [7, 7],
    [-1, 2 ** 32 - 1, false],
  ]);
  casts('int32', 'uint64', [
    [7, 7n],
    [-1, 2n ** 64n - 1n, false],
  ]);
  casts('uint32', 'int32', [
    [7, 7],
    [2 ** 31, -(2 ** 31), false],
  ]);
  casts('uint32', 'int64', [[2 ** 32 - 1, 2n ** 32n - 1n]]);
  casts('uint64', 'int64', [
    [7n, 7n],
    [2n ** 63n, -(2n ** 63n), false],
  ]);
  casts('bool', 'int32', [
    [true, 1],
    [false, 0],
  ]);
  casts('bool', 'uint64', [[true, 1n]]);
  casts('int32', 'bool', [
    [0, false],
    [1, true],
    [7, true, false],
    [-1, true, false],
  ]);
  casts('uint64', 'bool', [[2n ** 32n, true, false]]);
  casts('sint32', 'sint64', [[-(2 ** 31), -(2n ** 31n)]]);
  // The zigzag form is truncated to 32 bits before it is decoded; protobuf.dev documents this
  // result.
  casts('sint64', 'sint32', [
    [-3n, -3],
    [2n ** 31n - 1n, 2 ** 31 - 1],
    [2n ** 31n, 0, false],
    [-(2n ** 31n) - 1n, -1, false],
    [2n ** 32n + 5n, 5, false],
  ]);
  casts('fixed32', 'sfixed32', [
    [7, 7],
    [2 ** 32 - 1, -1, false],
  ]);
  casts('sfixed64', 'fixed64', [[-1n, 2n ** 64n - 1n, false]]);
  casts('string', 'bytes', [['größe', Buffer.from(utf8('größe'))]]);
  casts('bytes', 'string', [
    [utf8('größe'), 'größe'],
    [utf8('\ufeffx'), '\ufeffx'],
    [hex('ff'), NONE],
    [hex('c080'), NONE],
    [hex('eda080'), NONE],
  ]);
  casts('double', 'double', [
    [-0, -0],
    [Number.NaN, Number.NaN],
  ]);
});

describe('incompatible types', () => {
  casts('int32', 'sint32', [
    [1, NONE],
    [-1, NONE],
    [0, 0],
  ]);
  casts('sint64', 'int64', [
    [-3n, NONE],
    [0n, 0n],
  ]);
  casts('bool', 'sint32', [[true, NONE]]);
  casts('int32', 'fixed32', [
    [1, NONE],
    [0, NONE],
  ]);
  casts('fixed32', 'float', [
    [1, NONE],
    [0, 0],
  ]);
  casts('float', 'fixed32', [
    [1.5, NONE],
    [-0, NONE],
    [0, 0],
  ]);
  casts('double', 'float', [[1.5, NONE]]);
  casts('int64', 'double', [[1n, NONE]]);
  casts('int32', 'string', [[1, NONE]]);
  casts('string', 'int32', [['', NONE]]);
  casts('M', 'bytes', [[new Map(), NONE]]);
  casts('bytes', 'M', [[utf8(''), NONE]]);
  casts('string', 'M', [['', NONE]]);

  it('an unwritten zero is read as zero if the reader has no presence', () => {
    const reader = `${PROTO3} message M { double f = 1; }`;
    expectValue(project(`${PROTO3} message M { optional int32 f = 1; }`, reader, { 1: 0 }), { f: 0 }, false);
    expect(project(`${PROTO3} message M { optional int32 f = 1; }`, reader, { 1: 1 }).kind).toBe('none');
    expect(project(`${PROTO3} message M { optional string f = 1; }`, reader, { 1: '' }).kind).toBe('none');
    expect(project(`${PROTO3} message M { optional float f = 1; }`, reader, { 1: -0 }).kind).toBe('none');
  });
});

describe('enums', () => {
  casts('Color', 'int32', [
    [-3, -3],
    [77, 77],
  ]);
  casts('Color', 'uint32', [
    [1, 1],
    [-3, 2 ** 32 - 3, false],
  ]);
  casts('Color', 'bool', [
    [1, true, false],
    [0, false, false],
  ]);
  casts('int32', 'Color', [
    [1, 'GREEN'],
    [77, 77],
    [-3, 'BLUE'],
  ]);
  casts('int64', 'Color', [
    [1n, 'GREEN'],
    [2n ** 32n + 1n, 'GREEN', false],
    [2n ** 31n, -(2 ** 31), false],
  ]);
  casts('uint32', 'Color', [[2 ** 32 - 3, 'BLUE', false]]);
  casts('bool', 'Color', [
    [true, 'GREEN'],
    [false, 'RED'],
  ]);
  casts('int32', '2:Color', [
    [1, 'GREEN'],
    [77, NONE],
    [-3, NONE],
  ]);
  casts('int64', '2:Color', [
    [2n ** 32n + 1n, 'GREEN', false],
    [2n ** 32n + 9n, NONE],
  ]);
  casts('bool', '2:Color', [[true, 'GREEN']]);
  casts('Color', '2:Color', [
    [1, 'GREEN'],
    [-3, NONE],
    [77, NONE],
  ]);
  casts('2:Color', 'Color', [[1, 'GREEN']]);
  casts('Color', 'sint32', [[1, NONE]]);

  it('an unknown number of a closed enum is dropped from a list together with its map entry', () => {
    const list = (head: string): string => `${head} message M { repeated Color f = 1; }`;
    expect(project(list(PROTO3), list(PROTO2), { 1: [0, 77] }).kind).toBe('none');
    expectValue(project(list(PROTO3), list(PROTO2), { 1: [0, 1] }), { f: ['RED', 'GREEN'] }, true);
    const map = (head: string): string => `${head} message M { map<string, Color> f = 1; }`;
    expect(project(map(PROTO3), map(PROTO2), { 1: [['a', 77]] }).kind).toBe('none');
  });

  it('an enum number is read by the name that the reader gives it', () => {
    const writer = 'syntax = "proto3"; enum E { A = 0; B = 1; } message M { E f = 1; }';
    const reader = 'syntax = "proto3"; enum E { Z = 0; Y = 1; } message M { E f = 1; }';
    expectValue(project(writer, reader, { 1: 1 }), { f: 'Y' }, true);
    expectValue(project(writer, reader, {}), { f: 'Z' }, true);
  });
});
