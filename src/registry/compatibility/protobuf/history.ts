/** The life of field numbers over all versions a subject ever had.
 *
 *  Invariants: (1) a number that vanished from a later version comes back only as the field that it was, with the same
 *  name and type, because then old events mean what they meant; (2) a number never changes to a type that reads other
 *  bytes. Both hold in every mode, NONE included: data with the old meaning may still be in a topic.
 *  An extension is a field of what it extends. Numbers of enums are free: a reader shows what has no name as a number.
 */
import type { ProtoField, ProtoFile, ProtoMessage } from '../../../formats/protobuf/tree.ts';
import { type Finding, Findings, type StepBudget } from '../finding.ts';
import { placeOf } from './trail.ts';
import { familyOf, wordOf } from './values.ts';

/** Whether bytes of the one are bytes of the other. What a message holds is told by its own numbers while it keeps its
 *  name; where another message takes its place, by the numbers that the two share.
 *  @param spend false: there were too many steps, and that has been said */
function readsSameBytes(a: ProtoField, b: ProtoField, spend: (steps: number) => boolean): boolean {
  const open: [ProtoField, ProtoField][] = [[a, b]];
  const met = new Map<ProtoMessage, Set<ProtoMessage>>();
  for (let pair = open.pop(); pair !== undefined; pair = open.pop()) {
    const [here, there] = pair;
    if (!hasSameForm(here, there)) return false;
    const [one, other] = [here.message, there.message];
    if (one === undefined || other === undefined || one.name === other.name) continue;
    // The message of a map is that of its values, and the other one the entry.
    if ((here.mapKey === undefined) !== (there.mapKey === undefined)) continue;
    const known = met.get(one) ?? new Set();
    if (known.has(other)) continue;
    met.set(one, known.add(other));
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

/** Same name, and same type with its label; the fields of a message type have histories of their own. */
function isSameField(a: ProtoField, b: ProtoField): boolean {
  return a.name === b.name && wordOf(a) === wordOf(b) && a.delimited === b.delimited;
}

export interface ProtoVersion {
  readonly version: number;
  readonly tree: ProtoFile;
}

type Numbered = Pick<ProtoMessage, 'name' | 'fields'>;

/** What has numbers that this schema hands out. */
const numberedOf = (tree: ProtoFile): readonly Numbered[] =>
  tree.extended.length === 0 ? tree.messages : [...tree.messages, ...tree.extended];

interface Held {
  readonly version: number;
  readonly field: ProtoField;
}

/** What the versions made of one number of the proposed schema. */
interface Life {
  /** Index among the versions, and the field there. */
  last: number;
  held: ProtoField;
  /** The first version where it had a type that reads other bytes. */
  retyped: Held | undefined;
}

/** @param versions every version the subject ever had, oldest first; each tree is let go before the next is asked for */
export function checkNumberHistory(
  proposed: ProtoFile,
  versions: Iterable<ProtoVersion>,
  budget?: StepBudget,
): readonly Finding[] {
  const findings = new Findings(budget);
  const ever = livesOf(proposed, versions, findings);
  // A history that is known in part proves nothing.
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
          `number ${field.number} was ${was} until version ${numbers[life.last]}, vanished in version ${gone}, and never comes back as ${is}`,
          { place, reader: field.at, writer: life.held.at },
        );
      }
    }
  }
  if (latest !== undefined) noteUnreserved(findings, proposed, latest);
  return findings.all();
}

/** A number that goes is best reserved in the text: then nobody has to learn from a refusal that it is taken. */
function noteUnreserved(findings: Findings, proposed: ProtoFile, { version, tree }: ProtoVersion): void {
  for (const { name, fields } of tree.messages) {
    const message = proposed.byName.get(name);
    if (message === undefined) continue;
    const { numbers } = message.reserved;
    // Both lists of fields are by number.
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
  /** The numbers of the versions, by index. */
  readonly numbers: readonly number[];
  readonly latest: ProtoVersion | undefined;
}

/** One walk over all versions, which costs what they hold together. Undefined: it took too many steps. */
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
