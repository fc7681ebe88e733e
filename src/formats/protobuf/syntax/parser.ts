/** Parser of .proto files. It checks the rules of the syntax alone; link/check.ts checks the
 *  relations of names and numbers. Grammar: protobuf.dev, the language specifications. */
import {
  ENUM_NUMBER_MAX,
  type EnumNode,
  type EnumValueNode,
  type ExtendNode,
  type ExtensionsNode,
  FIELD_NUMBER_MAX,
  type FieldNode,
  type FileMember,
  type FileNode,
  type ImportNode,
  isSet,
  type Label,
  MAP_KEYS,
  type MessageMember,
  type MessageNode,
  type MethodNode,
  type OneofNode,
  type OptionNode,
  type Position,
  PROTO_PATH_CHARS_MAX,
  type ReservedNode,
  type ServiceNode,
  type Syntax,
} from './ast.ts';
import { ProtoCursor } from './cursor.ts';
import { parseOptionList, parseOptionStatement } from './parse-option.ts';

/** Editions whose features this registry knows. */
const EDITIONS: ReadonlySet<string> = new Set(['2023']);
const INT32_MIN = -(2 ** 31);

/** Parses a file. @param file import path, for messages about a reference.
 *  @throws invalid_schema */
export function parseProtoFile(source: string, file?: string): FileNode {
  return new ProtoParser(new ProtoCursor(source, file)).file();
}

class ProtoParser {
  private readonly cursor: ProtoCursor;
  private syntax: Syntax = 'proto2';

  constructor(cursor: ProtoCursor) {
    this.cursor = cursor;
  }

  file(): FileNode {
    const { cursor } = this;
    const imports: ImportNode[] = [];
    const options: OptionNode[] = [];
    const body: FileMember[] = [];
    const edition = this.syntaxStatement();
    let packageName: string | undefined;
    while (cursor.token.kind !== 'end') {
      const { at } = cursor;
      if (cursor.accept(';')) continue;
      if (cursor.accept('package')) {
        if (packageName !== undefined) cursor.fail('a second package statement', at);
        packageName = cursor.path('the name of a package', false);
        cursor.expect(';');
      } else if (cursor.accept('import')) imports.push(this.importStatement(at));
      else if (cursor.accept('option')) options.push(parseOptionStatement(cursor));
      else body.push(this.fileMember(at));
    }
    return {
      syntax: this.syntax,
      syntaxWritten: edition.written,
      edition: edition.name,
      package: packageName,
      imports,
      options,
      body,
    };
  }

  private syntaxStatement(): { written: boolean; name: string | undefined } {
    const { cursor } = this;
    const { at } = cursor;
    const isEdition = cursor.accept('edition');
    if (!isEdition && !cursor.accept('syntax')) return { written: false, name: undefined };
    cursor.expect('=');
    const word = cursor.string('the name of a syntax').toString();
    cursor.expect(';');
    if (isEdition) {
      if (!EDITIONS.has(word)) {
        cursor.fail(`edition "${word.slice(0, 32)}" is not supported; ${[...EDITIONS].join(', ')} is`, at);
      }
      this.syntax = 'editions';
      return { written: true, name: word };
    }
    if (word !== 'proto2' && word !== 'proto3')
      cursor.fail(`unknown syntax ${JSON.stringify(word.slice(0, 32))}`, at);
    this.syntax = word === 'proto3' ? 'proto3' : 'proto2';
    return { written: true, name: undefined };
  }

  private importStatement(at: Position): ImportNode {
    const { cursor } = this;
    cursor.count();
    const mode = cursor.accept('public') ? 'public' : cursor.accept('weak') ? 'weak' : 'plain';
    const path = cursor.string('the path of an import').toString();
    if (path.length > PROTO_PATH_CHARS_MAX) {
      cursor.fail(`the path of an import is longer than ${PROTO_PATH_CHARS_MAX} characters`, at);
    }
    cursor.expect(';');
    return { path, mode, at };
  }

  private fileMember(at: Position): FileMember {
    const { cursor } = this;
    if (cursor.accept('message')) return this.message(at);
    if (cursor.accept('enum')) return this.enumeration(at);
    if (cursor.accept('extend')) return this.extend(at);
    if (cursor.accept('service')) return this.service(at);
    if (cursor.isNext('syntax') || cursor.isNext('edition'))
      cursor.fail('the syntax must be the first statement');
    return cursor.unexpected('a message, enum, service, extend, import, package or option');
  }

  private message(at: Position): MessageNode {
    this.cursor.count();
    const name = this.cursor.name('the name of a message');
    return { kind: 'message', name, body: this.messageBody(), at };
  }

  private messageBody(): MessageMember[] {
    const { cursor } = this;
    const body: MessageMember[] = [];
    const ranges: Array<{ readonly index: number; readonly at: Position }> = [];
    cursor.expect('{');
    cursor.inside(() => {
      while (!cursor.accept('}')) {
        if (cursor.accept(';')) continue;
        const { at } = cursor;
        if (cursor.isNext('extensions')) ranges.push({ index: body.length, at });
        body.push(this.messageMember(at));
      }
    });
    const options = body.filter((member): member is OptionNode => member.kind === 'option');
    // Only in the message set wire format are numbers up to 2^31-1 allowed.
    if (isSet(options, 'message_set_wire_format')) {
      for (const { index } of ranges) body[index] = widened(body[index] as ExtensionsNode);
    }
    return body;
  }

