/** Applies small fixes to a proposed text, one after the other. The text is judged again after each
 *  fix. */

import { parseSchema } from '../../formats/schema.ts';
import { isCompatible } from '../compatibility/finding.ts';
import { applyEdits, fixOf } from '../proof/fix/search.ts';
import { type GateQuestion, judgeProposed } from './judge.ts';
import { readable } from './report.ts';

/** Most fixes for one text. */
const FIXES_MAX = 50;

export interface Mended {
  readonly text: string;
  /** True: no refusing finding is left. */
  readonly compatible: boolean;
  /** Descriptions of the applied fixes, in order. */
  readonly words: readonly string[];
}

/** @returns the fixed text; undefined if there was no fix to apply */
export function mend(question: GateQuestion): Mended | undefined {
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
