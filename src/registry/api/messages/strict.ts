/** Messages for verdicts of policy STRICT, word for word those of the existing registries, so that
 *  clients can parse both.
 *  Only the newest refusing version is reported, with its text last. With both directions, the
 *  findings of FORWARD come first, and the text follows only if BACKWARD has findings. Source:
 *  avro/Difference.java, protobuf/diff/Difference.java and SchemaValidatorBuilder.java of
 *  confluentinc/schema-registry, for the words (facts only). */
import { type Finding, findingLine, isCompatible } from '../../compatibility/finding.ts';
import type { Comparison } from '../../compatibility/modes.ts';
import { BoundedMessages, MESSAGES_MAX } from './bound.ts';

/** Limit of characters of an old schema's text in a message. */
const OLD_SCHEMA_CHARS_MAX = 10 * 1024;

/** The reader's and the writer's side: `new` or `old`. */
type Sides = readonly [reader: string, writer: string];

/** By errorType; `at` is a pointer, `more` the additionalInfo. */
const AVRO: Readonly<Record<string, (at: string, more: string, sides: Sides) => string>> = {
  FIXED_SIZE_MISMATCH: (at, _, [reader, writer]) =>
    `The size of FIXED type field at path '${at}' in the ${reader} schema does not match with the ${writer} schema`,
  TYPE_MISMATCH: (at, _, [reader, writer]) =>
    `The type (path '${at}') of a field in the ${reader} schema does not match with the ${writer} schema`,
  NAME_MISMATCH: (at) => `The name of the schema has changed (path '${at}')`,
  MISSING_ENUM_SYMBOLS: (at, more, [reader, writer]) =>
    `The ${reader} schema is missing enum symbols '${more}' at path '${at}' in the ${writer} schema`,
  MISSING_UNION_BRANCH: (at, _, [reader, writer]) =>
    `The ${reader} schema is missing a type inside a union field at path '${at}' in the ${writer} schema`,
  READER_FIELD_MISSING_DEFAULT_VALUE: (at, more, [reader, writer]) =>
    `The field '${more}' at path '${at}' in the ${reader} schema has no default value and is missing in the ${writer} schema`,
};

/** By errorType; `at` is the message and the number of its field. */
const PROTO: Readonly<Record<string, (at: string, sides: Sides) => string>> = {
  PACKAGE_CHANGED: (at, [reader, writer]) =>
    `The package at '${at}' in the ${reader} schema does not match the package in the ${writer} schema`,
  MESSAGE_REMOVED: (at, [reader, writer]) =>
    `The ${reader} schema is missing a MESSAGE type at path '${at}' in the ${writer} schema`,
  FIELD_KIND_CHANGED: (at, [reader, writer]) =>
    `The type of a field at path '${at}' in the ${reader} schema does not match the ${writer} schema`,
  FIELD_SCALAR_KIND_CHANGED: (at, [reader, writer]) =>
    `The kind of a SCALAR field at path '${at}' in the ${reader} schema does not match its kind in the ${writer} schema`,
  FIELD_NAMED_TYPE_CHANGED: (at, [reader, writer]) =>
    `The type of a MESSAGE field at path '${at}' in the ${reader} schema does not match its type in the ${writer} schema`,
  FIELD_NUMERIC_LABEL_CHANGED: (at, [reader, writer]) =>
    `The label for a NUMERIC field at path '${at}' in the ${reader} schema does not match its label in the ${writer} schema`,
  REQUIRED_FIELD_ADDED: (at, [reader, writer]) =>
    `A required field  at path '${at}' in the ${reader} schema is missing in the ${writer} schema`,
  REQUIRED_FIELD_REMOVED: (at, [reader, writer]) =>
    `The ${reader} schema is missing a required field at path: '${at}' in the ${writer} schema`,
  ONEOF_FIELD_REMOVED: (at, [reader, writer]) =>
    `The ${reader} schema is missing a oneof field at path '${at}' in the ${writer} schema`,
  MULTIPLE_FIELDS_MOVED_TO_ONEOF: (at, [reader, writer]) =>
    `Multiple fields in the oneof at path '${at}' in the ${reader} schema are outside a oneof in the ${writer} schema`,
  FIELD_MOVED_TO_EXISTING_ONEOF: (at, [reader, writer]) =>
    `A field in the oneof at path '${at}' in the ${reader} schema is outside an existing oneof in the ${writer} schema`,
};

/** Returns the wording of the existing registries; undefined: they have none for this rule. */
function wordsOf(finding: Finding, sides: Sides): string | undefined {
  const { rule, pointer, detail = '', place } = finding;
  const avro = AVRO[rule];
  if (avro !== undefined && pointer !== undefined)
    return `{errorType:'${rule}', description:'${avro(pointer, detail, sides)}', additionalInfo:'${detail}'}`;
  const proto = PROTO[rule];
  if (proto !== undefined && place !== undefined)
    return `{errorType:"${rule}", description:"${proto(place, sides)}"}`;
  // Their checker fails with an exception and reports this text.
  if (rule === 'AVRO_ALIAS_AMBIGUOUS')
    return `Unexpected exception during compatibility check: ${finding.message}`;
  return rule === 'FORMAT_CHANGED' ? finding.message : undefined;
}

export function oldSchemaLines(version: number, text: string | undefined): string[] {
  const versionLine = `{oldSchemaVersion: ${version}}`;
  if (text === undefined) return [versionLine];
  const shown =
    text.length <= OLD_SCHEMA_CHARS_MAX
      ? `'${text}'`
      : `<truncated to ${OLD_SCHEMA_CHARS_MAX} characters> '${text.slice(0, OLD_SCHEMA_CHARS_MAX)}'`;
  return [versionLine, `{oldSchema: ${shown}}`];
}

/** Returns the reasons of a refusal.
 *  @param textOf returns the text of a version
 *  @param inAnyMode formats a finding that is refused in every mode and policy, for which the
 *  existing registries have no form */
export function strictMessages(
  comparisons: readonly Comparison[],
  textOf: (version: number) => string | undefined,
  inAnyMode: (finding: Finding, comparison: Comparison) => string,
): string[] {
  const refusing = comparisons
    .map((one) => ({ ...one, findings: one.findings.filter((finding) => !isCompatible([finding])) }))
    .filter(({ findings }) => findings.length > 0);
  const history = refusing
    .filter(({ version }) => version === undefined)
    .flatMap((one) => one.findings.map((finding) => () => inAnyMode(finding, one)));
  const numbers = refusing.flatMap(({ version }) => version ?? []);
  const version = Math.max(...numbers);
  const found = (direction: Comparison['direction'], sides: Sides): Array<() => string> =>
    refusing
      .filter((one) => one.version === version && one.direction === direction)
      .flatMap(({ findings }) => findings.map((one) => () => wordsOf(one, sides) ?? findingLine(one)));
  const forward = found('FORWARD', ['old', 'new']);
  const backward = found('BACKWARD', ['new', 'old']);
  const messages = new BoundedMessages(false);
  // Findings against the whole history come first if not all fit, because no other level would
  // avoid them.
  const all = [...forward, ...backward, ...history];
  for (const make of all.length <= MESSAGES_MAX ? all : [...history, ...forward, ...backward])
    messages.add(make);
  if (numbers.length === 0) return messages.all();
  const isBoth = comparisons.some((one) => one.version === version && one.direction === 'BACKWARD');
  const text = backward.length === 0 && isBoth ? [] : oldSchemaLines(version, textOf(version));
  return [...messages.all(), ...text];
}
