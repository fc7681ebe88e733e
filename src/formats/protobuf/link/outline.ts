/** First step of linking: collects the messages, fields, enums and services of one file with full
 *  names, before any type is resolved. */
import {
  type FieldNode,
  type FileMember,
  type FileNode,
  isSet,
  type Label,
  type MessageMember,
  type MessageNode,
  membersOf,
  PROTO_PATH_CHARS_MAX,
  plainOption,
  SCALARS,
} from '../syntax/ast.ts';
import { protoFail } from '../syntax/lexer.ts';
import {
  jsonNameOf,
  type LinkedEnum,
  type LinkedField,
  type LinkedFile,
  type LinkedMessage,
  type LinkedOneof,
  mapEntryName,
} from './model.ts';

interface Scope {
  readonly messages: LinkedMessage[];
  readonly enums: LinkedEnum[];
  readonly extensions: LinkedField[];
}

/** Outlines a file. @param path import path; undefined for the schema itself */
export function outline(node: FileNode, path: string | undefined): LinkedFile {
  const file: LinkedFile = {
    path,
    node,
    imports: [],
    messages: [],
    enums: [],
    extensions: [],
    services: [],
    visible: new Set(),
  };
  file.visible.add(file);
  new Outliner(file).fill();
  return file;
}

class Outliner {
  private readonly file: LinkedFile;

  constructor(file: LinkedFile) {
    this.file = file;
  }

  fill(): void {
    const prefix = this.file.node.package === undefined ? '' : `${this.file.node.package}.`;
    for (const member of this.file.node.body) {
      this.declare(member, this.file, prefix, undefined);
      if (member.kind !== 'service') continue;
      const methods = member.methods.map((node) => ({
        name: node.name,
        input: undefined,
        output: undefined,
        node,
      }));
      const { name } = member;
      this.file.services.push({
        kind: 'service',
        name: `${prefix}${name}`,
        shortName: name,
        file: this.file,
        methods,
        node: member,
      });
    }
  }

  private declare(
    member: FileMember | MessageMember,
    scope: Scope,
    prefix: string,
    parent: LinkedMessage | undefined,
  ): void {
    if (member.kind === 'message') scope.messages.push(this.message(member, prefix, parent, 'message'));
    else if (member.kind === 'enum') {
      const { name } = member;
      scope.enums.push({
        kind: 'enum',
        name: `${prefix}${name}`,
        shortName: name,
        file: this.file,
        parent,
        node: member,
      });
    } else if (member.kind === 'extend') {
      for (const field of member.fields) {
        scope.extensions.push(this.field(field, scope, prefix, parent, { extendeeName: member.extendee }));
      }
    }
  }

  private message(
    node: MessageNode,
    prefix: string,
    parent: LinkedMessage | undefined,
    origin: 'message' | 'group' | 'map',
  ): LinkedMessage {
    const { body } = node;
    const oneofs: LinkedOneof[] = membersOf(body, 'oneof').map((oneof) => ({
      name: oneof.name,
      node: oneof,
    }));
    const message: LinkedMessage = {
      kind: 'message',
      name: `${prefix}${node.name}`,
      shortName: node.name,
      file: this.file,
      parent,
      node,
      fields: [],
      oneofs,
      messages: [],
      enums: [],
      extensions: [],
      options: membersOf(body, 'option'),
      reserved: membersOf(body, 'reserved'),
      extensionRanges: membersOf(body, 'extensions'),
      isMapEntry: origin === 'map' || isSet(membersOf(body, 'option'), 'map_entry'),
      isImplicit: origin === 'map',
      isGroup: origin === 'group',
    };
    if (message.name.length > PROTO_PATH_CHARS_MAX) {
      protoFail(`a full name is longer than ${PROTO_PATH_CHARS_MAX} characters`, node.at, this.file.path);
    }
    const inner = `${message.name}.`;
    const synthetic = new SyntheticOneofs(body, oneofs);
    let oneof = 0;
    for (const member of body) {
      if (member.kind === 'field') {
        const isOptional = this.file.node.syntax === 'proto3' && member.label === 'optional';
        const index = isOptional ? synthetic.add(member.name) : undefined;
        message.fields.push(this.field(member, message, inner, message, { oneof: index, isOptional }));
      } else if (member.kind === 'oneof') {
        for (const field of member.fields)
          message.fields.push(this.field(field, message, inner, message, { oneof }));
        oneof++;
      } else this.declare(member, message, inner, message);
    }
    return message;
  }

