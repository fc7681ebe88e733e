/** Verdict on a proposed schema without a registry's store: the registry's rules, applied to the
 *  schemas that a client supplies. */

import type { Schema } from '../../formats/schema.ts';
import { isCompatible, StepBudget } from '../compatibility/finding.ts';
import {
  type Comparison,
  compareHistory,
  compareWith,
  type EarlierVersion,
  type Level,
  type VerdictPolicy,
} from '../compatibility/modes.ts';
import { type Earlier, readable } from './report.ts';

export interface GateQuestion {
  readonly proposed: Schema;
  readonly level: Level;
  readonly policy: VerdictPolicy;
  readonly lossy: 'ACCEPT' | 'REJECT';
  /** Oldest first. */
  readonly earlier: readonly Earlier[];
  /** True: compare with every live version, whatever the level says. */
  readonly all: boolean;
  /** True: the subject already has this text. Registering it again needs no check. */
  readonly known: boolean;
}

export interface GateJudgement {
  readonly compatible: boolean;
  readonly comparisons: readonly Comparison[];
  readonly compared: readonly Earlier[];
}

function unreadable({ version, name }: Earlier, why: string): Comparison {
  const message = `the stored schema of ${name} cannot be read (${why}), so its compatibility is unknown`;
  return {
    version,
    direction: 'BACKWARD',
    findings: [{ rule: 'STORED_SCHEMA_UNREADABLE', severity: 'unjudged', path: '', message }],
  };
}

export function judgeProposed(question: GateQuestion): GateJudgement {
  const { proposed, level, policy, earlier } = question;
  const live = earlier.filter((one) => one.live);
  const everyone = question.all || level.endsWith('_TRANSITIVE');
  const compared = level === 'NONE' ? [] : everyone ? live : live.slice(-1);
  if (question.known) return { compatible: true, comparisons: [], compared };
  const budget = new StepBudget();
  const comparisons = compared.flatMap((one) =>
    'unreadable' in one.schema
      ? [unreadable(one, one.schema.unreadable)]
      : compareWith(proposed, level, [{ version: one.version, schema: one.schema }], policy, budget),
  );
  const ever = earlier.flatMap((one): EarlierVersion[] => {
    const schema = readable(one);
    return schema === undefined ? [] : [{ version: one.version, schema }];
  });
  comparisons.push(...compareHistory(proposed, ever, budget));
  const refusesLoss = question.lossy === 'REJECT';
  const compatible = comparisons.every(
    ({ findings }) =>
      isCompatible(findings) && !(refusesLoss && findings.some(({ severity }) => severity === 'lossy')),
  );
  return { compatible, comparisons, compared };
}
