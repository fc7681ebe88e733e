/** Judges a proposed schema and says all there is to say about it. */
import { type Finding, isCompatible, type Severity } from '../compatibility/finding.ts';
import { VERDICT_POLICIES } from '../compatibility/modes.ts';
import { explain } from '../proof/explain.ts';
import type { Schema } from '../schemas/schema.ts';
import { type Judgement, judgeProposed, type Question } from './judge.ts';
import { type GateFinding, type GateReport, type Proof, type RegistryAnswer, readable } from './report.ts';

/** Findings that get an event and a fix of their own: each costs comparisons, of a long text more than of a short one. */
const EXPLAINED_MAX = 20;
const EXPLAINED_CHARS_MAX = 1 << 20;
const EXPLAINED_LEAST = 3;

const RANKS: Readonly<Record<Severity, number>> = { fail: 0, unjudged: 1, lossy: 2, note: 3 };

export interface GateInput extends Question {
  readonly subject: string | undefined;
  readonly file: string;
  readonly against: string;
  readonly registry: RegistryAnswer;
  readonly already: number | undefined;
  readonly notes: readonly string[];
  readonly proof: Proof | undefined;
}

/** A finding that several versions share is one thing to mend: the latest version tells it. */
function findingsOf(input: GateInput, judgement: Judgement): GateFinding[] {
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
    { finding: Finding; direction: GateFinding['direction']; version: number | undefined }
  >();
  for (const { direction, version, findings } of judgement.comparisons)
    for (const finding of findings)
      seen.set(JSON.stringify([direction, finding.rule, finding.path, finding.message]), {
        finding,
        direction,
        version,
      });
  const namesOf = new Map(earlier.map(({ version, name }) => [version, name]));
  const many = Math.floor(EXPLAINED_CHARS_MAX / proposed.source.length);
  const explained = Math.min(EXPLAINED_MAX, Math.max(EXPLAINED_LEAST, many));
  const sorted = [...seen.values()].sort((a, b) => RANKS[a.finding.severity] - RANKS[b.finding.severity]);
  return sorted.map(({ finding, direction, version }, index) => {
    const other = version === undefined ? latest : schemas.get(version);
    const refuses = !isCompatible([finding]) || (lossy === 'REJECT' && finding.severity === 'lossy');
    const names = { proposed: input.file, other: namesOf.get(version ?? 0) ?? 'an earlier version' };
    const [one] =
      index < explained && finding.severity !== 'note'
        ? explain({ version, direction, findings: [finding] }, proposed, other, names, { ever, policy })
        : [];
    const bare = { reader: undefined, writer: undefined, counterexample: undefined };
    return { finding, direction, version, refuses, explanation: one?.explanation ?? bare, fix: one?.fix };
  });
}

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