  private field(
    node: FieldNode,
    scope: Scope,
    prefix: string,
    parent: LinkedMessage | undefined,
    more: {
      readonly oneof?: number | undefined;
      readonly isOptional?: boolean;
      readonly extendeeName?: string;
    },
  ): LinkedField {
    const isExtension = more.extendeeName !== undefined;
    const field: LinkedField = {
      kind: 'field',
      name: node.name,
      fullName: `${prefix}${node.name}`,
      number: node.number,
      label: node.mapKey !== undefined ? 'repeated' : this.label(node),
      type: SCALARS.has(node.type) && node.mapKey === undefined ? node.type : 'message',
      target: undefined,
      jsonName: writtenJsonName(node) ?? jsonNameOf(node.name),
      oneof: more.oneof,
      proto3Optional:
        more.isOptional ?? (isExtension && this.file.node.syntax === 'proto3' && node.label === 'optional'),
      file: this.file,
      parent,
      extendeeName: more.extendeeName,
      extendee: isExtension ? undefined : parent,
      node,
      at: node.at,
    };
    if (node.group !== undefined) {
      field.type = 'group';
      field.target = this.message(node.group, prefix, parent, 'group');
      scope.messages.push(field.target);
    } else if (node.mapKey !== undefined && parent !== undefined) {
      field.target = this.mapEntry(node, prefix, parent);
      scope.messages.push(field.target);
    }
    return field;
  }

  private label(node: FieldNode): Label {
    if (this.file.node.syntax !== 'editions') return node.label ?? 'optional';
    return node.label ?? (presenceFeature(node) === 'LEGACY_REQUIRED' ? 'required' : 'optional');
  }

  private mapEntry(node: FieldNode, prefix: string, parent: LinkedMessage): LinkedMessage {
    const name = mapEntryName(node.name);
    const { at, typeAt } = node;
    const part = (field: string, number: number, type: string): FieldNode => ({
      kind: 'field',
      label: this.file.node.syntax === 'proto2' ? 'optional' : undefined,
      type,
      mapKey: undefined,
      name: field,
      number,
      options: [],
      group: undefined,
      at,
      typeAt,
    });
    const body = [part('key', 1, node.mapKey as string), part('value', 2, node.type)];
    return this.message({ kind: 'message', name, body, at }, prefix, parent, 'map');
  }
}

/** Synthetic oneofs: a proto3 optional is a oneof of one field. Its name is that of the field, with
 *  an X before it for each collision. */
class SyntheticOneofs {
  private readonly taken = new Set<string>();
  private readonly oneofs: LinkedOneof[];

  constructor(body: readonly MessageMember[], oneofs: LinkedOneof[]) {
    this.oneofs = oneofs;
    for (const member of body) {
      if (member.kind === 'field' || member.kind === 'oneof') this.taken.add(member.name);
      if (member.kind === 'oneof') for (const field of member.fields) this.taken.add(field.name);
    }
  }

  add(field: string): number {
    let name = field.startsWith('_') ? field : `_${field}`;
    while (this.taken.has(name)) name = `X${name}`;
    this.taken.add(name);
    this.oneofs.push({ name, node: undefined });
    return this.oneofs.length - 1;
  }
}

function writtenJsonName(node: FieldNode): string | undefined {
  const value = plainOption(node.options, 'json_name')?.value;
  return value?.kind === 'string' ? value.bytes.toString() : undefined;
}

/** `features.field_presence` that the field itself sets. */
function presenceFeature(node: FieldNode): string | undefined {
  for (const { name, value } of node.options) {
    if (name[0]?.name !== 'features' || name[0].extension) continue;
    if (name.length === 2 && name[1]?.name === 'field_presence' && value.kind === 'word') return value.text;
    if (name.length !== 1 || value.kind !== 'message') continue;
    const inside = value.entries.find(({ key }) => key === 'field_presence')?.value;
    if (inside?.kind === 'word') return inside.text;
  }
  return undefined;
}
