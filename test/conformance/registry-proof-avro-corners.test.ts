/** Edge cases of Avro resolution in which checker, decoder and specification could differ. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { judgeAvroPair } from '../../bench/compatibility/avro-verdicts.ts';
import type { Outcome } from '../../src/registry/proof/trial.ts';

interface Corner {
  readonly name: string;
  readonly outcome: Outcome;
  /** Rules that refuse or report a loss, in the order of the reader's text. */
  readonly rules: readonly string[];
  readonly events: boolean;
  readonly writer: string;
  readonly reader: string;
}

const { cases } = JSON.parse(
  readFileSync(new URL('../vectors/registry-avro-corners.json', import.meta.url), 'utf8'),
) as { readonly cases: readonly Corner[] };

describe('corners of Avro resolution', () => {
  it.each(cases)(
    'checker, decoder and specification agree about $name: $outcome',
    ({ outcome, rules, events, reader, writer }) => {
      const judged = judgeAvroPair({ reader, writer, seed: 1, changes: [], direction: 'BACKWARD', depth: 0 });
      expect(judged.disagreement).toBeUndefined();
      expect(judged.verdict).toBe(outcome);
      expect(judged.live).toBe(outcome);
      expect(judged.findings.filter(({ severity }) => severity !== 'note').map(({ rule }) => rule)).toEqual(
        rules,
      );
      expect(judged.trials > 0).toBe(events);
    },
  );
});
