/** Reads what a writer's Avro schema wrote in the form that a reader's schema requires, in one pass
 *  over the bytes.
 *
 *  Each pair of types is compiled once to a function. A part that cannot be resolved is an error of
 *  the events that reach it, not of the pair: a branch without a reader only affects events of that
 *  branch. Where a record as a whole cannot be resolved (its name, or a missing field without a
 *  default), every event that contains it is refused.
 *
 *  Values in a program: int, float, double are a number, long a bigint, bytes and fixed a Buffer of
 *  their own, an enum's symbol a string. Arrays, maps and records are plain objects, a record's
 *  fields in the reader's order; a union's value is plain or wrapped (branch.ts). Source: Apache
 *  Avro 1.12 specification, "Binary Encoding" and "Schema Resolution". */

import type { Decode } from '../../decode.ts';
import {
  type AvroEnumNode,
  type AvroField,
  type AvroFixedNode,
  type AvroNode,
  type AvroPrimitive,
  type AvroRecordNode,
  type AvroUnionNode,
  avroTypeName,
} from '../syntax/tree.ts';
import { branchKey } from './branch.ts';
import { AvroCursor, Unreadable } from './cursor.ts';
import { type Fill, fillOf, NoDefault } from './fill.ts';
import { expression, FUNCTION, type Read, type Slot } from './form.ts';
import { generatedReader } from './generated.ts';
import {
  doNamesMatch,
  type FieldMatches,
  isNamed,
  isPromotable,
  logicalDifference,
  matchFields,
  shortName,
  shownName,
  UnionBranches,
} from './match.ts';
import { recordReader } from './record-reader.ts';
import { Skips, takesNoByte } from './skip.ts';

/** Greatest number of pairs of types, and of fields in them, that one decoder compiles. A
 *  comparison that accepts a pair counts at least as many. */
const COMPILE_STEPS_MAX = 1_000_000;

/** Number of values after which a decoder has code of its own: making it takes about as long as so
 *  many reads, and most pairs of schemas that are compared read only a few values. */
const GENERATED_AFTER_READS = 200;

type Blank = Record<string, unknown>;

/** Compiles any pair of schemas. The decoder throws malformed_payload for bytes that the writer's
 *  schema cannot have written, and incompatible_schema where the reader's schema cannot hold the
 *  written value. Both have the details `at`, the byte of the payload where reading failed, and
 *  `path`. */
export function avroDecoder(reader: AvroNode, writer: AvroNode): Decode {
  const root = new RootReader(reader, writer);
  const from = new AvroCursor();
  return (bytes, start, end) => {
    try {
      from.open(bytes, start, end);
      const value = root.read(from);
      from.close();
      return value;
    } catch (thrown) {
      throw thrown instanceof Unreadable ? thrown.toError(root.name, start) : thrown;
    }
  };
}

/** Compiles any pair of schemas to a decoder of values that follow each other without lengths, as
 *  in the block of a container file. The errors are those of `avroDecoder`. */
export function avroSequenceDecoder(
  reader: AvroNode,
  writer: AvroNode,
): (bytes: Buffer, count: number) => Generator<unknown, void> {
  const root = new RootReader(reader, writer);
  return function* (bytes, count) {
    const from = new AvroCursor();
    from.open(bytes, 0, bytes.length);
    try {
      for (let i = 0; i < count; i++) yield root.read(from);
      from.close();
    } catch (thrown) {
      throw thrown instanceof Unreadable ? thrown.toError(root.name, 0) : thrown;
    }
  };
}

/** Reader of whole values: at first with functions that are shared with other schemas, later with
 *  generated code, which reads a refused value again with those functions for the path of its
 *  error. */
class RootReader {
  /** Name of the value in the paths of errors. */
  readonly name: string;
  private readonly slot: Slot;
  private generated: Read | undefined;
  private reads = 0;

  constructor(reader: AvroNode, writer: AvroNode) {
    this.slot = new Compiler().compile(reader, writer);
    this.name = shownName(shortName(avroTypeName(writer)));
  }

  /** Reads one value at the cursor. @throws Unreadable */
  read(from: AvroCursor): unknown {
    const { generated } = this;
    if (generated === undefined) {
      if (++this.reads === GENERATED_AFTER_READS) this.generated = generatedReader(this.slot);
      return this.slot.read(from);
    }
    const { at, emptyValues } = from;
    try {
      return generated(from);
    } catch (thrown) {
      if (!(thrown instanceof Unreadable)) throw thrown;
      from.rewind(at, emptyValues);
      return this.slot.read(from);
    }
  }
}

/** Compiles the pairs of one decoder. Pairs are queued in a list, because a chain of types may be
 *  longer than the stack is deep. */
class Compiler {
  private readonly slots = new Map<AvroNode, Map<AvroNode, Slot>>();
  private readonly unions = new Map<AvroUnionNode, UnionBranches>();
  private readonly waiting: Array<() => void> = [];
  private readonly skips = new Skips(this.waiting);
  private readonly fills = new Map<AvroField, Fill | NoDefault>();
  private steps = 0;

