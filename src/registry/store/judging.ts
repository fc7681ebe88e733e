/** Verdict on a proposed schema by the live versions, the history and the settings of its subject.
 */

import { guidOf } from '../../formats/guid.ts';
import { type Finding, findingLine, isCompatible } from '../compatibility/finding.ts';
import type { Verdict } from '../compatibility/modes.ts';
import type { JudgeRequest, OriginOf } from '../worker/checks.ts';
import type { SubjectConfig } from './service.ts';
import { metadataProperty } from './state/contracts.ts';
import type { State, Text, VersionEntry } from './state/model.ts';
import { hasSameText } from './state/packed.ts';
import type { Parser, Prepared } from './state/parsing.ts';
import { levelOf, policyOf } from './state/settings.ts';

/** One line for each finding that refuses a schema. A lossy finding refuses only where losses do,
 *  and nothing else does.
 */
export function verdictLines(verdict: Verdict): string[] {
  const strict = verdict.comparisons.every(({ findings }) => isCompatible(findings)) && !verdict.compatible;
  return verdict.comparisons.flatMap((comparison) =>
    comparison.findings
      .filter((finding) => !isCompatible([finding]) || (strict && finding.severity === 'lossy'))
      .map((finding: Finding) =>
        comparison.version === undefined
          ? `in any mode: ${findingLine(finding)}`
          : `${comparison.direction} against version ${comparison.version}: ${findingLine(finding)}`,
      ),
  );
}

/** Versions that a level compares with: the latest for a plain level, all for a transitive one,
 *  none for NONE.
 */
export function comparedBy(config: SubjectConfig, live: readonly VersionEntry[]): readonly VersionEntry[] {
  const level = levelOf(config);
  if (level === 'NONE') return [];
  return level.endsWith('_TRANSITIVE') ? live : live.slice(-1);
}

/** Versions with the proposed schema's value of the metadata property that divides a subject into
 *  compatibility groups.
 */
export function inGroup(
  config: SubjectConfig,
  proposed: Pick<Prepared, 'content'>,
  versions: readonly VersionEntry[],
): readonly VersionEntry[] {
  const group = config.compatibilityGroup;
  if (group === undefined) return versions;
  const value = metadataProperty(proposed.content, group);
  return versions.filter(({ text }) => metadataProperty(text.content, group) === value);
}

/** All Protobuf versions that the subject ever had, oldest first: those deleted for good, one life
 *  of the subject after the other, then the existing ones. A life ends when the last version is
 *  deleted for good; the next life counts versions from 1 again.
 */
function everHeld(state: State, parser: Parser, subject: string): readonly OriginOf[] {
  const ever: OriginOf[] = [];
  let life: Array<{ readonly version: number; readonly text: Text }> = [];
  const close = (): void => {
    life.sort((a, b) => a.version - b.version);
    for (const { version, text } of life) {
      const { format } = text.content;
      if (format !== 'PROTOBUF') continue;
      // The field numbers are in the text itself, so references may be missing.
      ever.push({ version, format, origin: parser.storedOrNone(state, subject, text, true) });
    }
    life = [];
  };
  for (const { version, format, text, references, last } of state.burned(subject)) {
    const content = { format: format as 'PROTOBUF', text, references };
    const guid = guidOf(content);
    life.push({ version, text: { key: guid, guid, content } });
    if (last) close();
  }
  for (const { stored, text } of state.versions(subject)) life.push({ version: stored.version, text });
  close();
  return ever;
}

/** Comparisons that decide whether `proposed` may follow the versions `against`. */
export function questionOf(
  state: State,
  parser: Parser,
  subject: string,
  proposed: Prepared,
  config: SubjectConfig,
  against: readonly VersionEntry[],
): JudgeRequest {
  const isNumbered = proposed.content.format === 'PROTOBUF' && !hasContent(state, subject, proposed);
  return {
    proposed: proposed.origin,
    level: levelOf(config),
    policy: policyOf(config),
    against: against.map(({ stored, text }) => ({
      version: stored.version,
      format: text.content.format,
      origin: parser.storedOrNone(state, subject, text),
    })),
    ever: isNumbered ? everHeld(state, parser, subject) : undefined,
  };
}

/** @throws Deferred, check_too_long */
export function judgeAgainst(
  state: State,
  parser: Parser,
  subject: string,
  proposed: Prepared,
  config: SubjectConfig,
  against: readonly VersionEntry[],
  explain = false,
): Verdict {
  const question = questionOf(state, parser, subject, proposed, config, against);
  const comparisons = parser.checks.judge(question, explain);
  const refusesLoss = config.lossy === 'REJECT';
  const compatible = comparisons.every(
    ({ findings }) =>
      isCompatible(findings) && !(refusesLoss && findings.some(({ severity }) => severity === 'lossy')),
  );
  return { compatible, comparisons };
}

/** True when a version of the subject, soft-deleted or not, has this content. The field numbers of
 *  such a text keep the meaning that they had.
 */
function hasContent(state: State, subject: string, proposed: Prepared): boolean {
  return state.versions(subject).some(({ text }) => hasSameText(text.content, proposed.content));
}
