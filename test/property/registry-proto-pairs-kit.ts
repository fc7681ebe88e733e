/** Independent model of random Protobuf schemas in the three syntaxes, and of changed ones. It is
 *  printed to text for the registry, and used by an oracle that never uses the registry's trees. */

export const SCALARS =
  'int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64 sfixed32 sfixed64 bool float double string bytes'.split(
    ' ',
  );
const KEYS = SCALARS.filter((type) => !/float|double|bytes/.test(type));
export const SYNTAXES = ['proto2', 'proto3', 'editions'] as const;
export type Syntax = (typeof SYNTAXES)[number];

export interface EnumModel {
  name: string;
  closed: boolean;
  /** Number and name of each value; zero comes first. */
  values: Array<[number, string]>;
}

export interface FieldModel {
  name: string;
  number: number;
  /** Name of a scalar type, `enum` or `message`. */
  type: string;
  /** Name of the enum or message. */
  target: string;
  shape: 'single' | 'repeated' | 'map';
  key: string;
  required: boolean;
  presence: boolean;
  oneof: string | undefined;
  packed: boolean;
  delimited: boolean;
}

export interface MessageModel {
  /** Name with the enclosing messages: `M0.Inner`. */
  name: string;
  fields: FieldModel[];
  /** True for the message that a group field of proto2 declares. */
  group: boolean;
}

export interface SchemaModel {
  syntax: Syntax;
  enums: EnumModel[];
  messages: MessageModel[];
}

/** Returns an integer from 0 up to, and without, `below`. */
export type Next = (below: number) => number;

const pick = <T>(next: Next, list: readonly T[]): T => list[next(list.length)] as T;
const isPackable = ({ type }: FieldModel): boolean => !/^(string|bytes|message)$/.test(type);
/** First number of extensions in the syntaxes that have them. */
const EXTENSIONS_FROM = 100;
export const isExtension = ({ syntax }: SchemaModel, { number }: FieldModel): boolean =>
  syntax !== 'proto3' && number >= EXTENSIONS_FROM;

function randomField(next: Next, model: SchemaModel, number: number): FieldModel {
  const type = pick(next, ['int32', 'string', 'enum', 'message', 'message', pick(next, SCALARS)]);
  return {
    name: `f${number}`,
    number,
    type,
    target: targetOf(next, model, type),
    shape: pick(next, ['single', 'single', 'single', 'repeated', 'repeated', 'map'] as const),
    key: pick(next, KEYS),
    required: next(8) === 7,
    presence: next(2) === 1,
    oneof: next(5) === 4 ? pick(next, ['one', 'two']) : undefined,
    packed: next(2) === 1,
    delimited: next(6) === 5,
  };
}

function targetOf(next: Next, { enums, messages }: SchemaModel, type: string): string {
  if (type === 'enum') return pick(next, enums).name;
  return type === 'message' ? pick(next, messages).name : '';
}

export function randomSchema(next: Next): SchemaModel {
  const syntax = pick(next, SYNTAXES);
  const enums = [0, 1].map((index) => ({
    name: `E${index}`,
    closed: next(2) === 1,
    values: [0, 1, -1, 5]
      .slice(0, 1 + next(4))
      .map((n) => [n, `E${index}_${n < 0 ? 'M' : 'V'}${Math.abs(n)}`] as [number, string]),
  }));
  const names = ['M0', 'M0.Inner', 'M1', 'M2', 'M3'].slice(0, 2 + next(4));
  const model: SchemaModel = {
    syntax,
    enums,
    messages: names.map((name) => ({ name, fields: [], group: false })),
  };
  for (const message of model.messages) {
    const numbers = new Set(Array.from({ length: next(4) }, () => 1 + next(4)));
    if (next(6) === 5) numbers.add(EXTENSIONS_FROM + next(3));
    for (const number of numbers) message.fields.push(randomField(next, model, number));
  }
  return legal(model);
}

const copyOf = (model: SchemaModel): SchemaModel => structuredClone(model);

const isNamedByNumber = ({ name, delimited }: FieldModel): boolean => delimited || name.startsWith('g');

type Change = (next: Next, model: SchemaModel, message: MessageModel, field: FieldModel) => void;

