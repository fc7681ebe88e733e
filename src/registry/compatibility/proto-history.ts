/** The life of field numbers over all versions a subject ever had.
 *
 *  Invariants: (1) a number that vanished from a later version never comes back; (2) a number never changes to a type
 *  that reads other bytes. Both hold in every mode, NONE included: data with the old meaning may still be in a topic.
 */
import type { ProtoField, ProtoFile, ProtoMessage } from '../schemas/proto-tree.ts';
import { type Finding, Findings } from './finding.ts';

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

/** @param versions every version the subject ever had, oldest first */
export function checkNumberHistory(
  proposed: ProtoFile,
  versions: readonly ProtoVersion[],
): readonly Finding[] {
  const findings = new Findings();
  for (const message of proposed.messages) {
    for (const field of message.fields) checkNumber(findings, message, field, versions);
  }
  return findings.all();
}

function checkNumber(
  findings: Findings,
  message: ProtoMessage,
  field: ProtoField,
  versions: readonly ProtoVersion[],
): void {
  const path = `${message.name}.${field.name}`;
  let last: { readonly version: number; readonly field: ProtoField } | undefined;
  let vanishedIn: number | undefined;
  for (const { version, tree } of versions) {
    const held = tree.byName.get(message.name)?.fields.find((one) => one.number === field.number);
    if (held !== undefined) {
      last = { version, field: held };
      vanishedIn = undefined;
      if (wireGroup(held) !== wireGroup(field)) {
        findings.add(
          'fail',
          'PROTO_NUMBER_RETYPED',
          path,
          `number ${field.number} was ${held.type} "${held.name}" in version ${version} and can never be ${field.type} "${field.name}"`,
        );
        return;
      }
    } else if (last !== undefined) vanishedIn ??= version;
  }
  if (last !== undefined && vanishedIn !== undefined) {
    findings.add(
      'fail',
      'PROTO_NUMBER_REUSED',
      path,
      `number ${field.number} was "${last.field.name}" until version ${last.version}, vanished in version ${vanishedIn}, and never comes back as "${field.name}"`,
    );
  }
}
