/** Compares the fields that a job names with a schema, without a record. */
import type { ColumnKernels } from '../../../core/columns/kernel.ts';
import { findMillraceError } from '../../../core/errors.ts';
import { nearest } from '../../../core/settings.ts';
import { type AggregateField, aggregateSpecs, fieldText } from '../../../engine/aggregate/definition.ts';
import { avroPlan } from '../../../engine/source/input/avro.ts';
import {
  fieldsOf,
  type InputDefinition,
  type InputFields,
  keySpec,
  keyText,
  valuePath,
} from '../../../engine/source/input/definition.ts';
import { SchemaFault, type WriterPlan } from '../../../engine/source/input/plan.ts';
import { protobufPlan } from '../../../engine/source/input/protobuf.ts';
import { withKinds } from '../../../engine/source/input/topic-input.ts';
import { isListName, plainName } from '../../../engine/source/list/path.ts';
import type { AvroNode } from '../../../formats/avro/syntax/tree.ts';
import type { JsonNode } from '../../../formats/json/text.ts';
import type { Schema } from '../../../formats/schema.ts';

export interface FieldFault {
  readonly setting: 'key' | 'time' | 'value' | 'where' | 'dedup' | 'aggregate';
  /** As the job names it. */
  readonly field: string;
  readonly message: string;
  readonly next: string | undefined;
}

/** A setting cut down to one field. */
interface Piece {
  readonly setting: FieldFault['setting'];
  readonly field: string;
  readonly definition: Partial<InputDefinition>;
}

/** The schema in messages. */
const THE_SCHEMA = 'the schema';

/** Most names of fields that a message lists. */
const NAMES_SHOWN = 12;

function piecesOf({ key, time, value, where, dedup, aggregate }: InputDefinition): readonly Piece[] {
  const spec = keySpec(key ?? '@key');
  const keys = spec.from === 'record' ? [] : spec.fields;
  const timePath =
    time === undefined || time.startsWith('@') ? undefined : fieldsOf({ format: 'avro', time });
  const found: Piece[] = keys.map((field) => ({
    setting: 'key',
    field: field.path.join('.'),
    definition: { key: keyText({ from: 'fields', fields: [field] }) },
  }));
  if (time !== undefined && timePath?.time.from === 'field')
    found.push({ setting: 'time', field: timePath.time.path.join('.'), definition: { time } });
  if (value !== undefined)
    found.push({ setting: 'value', field: valuePath(value).join('.'), definition: { value } });
  if (dedup !== undefined) found.push({ setting: 'dedup', field: dedup, definition: { dedup } });
  const specs = aggregate === undefined ? [] : aggregateSpecs(aggregate);
  const fields = specs.flatMap(({ field }) => (field === undefined ? [] : [field]));
  // One aggregate for each kind of each field.
  const aggregates = new Map(fields.map((field) => [readerText(field), field.path.join('.')]));
  for (const [text, field] of aggregates)
    found.push({ setting: 'aggregate', field, definition: { aggregate: text } });
  if (where !== undefined) found.push({ setting: 'where', field: where, definition: { where } });
  return found;
}

/** An aggregate that reads a field. */
function readerText(field: AggregateField): string {
  const isIdentifier = field.kind === 'id' || field.kind === 'text';
  return `${isIdentifier ? 'distinct' : 'count'}(${fieldText(field)})`;
}

export interface FieldCheck {
  readonly faults: readonly FieldFault[];
  /** Messages of a Protobuf schema that have all fields of the job, by their names. A record says
   *  which of them it has. Empty: none, or the schema has only one, or no field is named. */
  readonly messages: readonly string[];
}

/** Finds the fields that the schema lacks, or has in a type that the engine cannot read. A Protobuf
 *  schema is read by each of its messages, because only records say which of them they have: the
 *  faults are those of the message with the fewest. */
