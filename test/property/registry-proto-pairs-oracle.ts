/** Oracle for an event that one model writes and another reads: its bytes, the value that a program
 *  should get, and its grade. Rules: protobuf.dev, "Encoding", "Updating A Message Type", "Field
 *  Presence". It shares no code with the registry's checker, decoder or proofs. */
import {
  type EnumModel,
  extensionName,
  type FieldModel,
  isExtension,
  type MessageModel,
  type SchemaModel,
} from './registry-proto-pairs-kit.ts';

export type Value = bigint | number | boolean | string | Buffer | Datum | Value[];
/** Written fields of a message, by number. A map is a list of entries: messages of a key 1 and a
 *  value 2. */
export type Datum = Map<number, Value>;
export type Grade = 'OK' | 'LOSSY' | 'FAIL';

const messageOf = ({ messages }: SchemaModel, name: string): MessageModel =>
  messages.find((one) => one.name === name) as MessageModel;
const enumOf = ({ enums }: SchemaModel, { type, target }: FieldModel): EnumModel | undefined =>
  type === 'enum' ? enums.find(({ name }) => name === target) : undefined;

/** Entry of a map: a writer always writes both parts; a reader uses the default for a missing one.
 */
function entryModel(field: FieldModel, written: boolean): MessageModel {
  const part = (number: number, name: string, more: Partial<FieldModel>): FieldModel => ({
    ...field,
    ...more,
    name,
    number,
    shape: 'single',
    required: written,
    presence: false,
    oneof: undefined,
    packed: false,
    delimited: false,
  });
  return {
    name: 'an entry',
    group: false,
    fields: [part(1, '<key>', { type: field.key, target: '' }), part(2, '<value>', {})],
  };
}

export function innerOf(model: SchemaModel, field: FieldModel, written: boolean): MessageModel | undefined {
  if (field.shape === 'map') return entryModel(field, written);
  return field.type === 'message' ? messageOf(model, field.target) : undefined;
}

const isInteger = (type: string): boolean => /int|fixed|enum|bool/.test(type);

/** Returns values that distinguish types. */
export function valuesOf(model: SchemaModel, field: FieldModel): Value[] {
  const { type } = field;
  const enumeration = enumOf(model, field);
  if (enumeration !== undefined) {
    const numbers = enumeration.values.map(([number]) => number);
    return enumeration.closed ? numbers : [...numbers, 77, -9];
  }
  if (type === 'bool') return [false, true];
  if (type === 'float' || type === 'double') return [0, 1.5, -0.25];
  if (type === 'string') return ['', 'ab', '本'];
  if (type === 'bytes') return [Buffer.alloc(0), Buffer.from('ab'), Buffer.from([0xff, 0x80])];
  const unsigned = type.startsWith('u') || type.startsWith('fixed');
  const bits = BigInt(type.endsWith('64') ? 64 : 32);
  const most = unsigned ? 2n ** bits - 1n : 2n ** (bits - 1n) - 1n;
  return [0n, 1n, 5n, 77n, most, unsigned ? most - 1n : -1n, unsigned ? 7n : -(2n ** (bits - 1n))];
}

const big = (value: Value): bigint =>
  typeof value === 'boolean' ? (value ? 1n : 0n) : BigInt(value as number);

function varint(out: number[], value: bigint): void {
  let rest = BigInt.asUintN(64, value);
  for (; rest >= 128n; rest >>= 7n) out.push(Number(rest & 127n) | 128);
  out.push(Number(rest));
}

const zigzag = (value: bigint): bigint => (value >= 0n ? value * 2n : -value * 2n - 1n);
const wireOf = ({ type }: FieldModel): number =>
  /64$|double/.test(type) && !/^u?int|^sint/.test(type)
    ? 1
    : /^s?fixed32|float/.test(type)
      ? 5
      : /string|bytes|message/.test(type)
        ? 2
        : 0;

function scalarBytes(field: FieldModel, value: Value, out: number[]): void {
  const { type } = field;
  const wire = wireOf(field);
  if (wire === 0) varint(out, type.startsWith('sint') ? zigzag(big(value)) : big(value));
  else if (wire === 2) {
    const bytes = Buffer.from(value as string);
    varint(out, BigInt(bytes.length));
    out.push(...bytes);
  } else {
    const bytes = Buffer.alloc(wire === 1 ? 8 : 4);
    if (type === 'double') bytes.writeDoubleLE(value as number);
    else if (type === 'float') bytes.writeFloatLE(value as number);
    else if (wire === 1) bytes.writeBigUInt64LE(BigInt.asUintN(64, big(value)));
    else bytes.writeUInt32LE(Number(BigInt.asUintN(32, big(value))));
    out.push(...bytes);
  }
}

const listOf = (field: FieldModel, value: Value): Value[] =>
  field.shape === 'single' ? [value] : (value as Value[]);

