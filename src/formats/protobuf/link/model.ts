/** A .proto file with resolved names: the targets of fields, extensions and methods, and the parts
 *  that the language adds: map entries, oneofs of proto3 optionals, JSON names. */
import type {
  EnumNode,
  ExtensionsNode,
  FieldNode,
  FileNode,
  ImportNode,
  Label,
  MessageNode,
  OneofNode,
  OptionNode,
  Position,
  ReservedNode,
  ServiceNode,
} from '../syntax/ast.ts';

export interface LinkedFile {
  /** Import path; undefined for the schema itself. */
  readonly path: string | undefined;
  readonly node: FileNode;
  /** Imports in the order of the source, each file once. */
  readonly imports: Array<{ readonly file: LinkedFile; readonly mode: ImportNode['mode'] }>;
  readonly messages: LinkedMessage[];
  readonly enums: LinkedEnum[];
  readonly extensions: LinkedField[];
  readonly services: LinkedService[];
  /** This file, its imports, and the files that these import publicly. */
  readonly visible: Set<LinkedFile>;
}

export interface LinkedMessage {
  readonly kind: 'message';
  /** Full name with the package, without a leading dot. */
  readonly name: string;
  readonly shortName: string;
  readonly file: LinkedFile;
  readonly parent: LinkedMessage | undefined;
  readonly node: MessageNode;
  readonly fields: LinkedField[];
  /** Written oneofs, followed by those of proto3 optionals. */
  readonly oneofs: LinkedOneof[];
  /** Nested messages as declared, including groups and map entries. */
  readonly messages: LinkedMessage[];
  readonly enums: LinkedEnum[];
  readonly extensions: LinkedField[];
  readonly options: readonly OptionNode[];
  readonly reserved: readonly ReservedNode[];
  readonly extensionRanges: readonly ExtensionsNode[];
  readonly isMapEntry: boolean;
  /** True for a message that is not written: the entry of a field of type map. */
  readonly isImplicit: boolean;
  readonly isGroup: boolean;
}

export interface LinkedOneof {
  readonly name: string;
  /** Undefined for the oneof of a proto3 optional. */
  readonly node: OneofNode | undefined;
}

export interface LinkedEnum {
  readonly kind: 'enum';
  readonly name: string;
  readonly shortName: string;
  readonly file: LinkedFile;
  readonly parent: LinkedMessage | undefined;
  readonly node: EnumNode;
}

export interface LinkedField {
  readonly kind: 'field';
  readonly name: string;
  /** Full name: of an extension its own, of a field that of its message and its name. */
  readonly fullName: string;
  readonly number: number;
  readonly label: Label;
  /** Name of a scalar type, or `message`, `group`, `enum`. */
  type: string;
  /** Undefined for scalars, and for a type that a lenient reader did not find. */
  target: LinkedMessage | LinkedEnum | undefined;
  readonly jsonName: string;
  readonly oneof: number | undefined;
  readonly proto3Optional: boolean;
  readonly file: LinkedFile;
  /** Message that contains the declaration; undefined at the top level of a file. */
  readonly parent: LinkedMessage | undefined;
  /** Extended message of an extension: as written, and resolved. */
  readonly extendeeName: string | undefined;
  extendee: LinkedMessage | undefined;
  readonly node: FieldNode;
  readonly at: Position;
}

export interface LinkedMethod {
  readonly name: string;
  input: LinkedMessage | undefined;
  output: LinkedMessage | undefined;
  readonly node: ServiceNode['methods'][number];
}

export interface LinkedService {
  readonly kind: 'service';
  readonly name: string;
  readonly shortName: string;
  readonly file: LinkedFile;
  readonly methods: LinkedMethod[];
  readonly node: ServiceNode;
}

export type ProtoSymbol = LinkedMessage | LinkedEnum | LinkedField | LinkedService;

/** JSON key of a field: `aB` for `a_b`. */
export function jsonNameOf(name: string): string {
  return name.replace(/_+([^_]?)/g, (_all, next: string) => (/[a-z]/.test(next) ? next.toUpperCase() : next));
}

/** Name of the message type of a map field's entries. */
export function mapEntryName(field: string): string {
  const words = field
    .split('_')
    .map((word) => (/^[a-z]/.test(word) ? word[0]?.toUpperCase() + word.slice(1) : word));
  return `${words.join('')}Entry`;
}

export const mapKeyOf = (field: LinkedField): LinkedField | undefined =>
  field.target?.kind === 'message' && field.target.isMapEntry ? field.target.fields[0] : undefined;

/** All messages of a file, outer before inner, in its order. */
export function* allMessages(messages: readonly LinkedMessage[]): Generator<LinkedMessage> {
  for (const message of messages) {
    yield message;
    yield* allMessages(message.messages);
  }
}

export function* allEnums(file: LinkedFile): Generator<LinkedEnum> {
  yield* file.enums;
  for (const message of allMessages(file.messages)) yield* message.enums;
}

export function* allExtensions(file: LinkedFile): Generator<LinkedField> {
  yield* file.extensions;
  for (const message of allMessages(file.messages)) yield* message.extensions;
}