  compile(reader: AvroNode, writer: AvroNode): Slot {
    const root = this.slot(reader, writer);
    for (let next = this.waiting.pop(); next !== undefined; next = this.waiting.pop()) next();
    return root;
  }

  private slot(reader: AvroNode, writer: AvroNode): Slot {
    const ofReader = this.slots.get(reader) ?? new Map<AvroNode, Slot>();
    this.slots.set(reader, ofReader);
    const known = ofReader.get(writer);
    if (known !== undefined) return known;
    const slot: Slot = { ...tooMany() };
    ofReader.set(writer, slot);
    this.waiting.push(() => {
      if (this.spend(1)) Object.assign(slot, this.pair(reader, writer));
    });
    return slot;
  }

  private spend(steps: number): boolean {
    this.steps += steps;
    return this.steps <= COMPILE_STEPS_MAX;
  }

  private pair(reader: AvroNode, writer: AvroNode): Slot {
    if (writer.kind === 'union') return this.writtenUnion(reader, writer);
    if (reader.kind === 'union') return this.branchOf(reader, writer);
    const logical = logicalDifference(reader, writer);
    if (logical !== undefined) return refuse(logical);
    if (isNamed(reader) && isNamed(writer) && reader.kind === writer.kind && !doNamesMatch(reader, writer))
      return refuse(
        `the writer's ${writer.kind} ${shownName(writer.name)} is ${shownName(reader.name)} for the reader, and no alias says they are the same`,
      );
    if (reader.kind === 'primitive' && writer.kind === 'primitive')
      return primitive(reader.type, writer.type) ?? mismatch(reader, writer);
    if (reader.kind === 'fixed' && writer.kind === 'fixed') return fixed(reader, writer);
    if (reader.kind === 'enum' && writer.kind === 'enum') return enumeration(reader, writer);
    if (reader.kind === 'array' && writer.kind === 'array') return this.array(reader.items, writer.items);
    if (reader.kind === 'map' && writer.kind === 'map') return this.map(reader.values, writer.values);
    if (reader.kind === 'record' && writer.kind === 'record') return this.record(reader, writer);
    return mismatch(reader, writer);
  }

  /** Resolves each written branch separately, against the whole of the reader's type. */
  private writtenUnion(reader: AvroNode, writer: AvroUnionNode): Slot {
    const count = writer.branches.length;
    if (!this.spend(count)) return tooMany();
    const branches = writer.branches.map((branch) => this.slot(reader, branch));
    return {
      read: (from) => (branches[from.index(count, 'branch')] as Slot).read(from),
      form: { kind: 'union', branches },
    };
  }

  private branchOf(reader: AvroUnionNode, writer: AvroNode): Slot {
    const index = this.branchesOf(reader).indexFor(writer);
    if (index === undefined)
      return refuse(`no branch of the reader's union takes the writer's ${typeName(writer)}`);
    const slot = this.wrapped(reader, index, writer);
    return { read: (from) => slot.read(from), form: { kind: 'same', slot } };
  }

  private branchesOf(union: AvroUnionNode): UnionBranches {
    const branches = this.unions.get(union) ?? new UnionBranches(union);
    this.unions.set(union, branches);
    return branches;
  }

  private wrapped(union: AvroUnionNode, index: number, writer: AvroNode): Slot {
    const branch = union.branches[index] as AvroNode;
    const slot = this.slot(branch, writer);
    if (!this.branchesOf(union).isWrapped || (branch.kind === 'primitive' && branch.type === 'null'))
      return slot;
    const key = branchKey(branch);
    return { read: (from) => ({ [key]: slot.read(from) }), form: { kind: 'wrapped', key, slot } };
  }

  private fillOf(field: AvroField): Fill | NoDefault {
    const fill = this.fills.get(field) ?? fillOf(field);
    this.fills.set(field, fill);
    return fill;
  }

  private array(reader: AvroNode, writer: AvroNode): Slot {
    const items = this.slot(reader, writer);
    const isEmpty = takesNoByte(writer);
    const item = (from: AvroCursor, into: unknown[]): void => {
      into.push(items.read(from));
    };
    const read: Read = (from) => {
      const into: unknown[] = [];
      from.blocks('[]', isEmpty, into, item);
      return into;
    };
    return { read, form: { kind: 'array', items, isEmpty, keeps: true } };
  }

  private map(reader: AvroNode, writer: AvroNode): Slot {
    const values = this.slot(reader, writer);
    const entry = (from: AvroCursor, into: Blank): void => {
      const key = from.text();
      const value = values.read(from);
      // An assignment to `__proto__` would change the object's prototype.
      if (key === '__proto__') define(into, key, value);
      else into[key] = value;
    };
    const read: Read = (from) => {
      const entries: Blank = {};
      from.blocks('{}', false, entries, entry);
      return entries;
    };
    return { read, form: { kind: 'map', values, keeps: true } };
  }