export function checkFields(asked: InputDefinition, schema: Schema, columns: ColumnKernels): FieldCheck {
  const pieces = piecesOf(asked);
  if (schema.format === 'JSON')
    return { faults: pieces.flatMap((piece) => jsonFaults(piece, schema.tree)), messages: [] };
  if (schema.format === 'AVRO') {
    const reading: Reading = {
      ...{ what: THE_SCHEMA, names: recordNames(schema.tree) },
      withKinds: (known) => withKinds(known, schema, undefined, []),
      plan: (fields) => avroPlan(columns, fields, undefined, schema),
    };
    return { faults: pieces.flatMap((piece) => planFaults(piece, reading)), messages: [] };
  }
  const { messages } = schema.tree;
  const checks = messages.map((message) => {
    const { name, fields: own } = message;
    const reading: Reading = {
      what: messages.length === 1 ? THE_SCHEMA : `the message ${name}`,
      names: own.map((field) => field.name),
      withKinds: (known) => withKinds(known, schema, undefined, [message]),
      plan: (fields) => protobufPlan(columns, fields, undefined, message),
    };
    return { name, faults: pieces.flatMap((piece) => planFaults(piece, reading)) };
  });
  const [best] = [...checks].sort((a, b) => a.faults.length - b.faults.length);
  const isOpen = messages.length > 1 && pieces.length > 0;
  const valid = isOpen ? checks.filter(({ faults }) => faults.length === 0) : [];
  return { faults: best?.faults ?? [], messages: valid.map(({ name }) => name) };
}

/** Reader of the records of a schema, or of one of its messages. */
interface Reading {
  readonly what: string;
  /** Names of its fields. */
  readonly names: readonly string[];
  readonly withKinds: (asked: InputDefinition) => InputDefinition;
  readonly plan: (fields: InputFields) => WriterPlan;
}

function planFaults(piece: Piece, reading: Reading): readonly FieldFault[] {
  const { setting, field } = piece;
  try {
    const fields = fieldsOf(reading.withKinds({ format: 'undecided', ...piece.definition }));
    const plan = reading.plan(fields);
    plan.close();
    return plan.absent.map((index) =>
      missing(setting, (fields.where?.fields[index]?.steps ?? []).join('.'), reading),
    );
  } catch (thrown) {
    if (thrown instanceof SchemaFault) return [missing(setting, field, reading)];
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    return [{ setting, field, message: error.message, next: error.next }];
  }
}

function missing(
  setting: FieldFault['setting'],
  field: string,
  { what, names }: Pick<Reading, 'what' | 'names'>,
): FieldFault {
  const near = nearest(field, names);
  const shown = names.slice(0, NAMES_SHOWN).join(', ');
  const more = names.length > NAMES_SHOWN ? ', …' : '';
  return {
    ...{ setting, field },
    message: `-${setting} names ${field}, which ${what} does not have`,
    next: near === undefined ? `its fields are ${shown}${more}` : `did you mean ${near}?`,
  };
}

const recordNames = (node: AvroNode): readonly string[] =>
  node.kind === 'record' ? node.fields.map(({ name }) => name) : [];

const memberOf = (node: JsonNode, name: string): JsonNode | undefined =>
  node.kind === 'object' ? node.members.get(name)?.value : undefined;

function membersOf(node: JsonNode, name: string) {
  const member = memberOf(node, name);
  return member?.kind === 'object' ? member.members : undefined;
}

const jsonNames = (root: JsonNode): readonly string[] => [...(membersOf(root, 'properties')?.keys() ?? [])];

/** A JSON Schema denies a field only where it is closed: additionalProperties is false. */
function jsonFaults({ setting, field, definition }: Piece, root: JsonNode): readonly FieldFault[] {
  const { where } = fieldsOf({ format: 'json', ...definition });
  const paths =
    where === undefined ? [field] : where.fields.map(({ steps }) => (steps as readonly string[]).join('.'));
  return paths
    .filter((path) => isDenied(root, path.split('.')))
    .map((path) => missing(setting, path, { what: THE_SCHEMA, names: jsonNames(root) }));
}

function isDenied(root: JsonNode, path: readonly string[]): boolean {
  let at: JsonNode | undefined = root;
  for (const name of path) {
    if (at === undefined) return false;
    const inner: JsonNode | undefined = membersOf(at, 'properties')?.get(plainName(name))?.value;
    if (inner === undefined) {
      const rest = memberOf(at, 'additionalProperties');
      return rest?.kind === 'boolean' && !rest.value && memberOf(at, 'patternProperties') === undefined;
    }
    at = isListName(name) ? memberOf(inner, 'items') : inner;
  }
  return false;
}
