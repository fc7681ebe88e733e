/** Converts the bytes of a FileDescriptorProto to a tree that can be printed. Protobuf clients
 *  register their schemas in this form, in base64.
 *
 *  The bytes may be hostile: every name is checked, and depth and count are bounded, before
 *  anything is printed. Custom options need the imports to be interpreted. A descriptor is
 *  therefore read twice: without options, and with the links of the first reading. Map entries stay
 *  messages and types keep their full names, as existing registries print a descriptor. */

import { DEPTH_LIMIT, NODES_LIMIT, SCHEMA_DEPTH_MAX, SCHEMA_NODES_MAX } from '../../format.ts';
import {
  ENUM_NUMBER_MAX,
  type EnumNode,
  type ExtendNode,
  type ExtensionsNode,
  type FieldNode,
  type FileMember,
  type FileNode,
  type ImportNode,
  type Label,
  type MessageMember,
  type MessageNode,
  type NumberRange,
  type OneofNode,
  type OptionNode,
  type OptionValue,
  type Position,
  type ReservedNode,
  SCALARS,
  type ServiceNode,
} from '../syntax/ast.ts';
import { ProtoLexer, protoFail } from '../syntax/lexer.ts';
import { readFields, type WireField } from './bytes.ts';
import { EDITION_NUMBERS, FIELD_LABELS, FIELD_TYPES } from './to-descriptor.ts';

/** Reads the bytes of one options message. @param of its name without `google.protobuf.` and
 *  `Options` */
export type OptionReader = (of: string, bytes: Buffer) => OptionNode[];

/** Decodes a source that is base64. No .proto text is base64, because each has a semicolon or a
 *  brace. */
export function descriptorOf(source: string): Buffer | undefined {
  const text = source.trim();
  if (text === '' || !/^[A-Za-z0-9+/]+={0,2}$/.test(text) || text.length % 4 !== 0) return undefined;
  return Buffer.from(text, 'base64');
}

/** Reads a descriptor. @throws invalid_schema */
export function fileOfDescriptor(bytes: Buffer, options: OptionReader): FileNode {
  return new DescriptorReader(options).file(bytes);
}

