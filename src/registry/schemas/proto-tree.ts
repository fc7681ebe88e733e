/** A Protobuf schema as a tree, read from the reflection objects that protobufjs' parser makes.
 *
 *  Invariants: (1) messages are in the order of the file, because the message indexes on the wire count them; (2) a
 *  message is one object, however often it is used; (3) what the checker has no rule for stands in `unjudged`.
 */
import protobuf from 'protobufjs';
import { registryError } from '../errors.ts';
import { SCHEMA_DEPTH_MAX, SCHEMA_NODES_MAX, SCHEMA_TEXT_CHARS_MAX } from './format.ts';
import type { ParseOptions } from './options.ts';
import { protoText, protoTokens } from './proto-text.ts';

export interface ProtoEnum {
  readonly name: string;
  /** First name of each number, in the order of the file. */
  readonly values: ReadonlyMap<number, string>;
}

export interface ProtoField {
  readonly name: string;
  readonly number: number;
  /** A scalar's name, or `message`, `enum`. */
  readonly type: string;
  readonly message: ProtoMessage | undefined;
  readonly enumeration: ProtoEnum | undefined;
  /** Scalar name of a map's key; the rest of the field then describes the map's value. */
  readonly mapKey: string | undefined;
  readonly repeated: boolean;
  readonly required: boolean;
  /** Whether absent differs from the default. */
  readonly presence: boolean;
  readonly oneof: string | undefined;
}

export interface ProtoMessage {
  /** With its package, without a leading dot. */
  readonly name: string;
  /** Position in the file, as on the wire. */
  readonly path: readonly number[];
  readonly fields: ProtoField[];
  /** Constructs of this message that the checker has no rule for. */
  readonly unjudged: string[];
}

export interface ProtoFile {
  readonly syntax: 'proto2' | 'proto3';
  /** Every message, outer before inner, in the order of the file. */
  readonly messages: readonly ProtoMessage[];
  readonly byName: ReadonlyMap<string, ProtoMessage>;
  readonly root: protobuf.Root;
}

const NUMBER_MAX = 2 ** 29 - 1;

function fail(why: string, cause?: unknown): never {
  throw registryError('invalid_schema', `invalid Protobuf schema: ${why}`, {
    next: 'correct the schema',
    ...(cause === undefined ? {} : { cause }),
  });
}

const bare = (fullName: string): string => fullName.replace(/^\./, '');

