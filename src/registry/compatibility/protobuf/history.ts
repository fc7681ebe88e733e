/** History of field numbers over all versions a subject ever had.
 *
 *  Invariants: (1) a number that was removed may be used again only for the same field, with the
 *  same name and type, because old events then keep their meaning;
 *  (2) a number never changes to a type that reads other bytes.
 *  Both hold in every mode, NONE included: data with the old meaning may still be in a topic.
 *  An extension is a field of the message that it extends. Numbers of enums are free: a reader
 *  keeps an unknown number. */
import type { ProtoField, ProtoFile, ProtoMessage } from '../../../formats/protobuf/tree.ts';
import { type Finding, Findings, type StepBudget } from '../finding.ts';
import { placeOf } from './trail.ts';
import { familyOf, wordOf } from './values.ts';

/** True if both fields read the same bytes. A message type that keeps its name is not compared,
 *  because its numbers have their own history. Different message types are compared by the numbers
 *  that they share.
 *  @param spend false: the step budget is spent, and the finding is added */
function readsSameBytes(a: ProtoField, b: ProtoField, spend: (steps: number) => boolean): boolean {
  const open: [ProtoField, ProtoField][] = [[a, b]];
  const seen = new Map<ProtoMessage, Set<ProtoMessage>>();
  for (let pair = open.pop(); pair !== undefined; pair = open.pop()) {
    const [here, there] = pair;
    if (!hasSameForm(here, there)) return false;
    const [one, other] = [here.message, there.message];
    if (one === undefined || other === undefined || one.name === other.name) continue;
    // `message` of a map is its value type, but the other field's message is the whole entry.
    if ((here.mapKey === undefined) !== (there.mapKey === undefined)) continue;
    const known = seen.get(one) ?? new Set();
    if (known.has(other)) continue;
    seen.set(one, known.add(other));
    if (!spend(one.fields.length + other.fields.length)) return true;
    const numbers = new Map(other.fields.map((field) => [field.number, field]));
    for (const field of one.fields) {
      const match = numbers.get(field.number);
      if (match !== undefined) open.push([field, match]);
    }
  }
  return true;
}

function hasSameForm(a: ProtoField, b: ProtoField): boolean {
  if (a.mapKey !== undefined && b.mapKey !== undefined)
    return familyOf(a.mapKey) === familyOf(b.mapKey) && familyOf(a.type) === familyOf(b.type);
  // An entry of a map is a message on the wire.
  const [here, there] = [a, b].map((field) => (field.mapKey === undefined ? field.type : 'message'));
  return familyOf(here as string) === familyOf(there as string) && a.delimited === b.delimited;
}

/** True for the same name, type and label. The fields of a message type have histories of their
 *  own. */
function isSameField(a: ProtoField, b: ProtoField): boolean {
  return a.name === b.name && wordOf(a) === wordOf(b) && a.delimited === b.delimited;
}

export interface ProtoVersion {
  readonly version: number;
  readonly tree: ProtoFile;
}

type Numbered = Pick<ProtoMessage, 'name' | 'fields'>;

/** Messages whose field numbers this schema assigns: its own, and those that it extends. */
const numberedOf = (tree: ProtoFile): readonly Numbered[] =>
  tree.extended.length === 0 ? tree.messages : [...tree.messages, ...tree.extended];

interface Held {
  readonly version: number;
  readonly field: ProtoField;
}

/** History of one number of the proposed schema. */
interface Life {
  /** Index of the latest version that has the number, and its field there. */
  last: number;
  held: ProtoField;
  /** First version where the number had a type that reads other bytes. */
  retyped: Held | undefined;
}

/** @param versions every version the subject ever had, oldest first; at most one tree is held at a
 *  time */