  private messageMember(at: Position): MessageMember {
    const { cursor } = this;
    if (cursor.accept('message')) return this.message(at);
    if (cursor.accept('enum')) return this.enumeration(at);
    if (cursor.accept('extend')) return this.extend(at);
    if (cursor.accept('oneof')) return this.oneof(at);
    if (cursor.accept('option')) return parseOptionStatement(cursor);
    if (cursor.accept('extensions')) return this.extensions(at);
    if (cursor.accept('reserved')) return this.reserved(at, 1, FIELD_NUMBER_MAX, FIELD_NUMBER_MAX);
    return this.field(at, 'message');
  }

  /** Parses a field. @param place decides whether a label is required, allowed or forbidden before
   *  the type */
  private field(at: Position, place: 'message' | 'oneof' | 'extend'): FieldNode {
    const { cursor } = this;
    cursor.count();
    const label = this.label(at, place);
    const typeAt = cursor.at;
    if (cursor.accept('group')) return this.group(at, typeAt, label, place);
    const type = cursor.path('the type of a field');
    let mapKey: string | undefined;
    let valueType = type;
    if (type === 'map' && cursor.accept('<')) {
      if (label !== undefined) cursor.fail('a map has no label', at);
      if (place === 'oneof') cursor.fail('a oneof cannot contain a map', at);
      if (place === 'extend') cursor.fail('an extension cannot be a map', at);
      const keyAt = cursor.at;
      mapKey = cursor.path('the type of a key');
      if (!MAP_KEYS.has(mapKey)) cursor.fail(`${mapKey} cannot be the key of a map`, keyAt);
      cursor.expect(',');
      valueType = cursor.path('the type of a value');
      cursor.expect('>');
    } else if (label === undefined && place !== 'oneof' && this.syntax === 'proto2') {
      cursor.fail(`invalid syntax: "${type}" stands where "required", "optional" or "repeated" should`, at);
    }
    const name = cursor.name('the name of a field');
    cursor.expect('=');
    const number = cursor.integer('the number of a field', 0, ENUM_NUMBER_MAX);
    const options = parseOptionList(cursor);
    cursor.expect(';');
    return {
      kind: 'field',
      label,
      type: valueType,
      mapKey,
      name,
      number,
      options,
      group: undefined,
      at,
      typeAt,
    };
  }

  private label(at: Position, place: 'message' | 'oneof' | 'extend'): Label | undefined {
    const { cursor } = this;
    for (const label of ['optional', 'required', 'repeated'] as const) {
      if (!cursor.accept(label)) continue;
      if (place === 'oneof') cursor.fail('a field in a oneof has no label', at);
      if (label === 'required' && this.syntax === 'proto3')
        cursor.fail('required is not allowed in proto3', at);
      if (label !== 'repeated' && this.syntax === 'editions') {
        cursor.fail(`"${label}" is not allowed in an edition; it has features.field_presence`, at);
      }
      return label;
    }
    return undefined;
  }

  private group(
    at: Position,
    typeAt: Position,
    label: Label | undefined,
    place: 'message' | 'oneof' | 'extend',
  ): FieldNode {
    const { cursor } = this;
    if (this.syntax !== 'proto2') cursor.fail('groups are only allowed in proto2', typeAt);
    if (label === undefined && place !== 'oneof') {
      cursor.fail('invalid syntax: "group" stands where "required", "optional" or "repeated" should', at);
    }
    const type = cursor.name('the name of a group');
    if (!/^[A-Z]/.test(type))
      cursor.fail(`the name of the group ${type} must begin with a capital letter`, typeAt);
    cursor.expect('=');
    const number = cursor.integer('the number of a field', 0, ENUM_NUMBER_MAX);
    const options = parseOptionList(cursor);
    const group: MessageNode = { kind: 'message', name: type, body: this.messageBody(), at };
    const name = type.toLowerCase();
    return { kind: 'field', label, type, mapKey: undefined, name, number, options, group, at, typeAt };
  }

  private oneof(at: Position): OneofNode {
    const { cursor } = this;
    cursor.count();
    const name = cursor.name('the name of a oneof');
    const options: OptionNode[] = [];
    const fields: FieldNode[] = [];
    cursor.expect('{');
    cursor.inside(() => {
      while (!cursor.accept('}')) {
        if (cursor.accept(';')) continue;
        if (cursor.accept('option')) options.push(parseOptionStatement(cursor));
        else fields.push(this.field(cursor.at, 'oneof'));
      }
    });
    return { kind: 'oneof', name, options, fields, at };
  }

