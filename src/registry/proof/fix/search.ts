/** Searches the smallest change of a proposed schema that removes a finding.
 *
 *  Invariant: an offered change was tried: its text was parsed and judged again, the finding is
 *  gone, and it adds no refusal and no loss. If no change passes, the result is the rule's advice
 *  without edits. */

import { parseSchema, type Schema } from '../../../formats/schema.ts';
import { FINDINGS_MAX, type Finding, isCompatible } from '../../compatibility/finding.ts';
import { checkPair, compareHistory } from '../../compatibility/modes.ts';
import { ruleOf } from '../../rules/catalogue.ts';
import { avroChanges } from './avro.ts';
import type { Change, Edit, Fix, FixContext } from './change.ts';
import { protoChanges } from './protobuf.ts';

export interface FixOptions {
  readonly ever?: FixContext['ever'];
  readonly policy?: FixContext['policy'];
}

export type { Edit, Fix } from './change.ts';

/** Most changes tried for one finding. */
const TRIES_MAX = 24;

export function applyEdits(source: string, edits: readonly Edit[]): string {
  let text = '';
  let from = 0;
  for (const { at, end, text: put } of [...edits].sort((a, b) => a.at - b.at || a.end - b.end)) {
    text += source.slice(from, at) + put;
    from = end;
  }
  return text + source.slice(from);
}

function findingsOf(context: FixContext, proposed: Schema): readonly Finding[] {
  const { direction, other, policy } = context;
  const versions = context.ever.map((schema, index) => ({ version: index + 1, schema }));
  const history = compareHistory(proposed, versions).flatMap(({ findings }) => findings);
  if (direction === 'HISTORY' || other === undefined) return history;
  const pair =
    direction === 'BACKWARD' ? checkPair(proposed, other, policy) : checkPair(other, proposed, policy);
  return [...pair, ...history];
}

const refusals = (findings: readonly Finding[]): number =>
  findings.filter((one) => !isCompatible([one])).length;
const losses = (findings: readonly Finding[]): number =>
  findings.filter(({ severity }) => severity === 'lossy').length;
const occurrences = ({ rule, path }: Finding, findings: readonly Finding[]): number =>
  findings.filter((one) => one.rule === rule && one.path === path).length;

function removesFinding(context: FixContext, before: readonly Finding[], edits: readonly Edit[]): boolean {
  const { proposed, finding } = context;
  let changed: Schema;
  try {
    changed = parseSchema(proposed.format, applyEdits(proposed.source, edits), {
      references: proposed.references,
    });
  } catch {
    // The changed text is no valid schema.
    return false;
  }
  const after = findingsOf(context, changed);
  // A full list hides further findings, so its length need not shrink.
  const isFull = before.length >= FINDINGS_MAX;
  const refuses = isCompatible([finding]) || isFull ? 0 : 1;
  const loses = finding.severity === 'lossy' && !isFull ? 1 : 0;
  return (
    occurrences(finding, after) < occurrences(finding, before) &&
    refusals(after) <= refusals(before) - refuses &&
    losses(after) <= losses(before) - loses
  );
}

/** Candidate changes. JSON Schema has none: its findings come without live decode, so a change
 *  could not be proven. */
function changesOf(context: FixContext): Iterable<Change> {
  if (context.proposed.format === 'AVRO') return avroChanges(context);
  return context.proposed.format === 'PROTOBUF' ? protoChanges(context) : [];
}

/** @cost a parse and a comparison for each change that is tried */
export function fixOf(
  finding: Finding,
  direction: FixContext['direction'],
  proposed: Schema,
  other: Schema | undefined,
  more: FixOptions = {},
): Fix | undefined {
  const context = {
    finding,
    direction,
    proposed,
    other,
    ever: more.ever ?? [],
    policy: more.policy ?? 'PROVEN',
  };
  const changes = changesOf(context);
  const before = findingsOf(context, proposed);
  let tries = 0;
  for (const { words, edits } of changes) {
    if (++tries > TRIES_MAX) break;
    if (removesFinding(context, before, edits)) return { words, edits };
  }
  const words = ruleOf(finding.rule)?.fix;
  return words === undefined ? undefined : { words, edits: [] };
}