const CHANGES: Readonly<Record<string, Change>> = {
  rename: (_next, _model, _message, field) => {
    field.name = `g${field.number}`;
  },
  renumber: (_next, _model, _message, field) => {
    field.number += 10;
  },
  /** The name of a group depends on its number. */
  swap: (next, _model, message, field) => {
    const other = pick(next, message.fields);
    if (isNamedByNumber(field) || isNamedByNumber(other)) return;
    [field.name, other.name] = [other.name, field.name];
  },
  replace: (next, model, message, field) => {
    if (isNamedByNumber(field)) return;
    const { number } = field;
    field.number += 10;
    message.fields.push({ ...randomField(next, model, number), name: `r${number}`, delimited: false });
  },
  remove: (_next, _model, message, field) => {
    message.fields.splice(message.fields.indexOf(field), 1);
  },
  retype: (next, model, _message, field) => {
    field.type = pick(next, [...SCALARS, 'enum', 'message']);
    field.target = targetOf(next, model, field.type);
  },
  retarget: (next, model, _message, field) => {
    field.target = targetOf(next, model, field.type);
  },
  reshape: (next, _model, _message, field) => {
    field.shape = pick(next, ['single', 'repeated', 'map'] as const);
  },
  /** Replaces a map by its form on the wire, or the other way round. */
  unmap: (next, model, _message, field) => {
    if (field.shape !== 'map') {
      const target = model.messages.find(({ name }) => name === field.target);
      const value = target?.fields.find(({ number }) => number === 2);
      field.shape = 'map';
      field.key =
        target?.fields.find(({ number, type }) => number === 1 && KEYS.includes(type))?.type ?? field.key;
      if (value !== undefined) Object.assign(field, { type: value.type, target: value.target });
      return;
    }
    const entry = pick(next, model.messages);
    const part = (number: number, type: string, target: string): FieldModel => ({
      ...randomField(() => 0, model, number),
      type,
      target,
      name: number === 1 ? 'key' : 'value',
      presence: next(2) === 1,
      required: next(3) === 2,
    });
    entry.fields = [part(1, field.key, ''), part(2, field.type, field.target)];
    Object.assign(field, {
      shape: pick(next, ['single', 'repeated', 'repeated'] as const),
      type: 'message',
      target: entry.name,
    });
  },
  packing: (_next, _model, _message, field) => {
    field.packed = !field.packed;
  },
  presence: (_next, _model, _message, field) => {
    field.presence = !field.presence;
  },
  require: (_next, _model, _message, field) => {
    field.required = !field.required;
  },
  delimit: (_next, _model, _message, field) => {
    field.delimited = !field.delimited;
  },
  oneof: (next, _model, message) => {
    const name = pick(next, ['one', 'two', undefined]);
    for (const field of message.fields) if (next(2) === 0) field.oneof = name;
  },
};
const FIELD_CHANGES = Object.keys(CHANGES);

/** Copies a schema with some changes. */
export function changedSchema(next: Next, from: SchemaModel): SchemaModel {
  const model = copyOf(from);
  for (let left = 1 + next(4); left > 0; left--) {
    const message = pick(next, model.messages);
    const field = message.fields.length === 0 ? undefined : pick(next, message.fields);
    const kind = next(FIELD_CHANGES.length + 5) - 5;
    if (kind === -5) message.fields.push(randomField(next, model, pick(next, [5, 6, 7, 103])));
    else if (kind === -4) model.syntax = pick(next, SYNTAXES);
    else if (kind === -3) {
      const enumeration = pick(next, model.enums);
      const value = pick(next, [1, -1, 5, 9]);
      const without = enumeration.values.filter(([number]) => number !== value);
      const isGone = without.length < enumeration.values.length;
      enumeration.values = isGone ? without : [...without, [value, `${enumeration.name}_N${value + 1}`]];
    } else if (kind === -2) pick(next, model.enums).closed = next(2) === 1;
    else if (kind === -1) renameMessage(model, message.name, message.name.replace(/\d$/, '9'));
    else if (field !== undefined) CHANGES[FIELD_CHANGES[kind] as string]?.(next, model, message, field);
  }
  const names = new Set(model.messages.map(({ name }) => name));
  for (const message of model.messages) {
    for (const field of message.fields)
      if (field.type === 'message' && !names.has(field.target)) field.target = pick(next, [...names]);
  }
  return legal(model);
}

function renameMessage(model: SchemaModel, from: string, to: string): void {
  if (model.messages.some(({ name }) => name === to)) return;
  const renamed = (name: string): string =>
    name === from || name.startsWith(`${from}.`) ? to + name.slice(from.length) : name;
  for (const message of model.messages) {
    message.name = renamed(message.name);
    for (const field of message.fields) field.target = renamed(field.target);
  }
}

/** Adjusts a model to the rules of its syntax; both sides of a pair are adjusted. */
function legal(model: SchemaModel): SchemaModel {
  const { syntax } = model;
  // Groups of proto2 are rebuilt from the messages that they refer to.
  model.messages = model.messages.filter(({ group }) => !group);
  const known = new Set(model.messages.map(({ name }) => name));
  for (const enumeration of model.enums) {
    if (syntax !== 'editions') enumeration.closed = syntax === 'proto2';
  }
  const groups: MessageModel[] = [];
  for (const message of model.messages) {
    const numbers = new Set<number>();
    message.fields = message.fields.filter(({ number }) => !numbers.has(number) && numbers.add(number));
    message.fields.sort((a, b) => a.number - b.number);
    const names = new Set<string>();
    for (const field of message.fields) {
      if (names.has(field.name)) field.name = `h${field.number}`;
      names.add(field.name);
      if (field.type === 'message' && !known.has(field.target)) field.target = message.name;
      settle(model, field);
    }
  }
  for (const message of model.messages) {
    for (const field of message.fields) {
      if (!field.delimited || syntax !== 'proto2') continue;
      const inner = model.messages.find(({ name }) => name === field.target) as MessageModel;
      const group = { name: `${message.name}.G${field.number}`, group: true, fields: [] as FieldModel[] };
      group.fields = structuredClone(inner.fields).filter(({ number }) => number < EXTENSIONS_FROM);
      // A group that contains groups would recurse without end.
      for (const one of group.fields) one.delimited = false;
      groups.push(group);
      field.name = `g${field.number}`;
      field.target = group.name;
    }
  }
  model.messages.push(...groups);
  return model;
}

