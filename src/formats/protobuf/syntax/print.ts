/** Prints a .proto file in its fixed layout: indentation of two spaces, one statement on each line,
 *  no comments.
 *
 *  Sections have a fixed order, with a blank line between them. In a file: syntax, package,
 *  imports, options, messages and then enums, extends, services. In a message: reserved, options,
 *  fields, oneofs, groups, extension ranges, extends, messages, enums. Existing registries store
 *  this layout, and look up a schema by its text. Message order is part of the wire format: where
 *  this order would move a group past a message, the members keep their order. */
import {
  ENUM_NUMBER_MAX,
  type EnumNode,
  type ExtendNode,
  FIELD_NUMBER_MAX,
  type FieldNode,
  type FileMember,
  type FileNode,
  type MessageMember,
  type MessageNode,
  membersOf,
  type NumberRange,
  type OneofNode,
  type OptionNode,
  type OptionValue,
  type ReservedNode,
  type ServiceNode,
} from './ast.ts';

/** Prints a file. @param keepOptionOrder default and json_name keep their place, instead of coming
 *  last */
export function printProto(file: FileNode, keepOptionOrder = false): string {
  return new Printer(keepOptionOrder).file(file);
}

const ESCAPES: Readonly<Record<number, string>> = {
  7: '\\a',
  8: '\\b',
  9: '\\t',
  10: '\\n',
  11: '\\v',
  12: '\\f',
  13: '\\r',
  34: '\\"',
  39: "\\'",
  92: '\\\\',
};

/** String literal; bytes that are no text become octal escapes. */
function quoted(bytes: Buffer): string {
  const text = bytes.toString('utf8');
  const isText = Buffer.from(text).equals(bytes);
  const chars = isText ? [...text] : [...bytes];
  let out = '"';
  for (const char of chars) {
    const code = typeof char === 'number' ? char : (char.codePointAt(0) as number);
    const named = ESCAPES[code];
    if (named !== undefined) out += named;
    else if (code < 32 || code === 127 || (!isText && code > 126))
      out += `\\${code.toString(8).padStart(3, '0')}`;
    else out += typeof char === 'number' ? String.fromCharCode(char) : char;
  }
  return `${out}"`;
}

/** Option name as written: `(my.option).field`. */
function optionName(option: OptionNode): string {
  return option.name.map((part) => (part.extension ? `(${part.name})` : part.name)).join('.');
}

/** Messages and groups that a body declares, in its order. */
export function nestedMessages(body: ReadonlyArray<MessageMember | FileMember>): MessageNode[] {
  return body.flatMap((member) => {
    if (member.kind === 'message') return [member];
    if (member.kind === 'field') return member.group === undefined ? [] : [member.group];
    if (member.kind !== 'oneof' && member.kind !== 'extend') return [];
    return member.fields.flatMap((field) => field.group ?? []);
  });
}

function sameOrder(
  body: readonly (MessageMember | FileMember)[],
  sections: ReadonlyArray<typeof body>,
): boolean {
  const moved = nestedMessages(sections.flat());
  return nestedMessages(body).every((message, index) => message === moved[index]);
}

class Printer {
  private readonly keepOptionOrder: boolean;
  private quoteNames = true;
  private out = '';
  private indent = '';

  constructor(keepOptionOrder: boolean) {
    this.keepOptionOrder = keepOptionOrder;
  }

  file(file: FileNode): string {
    this.quoteNames = file.syntax !== 'editions';
    if (file.edition !== undefined) this.line(`edition = "${file.edition}";`);
    else if (file.syntaxWritten) this.line(`syntax = "${file.syntax}";`);
    if (file.package !== undefined) this.line(`package ${file.package};`);
    const imports = (['plain', 'public', 'weak'] as const).flatMap((mode) =>
      file.imports.filter((one) => one.mode === mode),
    );
    if (imports.length > 0) this.out += '\n';
    for (const { mode, path } of imports) {
      this.line(`import ${mode === 'plain' ? '' : `${mode} `}${quoted(Buffer.from(path))};`);
    }
    if (file.options.length > 0) this.out += '\n';
    for (const option of file.options) this.statement(option);
    const types = [...membersOf(file.body, 'message'), ...membersOf(file.body, 'enum')];
    const sections = [types, membersOf(file.body, 'extend'), membersOf(file.body, 'service')];
    for (const section of sameOrder(file.body, sections) ? sections : [file.body]) {
      if (section.length > 0) this.out += '\n';
      for (const member of section) this.member(member);
    }
    return this.out;
  }