function syntaxOf(tokens: readonly string[]): 'proto2' | 'proto3' {
  if (tokens[0] === 'edition') fail('editions are not supported; write syntax = "proto3"');
  if (tokens[0] !== 'syntax') return 'proto2';
  const word = (tokens[2] ?? '').replace(/^['"]|['"]$/g, '');
  if (word !== 'proto2' && word !== 'proto3') fail(`unknown syntax ${JSON.stringify(word)}`);
  return word;
}

function depthOf(tokens: readonly string[]): number {
  let depth = 0;
  let deepest = 0;
  for (const token of tokens) {
    if (token === '{') deepest = Math.max(deepest, ++depth);
    else if (token === '}') depth--;
  }
  return deepest;
}

/** Parses and checks a schema text. @throws invalid_schema */
export function parseProto(
  text: string,
  options: ParseOptions = {},
): { readonly canonical: string; readonly tree: ProtoFile } {
  const [first] = options.references ?? [];
  if (first !== undefined) fail(`references are not supported: ${first.name}`);
  if (text.length > SCHEMA_TEXT_CHARS_MAX) {
    throw registryError(
      'schema_too_large',
      `the schema has ${text.length} characters; the most is ${SCHEMA_TEXT_CHARS_MAX}`,
    );
  }
  const tokens = protoTokens(text);
  if (depthOf(tokens) > SCHEMA_DEPTH_MAX) fail(`it is nested deeper than ${SCHEMA_DEPTH_MAX} blocks`);
  // The parser would leave such a name out without a word.
  if (tokens.includes('__proto__')) fail('__proto__ is a name that JavaScript objects cannot hold');
  const syntax = syntaxOf(tokens);
  const canonical = protoText(tokens);
  const root = new protobuf.Root();
  let parsed: protobuf.IParserResult;
  try {
    parsed = protobuf.parse(canonical, root, { keepCase: true });
    const imports = [...(parsed.imports ?? []), ...(parsed.weakImports ?? [])];
    if (imports.length > 0) fail(`imports are not supported: ${imports.join(', ')}`);
    root.resolveAll();
  } catch (cause) {
    if (cause instanceof Error && cause.name === 'MillraceError') throw cause;
    fail(cause instanceof Error ? cause.message.replace(/^Error: /, '') : String(cause), cause);
  }
  const tree = new Builder(syntax, root).build();
  if (tree.messages.length === 0) fail('it declares no message');
  return { canonical, tree };
}

class Builder {
  private readonly syntax: 'proto2' | 'proto3';
  private readonly root: protobuf.Root;
  private readonly messages: ProtoMessage[] = [];
  private readonly byName = new Map<string, ProtoMessage>();
  private readonly pending: Array<[protobuf.Type, ProtoMessage]> = [];

  constructor(syntax: 'proto2' | 'proto3', root: protobuf.Root) {
    this.syntax = syntax;
    this.root = root;
  }

  build(): ProtoFile {
    // A package makes nested namespaces; the messages are in the innermost.
    let scope: protobuf.NamespaceBase = this.root;
    while (scope.nestedArray.length === 1) {
      const only: protobuf.ReflectionObject | undefined = scope.nestedArray[0];
      if (
        !(only instanceof protobuf.Namespace) ||
        only instanceof protobuf.Type ||
        only instanceof protobuf.Service
      )
        break;
      scope = only;
    }
    this.collect(scope, []);
    for (const [type, message] of this.pending) this.fill(type, message);
    return { syntax: this.syntax, messages: this.messages, byName: this.byName, root: this.root };
  }

  private collect(scope: protobuf.NamespaceBase, path: readonly number[]): void {
    let index = 0;
    for (const nested of scope.nestedArray) {
      if (!(nested instanceof protobuf.Type)) continue;
      const message: ProtoMessage = {
        name: bare(nested.fullName),
        path: [...path, index++],
        fields: [],
        unjudged: [],
      };
      this.messages.push(message);
      if (this.messages.length > SCHEMA_NODES_MAX) fail(`it declares more than ${SCHEMA_NODES_MAX} messages`);
      this.byName.set(message.name, message);
      this.pending.push([nested, message]);
      this.collect(nested, message.path);
    }
  }

  private fill(type: protobuf.Type, message: ProtoMessage): void {
    if (type.extensions !== undefined && type.extensions.length > 0) message.unjudged.push('extensions');
    if ('group' in type && type.group === true) message.unjudged.push('a group');
    for (const nested of type.nestedArray)
      if (nested instanceof protobuf.Field) message.unjudged.push('extend');
    const seen = new Map<number, string>();
    for (const field of type.fieldsArray) {
      const other = seen.get(field.id);
      if (other !== undefined)
        fail(`${message.name} gives number ${field.id} to ${other} and to ${field.name}`);
      seen.set(field.id, field.name);
      if (field.id < 1 || field.id > NUMBER_MAX)
        fail(`${message.name}.${field.name} has number ${field.id}; numbers are 1 to ${NUMBER_MAX}`);
      if (field.id >= 19000 && field.id <= 19999)
        fail(`${message.name}.${field.name} uses number ${field.id}, which Protobuf keeps for itself`);
      message.fields.push(this.field(field));
    }
    message.fields.sort((a, b) => a.number - b.number);
  }

  private field(field: protobuf.Field): ProtoField {
    const resolved = field.resolvedType;
    const isMap = field instanceof protobuf.MapField;
    let type = field.type;
    let message: ProtoMessage | undefined;
    let enumeration: ProtoEnum | undefined;
    if (resolved instanceof protobuf.Enum) {
      type = 'enum';
      enumeration = enumOf(resolved);
    } else if (resolved !== null) {
      type = 'message';
      message = this.byName.get(bare(resolved.fullName));
      if (message === undefined)
        fail(`${field.fullName} has the type ${resolved.fullName}, which is not in this file`);
    }
    const partOf = field.partOf;
    return {
      name: field.name,
      number: field.id,
      type,
      message,
      enumeration,
      mapKey: isMap ? field.keyType : undefined,
      repeated: field.repeated,
      required: field.required,
      presence: !field.repeated && !isMap && Boolean(field.hasPresence),
      oneof: partOf === null || partOf === undefined || partOf.isProto3Optional ? undefined : partOf.name,
    };
  }
}

function enumOf(source: protobuf.Enum): ProtoEnum {
  const values = new Map<number, string>();
  for (const [name, number] of Object.entries(source.values))
    if (!values.has(number)) values.set(number, name);
  return { name: bare(source.fullName), values };
}
