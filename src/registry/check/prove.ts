/** The live proof of a verdict: events of the one schema are written and read by the other, and what happens is held
 *  against what was judged. */

import type { Schema } from '../../formats/schema.ts';
import { checkPair } from '../compatibility/modes.ts';
import { tryAll } from '../proof/live.ts';
import type { Outcome } from '../proof/trial.ts';
import type { Judgement, Question } from './judge.ts';
import { type Proof, readable } from './report.ts';

/** Events of one pair. */
const EVENTS_MAX = 2_000;

/** Undefined: not judged, so there is nothing to be held against. */
function judgedOutcome(reader: Schema, writer: Schema): Outcome | undefined {
  const findings = checkPair(reader, writer, 'PROVEN');
  if (findings.some(({ severity }) => severity === 'unjudged')) return undefined;
  if (findings.some(({ severity }) => severity === 'fail')) return 'FAIL';
  return findings.some(({ severity }) => severity === 'lossy') ? 'LOSSY' : 'OK';
}

/** Both readings of each pair that was compared; the events are those of policy PROVEN, whatever the policy is. */
export function prove(question: Question, { compared }: Judgement): Proof {
  const { proposed, level } = question;
  let events = 0;
  let pairs = 0;
  const disagreements: string[] = [];
  for (const earlier of compared) {
    const schema = readable(earlier);
    if (schema === undefined) continue;
    const directions: Array<readonly [Schema, Schema, string]> = [];
    if (!level.startsWith('FORWARD'))
      directions.push([proposed, schema, `the proposed schema reading ${earlier.name}`]);
    if (!level.startsWith('BACKWARD'))
      directions.push([schema, proposed, `${earlier.name} reading the proposed schema`]);
    for (const [reader, writer, name] of directions) {
      const judged = judgedOutcome(reader, writer);
      const { outcome, trials } = tryAll(reader, writer, { limit: EVENTS_MAX });
      events += trials;
      pairs++;
      // Where the writer has no event there is nothing to see.
      if (trials > 0 && judged !== undefined && outcome !== judged)
        disagreements.push(`${name}: judged ${judged}, live decode ${outcome}`);
    }
  }
  return { events, pairs, disagreements };
}
