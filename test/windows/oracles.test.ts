/** Compares the oracle with the literal oracle, on random streams of every kind and on all small
 *  streams. Where they agree, either both are right or both misread the requirements in the same
 *  way.
 *
 *  MILLRACE_SMALL_SCOPE=wide enumerates more timestamps and longer streams (minutes instead of
 *  seconds). */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { countersText, differenceText, rowText } from '../../bench/peers/oracle/difference.ts';
import type { LogEntry, OracleRow, OracleRules } from '../../bench/peers/oracle/rules.ts';
import { type Oracle, oracleOf } from '../../bench/peers/oracle/windows.ts';
import { runs } from '../tier.ts';
import {
  type LiteralState,
  literalCounters,
  literalEnd,
  literalOf,
  literalRows,
  TheoremViolation,
} from './literal.ts';
import { everyStream, type Scope, scopeName } from './small-scope.ts';
import { interleaved, type Stream, streams, turnLists } from './streams.ts';

const WIDE = process.env['MILLRACE_SMALL_SCOPE'] === 'wide';
const ALL = ['tumbling', 'sliding', 'session'] as const;

const sameRow = (a: OracleRow | undefined, b: OracleRow | undefined): boolean =>
  a !== undefined &&
  b !== undefined &&
  a.accountId === b.accountId &&
  a.windowStart === b.windowStart &&
  a.windowEnd === b.windowEnd &&
  a.count === b.count &&
  a.sum === b.sum &&
  a.min === b.min &&
  a.max === b.max &&
  a.lastUpdateTs === b.lastUpdateTs &&
  a.overflow === b.overflow;

const sameRows = (a: readonly OracleRow[], b: readonly OracleRow[]): boolean =>
  a.length === b.length && a.every((row, i) => sameRow(row, b[i]));

/** True if both oracles give the same rows in the same order, final and at the end, and the same
 *  counts. */
function agree(rules: OracleRules, oracle: Oracle, state: LiteralState): boolean {
  if (oracle.frontier !== state.frontier) return false;
  if (countersText(oracle.counters, literalCounters(state)) !== '') return false;
  if (!sameRows([...oracle.rows(true)], literalRows(state))) return false;
  return sameRows([...oracle.rows()], literalRows(literalEnd(rules, state)));
}

/** Describes a disagreement for the failure message. */
function disagreement({ rules, partitions, log }: Stream): string {
  const oracle = oracleOf(rules, partitions, log);
  const state = literalOf(rules, partitions, log);
  return [
    differenceText(literalRows(literalEnd(rules, state)), oracle.rows(), { rules, partitions, log }),
    differenceText(literalRows(state), oracle.rows(true), { rules, partitions, log }),
    countersText(literalCounters(state), oracle.counters),
    agree(rules, oracle, state) ? '' : 'the two oracles disagree',
  ]
    .filter((text) => text !== '')
    .join('\n');
}

describe('oracle and literal oracle', () => {
  it.each(ALL)(
    'both oracles agree on random streams of %s windows, with idle and added partitions and clamped futures',
    (window) => {
      const any = streams({
        windows: [window],
        watermarks: ['partition', 'partition', 'global'],
        decisions: true,
        maxFuture: true,
        entriesMax: 40,
      });
      fc.assert(
        fc.property(any, (stream) => {
          expect(disagreement(stream)).toBe('');
        }),
        { numRuns: runs(120) },
      );
    },
  );

  it('the oracle counts every record once, and every accepted event in each of its windows', () => {
    fc.assert(
      fc.property(
        streams({ windows: ALL, decisions: true, maxFuture: true }),
        ({ rules, partitions, log }) => {
          const oracle = oracleOf(rules, partitions, log);
          const records = log.filter((entry) => entry.kind === 'event' || entry.kind === 'broken').length;
          const total = (name: 'consumed' | 'accepted'): bigint =>
            oracle.counters.reduce((sum, one) => sum + one[name], 0n);
          expect(total('consumed')).toBe(BigInt(records));
          const counted = [...oracle.rows()].reduce((sum, row) => sum + row.count, 0n);
          if (rules.window !== 'sliding') expect(counted).toBe(total('accepted'));
          else {
            // An event belongs to at least size / slide windows, and at most one more.
            const least = rules.sizeMs / rules.slideMs;
            expect(counted).toBeGreaterThanOrEqual(total('accepted') * least);
            expect(counted).toBeLessThanOrEqual(total('accepted') * (least + 1n));
          }
        },
      ),
      { numRuns: runs(200) },
    );
  });
});

const shared = { partitions: 1, keys: 1, reach: 2, length: 6, idle: false } as const;
const delays = [0n, 1n, 2n] as const;
const scopes: readonly Scope[] = [
  ...delays.flatMap((skewMs): Scope[] => {
    const rules = { skewMs, latenessMs: 0n };
    return [
      { ...shared, rules: { ...rules, sizeMs: 2n } },
      { ...shared, rules: { ...rules, sizeMs: 3n } },
      { ...shared, rules: { ...rules, window: 'sliding', sizeMs: 2n, slideMs: 1n } },
      { ...shared, rules: { ...rules, window: 'sliding', sizeMs: 3n, slideMs: 2n } },
      { ...shared, rules: { ...rules, window: 'session', gapMs: 2n } },
      { ...shared, reach: 3, rules: { ...rules, window: 'session', gapMs: 3n } },
    ];
  }),
  ...delays.slice(0, 2).flatMap((skewMs): Scope[] => {
    const rules = { skewMs, latenessMs: 0n };
    const two = { ...shared, partitions: 2, reach: 1 };
    return [
      { ...two, rules: { ...rules, sizeMs: 2n } },
      { ...two, rules: { ...rules, window: 'sliding', sizeMs: 2n, slideMs: 1n } },
      { ...two, rules: { ...rules, window: 'session', gapMs: 2n } },
      { ...two, length: 5, rules: { ...rules, window: 'session', gapMs: 2n, watermark: 'global' } },
      { ...two, length: 5, idle: true, rules: { ...rules, sizeMs: 2n } },
      { ...two, length: 5, idle: true, rules: { ...rules, window: 'session', gapMs: 2n } },
      { ...shared, keys: 2, length: 5, reach: 1, rules: { ...rules, window: 'session', gapMs: 2n } },
    ];
  }),
];

