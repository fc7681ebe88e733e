/** Compares the checker and the decoder on one pair of Protobuf schemas, event by event. Every
 *  reported refusal and loss must be demonstrated by an event. */

import { parseSchema, type Schema } from '../../src/formats/schema.ts';
import type { Finding } from '../../src/registry/compatibility/finding.ts';
import { checkPair } from '../../src/registry/compatibility/modes.ts';
import { counterexampleOf } from '../../src/registry/proof/counterexample.ts';
import { isSurprise, trialsOf } from '../../src/registry/proof/live.ts';
import { plainJson } from '../../src/registry/proof/same.ts';
import type { Outcome, Trial } from '../../src/registry/proof/trial.ts';
import { Chance } from './avro-model.ts';
import { type Judged, verdictOf } from './avro-verdicts.ts';
import type { ProtoPair } from './proto-pairs.ts';

/** Events of one pair: planned events first, then random mixes. */
const EVENTS_MAX = 350;
const MIXES_MAX = 6;

const RANK: Readonly<Record<Outcome, number>> = { OK: 0, LOSSY: 1, FAIL: 2 };

function describe({ witness, projection, read }: Trial): string {
  const got = 'error' in read ? `error: ${read.error.message}` : plainJson(read.value);
  let expected = projection.kind === 'none' ? `nothing: ${projection.why}` : plainJson(projection.value);
  if (projection.kind === 'none' && projection.answer !== undefined)
    expected += `; the decoder must give ${plainJson(projection.answer)}`;
  return `${witness.json} of [${witness.path}] is read as ${got}; expected: ${expected}`;
}

/** True if the lossy events of a finding are refused for another reason, so that no event shows the
 *  loss. */
function isHidden({ route }: Finding, reader: Schema, writer: Schema): boolean {
  if (route === undefined) return false;
  for (const { outcome } of trialsOf(reader, writer, { limit: EVENTS_MAX, route }))
    if (outcome === 'FAIL') return true;
  return false;
}

function judgeProto(reader: Schema, writer: Schema, seed: number): Judged {
  const findings = checkPair(reader, writer);
  const verdict = verdictOf(findings);
  const chance = new Chance(seed);
  let mixes = 0;
  let mixing = false;
  const random = (): number => {
    mixing = true;
    return chance.next();
  };
  let live: Outcome = 'OK';
  let worst: Trial | undefined;
  let trials = 0;
  let disagreement: string | undefined;
  for (const trial of trialsOf(reader, writer, { limit: EVENTS_MAX, random })) {
    trials++;
    if (isSurprise(trial)) disagreement ??= `decoder and specification: ${describe(trial)}`;
    if (worst === undefined || RANK[trial.outcome] > RANK[live]) {
      live = trial.outcome;
      worst = trial;
    }
    if (mixing && ++mixes >= MIXES_MAX) break;
  }
  // Findings too deep for the bounded events are tested with events generated for them.
  for (const finding of findings) {
    if (finding.severity !== 'fail' && finding.severity !== 'lossy') continue;
    const example = counterexampleOf(finding, reader, writer, Number.POSITIVE_INFINITY);
    if (example !== undefined) {
      if (RANK[example.outcome] > RANK[live]) live = example.outcome;
    } else if (finding.severity === 'fail' || !isHidden(finding, reader, writer))
      disagreement ??= `no event shows ${finding.rule} at ${finding.path}: ${finding.message}`;
  }
  if (verdict !== live) {
    const listed = findings.map(({ rule, path, message }) => `${rule} at ${path}: ${message}`).join('; ');
    disagreement ??= `verdict ${verdict} (${listed}), live ${live} (${worst === undefined ? 'no event' : describe(worst)})`;
  }
  if (findings.some(({ severity }) => severity === 'unjudged'))
    disagreement ??= 'there is an unjudged finding';
  return { verdict, live, findings, trials, disagreement };
}

export function judgeProtoPair({ reader, writer, seed }: ProtoPair): Judged {
  return judgeProto(parseSchema('PROTOBUF', reader), parseSchema('PROTOBUF', writer), seed);
}
