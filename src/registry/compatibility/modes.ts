/** Compatibility levels and the pairs of versions that each level compares. */
import type { Schema } from '../../formats/schema.ts';
import { checkAvro } from './avro/checker.ts';
import { checkStrictAvro } from './avro/strict.ts';
import { type Finding, isCompatible, StepBudget } from './finding.ts';
import { checkJson } from './json/checker.ts';
import { checkProto } from './protobuf/checker.ts';
import { checkNumberHistory, type ProtoVersion } from './protobuf/history.ts';
import { checkStrictProto } from './protobuf/strict.ts';

export const LEVELS = [
  'NONE',
  'BACKWARD',
  'BACKWARD_TRANSITIVE',
  'FORWARD',
  'FORWARD_TRANSITIVE',
  'FULL',
  'FULL_TRANSITIVE',
] as const;
export type Level = (typeof LEVELS)[number];

export function isLevel(text: unknown): text is Level {
  return (LEVELS as readonly unknown[]).includes(text);
}

/** PROVEN: verdicts that match Millrace's decoders. STRICT: verdicts of the existing registries. */
export const VERDICT_POLICIES = ['PROVEN', 'STRICT'] as const;
export type VerdictPolicy = (typeof VERDICT_POLICIES)[number];

export function isVerdictPolicy(text: unknown): text is VerdictPolicy {
  return (VERDICT_POLICIES as readonly unknown[]).includes(text);
}

/** Compares a reader schema with a writer schema, in this direction only.
 *  @param budget steps that the comparison may take; a spent budget leaves findings out, so check
 *    `isSpent` of a budget of your own
 *  @returns no findings for equal schemas
 *  @example
 *  const findings = checkPair(parseSchema('AVRO', '"long"'), parseSchema('AVRO', '"int"'));
 */
export function checkPair(
  reader: Schema,
  writer: Schema,
  policy: VerdictPolicy = 'PROVEN',
  budget = new StepBudget(),
): readonly Finding[] {
  if (reader.identity === writer.identity) return [];
  if (reader.format === 'AVRO' && writer.format === 'AVRO')
    return (policy === 'STRICT' ? checkStrictAvro : checkAvro)(reader.tree, writer.tree, budget);
  if (reader.format === 'PROTOBUF' && writer.format === 'PROTOBUF')
    return (policy === 'STRICT' ? checkStrictProto : checkProto)(reader.tree, writer.tree, budget);
  if (reader.format === 'JSON' && writer.format === 'JSON')
    return checkJson(reader, writer, policy === 'STRICT', budget);
  return [
    {
      rule: 'FORMAT_CHANGED',
      severity: 'fail',
      path: '',
      // Clients of the existing registries match this exact text.
      message: 'Incompatible because of different schema type',
    },
  ];
}

export interface EarlierVersion {
  readonly version: number;
  readonly schema: Schema;
}

export interface Comparison {
  /** Undefined: the rules over all versions. */
  readonly version: number | undefined;
  readonly direction: 'BACKWARD' | 'FORWARD' | 'HISTORY';
  readonly findings: readonly Finding[];
}

export interface Verdict {
  readonly compatible: boolean;
  readonly comparisons: readonly Comparison[];
}

/** Compares a proposed schema with each of the given versions, in the directions of the level.
 *  @param budget shared by all comparisons of one check */
export function compareWith(
  proposed: Schema,
  level: Level,
  versions: readonly EarlierVersion[],
  policy: VerdictPolicy = 'PROVEN',
  budget = new StepBudget(),
): Comparison[] {
  const comparisons: Comparison[] = [];
  const backward = level.startsWith('BACKWARD') || level.startsWith('FULL');
  const forward = level.startsWith('FORWARD') || level.startsWith('FULL');
  for (const { version, schema } of versions) {
    if (backward)
      comparisons.push({
        version,
        direction: 'BACKWARD',
        findings: checkPair(proposed, schema, policy, budget),
      });
    if (forward)
      comparisons.push({
        version,
        direction: 'FORWARD',
        findings: checkPair(schema, proposed, policy, budget),
      });
  }
  return comparisons;
}

/** Applies the rules that no level switches off, over every version the subject ever had. */
export function compareHistory(
  proposed: Schema,
  ever: Iterable<EarlierVersion>,
  budget = new StepBudget(),
): Comparison[] {
  if (proposed.format !== 'PROTOBUF') return [];
  const findings = checkNumberHistory(proposed.tree, protoVersions(ever), budget);
  return [{ version: undefined, direction: 'HISTORY', findings }];
}

/** Yields one tree at a time, so that only one is in memory. */
function* protoVersions(ever: Iterable<EarlierVersion>): Generator<ProtoVersion> {
  for (const { version, schema } of ever)
    if (schema.format === 'PROTOBUF') yield { version, tree: schema.tree };
}

/** Judges a registration: the pairs of the level, and the history of Protobuf field numbers.
 *  @param versions earlier versions, oldest first
 *  @example
 *  const verdict = judge(proposed, 'BACKWARD', [{ version: 1, schema: first }]);
 *  if (!verdict.compatible) throw new Error('the schema is not compatible');
 */
export function judge(
  proposed: Schema,
  level: Level,
  versions: readonly EarlierVersion[],
  policy: VerdictPolicy = 'PROVEN',
): Verdict {
  const compared = level.endsWith('_TRANSITIVE') ? versions : versions.slice(-1);
  const budget = new StepBudget();
  return verdictOf([
    ...compareWith(proposed, level, compared, policy, budget),
    ...compareHistory(proposed, versions, budget),
  ]);
}

export function verdictOf(comparisons: readonly Comparison[]): Verdict {
  return { compatible: comparisons.every(({ findings }) => isCompatible(findings)), comparisons };
}
