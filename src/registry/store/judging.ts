/** The verdict on a proposed schema, by what its subject holds, ever held and demands. */
import { type Finding, findingLine, isCompatible } from '../compatibility/finding.ts';
import {
  type Comparison,
  compareHistory,
  compareWith,
  type EarlierVersion,
  type Verdict,
} from '../compatibility/modes.ts';
import { isSchemaFormat } from '../schemas/format.ts';
import { guidOf } from '../schemas/guid.ts';
import { metadataProperty } from './contracts.ts';
import { hasSameText } from './packed.ts';
import type { Parser, Prepared } from './parsing.ts';
import type { SubjectConfig } from './service.ts';
import { levelOf, policyOf } from './settings.ts';
import type { State, Text, VersionEntry } from './state.ts';

/** Of a type that nobody knows, in a message. */
const TYPE_CHARS_MAX = 40;

/** One line for each thing that stands against a schema. */
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

/** The versions that a level compares with: one for the plain ones, all for the transitive ones. */
export function comparedBy(config: SubjectConfig, live: readonly VersionEntry[]): readonly VersionEntry[] {
  const level = levelOf(config);
  if (level === 'NONE') return [];
  return level.endsWith('_TRANSITIVE') ? live : live.slice(-1);
}

/** The versions with the same value of the property that splits a subject into lines of their own. */
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

/** All that the subject ever had, in order: what is gone for good by the lives it had, then what is there. */
export function everHeld(state: State, parser: Parser, subject: string): EarlierVersion[] {
  const ever: EarlierVersion[] = [];
  let life: Array<{ readonly version: number; readonly text: Text }> = [];
  const close = (): void => {
    life.sort((a, b) => a.version - b.version);
    for (const { version, text } of life) {
      if (text.content.format !== 'PROTOBUF') continue;
      // The numbers stand in the text itself, whatever it refers to.
      const schema = parser.storedOrNone(state, subject, text, true);
      if (schema !== undefined) ever.push({ version, schema });
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

export function judgeAgainst(
  state: State,
  parser: Parser,
  subject: string,
  proposed: Prepared,
  config: SubjectConfig,
  against: readonly VersionEntry[],
): Verdict {
  const level = levelOf(config);
  const policy = policyOf(config);
  const comparisons: Comparison[] = [];
  for (const { stored, text } of against) {
    const schema = parser.storedOrNone(state, subject, text);
    if (schema === undefined) {
      if (level !== 'NONE') comparisons.push(unreadable(stored.version, text.content.format));
      continue;
    }
    const found = compareWith(proposed.schema, level, [{ version: stored.version, schema }], policy);
    comparisons.push(...found);
    // It is refused then, and each further version may take as long.
    if (found.some(isTooLong)) break;
  }
  if (proposed.schema.format === 'PROTOBUF' && !hasContent(state, subject, proposed))
    comparisons.push(...compareHistory(proposed.schema, everHeld(state, parser, subject)));
  const refusesLoss = config.lossy === 'REJECT';
  const compatible = comparisons.every(
    ({ findings }) =>
      isCompatible(findings) && !(refusesLoss && findings.some(({ severity }) => severity === 'lossy')),
  );
  return { compatible, comparisons };
}

const isTooLong = ({ findings }: Comparison): boolean =>
  findings.some(({ rule }) => rule === 'COMPARISON_TOO_LONG');

/** A text that comes back from a soft delete means by its numbers what it meant then. */
function hasContent(state: State, subject: string, proposed: Prepared): boolean {
  return state.versions(subject).some(({ text }) => hasSameText(text.content, proposed.content));
}

function unreadable(version: number, format: string): Comparison {
  const why = isSchemaFormat(format)
    ? 'cannot be parsed'
    : `is of the type ${format.slice(0, TYPE_CHARS_MAX)}, which is not known here`;
  const message = `the stored schema of version ${version} ${why}, so nothing can be said about it`;
  return {
    version,
    direction: 'BACKWARD',
    findings: [{ rule: 'STORED_SCHEMA_UNREADABLE', severity: 'unjudged', path: '', message }],
  };
}