const NAME = /^[A-Za-z_]\w*$/;
const PATH = /^\.?[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$/;

function refuse(why: string): never {
  protoFail(`the FileDescriptorProto ${why}`);
}

/** Fields of one message of a descriptor. */
class Record {
  private readonly fields: ReadonlyMap<number, readonly WireField[]>;

  constructor(bytes: Buffer) {
    const fields = readFields(bytes);
    if (fields === undefined) refuse('cannot be decoded');
    const byNumber = new Map<number, WireField[]>();
    for (const field of fields) {
      const held = byNumber.get(field.number);
      if (held === undefined) byNumber.set(field.number, [field]);
      else held.push(field);
    }
    this.fields = byNumber;
  }

  /** All occurrences of a field of wire type 2. */
  all(number: number): Buffer[] {
    return (this.fields.get(number) ?? []).flatMap(({ wire, bytes }) => (wire === 2 ? [bytes] : []));
  }

  has(number: number): boolean {
    return this.fields.has(number);
  }

  texts(number: number): string[] {
    return this.all(number).map((bytes) => bytes.toString());
  }

  text(number: number): string | undefined {
    return this.texts(number).at(-1);
  }

  name(number: number, what: string): string {
    const name = this.text(number) ?? '';
    return NAME.test(name) ? name : refuse(`has ${JSON.stringify(name.slice(0, 64))} as the name of ${what}`);
  }

  path(number: number, what: string): string {
    const path = this.text(number) ?? '';
    return PATH.test(path) ? path : refuse(`has ${JSON.stringify(path.slice(0, 64))} as the name of ${what}`);
  }

  /** Reads an int32; negative numbers have ten bytes. */
  integer(number: number): number | undefined {
    const field = this.fields.get(number)?.at(-1);
    return field?.wire === 0 ? Number(BigInt.asIntN(32, field.value)) : undefined;
  }

  integers(number: number): number[] {
    return (this.fields.get(number) ?? []).flatMap(({ wire, value }) => (wire === 0 ? [Number(value)] : []));
  }

  flag(number: number): boolean {
    return (this.integer(number) ?? 0) !== 0;
  }
}

class DescriptorReader {
  private readonly optionsOf: OptionReader;
  private syntax: FileNode['syntax'] = 'proto2';
  private nodes = 0;

  constructor(optionsOf: OptionReader) {
    this.optionsOf = optionsOf;
  }

  file(bytes: Buffer): FileNode {
    const record = new Record(bytes);
    const written = record.text(12) ?? '';
    const edition = Object.entries(EDITION_NUMBERS).find(([, number]) => number === record.integer(14))?.[0];
    if (written === 'proto3' || written === 'editions') this.syntax = written;
    else if (written !== '' && written !== 'proto2')
      refuse(`has the unknown syntax ${JSON.stringify(written.slice(0, 32))}`);
    if (this.syntax === 'editions' && edition === undefined)
      refuse(`has the edition ${record.integer(14)}, which is not supported`);
    const messages = record.all(4).map((one) => this.message(one, 1));
    const extensions = this.extends(record.all(7));
    const body: FileMember[] = [
      ...placed(messages, extensions),
      ...record.all(5).map((one) => this.enumeration(one)),
      ...record.all(6).map((one) => this.service(one)),
    ];
    return {
      syntax: this.syntax,
      syntaxWritten: written === 'proto2' || written === 'proto3',
      edition: this.syntax === 'editions' ? edition : undefined,
      package: record.has(2) && record.text(2) !== '' ? record.path(2, 'the package') : undefined,
      imports: this.imports(record),
      options: this.options(record, 8, 'File'),
      body,
    };
  }

  private at(): Position {
    if (++this.nodes > SCHEMA_NODES_MAX)
      refuse(`declares more than ${SCHEMA_NODES_MAX} things ${NODES_LIMIT}`);
    return { line: 1, column: 1 };
  }

  private imports(record: Record): ImportNode[] {
    const publics = new Set(record.integers(10));
    const weak = new Set(record.integers(11));
    return record.texts(3).map((path, index) => {
      const mode = publics.has(index) ? 'public' : weak.has(index) ? 'weak' : 'plain';
      return { path, mode, at: this.at() };
    });
  }

  private options(record: Record, number: number, of: string): OptionNode[] {
    const parts = record.all(number);
    return parts.length === 0 ? [] : this.optionsOf(of, Buffer.concat(parts));
  }

  private message(bytes: Buffer, depth: number): MessageNode {
    if (depth > SCHEMA_DEPTH_MAX) refuse(`is nested deeper than ${SCHEMA_DEPTH_MAX} messages ${DEPTH_LIMIT}`);
    const at = this.at();
    const record = new Record(bytes);
    const nested = record.all(3).map((one) => this.message(one, depth + 1));
    const oneofs = record.all(8).map((one) => new Record(one));
    const inOneof = oneofs.map((): FieldNode[] => []);
    const fields: FieldNode[] = [];
    for (const one of record.all(2)) {
      const field = new Record(one);
      const index = field.has(9) && !field.flag(17) ? field.integer(9) : undefined;
      if (index === undefined) fields.push(this.field(field, 'message'));
      else
        (inOneof[index] ?? refuse(`has a field in oneof ${index}, which is not there`)).push(
          this.field(field, 'oneof'),
        );
    }
    const oneofNodes: OneofNode[] = oneofs.flatMap((one, index) => {
      const members = inOneof[index] ?? [];
      if (members.length === 0) return [];
      const options = this.options(one, 2, 'Oneof');
      return [{ kind: 'oneof', name: one.name(1, 'a oneof'), options, fields: members, at: this.at() }];
    });
    const body: MessageMember[] = [
      ...this.reserved(record, 9, 10, 1),
      ...this.options(record, 7, 'Message'),
      ...placed(nested, [...fields, ...oneofNodes, ...this.extends(record.all(6))]),
      ...record.all(5).map((one) => this.extensionRange(one)),
      ...record.all(4).map((one) => this.enumeration(one)),
    ];
    return { kind: 'message', name: record.name(1, 'a message'), body, at };
  }

  private field(record: Record, place: 'message' | 'oneof' | 'extension'): FieldNode {
    const at = this.at();
    const name = record.name(1, 'a field');
    const typeName = record.has(6) ? record.path(6, `the type of ${name}`) : undefined;
    const scalar = FIELD_TYPES[record.integer(5) ?? 0] ?? '';
    const isGroup = scalar === 'group';
    if (typeName === undefined && !SCALARS.has(scalar)) refuse(`has no type for the field ${name}`);
    const type = typeName ?? scalar;
    const options = this.options(record, 8, 'Field');
    const initial = record.text(7);
    // Proto3 has no defaults, whatever a hand-made descriptor states.
    if (initial !== undefined && this.syntax !== 'proto3') {
      options.push(plain('default', defaultValue(scalar, initial, name), at));
    }
    const json = record.text(10);
    // The existing registries also print a JSON name that follows from the field name, where the
    // compiler wrote it.
    if (json !== undefined && place !== 'extension') {
      options.push(plain('json_name', { kind: 'string', bytes: Buffer.from(json) }, at));
    }
    return {
      kind: 'field',
      label: place === 'oneof' ? undefined : this.label(record),
      type: isGroup ? type.slice(type.lastIndexOf('.') + 1) : type,
      mapKey: undefined,
      name,
      number: record.integer(3) ?? 0,
      options,
      // Placeholder for the nested message of that name, which `placed` moves here.
      group: isGroup ? GROUP : undefined,
      at,
      typeAt: at,
    };
  }

  private label(record: Record): Label | undefined {
    const label = FIELD_LABELS[record.integer(4) ?? 1] || 'optional';
    if (label === 'repeated') return label;
    if (this.syntax === 'proto3') return record.flag(17) ? 'optional' : undefined;
    return this.syntax === 'editions' ? undefined : label;
  }

  /** Fields that extend one message share one statement. */
  private extends(list: readonly Buffer[]): ExtendNode[] {
    const byName = new Map<string, FieldNode[]>();
    for (const bytes of list) {
      const record = new Record(bytes);
      const extendee = record.path(2, 'an extended message');
      const held = byName.get(extendee) ?? [];
      byName.set(extendee, held);
      held.push(this.field(record, 'extension'));
    }
    return [...byName].map(([extendee, fields]) => ({ kind: 'extend', extendee, fields, at: this.at() }));
  }

  private extensionRange(bytes: Buffer): ExtensionsNode {
    const record = new Record(bytes);
    const at = this.at();
    const range = rangeOf(record, 1, at);
    return { kind: 'extensions', ranges: [range], options: this.options(record, 3, 'ExtensionRange'), at };
  }

  /** Reads reserved ranges. @param past distance from a range's last number to its end in the
   *  descriptor */
  private reserved(record: Record, ranges: number, names: number, past: number): ReservedNode[] {
    const numbers = record.all(ranges).map((one): ReservedNode => {
      const at = this.at();
      return { kind: 'reserved', ranges: [rangeOf(new Record(one), past, at)], names: [], at };
    });
    const words = record.texts(names).map((name): ReservedNode => {
      if (!NAME.test(name)) refuse(`reserves ${JSON.stringify(name.slice(0, 64))}, which is no name`);
      return { kind: 'reserved', ranges: [], names: [name], at: this.at() };
    });
    return [...numbers, ...words];
  }

  private enumeration(bytes: Buffer): EnumNode {
    const record = new Record(bytes);
    const values = record.all(2).map((one) => {
      const value = new Record(one);
      const options = this.options(value, 3, 'EnumValue');
      return { name: value.name(1, 'an enum value'), number: value.integer(2) ?? 0, options, at: this.at() };
    });
    return {
      kind: 'enum',
      name: record.name(1, 'an enum'),
      options: this.options(record, 3, 'Enum'),
      values,
      reserved: this.reserved(record, 4, 5, 0),
      at: this.at(),
    };
  }

  private service(bytes: Buffer): ServiceNode {
    const record = new Record(bytes);
    const methods = record.all(2).map((one) => {
      const method = new Record(one);
      return {
        name: method.name(1, 'an rpc'),
        input: method.path(2, 'a message'),
        output: method.path(3, 'a message'),
        clientStreaming: method.flag(5),
        serverStreaming: method.flag(6),
        braces: method.has(4),
        options: this.options(method, 4, 'Method'),
        at: this.at(),
      };
    });
    const name = record.name(1, 'a service');
    return { kind: 'service', name, options: this.options(record, 3, 'Service'), methods, at: this.at() };
  }
}

const GROUP: MessageNode = { kind: 'message', name: '', body: [], at: { line: 1, column: 1 } };

function rangeOf(record: Record, past: number, at: Position): NumberRange {
  const from = record.integer(1) ?? 0;
  const to = Math.min((record.integer(2) ?? 0) - past, ENUM_NUMBER_MAX);
  if (to < from) refuse(`has an empty range from ${from}`);
  return { from, to, single: from === to, at };
}

function plain(name: string, value: OptionValue, at: Position): OptionNode {
  return { kind: 'option', name: [{ name, extension: false }], value, at };
}

function defaultValue(type: string, text: string, field: string): OptionValue {
  if (type === 'string') return { kind: 'string', bytes: Buffer.from(text) };
  if (type === 'bytes') {
    // The escapes of C are those of a .proto string.
    const token = /[\n"]/.test(text.replace(/\\[\s\S]/g, ''))
      ? undefined
      : new ProtoLexer(`"${text}"`).next();
    if (token?.bytes === undefined) refuse(`has a default for ${field} that cannot be read`);
    return { kind: 'string', bytes: token.bytes };
  }
  if (NAME.test(text) || /^-(inf|nan)$/.test(text)) return { kind: 'word', text };
  if (!/^-?[\d.][\w.+-]*$/.test(text)) refuse(`has a default for ${field} that cannot be read`);
  return { kind: 'number', text };
}

/** Nested messages in their order, each group inside the member that has a field of it; members
 *  without groups come first. */
function placed<M extends FieldNode | OneofNode | ExtendNode>(
  nested: readonly MessageNode[],
  members: readonly M[],
): Array<M | MessageNode> {
  const byName = new Map(nested.map((message) => [message.name, message]));
  const before: M[] = [];
  const holding = new Map<MessageNode, M>();
  const inside = new Set<MessageNode>();
  let first: MessageNode | undefined;
  const withGroup = (field: FieldNode): FieldNode => {
    if (field.group === undefined) return field;
    const group = byName.get(field.type);
    if (group === undefined || inside.has(group)) refuse(`has no group ${field.type}`);
    inside.add(group);
    first ??= group;
    return { ...field, name: group.name.toLowerCase(), group };
  };
  for (const member of members) {
    first = undefined;
    const filled = (
      member.kind === 'field' ? withGroup(member) : { ...member, fields: member.fields.map(withGroup) }
    ) as M;
    if (first === undefined) before.push(filled);
    else holding.set(first, filled);
  }
  const after = nested.flatMap((message): Array<M | MessageNode> => {
    const member = holding.get(message);
    if (member !== undefined) return [member];
    return inside.has(message) ? [] : [message];
  });
  return [...before, ...after];
}