  private record(reader: AvroRecordNode, writer: AvroRecordNode): Slot {
    const aliases = reader.fields.reduce((sum, field) => sum + field.aliases.length, 0);
    if (!this.spend(reader.fields.length + aliases + writer.fields.length)) return tooMany();
    // A record reads itself field by field, whatever its aliases.
    const matches: FieldMatches | string =
      reader === writer ? { taken: writer.fields, missing: [] } : matchFields(reader, writer);
    if (typeof matches === 'string') return refuse(`${shownName(writer.name)}: ${matches}`);
    const makers = new Map<string, () => unknown>();
    const constants = new Map<string, unknown>();
    for (const field of matches.missing) {
      const fill = this.fillOf(field);
      if (fill instanceof NoDefault) return refuse(`${shownName(writer.name)}: ${fill.message}`);
      if (fill.make === undefined) constants.set(field.name, fill.value);
      else makers.set(field.name, fill.make);
    }
    const written = writer.fields.map((field, index) => {
      const taken = matches.taken[index];
      return taken === undefined
        ? { name: field.name, into: undefined, slot: this.skips.slot(field.type) }
        : { name: field.name, into: taken.name, slot: this.slot(taken.type, field.type) };
    });
    const names = reader.fields.map(({ name }) => name);
    const nulls = writer.fields.filter((field) => takesNoByte(field.type)).length;
    const parts = { written, names, constants, makers, nulls };
    return { read: recordReader(parts), form: { kind: 'record', parts } };
  }
}

const typeName = (node: AvroNode): string => shownName(avroTypeName(node));

/** Reader that throws: the error belongs to the event that reaches it. */
function refuse(why: string): Slot {
  const read: Read = (from) => {
    throw from.unresolved(why);
  };
  return { read, form: FUNCTION };
}

const tooMany = (): Slot => refuse('the schemas combine their types in too many ways');

function mismatch(reader: AvroNode, writer: AvroNode): Slot {
  return refuse(`a reader of type ${typeName(reader)} cannot read the writer's ${typeName(writer)}`);
}

function define(into: Blank, key: string, value: unknown): void {
  Object.defineProperty(into, key, { value, writable: true, enumerable: true, configurable: true });
}

const slotOf = (code: string, read: Read): Slot => ({ read, form: expression(code) });

const SAME: Readonly<Record<AvroPrimitive, Slot>> = {
  null: slotOf('null', () => null),
  boolean: slotOf('from.boolean()', (from) => from.boolean()),
  int: slotOf('from.int()', (from) => from.int()),
  long: slotOf('from.long()', (from) => from.long()),
  float: slotOf('from.float()', (from) => from.float()),
  double: slotOf('from.double()', (from) => from.double()),
  bytes: slotOf('from.blob()', (from) => from.blob()),
  string: slotOf('from.text()', (from) => from.text()),
};

/** Reader of a primitive pair; undefined where the reader's type cannot read the writer's. */
function primitive(reader: AvroPrimitive, writer: AvroPrimitive): Slot | undefined {
  if (reader === writer) return SAME[reader];
  if (!isPromotable(writer, reader)) return undefined;
  switch (reader) {
    case 'long':
      return slotOf('from.intAsLong()', (from) => from.intAsLong());
    case 'float':
      return writer === 'int'
        ? slotOf('Math.fround(from.int())', (from) => Math.fround(from.int()))
        : slotOf('from.longAsFloat()', (from) => from.longAsFloat());
    case 'double':
      if (writer === 'int') return SAME.int;
      return writer === 'long' ? slotOf('from.longAsDouble()', (from) => from.longAsDouble()) : SAME.float;
    case 'bytes':
      return slotOf('from.textBlob()', (from) => from.textBlob());
    case 'string':
      return SAME.string;
    default:
      return undefined;
  }
}

function fixed(reader: AvroFixedNode, writer: AvroFixedNode): Slot {
  const { size } = writer;
  return reader.size === size
    ? slotOf(`from.fixed(${size})`, (from) => from.fixed(size))
    : refuse(`${shownName(writer.name)} has ${size} bytes for the writer, ${reader.size} for the reader`);
}

function enumeration(reader: AvroEnumNode, writer: AvroEnumNode): Slot {
  const known = new Set(reader.symbols);
  const symbols = writer.symbols.map((symbol) => (known.has(symbol) ? symbol : reader.defaultSymbol));
  const read: Read = (from) => {
    const begun = from.at;
    const index = from.index(symbols.length, 'symbol');
    const symbol = symbols[index];
    if (symbol === undefined)
      throw from.unresolved(
        `the reader's ${shownName(reader.name)} has no symbol ${shownName(writer.symbols[index] as string)} and no default`,
        begun,
      );
    return symbol;
  };
  return { read, form: { kind: 'enum', symbols } };
}
