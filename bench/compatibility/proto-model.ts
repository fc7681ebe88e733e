/** Random Protobuf schemas as objects that can be copied, changed and printed. All randomness comes
 *  from a seed.
 *
 *  The objects describe the meaning of a schema; the printer expresses it in one syntax. A feature
 *  that the syntax lacks becomes the nearest valid one, so that every printed file is valid. */
import type { Chance } from './avro-model.ts';

export type Syntax = 'proto2' | 'proto3' | '2023';

export interface EnumType {
  kind: 'enum';
  name: string;
  values: Array<[name: string, number: number]>;
  /** Requested; proto2 has no open enums and proto3 no closed enums. */
  closed: boolean;
}
export interface MessageType {
  kind: 'message';
  name: string;
  fields: Field[];
  messages: MessageType[];
  enums: EnumType[];
  reserved: number[];
  /** Number of the next created field. */
  next: number;
  /** Number of messages around it when it was created. */
  depth: number;
  /** Extensions of the message, declared at the top of the file. */
  extensions: Field[];
}
/** Well-known message that needs no registered reference. */
export interface KnownType {
  kind: 'known';
  name: string;
  path: string;
}
export interface ScalarType {
  kind: 'scalar';
  name: string;
}
export type Type = EnumType | MessageType | KnownType | ScalarType;

export interface Field {
  name: string;
  number: number;
  type: Type;
  label: 'implicit' | 'optional' | 'required' | 'repeated' | 'map';
  /** Type of a map key. */
  key: string;
  oneof: string | undefined;
  /** Undefined: default of the syntax. */
  packed: boolean | undefined;
  /** True for group encoding. */
  delimited: boolean;
  /** Default value of a scalar in proto2 and in editions. */
  fallback: string | undefined;
}

export interface ProtoFileModel {
  syntax: Syntax;
  package: string;
  messages: MessageType[];
  enums: EnumType[];
}

export const SCALARS = [
  'int32',
  'int64',
  'uint32',
  'uint64',
  'bool',
  'sint32',
  'sint64',
  'fixed32',
  'sfixed32',
  'float',
  'fixed64',
  'sfixed64',
  'double',
  'string',
  'bytes',
] as const;
export const KEYS = SCALARS.filter((type) => !/^(float|double|bytes)$/.test(type));
const KNOWN: readonly KnownType[] = [
  ['Timestamp', 'timestamp'],
  ['Duration', 'duration'],
  ['Any', 'any'],
  ['Struct', 'struct'],
  ['StringValue', 'wrappers'],
  ['Int64Value', 'wrappers'],
].map(([name, path]) => ({
  kind: 'known',
  name: `google.protobuf.${name}`,
  path: `google/protobuf/${path}.proto`,
}));
const FIRST_EXTENSION = 1_000;
const EXTENSIONS = 100;
/** Maximum nesting of random messages, and their maximum number. */
const DEPTH_MAX = 5;
const MESSAGES_MAX = 8;

export const isRepeated = ({ label }: Field): boolean => label === 'repeated' || label === 'map';
export const isNumber = (type: Type): boolean =>
  type.kind === 'enum' || (type.kind === 'scalar' && !/^(string|bytes)$/.test(type.name));
export const scalar = (name: string): ScalarType => ({ kind: 'scalar', name });

/** All messages, outer before inner. */
export function everyMessage({ messages }: ProtoFileModel): MessageType[] {
  const all: MessageType[] = [];
  const walk = (list: readonly MessageType[]): void => {
    for (const message of list) {
      all.push(message);
      walk(message.messages);
    }
  };
  walk(messages);
  return all;
}

export interface Found {
  readonly owner: MessageType;
  readonly field: Field;
}

export const everyField = (file: ProtoFileModel): Found[] =>
  everyMessage(file).flatMap((owner) => owner.fields.map((field) => ({ owner, field })));

/** A random schema under construction. */
export class ProtoGenerator {
  readonly chance: Chance;
  readonly file: ProtoFileModel;
  /** Nesting depth of the innermost message that was picked for a change, counting itself. */
  depth = 0;
  private names = 0;
  private messages = 0;

