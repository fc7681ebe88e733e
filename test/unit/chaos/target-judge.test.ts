/** Verdict of a chaos run against a target, and the query of a pair of tables. */
import { describe, expect, it } from 'vitest';
import { chaosPage, TARGET_REPORT_FORMAT, type TargetReport } from '../../../src/chaos/report.ts';
import {
  judgeTarget,
  type TargetFacts,
  VIOLATIONS_MAX,
  violationsOf,
  violationsQuery,
} from '../../../src/chaos/target/judge.ts';

const FACTS: TargetFacts = {
  violations: violationsOf([]),
  intents: 9,
  acknowledged: 9,
  unanswered: 0,
  repeats: 0,
  retryRate: 0.15,
  changedAnswers: [],
  outcomes: [],
  ends: [{ service: 'shop', code: 1, signal: null, atMs: 5, logPath: 'shop.log' }],
  mustStay: [],
  undrained: undefined,
};
const reasons = (over: Partial<TargetFacts>): readonly string[] => {
  const verdict = judgeTarget({ ...FACTS, ...over });
  expect(verdict.holds).toBe(verdict.reasons.length === 0);
  return verdict.reasons;
};

describe('verdict over a target', () => {
  it('a run without violations holds, also where a process ended and was started again', () => {
    expect(reasons({})).toEqual([]);
  });

  it.each<[string, Partial<TargetFacts>, RegExp]>([
    ['violations', { violations: violationsOf(['{"key":"a"}']) }, /^1 violations: \{"key":"a"\}$/],
    ['no acknowledged request', { acknowledged: 0 }, /^none of 9 requests was acknowledged/],
    ['requests without an answer', { unanswered: 2 }, /^2 requests never got a final answer$/],
    ['two answers to a key', { changedAnswers: ['k'] }, /^1 keys got two different answers \(k\)$/],
    [
      'an end of a process that must stay',
      { mustStay: ['shop'] },
      /^shop ended by itself with code 1; see shop\.log$/,
    ],
    [
      'no repeat of a key',
      { intents: 900 },
      /^no key was repeated by the client, although -retry-rate=0\.15/,
    ],
    ['a service that did not drain', { undrained: '3 rows are pending' }, /^3 rows are pending$/],
  ])('a run with %s does not hold', (_, over, reason) => {
    expect(reasons(over)).toEqual([expect.stringMatching(reason)]);
  });

  it('violations above the limit are counted as more', () => {
    const { count, isMore, rows } = violationsOf(Array.from({ length: VIOLATIONS_MAX + 1 }, () => '{"a":1}'));
    expect({ count, isMore, shown: rows.length }).toEqual({ count: VIOLATIONS_MAX, isMore: true, shown: 20 });
  });

  it('a query is one subselect, so a second statement is an error of the server', () => {
    expect(violationsQuery('SELECT 1 AS a -- all')).toBe(
      `SELECT to_jsonb(chaos_row)::text AS violation FROM (SELECT 1 AS a -- all\n) AS chaos_row LIMIT ${VIOLATIONS_MAX + 1}`,
    );
  });

  it('the page of a target lists its violations with escaped text', () => {
    const report: TargetReport = {
      ...{ format: TARGET_REPORT_FORMAT, version: '1', seed: 1, settings: {}, replay: 'r', seconds: 1 },
      ...{ load: {}, plan: [], outcomes: [], unplanned_ends: [], samples: [], holds: false, reasons: [] },
      violations: violationsOf(['{"key":"<a>"}']),
    };
    const page = chaosPage('a title', report);
    expect(page).toContain('<p>1 violations</p>');
    expect(page).toContain('&#60;a&#62;');
    expect(page).toContain('units that the query pending counts');
  });
});