  private line(text: string): void {
    this.out += `${this.indent}${text}\n`;
  }

  /** Prints a block with its sections; empty sections are omitted. */
  private block(head: string, sections: ReadonlyArray<readonly (() => void)[]>): void {
    const filled = sections.filter((section) => section.length > 0);
    if (filled.length === 0) {
      this.line(`${head} {}`);
      return;
    }
    this.line(`${head} {`);
    this.deeper(() => {
      filled.forEach((section, index) => {
        // The line has the indentation of the block itself: existing registries store it so.
        if (index > 0) this.out += `${this.indent.slice(2)}\n`;
        for (const print of section) print();
      });
    });
    this.line('}');
  }

  private deeper(work: () => void): void {
    this.indent += '  ';
    work();
    this.indent = this.indent.slice(2);
  }

  private member(member: MessageMember | FileMember): void {
    switch (member.kind) {
      case 'message':
        this.message(`message ${member.name}`, member);
        break;
      case 'enum':
        this.enumeration(member);
        break;
      case 'extend':
        this.extend(member);
        break;
      case 'service':
        this.service(member);
        break;
      case 'field':
        this.field(member);
        break;
      case 'oneof':
        this.oneof(member);
        break;
      case 'option':
        this.statement(member);
        break;
      case 'reserved':
        this.reserved(member, FIELD_NUMBER_MAX);
        break;
      case 'extensions':
        this.line(`extensions ${ranges(member.ranges)}${this.optionList(member.options)};`);
    }
  }

  private message(head: string, message: MessageNode): void {
    const { body } = message;
    const fields = membersOf(body, 'field');
    const sections: MessageMember[][] = [
      membersOf(body, 'reserved'),
      membersOf(body, 'option'),
      fields.filter(({ group }) => group === undefined),
      membersOf(body, 'oneof'),
      fields.filter(({ group }) => group !== undefined),
      membersOf(body, 'extensions'),
      membersOf(body, 'extend'),
      [...membersOf(body, 'message'), ...membersOf(body, 'enum')],
    ];
    this.block(
      head,
      (sameOrder(body, sections) ? sections : [body]).map((section) => this.each(section)),
    );
  }

  private each(members: ReadonlyArray<MessageMember>): Array<() => void> {
    return members.map((member) => () => this.member(member));
  }

  private field(field: FieldNode): void {
    const label = field.label === undefined ? '' : `${field.label} `;
    const type = field.mapKey === undefined ? field.type : `map<${field.mapKey}, ${field.type}>`;
    if (field.group === undefined) {
      this.line(
        `${label}${type} ${field.name} = ${field.number}${this.optionList(this.ordered(field.options))};`,
      );
      return;
    }
    const options = this.optionList(this.ordered(field.options));
    this.message(`${label}group ${field.type} = ${field.number}${options}`, field.group);
  }

  /** Sorts the two statements that are no options of the descriptor to the end. */
  private ordered(options: readonly OptionNode[]): readonly OptionNode[] {
    if (this.keepOptionOrder) return options;
    const rank = (option: OptionNode): number => {
      const [part] = option.name;
      if (option.name.length !== 1 || part === undefined || part.extension) return 0;
      return part.name === 'default' ? 1 : part.name === 'json_name' ? 2 : 0;
    };
    return [...options].sort((a, b) => rank(a) - rank(b));
  }

