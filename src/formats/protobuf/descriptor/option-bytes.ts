/** Encodes options as in a descriptor: the bytes of FileOptions, FieldOptions and the other options
 *  messages.
 *
 *  A known option is a field of the options message, a custom option an extension of it; both are
 *  encoded by their definitions. Order: known options by number, then custom options as in the
 *  source; an aggregate by number. */

import { integerValue } from '../link/default.ts';
import { isDelimited, isPacked } from '../link/features.ts';
import type { LinkedField, LinkedFile, LinkedMessage } from '../link/model.ts';
import type { ProtoLink } from '../link/resolve.ts';
import type { OptionEntry, OptionNode, OptionValue, Position } from '../syntax/ast.ts';
import { protoFail } from '../syntax/lexer.ts';
import { floatBytes, ProtoWriter } from './bytes.ts';

/** Undefined options that are dropped instead of refused: all of them, only custom ones, or none.
 */
export type OptionTolerance = 'all' | 'custom' | 'none';

/** Place of options, which determines the meaning of their names. */
export interface OptionPlace {
  readonly link: ProtoLink;
  readonly file: LinkedFile;
  /** Full name of the scope in which names are resolved. */
  readonly scope: string;
  readonly tolerance: OptionTolerance;
}

/** Statements in option syntax that are no options of the descriptor. */
const PSEUDO: ReadonlySet<string> = new Set(['default', 'json_name']);

/** Encodes options. @param message full name of the options message
 *  @returns undefined where no option is written
 *  @throws invalid_schema */
export function optionBytes(
  options: readonly OptionNode[],
  message: string,
  place: OptionPlace,
): Buffer | undefined {
  const root = place.link.optionsMessage(message);
  if (root === undefined) return undefined;
  const out = new OptionsMessage();
  for (const option of options) {
    const [first] = option.name;
    if (option.name.length === 1 && first !== undefined && !first.extension && PSEUDO.has(first.name))
      continue;
    try {
      out.add(new Interpreter(place, option).chain(root), option.value, place, option);
    } catch (error) {
      const isCustom = option.name.some((part) => part.extension);
      if (place.tolerance === 'none' || (place.tolerance === 'custom' && !isCustom)) throw error;
    }
  }
  return out.isEmpty ? undefined : out.finish();
}

/** Resolves the parts of one option's name. */
class Interpreter {
  private readonly place: OptionPlace;
  private readonly option: OptionNode;

  constructor(place: OptionPlace, option: OptionNode) {
    this.place = place;
    this.option = option;
  }

  chain(root: LinkedMessage): LinkedField[] {
    const { name, at } = this.option;
    const chain: LinkedField[] = [];
    let message: LinkedMessage | undefined = root;
    for (const part of name) {
      const previous = chain.at(-1);
      if (message === undefined)
        protoFail(`the option ${previous?.fullName} is no message, so it has no fields`, at);
      if (previous?.label === 'repeated')
        protoFail(`the option ${previous.fullName} is repeated; its fields cannot be set one by one`, at);
      const field: LinkedField | undefined = part.extension
        ? extensionOf(part.name, message, this.place, at)
        : message.fields.find((one) => one.name === part.name);
      if (field === undefined) protoFail(`the option ${JSON.stringify(part.name)} is unknown`, at);
      chain.push(field);
      message = field.target?.kind === 'message' ? field.target : undefined;
    }
    return chain;
  }
}

function extensionOf(name: string, message: LinkedMessage, place: OptionPlace, at: Position): LinkedField {
  const field = place.link.extension(name, place.scope, place.file);
  if (field === undefined)
    protoFail(`the option (${name}) is unknown; is the import of its file missing?`, at);
  if (field.extendee?.name !== message.name) protoFail(`(${name}) does not extend ${message.name}`, at);
  return field;
}

/** Options message that is assembled from its parts. */
class OptionsMessage {
  private readonly known = new Map<LinkedField, Buffer[] | OptionsMessage>();
  private readonly custom: Buffer[] = [];
  private readonly seen = new Set<string>();

  get isEmpty(): boolean {
    return this.known.size === 0 && this.custom.length === 0;
  }

