/** A .proto file with its names resolved: what each field, extension and method refers to, and what the language adds
 *  by itself: entries of maps, oneofs of proto3 optionals, JSON names.
 */
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
  /** Import path; undefined is the schema itself. */
  readonly path: string | undefined;
  readonly node: FileNode;
  /** In the order of the source, each file once. */
  readonly imports: Array<{ readonly file: LinkedFile; readonly mode: ImportNode['mode'] }>;
  readonly messages: LinkedMessage[];
  readonly enums: LinkedEnum[];
  readonly extensions: LinkedField[];
  readonly services: LinkedService[];
  /** This file, what it imports, and what those make public. */
  readonly visible: Set<LinkedFile>;
}

export interface LinkedMessage {
  readonly kind: 'message';
  /** With its package, without a leading dot. */
  readonly name: string;
  readonly shortName: string;
  readonly file: LinkedFile;
  readonly parent: LinkedMessage | undefined;
  readonly node: MessageNode;
  readonly fields: LinkedField[];
  /** The written ones, and then those of proto3 optionals. */
  readonly oneofs: LinkedOneof[];
  /** As declared, groups and entries of maps among them. */
  readonly messages: LinkedMessage[];
  readonly enums: LinkedEnum[];
  readonly extensions: LinkedField[];
  readonly options: readonly OptionNode[];
  readonly reserved: readonly ReservedNode[];
  readonly extensionRanges: readonly ExtensionsNode[];
  readonly isMapEntry: boolean;
  /** Not written as a message: it comes from a field of type map. */
  readonly isImplicit: boolean;
  readonly isGroup: boolean;
}

export interface LinkedOneof {
  readonly name: string;
  /** Undefined: it stands for a proto3 optional. */
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
  /** Of an extension, the name it is known by; of a field, with its message's. */
  readonly fullName: string;
  readonly number: number;
  readonly label: Label;
  /** A scalar's name, or `message`, `group`, `enum`. */
  type: string;
  /** Undefined for scalars, and for a type that a lenient reader did not find. */
  target: LinkedMessage | LinkedEnum | undefined;
  readonly jsonName: string;
  readonly oneof: number | undefined;
  readonly proto3Optional: boolean;
  readonly file: LinkedFile;
  /** Where it is declared; undefined at the top of a file. */
  readonly parent: LinkedMessage | undefined;
  /** Of an extension: as written, and resolved. */
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

/** The key of a JSON object for a field: `a_b` is `aB`. */
export function jsonNameOf(name: string): string {
  return name.replace(/_+([^_]?)/g, (_all, next: string) => (/[a-z]/.test(next) ? next.toUpperCase() : next));
}

/** The message type that holds the entries of a map field. */
export function mapEntryName(field: string): string {
  const words = field
    .split('_')
    .map((word) => (/^[a-z]/.test(word) ? word[0]?.toUpperCase() + word.slice(1) : word));
  return `${words.join('')}Entry`;
}

export const mapKeyOf = (field: LinkedField): LinkedField | undefined =>
  field.target?.kind === 'message' && field.target.isMapEntry ? field.target.fields[0] : undefined;

/** Every message of a file, outer before inner, in its order. */
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