function settle(model: SchemaModel, field: FieldModel): void {
  const { syntax } = model;
  const extends_ = isExtension(model, field);
  if (extends_ && field.shape === 'map') field.shape = 'repeated';
  if (extends_ || field.shape !== 'single') field.oneof = undefined;
  if (syntax === 'proto3' || extends_ || field.oneof !== undefined || field.shape !== 'single')
    field.required = false;
  if (syntax === 'proto3' || field.type !== 'message' || field.shape === 'map') field.delimited = false;
  // A group could be a member of a oneof, but its message would be declared inside the oneof.
  if (syntax === 'proto2' && (field.oneof !== undefined || extends_)) field.delimited = false;
  if (field.shape !== 'repeated' || !isPackable(field)) field.packed = false;
  const closed =
    field.type === 'enum' && model.enums.find(({ name }) => name === field.target)?.closed === true;
  if (field.shape !== 'single') field.presence = false;
  else if (
    syntax === 'proto2' ||
    extends_ ||
    field.oneof !== undefined ||
    field.type === 'message' ||
    field.required ||
    closed
  )
    field.presence = true;
}

export function printSchema(model: SchemaModel): string {
  const { syntax, enums, messages } = model;
  const lines = [syntax === 'editions' ? 'edition = "2023";' : `syntax = "${syntax}";`];
  for (const { name, closed, values } of enums) {
    const option = syntax === 'editions' && closed ? 'option features.enum_type = CLOSED; ' : '';
    lines.push(
      `enum ${name} { ${option}${values.map(([number, value]) => `${value} = ${number};`).join(' ')} }`,
    );
  }
  for (const message of messages) {
    if (message.name.includes('.')) continue;
    lines.push(printMessage(model, message));
  }
  for (const message of messages) {
    const extensions = message.fields.filter((field) => isExtension(model, field));
    for (const field of extensions)
      lines.push(
        `extend ${message.name} { ${printField(model, { ...field, name: extensionName(message, field) })} }`,
      );
  }
  return lines.join('\n');
}

export const extensionName = (message: MessageModel, { name, number }: FieldModel): string =>
  `x${name}_${number}_${message.name.replaceAll('.', '_')}`;

function printMessage(model: SchemaModel, message: MessageModel): string {
  const { name, fields } = message;
  const own = fields.filter((field) => !isExtension(model, field));
  const parts = model.messages
    .filter((one) => !one.group && one.name.startsWith(`${name}.`))
    .map((inner) => printMessage(model, inner));
  for (const oneof of [undefined, 'one', 'two']) {
    const members = own.filter((field) => field.oneof === oneof).map((field) => printField(model, field));
    if (oneof === undefined || members.length === 0) parts.push(...members);
    else parts.push(`oneof ${oneof} { ${members.join(' ')} }`);
  }
  if (model.syntax !== 'proto3') parts.push(`extensions ${EXTENSIONS_FROM} to max;`);
  return `message ${name.slice(name.lastIndexOf('.') + 1)} { ${parts.join(' ')} }`;
}

function printField(model: SchemaModel, field: FieldModel): string {
  const { syntax } = model;
  const { shape, name, number, oneof, required, presence, packed, delimited } = field;
  const type = field.target === '' || /^[^em]/.test(field.type) ? field.type : `.${field.target}`;
  if (shape === 'map') return `map<${field.key}, ${type}> ${name} = ${number};`;
  const label = labelOf(syntax, field);
  if (delimited && syntax === 'proto2') {
    const group = model.messages.find((one) => one.name === field.target) as MessageModel;
    return `${label} group G${number} = ${number} ${printMessage(model, group).replace(/^message \w+ /, '')}`;
  }
  const options: string[] = [];
  if (shape === 'repeated' && isPackable(field)) {
    if (syntax === 'editions')
      options.push(`features.repeated_field_encoding = ${packed ? 'PACKED' : 'EXPANDED'}`);
    else options.push(`packed = ${packed}`);
  }
  if (syntax === 'editions') {
    if (required) options.push('features.field_presence = LEGACY_REQUIRED');
    else if (shape === 'single' && !presence && oneof === undefined)
      options.push('features.field_presence = IMPLICIT');
    if (delimited) options.push('features.message_encoding = DELIMITED');
  }
  const tail = options.length === 0 ? '' : ` [${options.join(', ')}]`;
  return `${label} ${type} ${name} = ${number}${tail};`.trim();
}

function labelOf(syntax: Syntax, { shape, required, presence, oneof, type }: FieldModel): string {
  if (oneof !== undefined) return '';
  if (shape === 'repeated') return 'repeated';
  if (syntax === 'editions') return '';
  if (syntax === 'proto2') return required ? 'required' : 'optional';
  return presence && type !== 'message' ? 'optional' : '';
}
