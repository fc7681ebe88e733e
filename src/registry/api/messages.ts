/** Verdicts in the words that clients of the existing registries know.
 *
 *  For each version that refuses: its findings, the version's number, its text. Last: what the subject is set to.
 *  Source of the form: messages of Confluent Schema Registry 7 and 8, observed.
 */
import { type Finding, findingLine, isCompatible } from '../compatibility/finding.ts';
import type { Comparison, Verdict } from '../compatibility/modes.ts';
import type { StoredVersion } from '../store/service.ts';
import { avroPointer } from './pointer.ts';

/** Characters of an old schema's text in a message. */
const OLD_SCHEMA_CHARS_MAX = 10 * 1024;
/** Texts of old schemas in one answer. */
const OLD_SCHEMAS_MAX = 10;

/** Our rules by the names that exist; a rule without one keeps its own. */
const ERROR_TYPES: Readonly<Record<string, string>> = {
  AVRO_NAME_CHANGED: 'NAME_MISMATCH',
  AVRO_FIXED_SIZE_CHANGED: 'FIXED_SIZE_MISMATCH',
  AVRO_ENUM_SYMBOL_MISSING: 'MISSING_ENUM_SYMBOLS',
  AVRO_READER_FIELD_WITHOUT_DEFAULT: 'READER_FIELD_MISSING_DEFAULT_VALUE',
  AVRO_TYPE_CHANGED: 'TYPE_MISMATCH',
  AVRO_UNION_CHANGED: 'MISSING_UNION_BRANCH',
  PROTO_MESSAGE_REMOVED: 'MESSAGE_REMOVED',
  PROTO_REQUIRED_ADDED: 'REQUIRED_FIELD_ADDED',
  PROTO_MAP_CHANGED: 'FIELD_KIND_CHANGED',
  PROTO_LABEL_CHANGED: 'FIELD_NUMERIC_LABEL_CHANGED',
  PROTO_TYPE_CHANGED: 'FIELD_SCALAR_KIND_CHANGED',
  PROTO_ONEOF_CHANGED: 'FIELD_MOVED_TO_EXISTING_ONEOF',
};

export interface Judged {
  readonly verdict: Verdict;
  readonly compared: readonly StoredVersion[];
  readonly level: string;
  readonly validateFields: boolean;
  /** The proposed text; absent where it was no schema. */
  readonly proposed: string;
}

/** Everything that stands against the schema; without that, what is allowed and still worth saying. */
export function messagesOf(judged: Judged): string[] {
  const { comparisons } = judged.verdict;
  if (judged.verdict.compatible) {
    return comparisons.flatMap(({ findings }) => findings.map(findingLine));
  }
  const messages: string[] = [];
  const byVersion = new Map<number | undefined, Comparison[]>();
  for (const comparison of comparisons) {
    if (isCompatible(comparison.findings)) continue;
    const same = byVersion.get(comparison.version) ?? [];
    byVersion.set(comparison.version, same);
    same.push(comparison);
  }
  let texts = 0;
  for (const [number, refused] of byVersion) {
    const old = judged.compared.find(({ version }) => version === number);
    for (const comparison of refused) {
      for (const finding of comparison.findings) {
        if (!isCompatible([finding])) messages.push(incompatibility(finding, comparison, judged, old));
      }
    }
    if (number === undefined) continue;
    messages.push(`{oldSchemaVersion: ${number}}`);
    if (old !== undefined && texts++ < OLD_SCHEMAS_MAX)
      messages.push(`{oldSchema: '${cut(old.content.text)}'}`);
  }
  messages.push(`{validateFields: '${judged.validateFields}', compatibility: '${judged.level}'}`);
  return messages;
}

const cut = (text: string): string =>
  text.length <= OLD_SCHEMA_CHARS_MAX ? text : `${text.slice(0, OLD_SCHEMA_CHARS_MAX)}...`;

function incompatibility(
  finding: Finding,
  comparison: Comparison,
  judged: Judged,
  old: StoredVersion | undefined,
): string {
  const errorType = ERROR_TYPES[finding.rule] ?? finding.rule;
  const isAvro = finding.rule.startsWith('AVRO_');
  const backward = comparison.direction === 'BACKWARD';
  // The path is one of the reader: of the proposed schema, or of the old one where that has to read.
  const reader = backward ? judged.proposed : old?.content.text;
  const last = finding.path.slice(finding.path.lastIndexOf('.') + 1);
  const isField = finding.rule === 'AVRO_READER_FIELD_WITHOUT_DEFAULT';
  const pointer = isAvro && reader !== undefined ? avroPointer(reader, finding.path, isField) : undefined;
  if (isField && pointer !== undefined) {
    const [here, there] = backward ? ['new', 'old'] : ['old', 'new'];
    return `{errorType:'${errorType}', description:'The field '${last}' at path '${pointer}' in the ${here} schema has no default value and is missing in the ${there} schema', additionalInfo:'${last}'}`;
  }
  const against =
    comparison.version === undefined
      ? 'in any mode'
      : `${comparison.direction} against version ${comparison.version}`;
  const description = `${against}: ${findingLine(finding)}${pointer === undefined ? '' : `, path '${pointer}'`}`;
  return isAvro
    ? `{errorType:'${errorType}', description:'${description}', additionalInfo:'${finding.path}'}`
    : `{errorType:"${errorType}", description:"${description}"}`;
}

/** The message of a refused registration. */
export function incompatibleMessage(subject: string, judged: Judged): string {
  return `Schema being registered is incompatible with an earlier schema for subject "${subject}", details: [${messagesOf(judged).join(', ')}]`;
}
