/** A file without what extends other messages: no extends, no extension ranges, and no custom option but the
 *  registries' own metadata. Readers that lack the imports of the options can then still use it. */
import type { FieldNode, FileMember, FileNode, MessageMember, MessageNode, OptionNode } from './proto-ast.ts';

const KEPT = /^\.?confluent\./;

const plainOptions = (options: readonly OptionNode[]): OptionNode[] => options.filter(isPlain);

function isPlain({ name }: OptionNode): boolean {
  return name.every((part) => !part.extension || KEPT.test(part.name));
}

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
