/** A proposed text with all its small fixes, one after the other: each is judged before the next is looked for. */

import { parseSchema } from '../../formats/schema.ts';
import { isCompatible } from '../compatibility/finding.ts';
import { applyEdits, fixOf } from '../proof/fix/search.ts';
import { judgeProposed, type Question } from './judge.ts';
import { readable } from './report.ts';

/** Fixes of one text. */
const FIXES_MAX = 50;

export interface Mended {
  readonly text: string;
  /** Nothing stands against it any more. */
  readonly compatible: boolean;
  /** What was done, in order. */
  readonly words: readonly string[];
}

/** Undefined: nothing was found that helps. */
export function mend(question: Question): Mended | undefined {
  const ever = question.earlier.flatMap((one) => readable(one) ?? []);
  const schemas = new Map(question.earlier.map((one) => [one.version, readable(one)]));
  const words: string[] = [];
  let { proposed } = question;
  let compatible = false;
  while (words.length < FIXES_MAX) {
    const judgement = judgeProposed({ ...question, proposed });
    compatible = judgement.compatible;
    if (compatible) break;
    const fix = judgement.comparisons
      .flatMap(({ direction, version, findings }) =>
        findings
          .filter((one) => !isCompatible([one]) || (question.lossy === 'REJECT' && one.severity === 'lossy'))
          .map((finding) => ({
            finding,
            direction,
            other: version === undefined ? ever.at(-1) : schemas.get(version),
          })),
      )
      .map(({ finding, direction, other }) =>
        fixOf(finding, direction, proposed, other, { ever, policy: question.policy }),
      )
      .find((one) => one !== undefined && one.edits.length > 0);
    if (fix === undefined) break;
    words.push(fix.words);
    const text = applyEdits(proposed.source, fix.edits);
    proposed = parseSchema(proposed.format, text, { references: proposed.references });
  }
  return words.length === 0 ? undefined : { text: proposed.source, compatible, words };
}
