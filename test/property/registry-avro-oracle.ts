/** Live decode of a pair of Avro schemas for the property test. Values of the writer's type
 *  together reach every leaf, symbol and branch. Each is encoded here, decoded by the consumer's
 *  decoder, and compared with a projection written here from the specification. It shares no code
 *  with the checker. */
import { MillraceError } from '../../src/core/errors.ts';
import { avroDecoder } from '../../src/formats/avro/codec/decoder.ts';
import type { AvroField, AvroNode, AvroRecordNode } from '../../src/formats/avro/syntax/tree.ts';
import type { JsonNode } from '../../src/formats/json/text.ts';

export type Outcome = 'OK' | 'LOSSY' | 'FAIL';
const worst = (outcomes: readonly Outcome[]): Outcome =>
  outcomes.includes('FAIL') ? 'FAIL' : outcomes.includes('LOSSY') ? 'LOSSY' : 'OK';

/** Value to write: records by position, maps as pairs, unions with their branch. */
type Value =
  | null
  | boolean
  | number
  | bigint
  | string
  | Buffer
  | readonly Value[]
  | { readonly map: ReadonlyArray<readonly [string, Value]> }
  | { readonly fields: readonly Value[] }
  | { readonly branch: number; readonly value: Value };

const EDGES: Readonly<Record<string, readonly Value[]>> = {
  null: [null],
  boolean: [true, false],
  int: [0, 1, -1, 2 ** 31 - 1, -(2 ** 31), 16_777_217],
  long: [0n, -1n, 2n ** 63n - 1n, -(2n ** 63n), 2n ** 53n + 1n],
  float: [0, 1.5, -2.25, Math.fround(3.4e38)],
  double: [0, 0.1, -1e300],
  bytes: [Buffer.from('plain'), Buffer.from([0xff, 0xfe, 0x00]), Buffer.alloc(0)],
  string: ['', 'ascii', 'größe 本町 🚚'],
};

/** Maximum nesting depth of a recursive record. */
const DEPTH_MAX = 4;

/** Returns values that together contain every value of every leaf; empty if no value of the type
 *  ends within the depth. */
class Values {
  private readonly made = new Map<string, readonly Value[]>();
  private readonly ids = new Map<AvroNode, number>();

  of(node: AvroNode, depth = 0): readonly Value[] {
    const id = this.ids.get(node) ?? this.ids.size;
    this.ids.set(node, id);
    const key = `${id} ${depth}`;
    const made = this.made.get(key) ?? this.make(node, depth);
    this.made.set(key, made);
    return made;
  }

  private make(node: AvroNode, depth: number): readonly Value[] {
    switch (node.kind) {
      case 'primitive':
        return EDGES[node.type] as readonly Value[];
      case 'enum':
        return node.symbols;
      case 'fixed':
        return [Buffer.alloc(node.size, 0x5a)];
      case 'array': {
        const items = this.of(node.items, depth);
        return items.length === 0 ? [[]] : [[], items];
      }
      case 'map': {
        const values = this.of(node.values, depth);
        return [{ map: [] }, { map: values.map((value, i) => [`k${i}`, value] as const) }];
      }
      case 'union':
        return node.branches.flatMap((branch, index) =>
          this.of(branch, depth).map((value) => ({ branch: index, value })),
        );
      case 'record': {
        if (depth > DEPTH_MAX) return [];
        const columns = node.fields.map(({ type }) => this.of(type, depth + 1));
        if (columns.some((column) => column.length === 0)) return [];
        const rows = Math.max(1, ...columns.map((column) => column.length));
        return Array.from({ length: rows }, (_, row) => ({
          // Each value occurs once, with the first value of the other columns; all combinations
          // would be too many.
          fields: columns.map((column) => (column[row] ?? column[0]) as Value),
        }));
      }
    }
  }
}

function varint(value: bigint, into: number[]): void {
  let rest = BigInt.asUintN(64, (value << 1n) ^ (value >> 63n));
  for (; rest > 127n; rest >>= 7n) into.push(Number(rest & 127n) | 128);
  into.push(Number(rest));
}

