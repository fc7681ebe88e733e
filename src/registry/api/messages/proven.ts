/** Messages for verdicts of policy PROVEN, in the form that clients of the existing registries
 *  parse.
 *  Order: all findings, including those against the whole history; then each refusing version with
 *  its text; then the settings of the subject. Source of the form: observed messages of Confluent
 *  Schema Registry 7 and 8. */
import { type Finding, findingLine, isCompatible } from '../../compatibility/finding.ts';
import type { Comparison, Verdict, VerdictPolicy } from '../../compatibility/modes.ts';
import type { StoredVersion } from '../../store/service.ts';
import { BoundedMessages, MESSAGES_MAX } from './bound.ts';
import { avroPointers } from './pointer.ts';
import { oldSchemaLines, strictMessages } from './strict.ts';

/** Limit of texts of old schemas in one answer. */
const OLD_SCHEMAS_MAX = 10;

/** Error types of the existing registries for our rules; a rule that is not listed keeps its own
 *  name. */
const ERROR_TYPES: Readonly<Record<string, string>> = {
  AVRO_NAME_CHANGED: 'NAME_MISMATCH',
  AVRO_FIXED_SIZE_CHANGED: 'FIXED_SIZE_MISMATCH',
  AVRO_ENUM_SYMBOL_MISSING: 'MISSING_ENUM_SYMBOLS',
  AVRO_READER_FIELD_WITHOUT_DEFAULT: 'READER_FIELD_MISSING_DEFAULT_VALUE',
  AVRO_TYPE_CHANGED: 'TYPE_MISMATCH',
  AVRO_BYTES_AS_STRING: 'TYPE_MISMATCH',
  AVRO_UNION_BRANCH_MISSING: 'MISSING_UNION_BRANCH',
  JSON_TYPE_NARROWED: 'TYPE_NARROWED',
  JSON_ENUM_VALUE_REMOVED: 'ENUM_ARRAY_NARROWED',
  JSON_REQUIRED_ADDED: 'REQUIRED_ATTRIBUTE_ADDED',
  JSON_PROPERTY_ADDED_TO_OPEN: 'PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL',
  JSON_PROPERTY_NOT_TAKEN: 'PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL',
  JSON_CONTENT_CLOSED: 'ADDITIONAL_PROPERTIES_REMOVED',
  JSON_UNIQUE_ADDED: 'UNIQUE_ITEMS_ADDED',
  JSON_COMBINATION_CHANGED: 'COMBINED_TYPE_CHANGED',
  PROTO_MESSAGE_REMOVED: 'MESSAGE_REMOVED',
  PROTO_REQUIRED_ADDED: 'REQUIRED_FIELD_ADDED',
  PROTO_MAP_CHANGED: 'FIELD_KIND_CHANGED',
  PROTO_ENCODING_CHANGED: 'FIELD_KIND_CHANGED',
  PROTO_BYTES_AS_STRING: 'FIELD_SCALAR_KIND_CHANGED',
  PROTO_ONEOF_CHANGED: 'MULTIPLE_FIELDS_MOVED_TO_ONEOF',
};

export interface Judged {
  readonly verdict: Verdict;
  readonly compared: readonly StoredVersion[];
  readonly level: string;
  readonly policy: VerdictPolicy;
  readonly validateFields: boolean;
  /** The proposed text. */
  readonly proposed: string;
}

/** Returns the reasons of a refusal; for an accepted schema, its losses and notes. */
export function messagesOf(judged: Judged): string[] {
  const { comparisons, compatible } = judged.verdict;
  const end = `{validateFields: '${judged.validateFields}', compatibility: '${judged.level}'}`;
  if (judged.policy === 'STRICT') {
    if (compatible) return [];
    const texts = new Map(judged.compared.map(({ version, content }) => [version, content.text]));
    const inAnyMode = (finding: Finding, comparison: Comparison): string =>
      incompatibility(finding, comparison, new Pointers(), judged.proposed);
    return [...strictMessages(comparisons, (version) => texts.get(version), inAnyMode), end];
  }
  if (compatible) return allowed(comparisons);
  // If no finding is incompatible, the schema was refused because the subject refuses lossy
  // changes.
  const strict = comparisons.every(({ findings }) => isCompatible(findings));
  const refuses = (finding: Finding): boolean =>
    strict ? finding.severity === 'lossy' : !isCompatible([finding]);
  const old = new Map(judged.compared.map((version) => [version.version, version]));
  const pointers = new Pointers();
  const messages = new BoundedMessages(true);
  const refusing = new Set<number>();
  for (const comparison of boundedOrder(comparisons, refuses)) {
    const { version } = comparison;
    const text = version === undefined ? undefined : old.get(version)?.content.text;
    // Paths of findings refer to the reader: the proposed schema, or the old schema in direction
    // FORWARD.
    const reader = comparison.direction === 'BACKWARD' ? judged.proposed : text;
    for (const finding of comparison.findings) {
      if (!refuses(finding)) continue;
      // Findings that several versions share are reported once.
      messages.add(() => incompatibility(finding, comparison, pointers, reader));
      if (version !== undefined) refusing.add(version);
    }
  }
  const lines = messages.all();
  for (const [index, version] of [...refusing].slice(0, MESSAGES_MAX).entries()) {
    const text = index < OLD_SCHEMAS_MAX ? old.get(version)?.content.text : undefined;
    lines.push(...oldSchemaLines(version, text));
  }
  if (refusing.size > MESSAGES_MAX) lines.push(`and ${refusing.size - MESSAGES_MAX} more versions refuse it`);
  return [...lines, end];
}