  constructor(chance: Chance, syntaxes: readonly Syntax[]) {
    this.chance = chance;
    this.file = {
      syntax: chance.pick(syntaxes),
      package: chance.pick(['', 'shop', 'a.b']),
      messages: [],
      enums: [],
    };
    const count = 1 + chance.below(2);
    for (let i = 0; i < count; i++) this.file.messages.push(this.message(0));
    // Half of the schemas have nested messages, up to five deep.
    let outer = this.file.messages[0] as MessageType;
    const deepest = chance.maybe(0.5) ? 2 + chance.below(3) : 0;
    for (let depth = 1; depth <= deepest; depth++) {
      const inner = this.message(depth);
      (chance.maybe(0.6) ? outer.messages : this.file.messages).push(inner);
      const field = this.field(outer, DEPTH_MAX);
      Object.assign(field, { type: inner, label: chance.pick(['optional', 'repeated', 'map', 'required']) });
      outer = inner;
    }
  }

  /** Picks a message to change: of two random messages, the deeper one. */
  pickMessage(fits: (message: MessageType) => boolean = () => true): MessageType | undefined {
    const fitting = everyMessage(this.file).filter(fits);
    if (fitting.length === 0) return undefined;
    const [one, other] = [this.chance.pick(fitting), this.chance.pick(fitting)];
    return this.picked(other.depth > one.depth ? other : one);
  }

  picked(message: MessageType): MessageType {
    this.depth = Math.max(this.depth, message.depth + 1);
    return message;
  }

  word(prefix: string): string {
    return `${prefix}${this.names++}`;
  }

  enumeration(): EnumType {
    const { chance } = this;
    const name = this.word('E');
    const numbers = chance.pick([[0], [0, 1], [0, 1, 2], [0, 1, 7], [0, -1, 5], [3, 4], [1, 0]]);
    const values = numbers.map((number, i): [string, number] => [`${name}_V${i}`, number]);
    return { kind: 'enum', name, values, closed: chance.maybe(0.5) };
  }

  /** Creates an enum in the message or at the top level. */
  placedEnum(owner: MessageType): EnumType {
    const made = this.enumeration();
    (this.chance.maybe(0.5) ? owner.enums : this.file.enums).push(made);
    return made;
  }

  bare(depth: number): MessageType {
    this.messages++;
    const name = this.word('M');
    return {
      kind: 'message',
      name,
      fields: [],
      messages: [],
      enums: [],
      reserved: [],
      next: 1,
      depth,
      extensions: [],
    };
  }

  message(depth: number): MessageType {
    const { chance } = this;
    const message = this.bare(depth);
    const count = 1 + chance.below(5);
    for (let i = 0; i < count; i++) this.field(message, depth);
    if (chance.maybe(0.06)) this.self(message);
    if (chance.maybe(0.06)) this.extension(message);
    return message;
  }

  /** Adds a field of the message's own type. If the field is required, the message has no finite
   *  event. */
  self(message: MessageType): void {
    const field = this.field(message, DEPTH_MAX);
    field.type = message;
    field.label = this.chance.pick(['optional', 'optional', 'repeated', 'required']);
    field.oneof = undefined;
  }

  extension(message: MessageType): Field {
    const field = this.loose(message, DEPTH_MAX);
    field.number = Math.max(FIRST_EXTENSION - 1, ...message.extensions.map(({ number }) => number)) + 1;
    field.label = field.label === 'repeated' ? 'repeated' : 'optional';
    field.oneof = undefined;
    field.delimited = false;
    message.extensions.push(field);
    return field;
  }

  number(message: MessageType): number {
    if (this.chance.maybe(0.1)) message.next += this.chance.pick([1, 14, 15, 2_040]);
    return message.next++;
  }

  field(message: MessageType, depth: number): Field {
    const field = this.loose(message, depth);
    field.number = this.number(message);
    message.fields.push(field);
    return field;
  }

  /** Creates a field that is not yet added to its message. */
  private loose(message: MessageType, depth: number): Field {
    const { chance } = this;
    const field: Field = {
      name: this.word('f'),
      number: 0,
      type: this.type(message, depth),
      label: chance.pick(['implicit', 'implicit', 'optional', 'optional', 'repeated', 'required', 'map']),
      key: chance.pick(KEYS),
      oneof: undefined,
      packed: chance.pick([undefined, undefined, true, false]),
      delimited: chance.maybe(0.1),
      fallback: undefined,
    };
    if (field.label === 'required' && chance.maybe(0.6)) field.label = 'optional';
    if (!isRepeated(field) && chance.maybe(0.2)) field.oneof = this.oneofOf(message);
    if (field.type.kind === 'scalar' && chance.maybe(0.1)) field.fallback = defaultOf(field.type.name);
    return field;
  }

  /** An existing oneof, or a new one. */
  private oneofOf(message: MessageType): string {
    const held = message.fields.flatMap(({ oneof }) => oneof ?? []);
    return held.length > 0 && this.chance.maybe(0.7) ? this.chance.pick(held) : this.word('o');
  }