function encode(value: Value, node: AvroNode, into: number[]): void {
  const sized = (bytes: Buffer): void => {
    varint(BigInt(bytes.length), into);
    into.push(...bytes);
  };
  const parts = value as {
    map: ReadonlyArray<readonly [string, Value]>;
    fields: readonly Value[];
    branch: number;
    value: Value;
  };
  switch (node.kind) {
    case 'primitive':
      if (node.type === 'boolean') into.push(value === true ? 1 : 0);
      else if (node.type === 'int' || node.type === 'long') varint(BigInt(value as number | bigint), into);
      else if (node.type === 'string') sized(Buffer.from(value as string));
      else if (node.type === 'bytes') sized(value as Buffer);
      else if (node.type !== 'null') {
        const bytes = Buffer.alloc(node.type === 'float' ? 4 : 8);
        if (node.type === 'float') bytes.writeFloatLE(value as number);
        else bytes.writeDoubleLE(value as number);
        into.push(...bytes);
      }
      return;
    case 'enum':
      varint(BigInt(node.symbols.indexOf(value as string)), into);
      return;
    case 'fixed':
      into.push(...(value as Buffer));
      return;
    case 'array': {
      const items = value as readonly Value[];
      if (items.length > 0) varint(BigInt(items.length), into);
      for (const item of items) encode(item, node.items, into);
      into.push(0);
      return;
    }
    case 'map':
      if (parts.map.length > 0) varint(BigInt(parts.map.length), into);
      for (const [key, item] of parts.map) {
        sized(Buffer.from(key));
        encode(item, node.values, into);
      }
      into.push(0);
      return;
    case 'union':
      varint(BigInt(parts.branch), into);
      encode(parts.value, node.branches[parts.branch] as AvroNode, into);
      return;
    case 'record':
      for (const [i, field] of node.fields.entries()) encode(parts.fields[i] as Value, field.type, into);
  }
}

/** Thrown if the specification defines no reading. */
class NoReading extends Error {}
const refuse = (why: string): never => {
  throw new NoReading(why);
};

const shortOf = (node: AvroNode): string => ('name' in node ? (node.name.split('.').pop() as string) : '');

const PROMOTIONS = ['int', 'long', 'float', 'double'];
function isPromoted(from: AvroNode, to: AvroNode): boolean {
  if (from.kind !== 'primitive' || to.kind !== 'primitive') return false;
  const [low, high] = [PROMOTIONS.indexOf(from.type), PROMOTIONS.indexOf(to.type)];
  if (low >= 0 && high > low) return true;
  return `${from.type} ${to.type}` === 'string bytes' || `${from.type} ${to.type}` === 'bytes string';
}

/** Form of a branch that a program sees: wrapped if two branches look alike. */
function seen(union: readonly AvroNode[], index: number, value: unknown): unknown {
  const look = (node: AvroNode): string => {
    const type = node.kind === 'primitive' ? node.type : node.kind;
    if (type === 'bytes' || type === 'fixed') return 'buffer';
    if (type === 'string' || type === 'enum') return 'text';
    return type === 'record' || type === 'map' ? 'object' : type;
  };
  const looks = union.map(look);
  if (value === null || new Set(looks).size === looks.length) return value;
  const node = union[index] as AvroNode;
  return { [node.kind === 'primitive' ? node.type : 'name' in node ? node.name : node.kind]: value };
}

class Reading {
  isLossless = true;