/** Puts findings against the whole history first if not all findings fit, because no other level
 *  would avoid them. */
function boundedOrder(
  comparisons: readonly Comparison[],
  refuses: (finding: Finding) => boolean,
): readonly Comparison[] {
  const count = comparisons.reduce((sum, { findings }) => sum + findings.filter(refuses).length, 0);
  if (count <= MESSAGES_MAX) return comparisons;
  const isHistory = ({ version }: Comparison): boolean => version === undefined;
  return [...comparisons.filter(isHistory), ...comparisons.filter((one) => !isHistory(one))];
}

/** Returns the findings of an accepted schema; losses come before notes if not all fit. */
function allowed(comparisons: readonly Comparison[]): string[] {
  const messages = new BoundedMessages(false);
  const findings = comparisons.flatMap((one) => one.findings);
  const isLossy = ({ severity }: Finding): boolean => severity === 'lossy';
  const ordered =
    findings.length <= MESSAGES_MAX
      ? findings
      : [...findings.filter(isLossy), ...findings.filter((one) => !isLossy(one))];
  for (const finding of ordered) messages.add(() => findingLine(finding));
  return messages.all();
}

/** Pointers into the last text that was used, because the findings of one comparison share a text.
 */
class Pointers {
  private text: string | undefined;
  private find: ReturnType<typeof avroPointers> = () => undefined;

  of(text: string, path: string, field: boolean): string | undefined {
    if (text !== this.text) this.find = avroPointers(text);
    this.text = text;
    return this.find(path, field);
  }
}

function incompatibility(
  finding: Finding,
  comparison: Comparison,
  pointers: Pointers,
  reader: string | undefined,
): string {
  if (finding.rule === 'FORMAT_CHANGED') return finding.message;
  const sides = comparison.direction === 'FORWARD' ? (['old', 'new'] as const) : (['new', 'old'] as const);
  const errorType = errorTypeOf(finding);
  const against =
    comparison.version === undefined
      ? 'in any mode'
      : `${comparison.direction} against version ${comparison.version}`;
  if (!finding.rule.startsWith('AVRO_')) {
    const description = describePlaced(finding, sides) ?? `${against}: ${findingLine(finding)}`;
    return `{errorType:"${errorType}", description:"${description.replaceAll('"', "'")}"}`;
  }
  const last = finding.path.slice(finding.path.lastIndexOf('.') + 1);
  const isField = finding.rule === 'AVRO_READER_FIELD_WITHOUT_DEFAULT';
  const pointer = reader === undefined ? undefined : pointers.of(reader, finding.path, isField);
  if (isField && pointer !== undefined) {
    return `{errorType:'${errorType}', description:'The field '${last}' at path '${pointer}' in the ${sides[0]} schema has no default value and is missing in the ${sides[1]} schema', additionalInfo:'${last}'}`;
  }
  const description = `${against}: ${findingLine(finding)}${pointer === undefined ? '' : `, path '${pointer}'`}`;
  return `{errorType:'${errorType}', description:'${description}', additionalInfo:'${finding.path}'}`;
}

function errorTypeOf({ rule, severity, kind }: Finding): string {
  if (rule === 'PROTO_LABEL_CHANGED' && kind === 'text') return 'FIELD_STRING_OR_BYTES_LABEL_CHANGED';
  if (rule === 'PROTO_LABEL_CHANGED' && kind === 'numeric') return 'FIELD_NUMERIC_LABEL_CHANGED';
  if (rule === 'PROTO_TYPE_CHANGED')
    return kind === 'scalar' ? 'FIELD_SCALAR_KIND_CHANGED' : 'FIELD_KIND_CHANGED';
  // The existing registries have no name for a change without a rule.
  return ERROR_TYPES[rule] ?? (severity === 'unjudged' ? 'UNJUDGED_CHANGE' : rule);
}

/** Describes a finding at a Protobuf field number; `here` is the reader's side. */
function describePlaced(finding: Finding, [here, there]: readonly [string, string]): string | undefined {
  const { rule, place, kind } = finding;
  if (place === undefined) return undefined;
  const where = `at path '${place}' in the ${here} schema`;
  if (rule === 'PROTO_TYPE_CHANGED')
    return `The kind of a ${kind === 'scalar' ? 'SCALAR ' : ''}field ${where} does not match its kind in the ${there} schema`;
  if (rule === 'PROTO_LABEL_CHANGED')
    return `The label of a ${kind === 'text' ? 'string or bytes ' : kind === 'numeric' ? 'numeric ' : ''}field ${where} does not match its label in the ${there} schema`;
  if (rule === 'PROTO_MESSAGE_REMOVED')
    return `The message at path '${place}' in the ${there} schema is missing in the ${here} schema`;
  return `The change ${where} is refused: ${findingLine(finding)}`;
}

/** Message of a refused registration. */
export function incompatibleMessage(subject: string, judged: Judged): string {
  return `Schema being registered is incompatible with an earlier schema for subject "${subject}", details: [${messagesOf(judged).join(', ')}]`;
}
