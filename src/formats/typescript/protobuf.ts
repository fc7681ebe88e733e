/** Types of a Protobuf schema: the values that its decoder returns and its encoder accepts, for
 *  each message of the file and each type that these reach.
 *
 *  Source of the forms: codec/decoder.ts and codec/form.ts of src/formats/protobuf. */
import type { ResolvedReference } from '../content.ts';
import { descriptorOf } from '../protobuf/descriptor/from-descriptor.ts';
import { allEnums, allMessages } from '../protobuf/link/model.ts';
import type { Position } from '../protobuf/syntax/ast.ts';
import type { ProtoEnum, ProtoField, ProtoMessage, ProtoPlace } from '../protobuf/tree.ts';
import type { ProtoSchema } from '../schema.ts';
import { ProtoComments } from './comments.ts';
import {
  BIGINT,
  BOOLEAN,
  BUFFER,
  BYTES_INPUT,
  type Declaration,
  literal,
  NEVER,
  NULL,
  NUMBER,
  type Property,
  type Shape,
  STRING,
  type TsType,
  type TypeModel,
  UNDEFINED,
  union,
  word,
} from './model.ts';

type Side = 'output' | 'input';

/** Greatest number of combinations of the oneofs of one message that its type distinguishes; the
 *  compiler expands them all. The members of further oneofs are separate properties. */
const COMBINATIONS_MAX = 256;

const EMPTY: Shape = { kind: 'object', properties: [], oneofs: [] };

/** Types of a schema: its messages in the order of the file, and then those that they reach. */
export function protoTypes(schema: ProtoSchema): TypeModel {
  return new Builder(schema).model();
}

class Builder {
  private readonly schema: ProtoSchema;
  private readonly messages = new Map<ProtoMessage, Declaration>();
  private readonly enums = new Map<ProtoEnum, Declaration>();
  private readonly declarations: Declaration[] = [];
  /** Queue of messages without shapes: a chain of types may be longer than the stack is deep. */
  private readonly open: ProtoMessage[] = [];
  /** Package of each type, by its full name. */
  private readonly packages = new Map<string, string>();
  private readonly docs: Docs;

  constructor(schema: ProtoSchema) {
    this.schema = schema;
    this.docs = new Docs(schema);
    const { link } = schema.tree;
    for (const file of [...link.files.values(), link.root]) {
      const name = file.node.package ?? '';
      for (const type of [...allMessages(file.messages), ...allEnums(file)])
        this.packages.set(type.name, name);
    }
  }

  model(): TypeModel {
    for (const message of this.schema.tree.messages) this.message(message);
    for (const message of this.open) {
      const declaration = this.messages.get(message) as Declaration;
      declaration.output = this.shape(message, 'output');
      declaration.input = this.shape(message, 'input');
    }
    return { declarations: this.declarations };
  }

  private declare(fullName: string, doc: string | undefined): Declaration {
    const inPackage = this.packages.get(fullName) ?? '';
    const shortName = inPackage === '' ? fullName : fullName.slice(inPackage.length + 1);
    const made = { fullName, shortName, doc, output: EMPTY, input: EMPTY };
    this.declarations.push(made);
    return made;
  }

  private message(message: ProtoMessage): TsType {
    const held = this.messages.get(message);
    if (held !== undefined) return { kind: 'ref', to: held };
    const made = this.declare(message.name, this.docs.of(message.at));
    this.messages.set(message, made);
    this.open.push(message);
    return { kind: 'ref', to: made };
  }

  private enumeration(enumeration: ProtoEnum): TsType {
    const held = this.enums.get(enumeration);
    if (held !== undefined) return { kind: 'ref', to: held };
    const { name, values, numbers: byName, closed, at } = enumeration;
    const made = this.declare(name, this.docs.of(at));
    this.enums.set(enumeration, made);
    const names = [...values.values()].map(literal);
    const numbers = [...values.keys()].map((number) => word(String(number)));
    // An open enum keeps numbers that have no name.
    made.output = { kind: 'alias', type: union(...names, ...(closed ? [] : [NUMBER])) };
    // A reader shows the first name of a number; a writer may use any.
    const written = [...byName.keys()].map(literal);
    made.input = { kind: 'alias', type: union(...written, ...(closed ? numbers : [NUMBER])) };
    return { kind: 'ref', to: made };
  }