  scalar(): ScalarType {
    return scalar(this.chance.pick(SCALARS));
  }

  known(): KnownType {
    return this.chance.pick(KNOWN);
  }

  type(message: MessageType, depth: number): Type {
    const { chance } = this;
    const dice = chance.next();
    if (dice < 0.58) return this.scalar();
    if (dice < 0.72) return this.placedEnum(message);
    if (dice < 0.75) return this.known();
    if (depth >= DEPTH_MAX || this.messages >= MESSAGES_MAX) return this.scalar();
    const made = this.message(depth + 1);
    (chance.maybe(0.6) ? message.messages : this.file.messages).push(made);
    return made;
  }
}

function defaultOf(type: string): string | undefined {
  if (type === 'string' || type === 'bytes') return '"none"';
  if (type === 'bool') return 'true';
  return '7';
}

/** Repairs the file to the nearest valid one: zero-first enums where required, only singular fields
 *  in oneofs, and no dangling references. */
function repair(file: ProtoFileModel): void {
  const messages = new Set(everyMessage(file));
  const enums = new Set([...file.enums, ...everyMessage(file).flatMap((message) => message.enums)]);
  const zeroFirst = new Set<EnumType>();
  for (const message of messages) {
    const isResolved = ({ type }: Field): boolean =>
      (type.kind !== 'message' || messages.has(type)) && (type.kind !== 'enum' || enums.has(type));
    const isExtension = ({ number }: Field): boolean =>
      message.extensions.length > 0 && number >= FIRST_EXTENSION && number < FIRST_EXTENSION + EXTENSIONS;
    message.fields = message.fields.filter((field) => isResolved(field) && !isExtension(field));
    message.extensions = message.extensions.filter(isResolved);
    for (const { label, type } of message.fields)
      if (label === 'map' && type.kind === 'enum') zeroFirst.add(type);
  }
  for (const one of enums) {
    const isOpen = file.syntax === 'proto3' || (file.syntax === '2023' && !one.closed);
    if (!isOpen && !zeroFirst.has(one)) continue;
    const zero = one.values.find(([, number]) => number === 0) ?? [`${one.name}_ZERO`, 0];
    one.values = [zero, ...one.values.filter((value) => value !== zero)];
  }
}

export function printProto(file: ProtoFileModel): string {
  repair(file);
  return new Printer(file).text();
}

class Printer {
  private readonly file: ProtoFileModel;
  private readonly names = new Map<Type, string>();
  private readonly imports = new Set<string>();

  constructor(file: ProtoFileModel) {
    this.file = file;
    const prefix = file.package === '' ? '' : `.${file.package}`;
    const walk = (messages: readonly MessageType[], enums: readonly EnumType[], outer: string): void => {
      for (const one of enums) this.names.set(one, `${outer}.${one.name}`);
      for (const one of messages) {
        this.names.set(one, `${outer}.${one.name}`);
        walk(one.messages, one.enums, `${outer}.${one.name}`);
      }
    };
    walk(file.messages, file.enums, prefix);
  }

  text(): string {
    const { syntax, package: name, messages, enums } = this.file;
    const body = [...enums.map((one) => this.enumeration(one)), ...messages.map((one) => this.message(one))];
    if (syntax !== 'proto3') {
      for (const message of everyMessage(this.file)) {
        if (message.extensions.length === 0) continue;
        const fields = message.extensions.map((field) => this.field(field, 'extend'));
        body.push(`extend ${this.names.get(message)} {\n${fields.join('\n')}\n}`);
      }
    }
    return [
      syntax === '2023' ? 'edition = "2023";' : `syntax = "${syntax}";`,
      ...(name === '' ? [] : [`package ${name};`]),
      ...[...this.imports].sort().map((path) => `import "${path}";`),
      ...body,
      '',
    ].join('\n');
  }

  private enumeration({ name, values, closed }: EnumType): string {
    const option = this.file.syntax === '2023' && closed ? ['option features.enum_type = CLOSED;'] : [];
    const alias = new Set(values.map(([, number]) => number)).size < values.length;
    if (alias) option.push('option allow_alias = true;');
    return `enum ${name} {\n${[...option, ...values.map(([word, number]) => `${word} = ${number};`)].join('\n')}\n}`;
  }

  private message(message: MessageType): string {
    return `message ${message.name} ${this.body(message)}`;
  }