  private oneof(oneof: OneofNode): void {
    const fields = oneof.fields.filter(({ group }) => group === undefined);
    const groups = oneof.fields.filter(({ group }) => group !== undefined);
    this.block(`oneof ${oneof.name}`, [this.each(oneof.options), this.each(fields), this.each(groups)]);
  }

  private extend(extend: ExtendNode): void {
    this.block(`extend ${extend.extendee}`, [this.each(extend.fields)]);
  }

  private enumeration(node: EnumNode): void {
    const values = node.values.map(({ name, number, options }) => () => {
      this.line(`${name} = ${number}${this.optionList(options)};`);
    });
    const reserved = node.reserved.map((one) => () => this.reserved(one, ENUM_NUMBER_MAX));
    this.block(`enum ${node.name}`, [[...reserved, ...this.each(node.options), ...values]]);
  }

  private reserved(node: ReservedNode, max: number): void {
    const names = node.names.map((name) => (this.quoteNames ? `"${name}"` : name));
    this.line(`reserved ${node.names.length > 0 ? names.join(', ') : ranges(node.ranges, max)};`);
  }

  private service(service: ServiceNode): void {
    const methods = service.methods.map((method) => () => {
      const { name, input, output, options } = method;
      const taken = `${method.clientStreaming ? 'stream ' : ''}${input}`;
      const given = `${method.serverStreaming ? 'stream ' : ''}${output}`;
      const head = `rpc ${name} (${taken}) returns (${given})`;
      if (options.length === 0) {
        this.line(`${head};`);
        return;
      }
      this.line(`${head} {`);
      this.deeper(() => {
        for (const option of options) this.statement(option);
      });
      this.line('};');
    });
    this.block(`service ${service.name}`, [this.each(service.options), methods]);
  }

  private statement(option: OptionNode): void {
    this.line(`option ${optionName(option)} = ${optionValue(option.value, this.indent)};`);
  }

  /** ` [a = b]`, or nothing; several options have lines of their own. */
  private optionList(options: readonly OptionNode[]): string {
    const [only] = options;
    if (only === undefined) return '';
    if (options.length === 1) return ` [${optionName(only)} = ${optionValue(only.value, this.indent)}]`;
    const inner = `${this.indent}  `;
    const lines = options.map(
      (option) => `${inner}${optionName(option)} = ${optionValue(option.value, inner)}`,
    );
    return ` [\n${lines.join(',\n')}\n${this.indent}]`;
  }
}

function ranges(list: readonly NumberRange[], max = FIELD_NUMBER_MAX): string {
  const end = (to: number): string | number =>
    to === max || (max === FIELD_NUMBER_MAX && to > max) ? 'max' : to;
  return list.map(({ from, to, single }) => (single ? `${from}` : `${from} to ${end(to)}`)).join(', ');
}

function optionValue(value: OptionValue, indent: string): string {
  const inner = `${indent}  `;
  switch (value.kind) {
    case 'string':
      return quoted(value.bytes);
    case 'list':
      return `[\n${value.values.map((one) => `${inner}${optionValue(one, inner)}`).join(',\n')}\n${indent}]`;
    case 'message': {
      const lines = gathered(value).map(([key, one]) => `${inner}${key}: ${optionValue(one, inner)}`);
      return lines.length === 0 ? `{\n${indent}}` : `{\n${lines.join(',\n')}\n${indent}}`;
    }
    default:
      return value.text;
  }
}

/** Gathers the values of a repeated key into one list. */
function gathered(value: OptionValue & { readonly kind: 'message' }): Array<[string, OptionValue]> {
  const byKey = new Map<string, OptionValue[]>();
  for (const { key, value: one } of value.entries) {
    const held = byKey.get(key);
    if (held === undefined) byKey.set(key, [one]);
    else held.push(one);
  }
  return [...byKey].map(([key, values]) => [
    key,
    values.length === 1
      ? (values[0] as OptionValue)
      : { kind: 'list', values: values.flatMap((one) => (one.kind === 'list' ? one.values : [one])) },
  ]);
}
