/** The life of field numbers over all versions a subject ever had.
 *
 *  Invariants: (1) a number that vanished from a later version never comes back; (2) a number never changes to a type
 *  that reads other bytes. Both hold in every mode, NONE included: data with the old meaning may still be in a topic.
 */
import type { ProtoField, ProtoFile } from '../schemas/proto-tree.ts';
import { type Finding, Findings } from './finding.ts';
import { placeOf } from './proto.ts';

/** Types that read each other's bytes. */
const WIRE_GROUPS: Readonly<Record<string, string>> = {
  int32: 'varint',
  int64: 'varint',
  uint32: 'varint',
  uint64: 'varint',
  bool: 'varint',
  enum: 'varint',
  sint32: 'zigzag',
  sint64: 'zigzag',
  fixed32: 'fixed32',
  sfixed32: 'fixed32',
  fixed64: 'fixed64',
  sfixed64: 'fixed64',
  string: 'text',
  bytes: 'text',
};

function wireGroup(field: ProtoField): string {
  if (field.mapKey !== undefined) return `map<${field.mapKey}>`;
  return WIRE_GROUPS[field.type] ?? field.type;
}

export interface ProtoVersion {
  readonly version: number;
  readonly tree: ProtoFile;
}

/** What the versions made of one number of the proposed schema. */
interface Life {
  /** Index among the versions, and the field there. */
  last: number;
  held: ProtoField;
  /** The first version where it had a type that reads other bytes. */
  retyped: { readonly version: number; readonly held: ProtoField } | undefined;
}

/** @param versions every version the subject ever had, oldest first */
export function checkNumberHistory(
  proposed: ProtoFile,
  versions: readonly ProtoVersion[],
): readonly Finding[] {
  const findings = new Findings();
  const lives = livesOf(proposed, versions);
  for (const message of proposed.messages) {
    for (const field of message.fields) {
      const life = lives.get(field);
      if (life === undefined) continue;
      const path = `${message.name}.${field.name}`;
      const place = placeOf(proposed, message, field.number);
      const gone = versions[life.last + 1];
      if (life.retyped !== undefined) {
        const { version, held } = life.retyped;
        findings.add(
          'fail',
          'PROTO_NUMBER_RETYPED',
          path,
          `number ${field.number} was ${held.type} "${held.name}" in version ${version} and can never be ${field.type} "${field.name}"`,
          { place },
        );
      } else if (gone !== undefined) {
        findings.add(
          'fail',
          'PROTO_NUMBER_REUSED',
          path,
          `number ${field.number} was "${life.held.name}" until version ${versions[life.last]?.version}, vanished in version ${gone.version}, and never comes back as "${field.name}"`,
          { place },
        );
      }
    }
  }
  return findings.all();
}

/** One walk over all versions, which costs what they hold together. */
function livesOf(proposed: ProtoFile, versions: readonly ProtoVersion[]): ReadonlyMap<ProtoField, Life> {
  const numbers = new Map(
    proposed.messages.map(({ name, fields }) => [
      name,
      new Map(fields.map((field) => [field.number, field])),
    ]),
  );
  const lives = new Map<ProtoField, Life>();
  for (const [index, { version, tree }] of versions.entries()) {
    for (const message of tree.messages) {
      const own = numbers.get(message.name);
      if (own === undefined) continue;
      for (const held of message.fields) {
        const field = own.get(held.number);
        if (field === undefined) continue;
        const life = lives.get(field) ?? { last: index, held, retyped: undefined };
        lives.set(field, life);
        life.last = index;
        life.held = held;
        if (wireGroup(held) !== wireGroup(field)) life.retyped ??= { version, held };
      }
    }
  }
  return lives;
}