  private body(message: MessageType): string {
    const { syntax } = this.file;
    const groups = new Set(
      message.fields.filter((field) => this.isGroup(message, field)).map(({ type }) => type),
    );
    const lines = [
      ...message.enums.map((one) => this.enumeration(one)),
      ...message.messages.filter((one) => !groups.has(one)).map((one) => this.message(one)),
    ];
    const taken = new Set(message.fields.map(({ number }) => number));
    const reserved = [...new Set(message.reserved)].filter((number) => !taken.has(number));
    if (reserved.length > 0) lines.push(`reserved ${reserved.join(', ')};`);
    if (syntax !== 'proto3' && message.extensions.length > 0)
      lines.push(`extensions ${FIRST_EXTENSION} to ${FIRST_EXTENSION + EXTENSIONS - 1};`);
    const done = new Set<string>();
    for (const field of message.fields) {
      const { oneof } = field;
      if (oneof === undefined || isRepeated(field)) {
        lines.push(this.isGroup(message, field) ? this.group(field) : this.field(field, 'message'));
      } else if (!done.has(oneof)) {
        done.add(oneof);
        const members = message.fields.filter((one) => one.oneof === oneof && !isRepeated(one));
        lines.push(
          `oneof ${oneof} {\n${members.map((one) => (this.isGroup(message, one) ? this.group(one) : this.field(one, 'oneof'))).join('\n')}\n}`,
        );
      }
    }
    return `{\n${lines.join('\n')}\n}`;
  }

  /** True if proto2 can write the field as a group: the message must be declared in place and used
   *  only here. */
  private isGroup(owner: MessageType, { type, delimited, label }: Field): boolean {
    if (this.file.syntax !== 'proto2' || !delimited || label === 'map' || type.kind !== 'message')
      return false;
    const users = everyField(this.file).filter(({ field }) => field.type === type);
    return users.length === 1 && owner.messages.includes(type);
  }

  private group(field: Field): string {
    const { label, number, oneof, type } = field;
    const word =
      oneof !== undefined && !isRepeated(field) ? '' : `${label === 'implicit' ? 'optional' : label} `;
    return `${word}group ${(type as MessageType).name} = ${number} ${this.body(type as MessageType)}`;
  }

  private typeName(type: Type): string {
    if (type.kind === 'scalar') return type.name;
    if (type.kind !== 'known') return this.names.get(type) as string;
    this.imports.add(type.path);
    return `.${type.name}`;
  }

  private field(field: Field, place: 'message' | 'oneof' | 'extend'): string {
    const options = this.options(field, place);
    const list = options.length === 0 ? '' : ` [${options.join(', ')}]`;
    const type = this.typeName(field.type);
    const whole = field.label === 'map' && place === 'message' ? `map<${field.key}, ${type}>` : type;
    return `${this.label(field, place)}${whole} ${field.name} = ${field.number}${list};`;
  }

  private label({ label, type }: Field, place: 'message' | 'oneof' | 'extend'): string {
    if (place === 'oneof' || (label === 'map' && place === 'message')) return '';
    if (isRepeated({ label } as Field)) return 'repeated ';
    switch (this.file.syntax) {
      case 'proto2':
        return label === 'required' && place === 'message' ? 'required ' : 'optional ';
      case 'proto3':
        return label === 'implicit' || (label === 'required' && type.kind === 'message') ? '' : 'optional ';
      default:
        return '';
    }
  }

  private options({ label, type, packed, delimited, fallback }: Field, place: string): string[] {
    const { syntax } = this.file;
    const options: string[] = [];
    const isMessage = type.kind === 'message' || type.kind === 'known';
    const isRun = label === 'repeated' && isNumber(type);
    if (isRun && packed !== undefined) {
      if (syntax !== '2023') options.push(`packed = ${packed}`);
      else if (!packed) options.push('features.repeated_field_encoding = EXPANDED');
    }
    let isImplicit = syntax === 'proto3' && label === 'implicit';
    if (syntax === '2023') {
      if (label === 'required' && place === 'message')
        options.push('features.field_presence = LEGACY_REQUIRED');
      isImplicit = label === 'implicit' && !isMessage && !(type.kind === 'enum' && type.closed);
      if (isImplicit && place === 'message') options.push('features.field_presence = IMPLICIT');
      if (delimited && isMessage && label !== 'map') options.push('features.message_encoding = DELIMITED');
    }
    const mayDefault = syntax === 'proto2' || (syntax === '2023' && (!isImplicit || place !== 'message'));
    if (
      fallback !== undefined &&
      type.kind === 'scalar' &&
      mayDefault &&
      label !== 'repeated' &&
      label !== 'map'
    )
      options.push(`default = ${defaultOf(type.name)}`);
    return options;
  }
}