export function bytesOf(model: SchemaModel, message: MessageModel, datum: Datum): number[] {
  const out: number[] = [];
  for (const field of message.fields) {
    const held = datum.get(field.number);
    if (held === undefined) continue;
    const tag = (wire: number): void => varint(out, BigInt(field.number * 8 + wire));
    const inner = innerOf(model, field, true);
    const list = listOf(field, held);
    if (field.packed) {
      const run: number[] = [];
      for (const value of list) scalarBytes(field, value, run);
      if (run.length === 0) continue;
      tag(2);
      varint(out, BigInt(run.length));
      out.push(...run);
      continue;
    }
    for (const value of list) {
      if (inner === undefined) {
        tag(wireOf(field));
        scalarBytes(field, value, out);
        continue;
      }
      const bytes = bytesOf(model, inner, value as Datum);
      tag(field.delimited ? 3 : 2);
      if (!field.delimited) varint(out, BigInt(bytes.length));
      out.push(...bytes);
      if (field.delimited) tag(4);
    }
  }
  return out;
}

/** Message under construction while it is read. */
class PartialMessage {
  readonly message: MessageModel;
  readonly single = new Map<number, unknown>();
  readonly many = new Map<number, unknown[]>();
  readonly maps = new Map<number, Map<string, unknown>>();
  readonly chosen = new Map<string, { readonly number: number; readonly by: Datum }>();

  constructor(message: MessageModel) {
    this.message = message;
  }
}

export interface Expected {
  readonly grade: Grade;
  /** Value for the grades OK and LOSSY. */
  readonly value: unknown;
}

class Failed extends Error {}

export class Oracle {
  private readonly writer: SchemaModel;
  private readonly reader: SchemaModel;
  private lossy = false;

  constructor(writer: SchemaModel, reader: SchemaModel) {
    this.writer = writer;
    this.reader = reader;
  }

  expect(root: MessageModel, datum: Datum): Expected {
    this.lossy = false;
    const message = this.reader.messages.find(({ name }) => name === root.name);
    try {
      if (message === undefined) throw new Failed('no such message');
      const state = new PartialMessage(message);
      this.read(state, root, datum);
      const value = this.finish(state);
      return { grade: this.lossy ? 'LOSSY' : 'OK', value };
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      return { grade: 'FAIL', value: undefined };
    }
  }

  private read(state: PartialMessage, written: MessageModel, datum: Datum): void {
    for (const w of written.fields) {
      const held = datum.get(w.number);
      const list = held === undefined ? [] : listOf(w, held);
      const r = state.message.fields.find(({ number }) => number === w.number);
      if (list.length > 0 && this.moved(state.message, written, w)) throw new Failed('renumbered');
      if (r === undefined) continue;
      if (list.length === 0) {
        const bothSingle = w.shape === 'single' && r.shape === 'single';
        if (bothSingle && w.type !== 'message' && r.type !== 'message' && w.presence !== r.presence)
          this.lossy = true;
      } else this.deliver(state, r, w, list, datum);
    }
  }

  /** True if the reader has the name under another number, even if it has this number too. */
  private moved(to: MessageModel, from: MessageModel, w: FieldModel): boolean {
    const name = this.nameOf(this.writer, from, w);
    return to.fields.some((r) => r.number !== w.number && this.nameOf(this.reader, to, r) === name);
  }

  private deliver(state: PartialMessage, r: FieldModel, w: FieldModel, list: Value[], datum: Datum): void {
    const from = innerOf(this.writer, w, true);
    const to = innerOf(this.reader, r, false);
    if (from === undefined && to === undefined) {
      const recognised = wireOf(w) === wireOf(r) && !(w.packed && r.shape === 'single');
      if (!recognised) {
        this.vanish(r, list);
        return;
      }
      for (const value of list) this.keep(state, r, this.cast(w, r, value), datum);
      return;
    }
    if (from === undefined || to === undefined || w.delimited !== r.delimited) {
      this.vanish(r, list);
      return;
    }
    for (const value of list) {
      const held = r.shape === 'single' ? state.single.get(r.number) : undefined;
      const inner = held instanceof PartialMessage ? held : new PartialMessage(to);
      this.read(inner, from, value as Datum);
      if (r.shape === 'map') this.keepEntry(state, r, inner);
      else this.keep(state, r, inner, datum);
    }
  }

  /** The loss of a zero has no effect if the reader's default is zero. */
  private vanish(r: FieldModel, list: Value[]): void {
    const last = list.at(-1) as Value;
    const isZero = last === 0n || last === false || Object.is(last, 0);
    const grants = r.shape === 'single' && !r.presence && (isInteger(r.type) || /float|double/.test(r.type));
    if (!isZero || !grants) throw new Failed('the value is lost');
    this.lossy = true;
  }