export function checkNumberHistory(
  proposed: ProtoFile,
  versions: Iterable<ProtoVersion>,
  budget?: StepBudget,
): readonly Finding[] {
  const findings = new Findings(budget);
  const ever = livesOf(proposed, versions, findings);
  // The step budget is spent, and an incomplete history proves nothing.
  if (ever === undefined) return findings.all();
  const { lives, numbers, latest } = ever;
  for (const message of numberedOf(proposed)) {
    for (const field of message.fields) {
      const life = lives.get(field);
      if (life === undefined) continue;
      const path = `${message.name}.${field.name}`;
      const place = placeOf(proposed, message.name, field.number);
      const gone = numbers[life.last + 1];
      if (life.retyped !== undefined) {
        const { version, field: held } = life.retyped;
        findings.add(
          'fail',
          'PROTO_NUMBER_RETYPED',
          path,
          `number ${field.number} was ${wordOf(held)} "${held.name}" in version ${version} and can never be ${wordOf(field)} "${field.name}"`,
          { place, reader: field.at, writer: held.at },
        );
      } else if (gone !== undefined && !isSameField(life.held, field)) {
        const isTyped = life.held.name === field.name;
        const [was, is] = [life.held, field].map((one) => `${isTyped ? `${wordOf(one)} ` : ''}"${one.name}"`);
        findings.add(
          'fail',
          'PROTO_NUMBER_REUSED',
          path,
          `number ${field.number} was ${was} until version ${numbers[life.last]}, was removed in version ${gone}, and cannot be used again for ${is}`,
          { place, reader: field.at, writer: life.held.at },
        );
      }
    }
  }
  if (latest !== undefined) noteUnreserved(findings, proposed, latest);
  return findings.all();
}

/** Notes removed numbers that are not reserved. A `reserved` in the text tells authors that the
 *  number is in use, before a refusal does. */
function noteUnreserved(findings: Findings, proposed: ProtoFile, { version, tree }: ProtoVersion): void {
  for (const { name, fields } of tree.messages) {
    const message = proposed.byName.get(name);
    if (message === undefined) continue;
    const { numbers } = message.reserved;
    // Both lists of fields are sorted by number.
    let at = 0;
    for (const field of fields) {
      for (; (message.fields[at]?.number ?? Number.POSITIVE_INFINITY) < field.number; ) at++;
      if (message.fields[at]?.number === field.number) continue;
      if (!findings.spend(1 + numbers.length, name)) return;
      if (numbers.some(({ from, to }) => from <= field.number && field.number <= to)) continue;
      findings.add(
        'note',
        'PROTO_NUMBER_NOT_RESERVED',
        `${name}.${field.name}`,
        `number ${field.number} was "${field.name}" in version ${version}, is gone and not reserved; no other field may use it again`,
        { place: placeOf(proposed, name, field.number), reader: message.at, writer: field.at },
      );
    }
  }
}

interface Ever {
  readonly lives: ReadonlyMap<ProtoField, Life>;
  /** Version numbers by index. */
  readonly numbers: readonly number[];
  readonly latest: ProtoVersion | undefined;
}

/** Walks over all versions once. Undefined: the step budget is spent. */
function livesOf(
  proposed: ProtoFile,
  versions: Iterable<ProtoVersion>,
  findings: Findings,
): Ever | undefined {
  const proposedFields = new Map<string, Map<number, ProtoField>>();
  for (const { name, fields } of numberedOf(proposed))
    proposedFields.set(name, new Map(fields.map((field) => [field.number, field])));
  const lives = new Map<ProtoField, Life>();
  const numbers: number[] = [];
  let latest: ProtoVersion | undefined;
  for (const one of versions) {
    const { version, tree } = one;
    const index = numbers.push(version) - 1;
    latest = one;
    for (const message of numberedOf(tree)) {
      const own = proposedFields.get(message.name);
      if (own === undefined) continue;
      if (!findings.spend(message.fields.length, message.name)) return undefined;
      for (const held of message.fields) {
        const field = own.get(held.number);
        if (field === undefined) continue;
        const life = lives.get(field) ?? { last: index, held, retyped: undefined };
        lives.set(field, life);
        life.last = index;
        life.held = held;
        const spend = (steps: number): boolean => findings.spend(steps, `${message.name}.${field.name}`);
        if (life.retyped === undefined && !readsSameBytes(held, field, spend))
          life.retyped = { version, field: held };
      }
    }
  }
  return { lives, numbers, latest };
}