const wider = (scope: Scope): Scope =>
  scope.partitions === 1 ? { ...scope, reach: 4 } : { ...scope, reach: 2, length: 6 };

describe('small streams', () => {
  it(
    'both oracles give one answer for all small streams',
    () => {
      let streamsSeen = 0;
      for (const scope of scopes.map((one) => (WIDE ? wider(one) : one))) {
        const { rules, partitions } = scope;
        const streamsHere = everyStream(scope, (log, state) => {
          if (!agree(rules, oracleOf(rules, partitions, log), state))
            expect.fail(disagreement({ rules, partitions, log: [...log] }));
        });
        // A smaller number means that the enumeration is broken.
        expect(streamsHere, scopeName(scope)).toBeGreaterThan(1000);
        streamsSeen += streamsHere;
      }
      process.stderr.write(
        `small scope: ${streamsSeen} streams in ${scopes.length} scopes, one answer each\n`,
      );
    },
    WIDE ? 3_600_000 : 240_000,
  );
});

/** Violation of an assertion of the literal oracle in the scope, or undefined. */
function violationIn(scope: Scope): string | undefined {
  try {
    everyStream(scope, () => {});
  } catch (thrown) {
    if (!(thrown instanceof TheoremViolation)) throw thrown;
    return thrown.message;
  }
  return undefined;
}

describe('fired windows', () => {
  const session = { window: 'session', gapMs: 2n, skewMs: 1n, latenessMs: 0n } as const;

  it('an accepted event meets a fired window only if sessions that touch merge', () => {
    const scope: Scope = { ...shared, length: 4, reach: 3, rules: session };
    expect(violationIn(scope)).toBeUndefined();
    expect(violationIn({ ...scope, rules: { ...session, touchMerges: true } })).toMatch(
      /is accepted and meets \[-?\d+, -?\d+\), which has fired/,
    );
  });

  it.each([
    { sizeMs: 2n, skewMs: 1n, latenessMs: 0n },
    { window: 'sliding', sizeMs: 3n, slideMs: 2n, skewMs: 0n, latenessMs: 0n },
  ] as const)(
    'an accepted event meets a fired window only if windows fire a millisecond early: %o',
    (rules) => {
      const scope: Scope = { ...shared, length: 4, rules };
      expect(violationIn(scope)).toBeUndefined();
      expect(violationIn({ ...scope, rules: { ...rules, firesEarlyMs: 1n } })).toMatch(
        /is accepted and meets/,
      );
    },
  );

  it('an accepted event never meets a fired window in random streams with partitions that fall idle and return', () => {
    const any = streams({
      windows: ALL,
      decisions: true,
      maxFuture: true,
      watermarks: ['partition', 'global'],
    });
    fc.assert(
      fc.property(any, ({ rules, partitions, log }) => {
        literalEnd(rules, literalOf(rules, partitions, log));
      }),
      { numRuns: runs(200) },
    );
    const touching = fc.check(
      fc.property(streams({ windows: ['session'] }), ({ rules, partitions, log }) => {
        literalOf({ ...rules, touchMerges: true }, partitions, log);
      }),
      { numRuns: runs(3000), endOnFailure: true },
    );
    expect(touching.failed).toBe(true);
    expect(touching.errorInstance).toBeInstanceOf(TheoremViolation);
  });
});

describe('partition interleaving', () => {
  const answer = (rules: OracleRules, partitions: number, log: readonly LogEntry[]): string => {
    const oracle = oracleOf(rules, partitions, log);
    return (
      [...oracle.rows(), ...oracle.rows(true)].map(rowText).join('\n') + JSON.stringify(oracle.counters, text)
    );
  };
  const text = (_: string, value: unknown): unknown => (typeof value === 'bigint' ? String(value) : value);
  const independent = (watermark: 'partition' | 'global') =>
    fc.property(
      streams({ windows: ALL, watermarks: [watermark], maxFuture: true }),
      turnLists,
      ({ rules, partitions, log }, turns) => {
        expect(answer(rules, partitions, interleaved(log, turns))).toBe(answer(rules, partitions, log));
      },
    );

  it('the interleaving of partitions changes nothing if every partition has its own watermark', () => {
    fc.assert(independent('partition'), { numRuns: runs(300) });
  });

  it('the interleaving of partitions changes results or drops if all partitions share one watermark', () => {
    expect(fc.check(independent('global'), { numRuns: runs(1000), endOnFailure: true }).failed).toBe(true);
    const rules = { sizeMs: 10n, skewMs: 0n, latenessMs: 0n, watermark: 'global' } as const;
    const event = (partition: number, eventTs: bigint): LogEntry => ({
      kind: 'event',
      partition,
      accountId: 1n,
      value: 1n,
      eventTs,
    });
    const ahead = [event(0, 5n), event(1, 25n)];
    expect(oracleOf(rules, 2, ahead).droppedLate).toEqual([0n, 0n]);
    expect(oracleOf(rules, 2, [...ahead].reverse()).droppedLate).toEqual([1n, 0n]);
  });
});