  private shape(message: ProtoMessage, side: Side): Shape {
    const groups = new Map<string, ProtoField[]>();
    let combinations = 1;
    for (const [oneof, fields] of oneofsOf(message)) {
      const product = combinations * (fields.length + 1);
      if (fields.length < 2 || product > COMBINATIONS_MAX) continue;
      combinations = product;
      groups.set(oneof, fields);
    }
    const single = message.fields.filter(({ oneof }) => oneof === undefined || !groups.has(oneof));
    return {
      kind: 'object',
      properties: single.map((field) => this.property(field, side)),
      oneofs: [...groups.values()].map((fields) => fields.map((field) => this.member(field, side))),
    };
  }

  private property(field: ProtoField, side: Side): Property {
    const { name, required } = field;
    const doc = this.docs.of(field.at);
    const held = this.held(field, side);
    if (side === 'output') {
      const isSingle = !field.repeated && field.mapKey === undefined;
      // A required field is never null, unless its type is not known.
      const isAbsentNull = isSingle && field.presence && (!required || held === NEVER);
      return { name, doc, type: isAbsentNull ? union(held, NULL) : held };
    }
    return required
      ? { name, doc, type: held }
      : { name, doc, type: union(held, NULL, UNDEFINED), optional: true };
  }

  private member(field: ProtoField, side: Side): Property {
    return { name: field.name, doc: this.docs.of(field.at), type: this.held(field, side) };
  }

  /** Type of a field that is present. */
  private held(field: ProtoField, side: Side): TsType {
    const { message, mapKey, repeated } = field;
    // The decoder skips a type that is not known, and the encoder refuses its values.
    const value = message?.unknown === true ? NEVER : this.value(field, side);
    if (message?.unknown === true && side === 'input') return NEVER;
    if (mapKey !== undefined) return { kind: 'map', value };
    if (repeated) return { kind: 'list', item: value, readonly: side === 'input' };
    return value;
  }

  private value({ type, message, enumeration }: ProtoField, side: Side): TsType {
    if (message !== undefined) return this.message(message);
    if (enumeration !== undefined) return this.enumeration(enumeration);
    if (type === 'string') return STRING;
    if (type === 'bool') return BOOLEAN;
    if (type === 'bytes') return side === 'input' ? BYTES_INPUT : BUFFER;
    if (!type.endsWith('64')) return NUMBER;
    return side === 'input' ? union(BIGINT, NUMBER) : BIGINT;
  }
}

/** Members of each oneof, in the order of the message. */
function oneofsOf(message: ProtoMessage): ReadonlyMap<string, ProtoField[]> {
  const groups = new Map<string, ProtoField[]>();
  for (const field of message.fields)
    if (field.oneof !== undefined) groups.set(field.oneof, [...(groups.get(field.oneof) ?? []), field]);
  return groups;
}

/** Comments of the schema's text and of its references. */
class Docs {
  private readonly own: string | undefined;
  private readonly references = new Map<string, string>();
  private readonly read = new Map<string | undefined, ProtoComments | undefined>();

  constructor({ source, references }: ProtoSchema) {
    this.own = descriptorOf(source) === undefined ? source : undefined;
    const add = (list: readonly ResolvedReference[]): void => {
      for (const { name, text, references: more } of list) {
        if (this.references.has(name)) continue;
        this.references.set(name, text);
        add(more);
      }
    };
    add(references);
  }

  of({ from, line, column }: ProtoPlace): string | undefined {
    return this.commentsOf(from)?.docOf({ line, column } satisfies Position);
  }

  private commentsOf(from: string | undefined): ProtoComments | undefined {
    if (!this.read.has(from)) {
      const text = from === undefined ? this.own : this.references.get(from);
      this.read.set(from, text === undefined ? undefined : new ProtoComments(text));
    }
    return this.read.get(from);
  }
}
