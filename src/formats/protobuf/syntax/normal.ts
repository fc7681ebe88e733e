/** Normalized file: spellings with one meaning become equal. Imports, options and fields have a
 *  fixed order, types their full names, and reserved numbers one statement each. There is no
 *  statement for proto2, because a file without one is proto2. Messages are never moved: where
 *  sorting groups or oneofs would move a message, their order stays. */

import { isClosed } from '../link/features.ts';
import {
  allEnums,
  allMessages,
  type LinkedField,
  type LinkedMessage,
  type LinkedService,
  mapKeyOf,
} from '../link/model.ts';
import type { ProtoLink } from '../link/resolve.ts';
import type {
  EnumNode,
  ExtendNode,
  ExtensionsNode,
  FieldNode,
  FileMember,
  FileNode,
  ImportNode,
  MessageMember,
  MessageNode,
  NumberRange,
  OneofNode,
  OptionNode,
  ReservedNode,
  ServiceNode,
} from './ast.ts';
import { membersOf } from './ast.ts';
import { normalOptions } from './normal-option.ts';
import { nestedMessages } from './print.ts';

export function normalized(link: ProtoLink): FileNode {
  return new Normalizer(link).file();
}

const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const byNumber = (a: { readonly number: number }, b: { readonly number: number }): number =>
  a.number - b.number;

class Normalizer {
  private readonly link: ProtoLink;
  private readonly fields = new Map<FieldNode, LinkedField>();
  private readonly services: ReadonlyMap<ServiceNode, LinkedService>;
  private readonly open = new Set<EnumNode>();
  /** Messages of map entries of fields of type map. */
  private readonly entries = new Set<MessageNode>();

  constructor(link: ProtoLink) {
    this.link = link;
    this.services = new Map(link.root.services.map((service) => [service.node, service]));
    for (const field of link.root.extensions) this.fields.set(field.node, field);
    for (const message of allMessages(link.root.messages)) {
      if (message.isMapEntry) this.entries.add(message.node);
      for (const field of [...message.fields, ...message.extensions]) this.fields.set(field.node, field);
    }
    for (const enumeration of allEnums(link.root))
      if (!isClosed(enumeration)) this.open.add(enumeration.node);
  }

  file(): FileNode {
    const { node } = this.link.root;
    const scope = node.package ?? '';
    const inner = scope === '' ? '' : `${scope}.`;
    const normal = (member: FileMember): FileMember[] => {
      if (member.kind === 'message') {
        return this.messagesOf([member]).map((one) => this.message(one, `${inner}${one.name}`));
      }
      if (member.kind === 'enum') return [this.enumeration(member, scope)];
      if (member.kind === 'service') return [this.service(member, `${inner}${member.name}`)];
      return this.extends([member], scope);
    };
    const of = (kind: FileMember['kind']): FileMember[] =>
      node.body.filter((member) => member.kind === kind).flatMap(normal);
    const extend = this.extends(membersOf(node.body, 'extend'), scope);
    const sorted: FileMember[] = [...of('message'), ...of('enum'), ...extend, ...of('service')];
    return {
      ...node,
      syntaxWritten: node.syntax !== 'proto2',
      imports: distinct(node.imports),
      options: this.options(node.options, 'google.protobuf.FileOptions', scope),
      body: this.keepsOrder(node.body, sorted) ? sorted : node.body.flatMap(normal),
    };
  }

  private messagesOf(body: readonly (MessageMember | FileMember)[]): MessageNode[] {
    return membersOf(body, 'message').filter((one) => !this.entries.has(one));
  }

  private keepsOrder(
    body: readonly (MessageMember | FileMember)[],
    sorted: readonly (MessageMember | FileMember)[],
  ): boolean {
    const moved = nestedMessages(sorted);
    const kept = nestedMessages(body).filter((one) => !this.entries.has(one));
    return kept.every(({ at }, index) => at === moved[index]?.at);
  }

  private options(options: readonly OptionNode[], message: string, scope: string): OptionNode[] {
    return normalOptions(this.link, options, message, scope);
  }

  private message(node: MessageNode, name: string): MessageNode {
    const { body } = node;
    const fields = membersOf(body, 'field').map((field) => this.field(field, name));
    const oneofs = membersOf(body, 'oneof').map((oneof) => this.oneof(oneof, name));
    const inner: MessageMember[] = [
      ...this.messagesOf(body).map((one) => this.message(one, `${name}.${one.name}`)),
      ...membersOf(body, 'enum').map((one) => this.enumeration(one, name)),
    ];
    const head: MessageMember[] = [
      ...splitReserved(membersOf(body, 'reserved')),
      ...this.options(membersOf(body, 'option'), 'google.protobuf.MessageOptions', name),
    ];
    const extensions = this.extensions(membersOf(body, 'extensions'), name);
    const extend = this.extends(membersOf(body, 'extend'), name);
    const sorted: MessageMember[] = [
      ...head,
      ...fields.filter(({ group }) => group === undefined).sort(byNumber),
      ...[...oneofs].sort((a, b) => (a.fields[0]?.number ?? 0) - (b.fields[0]?.number ?? 0)),
      ...fields.filter(({ group }) => group !== undefined),
      ...extensions,
      ...extend,
      ...inner,
    ];
    if (this.keepsOrder(body, sorted)) return { ...node, body: sorted };
    const inPlace = (member: MessageMember): MessageMember[] => {
      if (member.kind === 'field') return [this.field(member, name)];
      if (member.kind === 'oneof') return [this.oneof(member, name)];
      if (member.kind === 'message')
        return this.messagesOf([member]).map((one) => this.message(one, `${name}.${one.name}`));
      if (member.kind === 'enum') return [this.enumeration(member, name)];
      return member.kind === 'extend' ? this.extends([member], name) : [];
    };
    return { ...node, body: [...head, ...extensions, ...body.flatMap(inPlace)] };
  }

