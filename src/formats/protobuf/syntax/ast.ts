/** Syntax tree of a .proto file: every statement with a meaning, in its order, with its position.
 *
 *  Type names are as in the source, relative or with a leading dot; link/resolve.ts resolves them.
 *  Comments and empty statements are dropped. */

/** Line and column, both from 1. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

export type OptionValue =
  | { readonly kind: 'number'; readonly text: string }
  /** Word: true, false, inf, nan (each with or without a minus), or the name of an enum value. */
  | { readonly kind: 'word'; readonly text: string }
  | { readonly kind: 'string'; readonly bytes: Buffer }
  | { readonly kind: 'list'; readonly values: readonly OptionValue[] }
  | { readonly kind: 'message'; readonly entries: readonly OptionEntry[] };

/** Field of an aggregate value. The key of an extension or of an Any is in brackets. */
export interface OptionEntry {
  readonly key: string;
  readonly value: OptionValue;
  readonly at: Position;
}

export interface OptionNamePart {
  readonly name: string;
  /** True for a name in parentheses: an extension of the options message. */
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
  /** Name of a scalar type or of a type; for a map that of its value, for a group that of the
   *  group. */
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

/** Range that includes both ends. */
export interface NumberRange {
  readonly from: number;
  readonly to: number;
  /** True when it was written as one number. */
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
  /** True when written with braces: only then a descriptor contains an options message. */
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
  /** False for a file without a syntax statement, which is proto2. */
  readonly syntaxWritten: boolean;
  /** Edition of the file, such as 2023; undefined for a syntax. */
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

/** Greatest number of characters of a name with its dots, written or in full, and of an import's
 *  path. */
export const PROTO_PATH_CHARS_MAX = 1_000;

export const FIELD_NUMBER_MAX = 2 ** 29 - 1;
export const ENUM_NUMBER_MAX = 2 ** 31 - 1;

/** Members of one kind, in the order of the source. */
export function membersOf<M extends { readonly kind: string }, K extends M['kind']>(
  body: readonly M[],
  kind: K,
): Array<Extract<M, { readonly kind: K }>> {
  return body.filter((member): member is Extract<M, { readonly kind: K }> => member.kind === kind);
}

/** Option of one plain name, such as `deprecated`. */
export function plainOption(options: readonly OptionNode[], name: string): OptionNode | undefined {
  return options.find((option) => option.name.length === 1 && isPlain(option, name));
}

function isPlain(option: OptionNode, name: string): boolean {
  const [part] = option.name;
  return part !== undefined && !part.extension && part.name === name;
}

/** True when a plain option is written and true. */
export function isSet(options: readonly OptionNode[], name: string): boolean {
  const value = plainOption(options, name)?.value;
  return value?.kind === 'word' && value.text === 'true';
}