  value(value: Value, writer: AvroNode, reader: AvroNode): unknown {
    if (writer.kind === 'union') {
      const { branch, value: inner } = value as { branch: number; value: Value };
      return this.value(inner, writer.branches[branch] as AvroNode, reader);
    }
    if (reader.kind === 'union') {
      const index = branchOf(reader.branches, writer);
      if (index < 0) refuse('no branch');
      return seen(reader.branches, index, this.value(value, writer, reader.branches[index] as AvroNode));
    }
    if (
      'name' in writer &&
      'name' in reader &&
      shortOf(writer) !== shortOf(reader) &&
      !reader.aliases.includes(writer.name)
    )
      refuse('another name');
    const [r, w] = [reader.logical, writer.logical].map(
      (one) => one && JSON.stringify(Object.entries(one).sort()),
    );
    if (r !== undefined && w !== undefined && r !== w) refuse('another logical type');
    if (writer.kind === 'primitive' && reader.kind === 'primitive')
      return this.primitive(value, writer.type, reader.type, isPromoted(writer, reader));
    if (writer.kind === 'array' && reader.kind === 'array')
      return (value as readonly Value[]).map((item) => this.value(item, writer.items, reader.items));
    if (writer.kind === 'map' && reader.kind === 'map')
      return Object.fromEntries(
        (value as { map: ReadonlyArray<readonly [string, Value]> }).map.map(([key, item]) => [
          key,
          this.value(item, writer.values, reader.values),
        ]),
      );
    if (writer.kind === 'fixed' && reader.kind === 'fixed')
      return writer.size === reader.size ? value : refuse('size');
    if (writer.kind === 'enum' && reader.kind === 'enum') {
      if (reader.symbols.includes(value as string)) return value;
      this.isLossless = false;
      return reader.defaultSymbol ?? refuse('symbol');
    }
    if (writer.kind === 'record' && reader.kind === 'record')
      return this.record((value as { fields: readonly Value[] }).fields, writer, reader);
    return refuse('another type');
  }

  private primitive(value: Value, from: string, to: string, promoted: boolean): unknown {
    if (from === to) return value;
    if (!promoted) refuse('not promoted');
    if (to === 'bytes') return Buffer.from(value as string);
    if (to === 'string') {
      const text = (value as Buffer).toString();
      return Buffer.from(text).equals(value as Buffer) ? text : refuse('not UTF-8');
    }
    if (to === 'long') return BigInt(value as number);
    // Each of the written edge values is rounded at most once in either conversion.
    const read = to === 'float' ? Math.fround(Number(value)) : Number(value);
    if (from !== 'float' && BigInt(read) !== BigInt(value as number | bigint)) this.isLossless = false;
    return read;
  }

  private record(values: readonly Value[], writer: AvroRecordNode, reader: AvroRecordNode): unknown {
    const out: Array<[string, unknown]> = [];
    const taken: string[] = [];
    const filled: string[] = [];
    const reads: Array<() => void> = [];
    for (const field of reader.fields) {
      const names = [...new Set([field.name, ...field.aliases])].filter((name) =>
        writer.fields.some((one) => one.name === name),
      );
      if (names.length > 1) refuse('two written fields for one');
      const [name] = names;
      const at = out.push([field.name, undefined]) - 1;
      if (name === undefined) {
        filled.push(field.name);
        (out[at] as [string, unknown])[1] = defaultOf(field);
        continue;
      }
      if (taken.includes(name)) refuse('one written field for two');
      taken.push(name);
      const index = writer.fields.findIndex((one) => one.name === name);
      reads.push(() => {
        const read = this.value(values[index] as Value, (writer.fields[index] as AvroField).type, field.type);
        (out[at] as [string, unknown])[1] = read;
      });
    }
    for (const read of reads) read();
    // The alias of the writer shows that the value belongs to a field that gets its default.
    const isLost = writer.fields.some(
      ({ name, aliases }) => !taken.includes(name) && aliases.some((alias) => filled.includes(alias)),
    );
    if (isLost) this.isLossless = false;
    return Object.fromEntries(out);
  }
}

function branchOf(branches: readonly AvroNode[], writer: AvroNode): number {
  const first = (fits: (node: AvroNode) => boolean): number =>
    branches.findIndex((node) => node.kind === writer.kind && fits(node));
  if ('name' in writer) {
    const passes = [
      first((node) => 'name' in node && node.name === writer.name),
      first((node) => 'name' in node && node.aliases.includes(writer.name)),
      first((node) => shortOf(node) === shortOf(writer)),
    ];
    return passes.find((index) => index >= 0) ?? -1;
  }
  const same = first(
    (node) => node.kind !== 'primitive' || writer.kind !== 'primitive' || node.type === writer.type,
  );
  return same >= 0 ? same : branches.findIndex((node) => isPromoted(writer, node));
}

