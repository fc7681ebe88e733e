/** The table of facts: a tick or a cross for each fact; a single cross fails the verdict. */
import { describe, expect, it } from 'vitest';
import type { Fact } from '../../../src/demo/fact.ts';
import { allHold, renderFacts } from '../../../src/demo/table.ts';

const fact = (slice: Fact['slice'], holds: boolean, seen = 'seen 3 of 3'): Fact => ({
  slice,
  claim: `a claim of ${slice}`,
  seen,
  holds,
});

describe('table of facts', () => {
  it('the verdict holds only if every fact holds and at least one exists', () => {
    expect(allHold([fact('contracts', true), fact('effects', true)])).toBe(true);
    expect(allHold([fact('contracts', true), fact('effects', false)])).toBe(false);
    expect(allHold([])).toBe(false);
  });

  it('the facts are listed under their slice with a tick or a cross, and are counted', () => {
    const text = renderFacts([fact('contracts', true), fact('effects', false)], 80);
    expect(text).toBe(
      [
        '',
        'CONTRACTS',
        '  ✓ a claim of contracts',
        '      seen 3 of 3',
        '',
        'EFFECTS',
        '  ✗ a claim of effects',
        '      seen 3 of 3',
        '',
        '1 of 2 facts hold',
      ].join('\n'),
    );
  });

  it('the table wraps observations at the width of the terminal and loses no word', () => {
    const words = Array.from({ length: 40 }, (_, i) => `word${i}`);
    const lines = renderFacts([fact('windows', true, words.join(' '))], 60).split('\n');
    expect(lines.every((line) => line.length <= 60)).toBe(true);
    expect(lines.slice(3, -2).join(' ').trim().split(/\s+/)).toEqual(words);
  });
});
