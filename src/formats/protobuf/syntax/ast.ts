/** A .proto file as it is written: every statement that has a meaning, in its order, with its place.
 *
 *  Names of types are as in the source, relative or with a leading dot; proto-link.ts says what they mean. Comments and
 *  empty statements are gone.
 */

/** Both count from 1. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

export type OptionValue =
  | { readonly kind: 'number'; readonly text: string }
  /** true, false, inf, nan (each with or without a minus) or the name of an enum value. */
  | { readonly kind: 'word'; readonly text: string }
  | { readonly kind: 'string'; readonly bytes: Buffer }
  | { readonly kind: 'list'; readonly values: readonly OptionValue[] }
  | { readonly kind: 'message'; readonly entries: readonly OptionEntry[] };

/** One field inside an aggregate value. An extension's or an Any's key stands in brackets. */
export interface OptionEntry {
  readonly key: string;
  readonly value: OptionValue;
  readonly at: Position;
}

export interface OptionNamePart {
  readonly name: string;
  /** Written in parentheses: the name of an extension of the options message. */
  readonly extension: boolean;
}

export interface OptionNode {
  readonly kind: 'option';
  readonly name: readonly OptionNamePart[];
  readonly value: OptionValue;
  readonly at: Position;
}

export type Label = 'optional' | 'required' | 'repeated';

export interface FieldNode {
  readonly kind: 'field';
  readonly label: Label | undefined;
  /** A scalar's name or a type's; of a map the value's; of a group the group's. */
  readonly type: string;
  /** Scalar name of a map's key. */
  readonly mapKey: string | undefined;
  readonly name: string;
  readonly number: number;
  readonly options: readonly OptionNode[];
  readonly group: MessageNode | undefined;
  readonly at: Position;
  readonly typeAt: Position;
}

export interface OneofNode {
  readonly kind: 'oneof';
  readonly name: string;
  readonly options: readonly OptionNode[];
  readonly fields: readonly FieldNode[];
  readonly at: Position;
}

/** Both ends belong to it. */
export interface NumberRange {
  readonly from: number;
  readonly to: number;
  /** Written as one number. */
  readonly single: boolean;
  readonly at: Position;
}

export interface ReservedNode {
  readonly kind: 'reserved';
  readonly ranges: readonly NumberRange[];
  readonly names: readonly string[];
  readonly at: Position;
}

export interface ExtensionsNode {
  readonly kind: 'extensions';
  readonly ranges: readonly NumberRange[];
  readonly options: readonly OptionNode[];
  readonly at: Position;
}

export interface ExtendNode {
  readonly kind: 'extend';
  readonly extendee: string;
  readonly fields: readonly FieldNode[];
  readonly at: Position;
}

export interface EnumValueNode {
  readonly name: string;
  readonly number: number;
  readonly options: readonly OptionNode[];
  readonly at: Position;
}

export interface EnumNode {
  readonly kind: 'enum';
  readonly name: string;
  readonly options: readonly OptionNode[];
  readonly values: readonly EnumValueNode[];
  readonly reserved: readonly ReservedNode[];
  readonly at: Position;
}

export type MessageMember =
  | FieldNode
  | OneofNode
  | OptionNode
  | ReservedNode
  | ExtensionsNode
  | ExtendNode
  | EnumNode
  | MessageNode;

export interface MessageNode {
  readonly kind: 'message';
  readonly name: string;
  readonly body: readonly MessageMember[];
  readonly at: Position;
}

export interface MethodNode {
  readonly name: string;
  readonly input: string;
  readonly output: string;
  readonly clientStreaming: boolean;
  readonly serverStreaming: boolean;
  /** Written with braces, which alone makes a descriptor state options. */
  readonly braces: boolean;
  readonly options: readonly OptionNode[];
  readonly at: Position;
}

export interface ServiceNode {
  readonly kind: 'service';
  readonly name: string;
  readonly options: readonly OptionNode[];
  readonly methods: readonly MethodNode[];
  readonly at: Position;
}

export interface ImportNode {
  readonly path: string;
  readonly mode: 'plain' | 'public' | 'weak';
  readonly at: Position;
}

export type FileMember = MessageNode | EnumNode | ExtendNode | ServiceNode;

export type Syntax = 'proto2' | 'proto3' | 'editions';

export interface FileNode {
  readonly syntax: Syntax;
  /** A file without a syntax statement is proto2. */
  readonly syntaxWritten: boolean;
  /** Of a file with editions, such as 2023. */
  readonly edition: string | undefined;
  readonly package: string | undefined;
  readonly imports: readonly ImportNode[];
  readonly options: readonly OptionNode[];
  readonly body: readonly FileMember[];
}

export const SCALARS: ReadonlySet<string> = new Set([
  'double',
  'float',
  'int32',
  'int64',
  'uint32',
  'uint64',
  'sint32',
  'sint64',
  'fixed32',
  'fixed64',
  'sfixed32',
  'sfixed64',
  'bool',
  'string',
  'bytes',
]);

export const MAP_KEYS: ReadonlySet<string> = new Set(
  [...SCALARS].filter((type) => !/^(float|double|bytes)$/.test(type)),
);

/** Characters of a name with its dots, written or in full, and of an import's path. */
export const PROTO_PATH_CHARS_MAX = 1_000;

export const FIELD_NUMBER_MAX = 2 ** 29 - 1;
export const ENUM_NUMBER_MAX = 2 ** 31 - 1;

/** The members of one kind, in the order of the source. */
export function membersOf<M extends { readonly kind: string }, K extends M['kind']>(
  body: readonly M[],
  kind: K,
): Array<Extract<M, { readonly kind: K }>> {
  return body.filter((member): member is Extract<M, { readonly kind: K }> => member.kind === kind);
}

/** The option of one plain name, such as `deprecated`. */
export function plainOption(options: readonly OptionNode[], name: string): OptionNode | undefined {
  return options.find((option) => option.name.length === 1 && isPlain(option, name));
}

function isPlain(option: OptionNode, name: string): boolean {
  const [part] = option.name;
  return part !== undefined && !part.extension && part.name === name;
}

/** Whether a plain option is written and true. */
export function isSet(options: readonly OptionNode[], name: string): boolean {
  const value = plainOption(options, name)?.value;
  return value?.kind === 'word' && value.text === 'true';
}
