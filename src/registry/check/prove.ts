/** Live proof of a verdict: encodes events with the writer schema, decodes them with the reader
 *  schema, and compares the outcome with the verdict. */

import type { Schema } from '../../formats/schema.ts';
import { checkPair } from '../compatibility/modes.ts';
import { tryAll } from '../proof/live.ts';
import type { Outcome } from '../proof/trial.ts';
import type { GateJudgement, GateQuestion } from './judge.ts';
import { type Proof, readable } from './report.ts';

/** Most events for one pair of schemas. */
const EVENTS_MAX = 2_000;

/** Outcome that the PROVEN findings predict; undefined if a finding is `unjudged`. */
function judgedOutcome(reader: Schema, writer: Schema): Outcome | undefined {
  const findings = checkPair(reader, writer, 'PROVEN');
  if (findings.some(({ severity }) => severity === 'unjudged')) return undefined;
  if (findings.some(({ severity }) => severity === 'fail')) return 'FAIL';
  return findings.some(({ severity }) => severity === 'lossy') ? 'LOSSY' : 'OK';
}

/** Tries each compared pair in the directions of the level. Always compares with policy PROVEN,
 *  because live decode proves nothing about STRICT. */
export function prove(question: GateQuestion, { compared }: GateJudgement): Proof {
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
      // Without trials (the writer schema has no events) there is no outcome to compare.
      if (trials > 0 && judged !== undefined && outcome !== judged)
        disagreements.push(`${name}: judged ${judged}, live decode ${outcome}`);
    }
  }
  return { events, pairs, disagreements };
}
