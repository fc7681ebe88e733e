/** Verdict, decoder and specification agree over random pairs of Avro schemas, and a decoded event
 *  shows each finding. The bench makes a long run of the same pairs. */
import { describe, expect, it } from 'vitest';
import { AVRO_CHANGE_NAMES } from '../../bench/compatibility/avro-changes.ts';
import { avroPair } from '../../bench/compatibility/avro-pairs.ts';
import { judgeAvroPair } from '../../bench/compatibility/avro-verdicts.ts';
import { parseSchema } from '../../src/formats/schema.ts';
import { checkPair } from '../../src/registry/compatibility/modes.ts';
import { counterexampleOf } from '../../src/registry/proof/counterexample.ts';

/** Number of pairs of a run: ten of each class of changes. */
const PAIRS = 10 * AVRO_CHANGE_NAMES.length;
const SHOWN_PAIRS = 4 * AVRO_CHANGE_NAMES.length;

describe('random Avro pairs', () => {
  it(`the verdict of ${PAIRS} pairs equals the live decode, and the live decode follows the specification`, () => {
    const outcomes = { OK: 0, LOSSY: 0, FAIL: 0 };
    let nested = 0;
    const wrong: unknown[] = [];
    for (let seed = 0; seed < PAIRS; seed++) {
      const pair = avroPair(seed);
      const { disagreement, live } = judgeAvroPair(pair);
      if (disagreement !== undefined) wrong.push({ ...pair, disagreement });
      outcomes[live]++;
      if (pair.depth >= 3) nested++;
    }
    expect(wrong).toEqual([]);
    expect(outcomes.OK).toBeGreaterThan(0.3 * PAIRS);
    expect(outcomes.FAIL).toBeGreaterThan(0.3 * PAIRS);
    expect(outcomes.LOSSY).toBeGreaterThan(0.02 * PAIRS);
    expect(nested).toBeGreaterThan(0.15 * PAIRS);
  });

  it('a seed always gives the same pair, and two pairs of a class differ', () => {
    const count = AVRO_CHANGE_NAMES.length;
    expect(avroPair(5)).toEqual(avroPair(5));
    const texts = Array.from({ length: 20 }, (_, i) => avroPair(5 + i * count).writer);
    expect(new Set(texts).size).toBeGreaterThan(18);
    const first = Array.from({ length: count }, (_, seed) => avroPair(seed).changes[0]);
    expect(new Set(first)).toEqual(new Set(AVRO_CHANGE_NAMES));
  });

  it('the two schemas of nearly every pair differ', () => {
    const lazy = AVRO_CHANGE_NAMES.filter((name, index) => {
      const pairs = Array.from({ length: 12 }, (_, i) => avroPair(index + i * AVRO_CHANGE_NAMES.length));
      return name !== 'none' && pairs.every(({ reader, writer }) => reader === writer);
    });
    expect(lazy).toEqual([]);
  });

  it('every refusing or lossy finding has an event that shows it', () => {
    const without: unknown[] = [];
    const shown = new Set<string>();
    for (let seed = 0; seed < SHOWN_PAIRS; seed++) {
      const pair = avroPair(seed);
      const reader = parseSchema('AVRO', pair.reader, { lenient: true });
      const writer = parseSchema('AVRO', pair.writer, { lenient: true });
      for (const finding of checkPair(reader, writer)) {
        const counterexample = counterexampleOf(finding, reader, writer, Number.POSITIVE_INFINITY);
        if (finding.severity === 'note') {
          expect(counterexample).toBeUndefined();
          continue;
        }
        const { rule, severity, path } = finding;
        const wanted = severity === 'lossy' ? 'LOSSY' : 'FAIL';
        if (counterexample?.outcome !== wanted) without.push({ ...pair, rule, path, counterexample });
        shown.add(rule);
      }
    }
    expect(without).toEqual([]);
    expect(shown.size).toBeGreaterThan(10);
  });
});
