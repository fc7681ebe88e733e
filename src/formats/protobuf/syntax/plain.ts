/** Removes statements from files. */

import { jsonNameOf } from '../link/model.ts';
import {
  type FieldNode,
  type FileMember,
  type FileNode,
  type MessageMember,
  type MessageNode,
  type OptionNode,
  plainOption,
} from './ast.ts';

const KEPT = /^\.?confluent\./;

const plainOptions = (options: readonly OptionNode[]): OptionNode[] => options.filter(isPlain);

function isPlain({ name }: OptionNode): boolean {
  return name.every((part) => !part.extension || KEPT.test(part.name));
}

/** A file without extensions of other messages: no extends, no extension ranges, and no custom
 *  option except the registries' own metadata. Readers that lack the imports of the options can
 *  then still use it. */
export function withoutExtensions(file: FileNode): FileNode {
  const body = file.body.flatMap((member): FileMember[] => {
    if (member.kind === 'extend') return [];
    if (member.kind === 'message') return [plainMessage(member)];
    if (member.kind === 'enum') return [plainEnum(member)];
    const methods = member.methods.map((method) => ({ ...method, options: plainOptions(method.options) }));
    return [{ ...member, options: plainOptions(member.options), methods }];
  });
  return { ...file, options: plainOptions(file.options), body };
}

function plainMessage(message: MessageNode): MessageNode {
  const body = message.body.flatMap((member): MessageMember[] => {
    switch (member.kind) {
      case 'extend':
      case 'extensions':
        return [];
      case 'option':
        return isPlain(member) ? [member] : [];
      case 'message':
        return [plainMessage(member)];
      case 'enum':
        return [plainEnum(member)];
      case 'field':
        return [plainField(member)];
      case 'oneof':
        return [{ ...member, options: plainOptions(member.options), fields: member.fields.map(plainField) }];
      default:
        return [member];
    }
  });
  return { ...message, body };
}

function plainField(field: FieldNode): FieldNode {
  const group = field.group === undefined ? undefined : plainMessage(field.group);
  return { ...field, options: plainOptions(field.options), group };
}

function plainEnum(node: FileMember & { readonly kind: 'enum' }): FileMember & { readonly kind: 'enum' } {
  const values = node.values.map((value) => ({ ...value, options: plainOptions(value.options) }));
  return { ...node, options: plainOptions(node.options), values };
}

/** A file without the JSON names that follow from field names: compilers write them into
 *  descriptors, but authors do not write them. The same object where it has none of these. */
export function withoutDerivedJsonNames(file: FileNode): FileNode {
  const body = mapped(file.body, (member) => (member.kind === 'message' ? impliedMessage(member) : member));
  return body === file.body ? file : { ...file, body };
}

/** Maps a list; the same list where no item changes. */
function mapped<T>(items: readonly T[], change: (item: T) => T): readonly T[] {
  const changed = items.map(change);
  return changed.every((item, at) => item === items[at]) ? items : changed;
}

function impliedMessage(message: MessageNode): MessageNode {
  const body = mapped(message.body, (member): MessageMember => {
    if (member.kind === 'message') return impliedMessage(member);
    if (member.kind === 'field') return impliedField(member);
    if (member.kind !== 'oneof') return member;
    const fields = mapped(member.fields, impliedField);
    return fields === member.fields ? member : { ...member, fields };
  });
  return body === message.body ? message : { ...message, body };
}

function impliedField(field: FieldNode): FieldNode {
  const stated = plainOption(field.options, 'json_name');
  const isDerived =
    stated?.value.kind === 'string' && stated.value.bytes.toString() === jsonNameOf(field.name);
  const options = isDerived ? field.options.filter((option) => option !== stated) : field.options;
  const group = field.group === undefined ? undefined : impliedMessage(field.group);
  return options === field.options && group === field.group ? field : { ...field, options, group };
}
