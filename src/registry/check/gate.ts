/** Builds the report on a proposed schema: verdict, findings, counterexample events and fixes. */

import type { TextPosition } from '../../formats/json/text.ts';
import type { Schema } from '../../formats/schema.ts';
import { type Finding, isCompatible, type Severity } from '../compatibility/finding.ts';
import { VERDICT_POLICIES } from '../compatibility/modes.ts';
import { type Explanation, explain } from '../proof/explain.ts';
import { type GateJudgement, type GateQuestion, judgeProposed } from './judge.ts';
import { type GateFinding, type GateReport, type Proof, type RegistryAnswer, readable } from './report.ts';

/** Bounds on the findings that get a counterexample event and a fix. Each such finding costs
 *  comparisons, and a comparison of long texts costs more. */
const EXPLAINED_MAX = 20;
const EXPLAINED_CHARS_MAX = 1 << 20;
const EXPLAINED_LEAST = 3;

const RANKS: Readonly<Record<Severity, number>> = { fail: 0, unjudged: 1, lossy: 2, note: 3 };

export interface GateInput extends GateQuestion {
  readonly subject: string | undefined;
  readonly file: string;
  readonly against: string;
  readonly registry: RegistryAnswer;
  readonly already: number | undefined;
  readonly notes: readonly string[];
  readonly proof: Proof | undefined;
}

/** Merges a finding that several versions share into one entry. The entry keeps all versions and
 *  the details of the latest one. */
function findingsOf(input: GateInput, judgement: GateJudgement): GateFinding[] {
  const { proposed, earlier, policy, lossy } = input;
  const schemas = new Map<number, Schema>();
  for (const one of earlier) {
    const schema = readable(one);
    if (schema !== undefined) schemas.set(one.version, schema);
  }
  const ever = [...schemas.values()];
  const latest = ever[ever.length - 1];
  const seen = new Map<
    string,
    {
      finding: Finding;
      readonly direction: GateFinding['direction'];
      version: number | undefined;
      readonly versions: number[];
    }
  >();
  for (const { direction, version, findings } of judgement.comparisons)
    for (const finding of findings) {
      const key = JSON.stringify([direction, finding.rule, finding.path, finding.message]);
      const one = seen.get(key) ?? { finding, direction, version, versions: [] };
      seen.set(key, one);
      // Versions come oldest first, so the latest one overwrites the places.
      one.finding = finding;
      one.version = version;
      if (version !== undefined) one.versions.push(version);
    }
  const namesOf = new Map(earlier.map(({ version, name }) => [version, name]));
  const many = Math.floor(EXPLAINED_CHARS_MAX / proposed.source.length);
  const explained = Math.min(EXPLAINED_MAX, Math.max(EXPLAINED_LEAST, many));
  const sorted = [...seen.values()].sort((a, b) => RANKS[a.finding.severity] - RANKS[b.finding.severity]);
  return sorted.map(({ finding, direction, version, versions }, index) => {
    const other = version === undefined ? latest : schemas.get(version);
    const refuses = !isCompatible([finding]) || (lossy === 'REJECT' && finding.severity === 'lossy');
    const names = { proposed: input.file, other: namesOf.get(version ?? 0) ?? 'an earlier version' };
    const [one] =
      index < explained && finding.severity !== 'note'
        ? explain({ version, direction, findings: [finding] }, proposed, other, names, { ever, policy })
        : [];
    const bare = { reader: undefined, writer: undefined, counterexample: undefined };
    const explanation = withSourceVersion(one?.explanation ?? bare, finding, direction, earlier);
    return { finding, direction, version, versions, refuses, explanation, fix: one?.fix };
  });
}

/** Adds a source to a finding over all versions (HISTORY), which names no version of its own: the
 *  latest version that has the field at the same place in its text. */
function withSourceVersion(
  explanation: Explanation,
  { writer: place, place: number }: Finding,
  direction: GateFinding['direction'],
  earlier: GateInput['earlier'],
): Explanation {
  const { writer } = explanation;
  if (direction !== 'HISTORY' || writer === undefined || place === undefined || !('line' in place))
    return explanation;
  const digits = Number(/([0-9]+)$/.exec(number ?? '')?.[1]);
  const held = earlier.findLast((one) => {
    const schema = readable(one);
    return (
      schema?.format === 'PROTOBUF' &&
      schema.tree.messages.some(({ fields }) =>
        fields.some((field) => field.number === digits && samePlace(field.at, writer)),
      )
    );
  });
  return held === undefined ? explanation : { ...explanation, writer: { ...writer, source: held.name } };
}

const samePlace = (a: TextPosition, b: TextPosition): boolean => a.line === b.line && a.column === b.column;

export function gateReport(input: GateInput): GateReport {
  const judgement = judgeProposed(input);
  const otherPolicy = VERDICT_POLICIES.find((one) => one !== input.policy) ?? input.policy;
  const other = judgeProposed({ ...input, policy: otherPolicy });
  const { registry, proof } = input;
  const proven = proof === undefined || proof.disagreements.length === 0;
  return {
    subject: input.subject,
    file: input.file,
    format: input.proposed.format,
    source: input.proposed.source,
    against: input.against,
    mode: input.level,
    policy: input.policy,
    lossy: input.lossy,
    compared: judgement.compared,
    everCount: input.earlier.length,
    compatible: judgement.compatible && proven && (!registry.asked || registry.compatible),
    judged: judgement.compatible,
    registry,
    other: { policy: otherPolicy, compatible: other.compatible },
    findings: findingsOf(input, judgement),
    already: input.already,
    notes: input.notes,
    proof,
  };
}