function defaultOf(field: AvroField, depth = 0): unknown {
  if (field.defaultJson === undefined || depth > 20) return refuse('no default');
  return fill(field.defaultJson, field.type, depth);
}

function fill(json: JsonNode, type: AvroNode, depth: number): unknown {
  switch (type.kind) {
    case 'union':
      return seen(type.branches, 0, fill(json, type.branches[0] as AvroNode, depth));
    case 'array':
      return json.kind === 'array'
        ? json.items.map((item) => fill(item, type.items, depth))
        : refuse('default');
    case 'map':
      return json.kind === 'object'
        ? Object.fromEntries(
            [...json.members].map(([key, { value }]) => [key, fill(value, type.values, depth)]),
          )
        : refuse('default');
    case 'record':
      if (json.kind !== 'object') return refuse('default');
      return Object.fromEntries(
        type.fields.map((field) => {
          const member = json.members.get(field.name);
          return [
            field.name,
            member === undefined ? defaultOf(field, depth + 1) : fill(member.value, field.type, depth),
          ];
        }),
      );
    case 'enum':
      return json.kind === 'string' && type.symbols.includes(json.value) ? json.value : refuse('default');
    case 'fixed':
      return json.kind === 'string' && json.value.length === type.size
        ? Buffer.from(json.value, 'latin1')
        : refuse('default');
    case 'primitive':
      return plainFill(json, type.type);
  }
}

/** Defaults of the pairs have the right kind or another kind, but contain no number out of
 *  range. */
function plainFill(json: JsonNode, type: string): unknown {
  if (type === 'null') return json.kind === 'null' ? null : refuse('default');
  if (type === 'boolean') return json.kind === 'boolean' ? json.value : refuse('default');
  if (type === 'string') return json.kind === 'string' ? json.value : refuse('default');
  if (type === 'bytes') return json.kind === 'string' ? Buffer.from(json.value, 'latin1') : refuse('default');
  if (json.kind !== 'number') return refuse('default');
  const number = Number(json.digits);
  if (type === 'float' || type === 'double') return number;
  if (!Number.isInteger(number) || /[.eE]/.test(json.digits)) return refuse('default');
  return type === 'long' ? BigInt(number) : number;
}

/** Renders values so that equal values have equal texts. */
const shown = (value: unknown): string =>
  JSON.stringify(value, (_key, item: unknown) =>
    typeof item === 'bigint' ? `${item}n` : Object.is(item, -0) ? '-0' : item,
  );

export interface LiveDecode {
  readonly outcome: Outcome;
  readonly events: number;
  /** Events for which the decoder differs from the specification. */
  readonly wrong: readonly string[];
}

export function liveDecode(reader: AvroNode, writer: AvroNode): LiveDecode {
  const decode = avroDecoder(reader, writer);
  const wrong: string[] = [];
  const outcomes: Outcome[] = [];
  const values = new Values().of(writer);
  for (const value of values) {
    const into: number[] = [];
    encode(value, writer, into);
    const bytes = Buffer.from(into);
    let promised: { readonly value: unknown; readonly isLossless: boolean } | undefined;
    let read: { readonly value: unknown } | undefined;
    try {
      const reading = new Reading();
      const made = reading.value(value, writer, reader);
      promised = { value: made, isLossless: reading.isLossless };
    } catch (thrown) {
      if (!(thrown instanceof NoReading)) throw thrown;
    }
    try {
      read = { value: decode(bytes, 0, bytes.length) };
    } catch (thrown) {
      if (!(thrown instanceof MillraceError)) throw thrown;
    }
    if (promised === undefined || read === undefined) {
      outcomes.push('FAIL');
      if ((promised === undefined) !== (read === undefined))
        wrong.push(
          `${bytes.toString('hex')}: ${promised === undefined ? 'read, though nothing is promised' : 'refused'}`,
        );
    } else if (shown(promised.value) === shown(read.value))
      outcomes.push(promised.isLossless ? 'OK' : 'LOSSY');
    else {
      outcomes.push('FAIL');
      wrong.push(`${bytes.toString('hex')}: ${shown(read.value)} is not ${shown(promised.value)}`);
    }
  }
  return { outcome: worst(outcomes), events: values.length, wrong };
}