  private extend(at: Position): ExtendNode {
    const { cursor } = this;
    cursor.count();
    const extendee = cursor.path('the name of a message');
    const fields: FieldNode[] = [];
    cursor.expect('{');
    cursor.inside(() => {
      while (!cursor.accept('}')) {
        if (!cursor.accept(';')) fields.push(this.field(cursor.at, 'extend'));
      }
    });
    return { kind: 'extend', extendee, fields, at };
  }

  private extensions(at: Position): ExtensionsNode {
    const { cursor } = this;
    if (this.syntax === 'proto3') cursor.fail('proto3 has no extension ranges', at);
    const ranges = this.ranges('the number of an extension', 1, ENUM_NUMBER_MAX - 1, FIELD_NUMBER_MAX);
    const options = parseOptionList(cursor);
    cursor.expect(';');
    return { kind: 'extensions', ranges, options, at };
  }

  private ranges(what: string, least: number, most: number, max: number): ExtensionsNode['ranges'] {
    const { cursor } = this;
    const ranges = [];
    do {
      cursor.count();
      ranges.push(cursor.range(what, least, most, max));
    } while (cursor.accept(','));
    return ranges;
  }

  private reserved(at: Position, least: number, most: number, max: number): ReservedNode {
    const { cursor } = this;
    const { kind } = cursor.token;
    const names: string[] = [];
    let ranges: ReservedNode['ranges'] = [];
    // In an edition, reserved names have no quotes.
    if (kind === (this.syntax === 'editions' ? 'name' : 'string')) {
      do {
        cursor.count();
        const nameAt = cursor.at;
        const name = kind === 'name' ? cursor.name('a name') : cursor.string('a name').toString();
        if (!/^[A-Za-z_]\w*$/.test(name))
          cursor.fail(`the reserved name ${JSON.stringify(name)} is no name`, nameAt);
        names.push(name);
      } while (cursor.accept(','));
    } else ranges = this.ranges('a reserved number', least, most, max);
    cursor.expect(';');
    return { kind: 'reserved', ranges, names, at };
  }

  private enumeration(at: Position): EnumNode {
    const { cursor } = this;
    cursor.count();
    const name = cursor.name('the name of an enum');
    const options: OptionNode[] = [];
    const values: EnumValueNode[] = [];
    const reserved: ReservedNode[] = [];
    cursor.expect('{');
    cursor.inside(() => {
      while (!cursor.accept('}')) {
        const member = cursor.at;
        if (cursor.accept(';')) continue;
        if (cursor.accept('option')) options.push(parseOptionStatement(cursor));
        else if (cursor.accept('reserved'))
          reserved.push(this.reserved(member, INT32_MIN, ENUM_NUMBER_MAX, ENUM_NUMBER_MAX));
        else values.push(this.enumValue(member));
      }
    });
    return { kind: 'enum', name, options, values, reserved, at };
  }

  private enumValue(at: Position): EnumValueNode {
    const { cursor } = this;
    cursor.count();
    const name = cursor.name('the name of an enum value');
    cursor.expect('=');
    const number = cursor.integer('the number of an enum value', INT32_MIN, ENUM_NUMBER_MAX);
    const options = parseOptionList(cursor);
    cursor.expect(';');
    return { name, number, options, at };
  }

  private service(at: Position): ServiceNode {
    const { cursor } = this;
    cursor.count();
    const name = cursor.name('the name of a service');
    const options: OptionNode[] = [];
    const methods: MethodNode[] = [];
    cursor.expect('{');
    cursor.inside(() => {
      while (!cursor.accept('}')) {
        const member = cursor.at;
        if (cursor.accept(';')) continue;
        if (cursor.accept('option')) options.push(parseOptionStatement(cursor));
        else if (cursor.accept('rpc')) methods.push(this.method(member));
        else cursor.unexpected('"rpc" or "option"');
      }
    });
    return { kind: 'service', name, options, methods, at };
  }

  private method(at: Position): MethodNode {
    const { cursor } = this;
    cursor.count();
    const name = cursor.name('the name of an rpc');
    const input = this.methodType();
    cursor.expect('returns');
    const output = this.methodType();
    const options: OptionNode[] = [];
    const braces = cursor.accept('{');
    if (braces) {
      while (!cursor.accept('}')) {
        if (cursor.accept(';')) continue;
        cursor.expect('option');
        options.push(parseOptionStatement(cursor));
      }
      cursor.accept(';');
    } else cursor.expect(';');
    return {
      name,
      input: input.type,
      output: output.type,
      clientStreaming: input.stream,
      serverStreaming: output.stream,
      braces,
      options,
      at,
    };
  }

  private methodType(): { readonly type: string; readonly stream: boolean } {
    const { cursor } = this;
    cursor.expect('(');
    const stream = cursor.accept('stream');
    const type = cursor.path('the name of a message');
    cursor.expect(')');
    return { type, stream };
  }
}

function widened(node: ExtensionsNode): ExtensionsNode {
  const ranges = node.ranges.map((range) =>
    !range.single && range.to === FIELD_NUMBER_MAX ? { ...range, to: ENUM_NUMBER_MAX - 1 } : range,
  );
  return { ...node, ranges };
}