  private cast(w: FieldModel, r: FieldModel, value: Value): unknown {
    const family = ({ type }: FieldModel): string =>
      type.startsWith('sint')
        ? 'zigzag'
        : /fixed|float|double/.test(type)
          ? type.replace(/^s?fixed/, 'fixed')
          : /string|bytes/.test(type)
            ? 'text'
            : 'plain';
    if (family(w) !== family(r)) {
      const isZero = value === 0n || value === false || Object.is(value, 0);
      if (!isZero) throw new Failed('the type has another meaning');
      return this.shown(r, 0n);
    }
    if (family(w) === 'text') {
      if (r.type === 'bytes') return Buffer.from(value as string);
      const text = Buffer.from(value as string).toString('utf8');
      if (!Buffer.from(text).equals(Buffer.from(value as string))) throw new Failed('no UTF-8');
      return text;
    }
    if (!isInteger(w.type)) return value;
    let number = big(value);
    if (w.type.startsWith('sint') && r.type === 'sint32') {
      // The zigzag form is truncated.
      const cut = BigInt.asUintN(32, zigzag(number));
      number = cut % 2n === 0n ? cut / 2n : -(cut + 1n) / 2n;
    }
    const bits = r.type.endsWith('64') ? 64 : 32;
    let read = /^u|^fixed/.test(r.type) ? BigInt.asUintN(bits, number) : BigInt.asIntN(bits, number);
    if (r.type === 'bool') read = number === 0n ? 0n : 1n;
    if (read !== big(value) || (w.type === 'enum' && r.type === 'bool')) this.lossy = true;
    return this.shown(r, read);
  }

  private shown(r: FieldModel, number: bigint): unknown {
    const enumeration = enumOf(this.reader, r);
    if (enumeration !== undefined) {
      const name = enumeration.values.find(([one]) => BigInt(one) === number)?.[1];
      if (name === undefined && enumeration.closed) throw new Failed('a closed enum drops it');
      return name ?? Number(number);
    }
    if (r.type === 'bool') return number !== 0n;
    return r.type.endsWith('64') ? number : Number(number);
  }

  private keep(state: PartialMessage, r: FieldModel, value: unknown, datum: Datum): void {
    if (r.shape !== 'single') {
      state.many.set(r.number, [...(state.many.get(r.number) ?? []), value]);
      return;
    }
    if (state.single.has(r.number)) this.lossy = true;
    if (r.oneof !== undefined) {
      const held = state.chosen.get(r.oneof);
      if (held !== undefined && held.number !== r.number) {
        if (held.by === datum) throw new Failed('two members of a oneof');
        state.single.delete(held.number);
        this.lossy = true;
      }
      state.chosen.set(r.oneof, { number: r.number, by: datum });
    }
    state.single.set(r.number, value);
  }

  private keepEntry(state: PartialMessage, r: FieldModel, entry: PartialMessage): void {
    const [key, value] = entry.message.fields as [FieldModel, FieldModel];
    const name = String(entry.single.get(1) ?? this.zero(key));
    const held = state.maps.get(r.number) ?? new Map<string, unknown>();
    if (held.has(name)) this.lossy = true;
    const absent = entry.single.get(2) === undefined;
    if (absent && value.type === 'message') this.lossy = true;
    const empty =
      value.type === 'message' ? new PartialMessage(messageOf(this.reader, value.target)) : this.zero(value);
    held.set(name, absent ? empty : entry.single.get(2));
    state.maps.set(r.number, held);
  }

  private zero(r: FieldModel): unknown {
    if (r.type === 'string') return '';
    if (r.type === 'bytes') return Buffer.alloc(0);
    if (r.type === 'enum') return enumOf(this.reader, r)?.values[0]?.[1];
    return isInteger(r.type) ? this.shown(r, 0n) : 0;
  }

  private nameOf(model: SchemaModel, message: MessageModel, field: FieldModel): string {
    if (message.name === 'an entry') return field.name;
    return isExtension(model, field) ? `[${extensionName(message, field)}]` : field.name;
  }

  private finish(state: PartialMessage): Record<string, unknown> {
    const out: Record<string, unknown> = {};
    const done = (value: unknown): unknown => (value instanceof PartialMessage ? this.finish(value) : value);
    for (const field of state.message.fields) {
      const { number, shape } = field;
      const name = this.nameOf(this.reader, state.message, field);
      if (shape === 'repeated') out[name] = (state.many.get(number) ?? []).map(done);
      else if (shape === 'map') {
        const map: Record<string, unknown> = {};
        for (const [key, value] of state.maps.get(number) ?? []) map[key] = done(value);
        out[name] = map;
      } else if (state.single.has(number)) out[name] = done(state.single.get(number));
      else if (field.required) throw new Failed('required');
      else out[name] = field.presence ? null : this.zero(field);
    }
    return out;
  }
}