  add(chain: readonly LinkedField[], value: OptionValue, place: OptionPlace, option: OptionNode): void {
    const [first, ...rest] = chain as [LinkedField, ...LinkedField[]];
    const last = chain.at(-1) as LinkedField;
    const names = chain.map(({ fullName }) => fullName);
    const key = names.join(' ');
    const outer = names.map((_name, index) => names.slice(0, index).join(' '));
    if (last.label !== 'repeated' && (this.seen.has(key) || this.seen.has(`${key} …`))) {
      protoFail(`the option ${last.fullName} is set twice`, option.at);
    }
    const whole = outer.find((one) => this.seen.has(one));
    if (whole !== undefined) protoFail(`the option ${whole} is set as a whole already`, option.at);
    this.seen.add(key);
    // An option that was set in part cannot be set as a whole.
    for (const one of outer) this.seen.add(`${one} …`);
    if (value.kind === 'list')
      protoFail(`the option ${last.fullName} cannot be a list; repeat the statement`, option.at);
    if (first.extendeeName !== undefined) {
      let bytes = fieldBytes(last, value, place, option.at, true);
      for (const field of chain.slice(0, -1).reverse()) bytes = messageField(field, bytes);
      this.custom.push(bytes);
      return;
    }
    const held = this.known.get(first);
    if (rest.length === 0) {
      const bytes = fieldBytes(first, value, place, option.at, true);
      if (held instanceof OptionsMessage) protoFail(`the option ${first.fullName} is set twice`, option.at);
      this.known.set(first, [...(held ?? []), bytes]);
      return;
    }
    const inner = held ?? new OptionsMessage();
    if (!(inner instanceof OptionsMessage)) protoFail(`the option ${first.fullName} is set twice`, option.at);
    this.known.set(first, inner);
    inner.add(rest, value, place, option);
  }

  finish(): Buffer {
    const known = [...this.known].sort(([a], [b]) => a.number - b.number);
    const parts = known.flatMap(([field, held]) =>
      held instanceof OptionsMessage ? [messageField(field, held.finish())] : held,
    );
    return Buffer.concat([...parts, ...this.custom]);
  }
}

function messageField(field: LinkedField, content: Buffer): Buffer {
  const writer = new ProtoWriter();
  if (!isDelimited(field)) return writer.bytes(field.number, content).finish();
  return writer.tag(field.number, 3).raw(content).tag(field.number, 4).finish();
}

const WIRE: Readonly<Record<string, number>> = {
  fixed32: 5,
  sfixed32: 5,
  float: 5,
  fixed64: 1,
  sfixed64: 1,
  double: 1,
  string: 2,
  bytes: 2,
};

/** Encodes a field with its tag. */
function fieldBytes(
  field: LinkedField,
  value: OptionValue,
  place: OptionPlace,
  at: Position,
  isStatement = false,
): Buffer {
  const { target, type, number } = field;
  if (target?.kind === 'message') {
    if (value.kind !== 'message') protoFail(`the option ${field.fullName} is a message; write { … }`, at);
    if (target.isMapEntry) return messageField(field, mapEntryBytes(target, value.entries, place, at));
    return messageField(field, aggregateBytes(target, value.entries, place));
  }
  if (isStatement && target?.kind === 'enum' && value.kind !== 'word') {
    protoFail(`the value of the option ${field.fullName} must be a name of ${target.name}`, at);
  }
  const bytes = scalarBytes(field, value, at);
  if (type === 'string' || type === 'bytes') return new ProtoWriter().bytes(number, bytes).finish();
  return new ProtoWriter()
    .tag(number, WIRE[type] ?? 0)
    .raw(bytes)
    .finish();
}

/** Encodes a value without its tag. */
function scalarBytes(field: LinkedField, value: OptionValue, at: Position): Buffer {
  const { target, type } = field;
  const refuse = (): never =>
    protoFail(`the value of the option ${field.fullName} is no ${target?.name ?? type}`, at);
  if (type === 'string' || type === 'bytes') return value.kind === 'string' ? value.bytes : refuse();
  if (value.kind !== 'word' && value.kind !== 'number') return refuse();
  const { text } = value;
  if (target?.kind === 'enum') {
    const named = target.node.values.find(({ name }) => name === text)?.number;
    const number = named === undefined ? integerValue('int32', text) : BigInt(named);
    return number === undefined ? refuse() : new ProtoWriter().varint(number).finish();
  }
  if (type === 'bool') {
    if (text !== 'true' && text !== 'false') refuse();
    return Buffer.of(text === 'true' ? 1 : 0);
  }
  if (type === 'float' || type === 'double') return floatBytes(text, type) ?? refuse();
  const number = integerValue(type, text);
  return number === undefined ? refuse() : integerBytes(type, number);
}

