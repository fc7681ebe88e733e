/** Compares the checker and the decoder on one pair of Avro schemas, event by event. */

import { parseSchema, type Schema } from '../../src/formats/schema.ts';
import type { Finding } from '../../src/registry/compatibility/finding.ts';
import { checkPair } from '../../src/registry/compatibility/modes.ts';
import { isSurprise, trialsOf } from '../../src/registry/proof/live.ts';
import type { Outcome, Trial } from '../../src/registry/proof/trial.ts';
import { Chance } from './avro-model.ts';
import type { AvroPair } from './avro-pairs.ts';

export interface Judged {
  readonly verdict: Outcome;
  readonly live: Outcome;
  readonly findings: readonly Finding[];
  readonly trials: number;
  /** Description of the disagreement; undefined if there is none. */
  readonly disagreement: string | undefined;
}

/** Planned events of one pair, and random mixes after them. */
const EVENTS_MAX = 400;
const MIXES_MAX = 6;

/** Worst outcome among the findings. */
export function verdictOf(findings: readonly Finding[]): Outcome {
  const severities = new Set(findings.map(({ severity }) => severity));
  if (severities.has('fail') || severities.has('unjudged')) return 'FAIL';
  return severities.has('lossy') ? 'LOSSY' : 'OK';
}

const RANK: Readonly<Record<Outcome, number>> = { OK: 0, LOSSY: 1, FAIL: 2 };

function describe({ witness, projection, read }: Trial): string {
  const got = 'error' in read ? `error: ${read.error.message}` : String(JSON.stringify(read.value, plain));
  const expected =
    projection.kind === 'none' ? `nothing: ${projection.why}` : JSON.stringify(projection, plain);
  return `${witness.json} is read as ${got}; expected: ${expected}`;
}
const plain = (_key: string, value: unknown): unknown => (typeof value === 'bigint' ? `${value}n` : value);

function judgePair(reader: Schema, writer: Schema, seed: number): Judged {
  const findings = checkPair(reader, writer);
  const verdict = verdictOf(findings);
  const chance = new Chance(seed);
  let mixing = false;
  const random = (): number => {
    mixing = true;
    return chance.next();
  };
  let live: Outcome = 'OK';
  let worst: Trial | undefined;
  let trials = 0;
  let disagreement: string | undefined;
  let mixes = 0;
  for (const trial of trialsOf(reader, writer, { limit: EVENTS_MAX, random })) {
    trials++;
    if (isSurprise(trial)) disagreement ??= `decoder and specification: ${describe(trial)}`;
    else if (trial.projection.kind === 'none' && !('error' in trial.read))
      disagreement ??= `the decoder reads an event that has no projection: ${describe(trial)}`;
    if (worst === undefined || RANK[trial.outcome] > RANK[live]) {
      live = trial.outcome;
      worst = trial;
    }
    if (mixing && ++mixes >= MIXES_MAX) break;
  }
  if (verdict !== live) {
    const listed = findings.map(({ rule, path, message }) => `${rule} at ${path}: ${message}`).join('; ');
    disagreement ??= `verdict ${verdict} (${listed}), live ${live} (${worst === undefined ? 'no event' : describe(worst)})`;
  }
  if (findings.some(({ severity }) => severity === 'unjudged'))
    disagreement ??= 'there is an unjudged finding';
  return { verdict, live, findings, trials, disagreement };
}

export function judgeAvroPair({ reader, writer, seed }: AvroPair): Judged {
  const options = { lenient: true };
  return judgePair(parseSchema('AVRO', reader, options), parseSchema('AVRO', writer, options), seed);
}
