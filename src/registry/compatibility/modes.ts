/** The compatibility levels, and which pairs of versions each of them compares. */
import type { Schema } from '../schemas/schema.ts';
import { checkAvro } from './avro.ts';
import { type Finding, isCompatible } from './finding.ts';
import { checkJson } from './json.ts';
import { checkProto } from './proto.ts';
import { checkNumberHistory } from './proto-history.ts';
import { checkStrictAvro } from './strict-avro.ts';
import { checkStrictProto } from './strict-proto.ts';

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

/** PROVEN: what our decoders do with every event. STRICT: what the existing registries answer. */
export const VERDICT_POLICIES = ['PROVEN', 'STRICT'] as const;
export type VerdictPolicy = (typeof VERDICT_POLICIES)[number];

export function isVerdictPolicy(text: unknown): text is VerdictPolicy {
  return (VERDICT_POLICIES as readonly unknown[]).includes(text);
}

/** Findings of one direction. */
export function checkPair(
  reader: Schema,
  writer: Schema,
  policy: VerdictPolicy = 'PROVEN',
): readonly Finding[] {
  if (reader.identity === writer.identity) return [];
  if (reader.format === 'AVRO' && writer.format === 'AVRO')
    return (policy === 'STRICT' ? checkStrictAvro : checkAvro)(reader.tree, writer.tree);
  if (reader.format === 'PROTOBUF' && writer.format === 'PROTOBUF')
    return (policy === 'STRICT' ? checkStrictProto : checkProto)(reader.tree, writer.tree);
  if (reader.format === 'JSON' && writer.format === 'JSON')
    return checkJson(reader, writer, policy === 'STRICT');
  return [
    {
      rule: 'FORMAT_CHANGED',
      severity: 'fail',
      path: '',
      // Clients of the existing registries know these very words.
      message: 'Incompatible because of different schema type',
    },
  ];
}

export interface EarlierVersion {
  readonly version: number;
  readonly schema: Schema;
}

export interface Comparison {
  /** Undefined: the rules that hold over all versions. */
  readonly version: number | undefined;
  readonly direction: 'BACKWARD' | 'FORWARD' | 'HISTORY';
  readonly findings: readonly Finding[];
}

export interface Verdict {
  readonly compatible: boolean;
  readonly comparisons: readonly Comparison[];
}

/** Compares a proposed schema with each of the given versions, in the directions the level asks for. */
export function compareWith(
  proposed: Schema,
  level: Level,
  versions: readonly EarlierVersion[],
  policy: VerdictPolicy = 'PROVEN',
): Comparison[] {
  const comparisons: Comparison[] = [];
  const backward = level.startsWith('BACKWARD') || level.startsWith('FULL');
  const forward = level.startsWith('FORWARD') || level.startsWith('FULL');
  for (const { version, schema } of versions) {
    if (backward)
      comparisons.push({ version, direction: 'BACKWARD', findings: checkPair(proposed, schema, policy) });
    if (forward)
      comparisons.push({ version, direction: 'FORWARD', findings: checkPair(schema, proposed, policy) });
  }
  return comparisons;
}

/** The rules that no level switches off, over every version the subject ever had. */
export function compareHistory(proposed: Schema, ever: readonly EarlierVersion[]): Comparison[] {
  if (proposed.format !== 'PROTOBUF') return [];
  const versions = ever.flatMap(({ version, schema }) =>
    schema.format === 'PROTOBUF' ? [{ version, tree: schema.tree }] : [],
  );
  return [
    { version: undefined, direction: 'HISTORY', findings: checkNumberHistory(proposed.tree, versions) },
  ];
}

/** What a registration is judged by: the level's pairs and the history. `versions` oldest first. */
export function judge(
  proposed: Schema,
  level: Level,
  versions: readonly EarlierVersion[],
  policy: VerdictPolicy = 'PROVEN',
): Verdict {
  const compared = level.endsWith('_TRANSITIVE') ? versions : versions.slice(-1);
  return verdictOf([
    ...compareWith(proposed, level, compared, policy),
    ...compareHistory(proposed, versions),
  ]);
}

export function verdictOf(comparisons: readonly Comparison[]): Verdict {
  return { compatible: comparisons.every(({ findings }) => isCompatible(findings)), comparisons };
}