  private field(node: FieldNode, scope: string): FieldNode {
    const linked = this.fields.get(node);
    const options = this.options(node.options, 'google.protobuf.FieldOptions', scope);
    if (node.group !== undefined) {
      const target = linked?.target as LinkedMessage;
      return { ...node, options, group: this.message(node.group, target.name) };
    }
    const value =
      linked !== undefined && mapKeyOf(linked) !== undefined
        ? (linked.target as LinkedMessage).fields[1]
        : linked;
    const type = value?.target === undefined ? (value ?? { node }).node.type : `.${value.target.name}`;
    const key = linked === undefined ? undefined : mapKeyOf(linked);
    if (key === undefined) return { ...node, options, type };
    return { ...node, options, type, mapKey: key.type, label: undefined };
  }

  private oneof(node: OneofNode, scope: string): OneofNode {
    const fields = node.fields.map((field) => this.field(field, scope));
    const sorted = [...fields].sort(byNumber);
    const moves = fields.some(({ group }) => group !== undefined);
    return {
      ...node,
      options: this.options(node.options, 'google.protobuf.OneofOptions', scope),
      fields: moves ? fields : sorted,
    };
  }

  private enumeration(node: EnumNode, scope: string): EnumNode {
    const values = node.values.map((value) => ({
      ...value,
      options: this.options(value.options, 'google.protobuf.EnumValueOptions', scope),
    }));
    // The first value of an open enum is zero, even with values below zero.
    const rank = (number: number): number =>
      number === 0 && this.open.has(node) ? Number.NEGATIVE_INFINITY : number;
    values.sort((a, b) =>
      rank(a.number) === rank(b.number) ? byText(a.name, b.name) : rank(a.number) - rank(b.number),
    );
    return {
      ...node,
      options: this.options(node.options, 'google.protobuf.EnumOptions', scope),
      reserved: splitReserved(node.reserved),
      values,
    };
  }

  private extensions(nodes: readonly ExtensionsNode[], scope: string): ExtensionsNode[] {
    const split = nodes.flatMap((node) =>
      node.ranges.map((range) => ({
        ...node,
        ranges: [narrowed(range)],
        options: this.options(node.options, 'google.protobuf.ExtensionRangeOptions', scope),
      })),
    );
    return split.sort((a, b) => (a.ranges[0]?.from ?? 0) - (b.ranges[0]?.from ?? 0));
  }

  /** One statement for each extended message, in the order of their first one. */
  private extends(nodes: readonly ExtendNode[], scope: string): ExtendNode[] {
    const byName = new Map<string, { readonly node: ExtendNode; readonly fields: FieldNode[] }>();
    for (const node of nodes) {
      const target = node.fields
        .map((field) => this.fields.get(field)?.extendee?.name)
        .find((name) => name !== undefined);
      const extendee = target === undefined ? node.extendee : `.${target}`;
      const held = byName.get(extendee) ?? { node, fields: [] };
      byName.set(extendee, held);
      held.fields.push(...node.fields.map((field) => this.field(field, scope)));
    }
    return [...byName].map(([extendee, { node, fields }]) => {
      const moves = fields.some(({ group }) => group !== undefined);
      return { ...node, extendee, fields: moves ? fields : fields.sort(byNumber) };
    });
  }

  private service(node: ServiceNode, name: string): ServiceNode {
    const linked = this.services.get(node);
    const methods = node.methods.map((method, index) => {
      const { input, output } = linked?.methods[index] ?? {};
      return {
        ...method,
        input: input === undefined ? method.input : `.${input.name}`,
        output: output === undefined ? method.output : `.${output.name}`,
        options: this.options(method.options, 'google.protobuf.MethodOptions', name),
      };
    });
    return { ...node, options: this.options(node.options, 'google.protobuf.ServiceOptions', name), methods };
  }
}

function distinct(imports: readonly ImportNode[]): ImportNode[] {
  const byKey = new Map(imports.map((one) => [`${one.mode} ${one.path}`, one]));
  return [...byKey.values()].sort((a, b) => byText(a.path, b.path));
}

const narrowed = (range: NumberRange): NumberRange => ({
  ...range,
  single: range.single || range.from === range.to,
});

/** Numbers by their start, then names. */
function splitReserved(nodes: readonly ReservedNode[]): ReservedNode[] {
  const numbers = nodes.flatMap((node) =>
    node.ranges.map((range) => ({ ...node, names: [], ranges: [narrowed(range)] })),
  );
  const names = nodes.flatMap((node) => node.names.map((name) => ({ ...node, names: [name], ranges: [] })));
  return [
    ...numbers.sort((a, b) => (a.ranges[0]?.from ?? 0) - (b.ranges[0]?.from ?? 0)),
    ...names.sort((a, b) => byText(a.names[0] ?? '', b.names[0] ?? '')),
  ];
}