function integerBytes(type: string, value: bigint): Buffer {
  if (type.startsWith('sint')) {
    return new ProtoWriter().varint(value < 0n ? -value * 2n - 1n : value * 2n).finish();
  }
  if (!type.includes('fixed')) return new ProtoWriter().varint(value).finish();
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt.asUintN(64, value));
  return type.endsWith('32') ? bytes.subarray(0, 4) : bytes;
}

/** Encodes an aggregate value, by field number. */
function aggregateBytes(message: LinkedMessage, entries: readonly OptionEntry[], place: OptionPlace): Buffer {
  const any = entries.find(({ key }) => key.includes('/'));
  if (any !== undefined && message.name === 'google.protobuf.Any') return anyBytes(any, place);
  const byField = new Map<LinkedField, Array<{ readonly value: OptionValue; readonly at: Position }>>();
  for (const { key, value, at } of entries) {
    const field = key.startsWith('[')
      ? extensionOf(key.slice(1, -1), message, place, at)
      : message.fields.find(
          ({ name, type, node }) => key === name || (type === 'group' && key === node.type),
        );
    if (field === undefined) protoFail(`${message.name} has no field ${JSON.stringify(key)}`, at);
    const held = byField.get(field) ?? [];
    byField.set(field, held);
    if (value.kind === 'list') {
      if (field.label !== 'repeated') protoFail(`${field.fullName} is not repeated`, at);
      for (const one of value.values) held.push({ value: one, at });
    } else held.push({ value, at });
    if (field.label !== 'repeated' && held.length > 1) protoFail(`${field.fullName} is set twice`, at);
  }
  const parts = [...byField]
    .sort(([a], [b]) => a.number - b.number)
    .flatMap(([field, values]) => {
      if (values.length === 0) return [];
      if (!isPacked(field)) return values.map(({ value, at }) => fieldBytes(field, value, place, at));
      const run = Buffer.concat(values.map(({ value, at }) => scalarBytes(field, value, at)));
      return [new ProtoWriter().bytes(field.number, run).finish()];
    });
  return Buffer.concat(parts);
}

/** Encodes key and value, also where they are the default. */
function mapEntryBytes(
  entry: LinkedMessage,
  entries: readonly OptionEntry[],
  place: OptionPlace,
  at: Position,
): Buffer {
  const parts = entry.fields.map((field) => {
    const given = entries.filter(({ key }) => key === field.name);
    const [first] = given;
    if (given.length > 1 || entries.some(({ key }) => key !== 'key' && key !== 'value')) {
      protoFail(`an entry of the map ${entry.name} has one key and one value`, at);
    }
    return fieldBytes(field, first?.value ?? emptyValue(field), place, at);
  });
  return Buffer.concat(parts);
}

function emptyValue({ type, target }: LinkedField): OptionValue {
  if (target?.kind === 'message') return { kind: 'message', entries: [] };
  if (target?.kind === 'enum') return { kind: 'word', text: target.node.values[0]?.name ?? '0' };
  if (type === 'string' || type === 'bytes') return { kind: 'string', bytes: Buffer.alloc(0) };
  return type === 'bool' ? { kind: 'word', text: 'false' } : { kind: 'number', text: '0' };
}

function anyBytes({ key, value, at }: OptionEntry, place: OptionPlace): Buffer {
  const url = key.slice(1, -1);
  const name = url.slice(url.lastIndexOf('/') + 1);
  const type = place.link.find(`.${name}`, '', place.file, ({ kind }) => kind === 'message');
  if (type?.kind !== 'message') protoFail(`the type ${JSON.stringify(name)} of an Any is not defined`, at);
  if (value.kind !== 'message') protoFail('the value of an Any is a message; write { … }', at);
  return new ProtoWriter()
    .bytes(1, url)
    .bytes(2, aggregateBytes(type, value.entries, place))
    .finish();
}
