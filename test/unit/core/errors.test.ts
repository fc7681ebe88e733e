import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  CORE_ERRORS,
  coreError,
  EXIT,
  errorRow,
  errorsOf,
  findMillraceError,
  invariant,
  MillraceError,
} from '../../../src/core/errors.ts';

describe('error rows', () => {
  test.each([
    ['invalid', 400, 3, 2],
    ['conflict', 409, 6, 1],
    ['not_found', 404, 5, 1],
    ['unavailable', 503, 14, 3],
    ['corrupt', 500, 15, 1],
    ['fenced', 503, 10, 3],
    ['internal', 500, 13, 70],
  ] as const)(
    'an error of kind %s has its HTTP status, gRPC code and exit code',
    (kind, http, grpc, exit) => {
      expect(errorRow(kind)).toEqual({ kind, http, grpc, exit });
    },
  );

  test('an override replaces parts of an error row, and the kind stays', () => {
    expect(errorRow('conflict', { number: 40_901, reason: 'key_reuse', exit: 4 })).toEqual({
      kind: 'conflict',
      http: 409,
      grpc: 6,
      exit: 4,
      number: 40_901,
      reason: 'key_reuse',
    });
  });

  test('an error has the row of its code', () => {
    const table = { lost: errorRow('not_found'), broken: errorRow('internal') } as const;
    const error = errorsOf(table);
    expect(error('lost', 'x').row).toBe(table.lost);
    expect(error('broken', 'x').kind).toBe('internal');
    for (const code of Object.keys(CORE_ERRORS) as Array<keyof typeof CORE_ERRORS>) {
      expect(coreError(code, 'x')).toMatchObject({
        code,
        row: CORE_ERRORS[code],
        kind: CORE_ERRORS[code].kind,
      });
    }
  });

  test('every exit code of the tables is documented by the shell', () => {
    const documented: readonly number[] = Object.values(EXIT);
    for (const row of Object.values(CORE_ERRORS)) expect(documented).toContain(row.exit);
  });
});

test('an error line states what happened, why, what to do next, and the code', () => {
  expect(coreError('busy_port', 'port 1 is busy', { next: 'give another' }).toLine()).toBe(
    'port 1 is busy; give another [busy_port]',
  );
  expect(coreError('timeout', 'no answer').toLine()).toBe('no answer [timeout]');
});

describe('findMillraceError', () => {
  test('findMillraceError finds the nearest MillraceError in a chain of causes', () => {
    const inner = coreError('unreachable', 'inner');
    const outer = coreError('timeout', 'outer', { cause: inner });
    expect(findMillraceError(new Error('a', { cause: new Error('b', { cause: inner }) }))).toBe(inner);
    expect(findMillraceError(outer)).toBe(outer);
    expect(outer.cause).toBe(inner);
  });

  test('findMillraceError ends for any value, including a cyclic chain of causes', () => {
    fc.assert(
      fc.property(fc.anything(), (thrown) => {
        expect(findMillraceError(thrown)).toBeUndefined();
      }),
    );
    const ring = new Error('ring');
    ring.cause = ring;
    expect(findMillraceError(ring)).toBeUndefined();
  });
});

test('a violated invariant throws an internal error, and a true one is silent', () => {
  expect(() => invariant(1, 'x')).not.toThrow();
  const thrown = (() => {
    try {
      invariant(0, 'rows fit');
    } catch (error) {
      return error;
    }
    return undefined;
  })();
  expect(thrown).toBeInstanceOf(MillraceError);
  expect(thrown).toMatchObject({ code: 'internal', message: 'invariant broken: rows fit' });
});
