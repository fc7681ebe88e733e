/** Verdicts of policy STRICT in the very words of the existing registries, so that what parses
 *  theirs parses ours.
 *
 *  The newest version that refuses ends the list, with its text behind it; where both directions
 *  are asked for, what the old schema cannot read comes first, and the text follows what the new
 *  one cannot. Source: avro/Difference.java, protobuf/diff/Difference.java and
 *  SchemaValidatorBuilder.java of confluentinc/schema-registry, for the words (facts only).
 */
import { type Finding, findingLine, isCompatible } from '../../compatibility/finding.ts';
import type { Comparison } from '../../compatibility/modes.ts';
import { MESSAGES_MAX, Said } from './bound.ts';

/** Characters of an old schema's text in a message. */
const OLD_SCHEMA_CHARS_MAX = 10 * 1024;

/** Who has to read, and who wrote. */
type Sides = readonly [reader: string, writer: string];

/** By errorType; `at` is a pointer, `more` what is added to it. */
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

/** By errorType; `at` is the message and the number. */
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

/** Undefined: the existing registries have no words for it. */
function wordsOf(finding: Finding, sides: Sides): string | undefined {
  const { rule, pointer, detail = '', place } = finding;
  const avro = AVRO[rule];
  if (avro !== undefined && pointer !== undefined)
    return `{errorType:'${rule}', description:'${avro(pointer, detail, sides)}', additionalInfo:'${detail}'}`;
  const proto = PROTO[rule];
  if (proto !== undefined && place !== undefined)
    return `{errorType:"${rule}", description:"${proto(place, sides)}"}`;
  // Their checker ends with an exception, and says so.
  if (rule === 'AVRO_ALIAS_AMBIGUOUS')
    return `Unexpected exception during compatibility check: ${finding.message}`;
  return rule === 'FORMAT_CHANGED' ? finding.message : undefined;
}

export function oldSchemaLines(version: number, text: string | undefined): string[] {
  const said = `{oldSchemaVersion: ${version}}`;
  if (text === undefined) return [said];
  const shown =
    text.length <= OLD_SCHEMA_CHARS_MAX
      ? `'${text}'`
      : `<truncated to ${OLD_SCHEMA_CHARS_MAX} characters> '${text.slice(0, OLD_SCHEMA_CHARS_MAX)}'`;
  return [said, `{oldSchema: ${shown}}`];
}

/** What stands against a schema.
 *  @param textOf of a version
 *  @param inAnyMode says what is refused in every mode and policy, which the existing registries do
 *  not */
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
  const said = new Said(false);
  // What changing the level would not help against comes first where not all is said.
  const all = [...forward, ...backward, ...history];
  for (const make of all.length <= MESSAGES_MAX ? all : [...history, ...forward, ...backward]) said.add(make);
  if (numbers.length === 0) return said.all();
  const isBoth = comparisons.some((one) => one.version === version && one.direction === 'BACKWARD');
  const text = backward.length === 0 && isBoth ? [] : oldSchemaLines(version, textOf(version));
  return [...said.all(), ...text];
}
