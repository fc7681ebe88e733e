/** Projection of a written Avro value: the plain value that the specification promises to a
 *  reader's program.
 *
 *  Implements "Schema Resolution" and "Aliases" of the Apache Avro 1.12 specification, with the
 *  choices that docs/decisions records: names are equal if they are equal without their namespaces;
 *  the reader's union branch of the same type comes first, then the first branch to which the type
 *  can be promoted.
 *  It shares no code with the checker or the decoder, because both are tested against it. */
import {
  type AvroField,
  type AvroNamedNode,
  type AvroNode,
  type AvroPrimitive,
  type AvroRecordNode,
  type AvroUnionNode,
  avroTypeName,
} from '../../../formats/avro/syntax/tree.ts';
import type { AvroBranchDatum, AvroDatum, AvroRecordDatum } from '../../../formats/datum.ts';
import type { Projection } from '../trial.ts';
import { defaultOf, NO_DEFAULT } from './default.ts';
import { objectOf, plainBranch } from './plain.ts';

/** Types as which a value of the first type may be read, besides its own. */
const PROMOTED: Readonly<Partial<Record<AvroPrimitive, readonly AvroPrimitive[]>>> = {
  int: ['long', 'float', 'double'],
  long: ['float', 'double'],
  float: ['double'],
  string: ['bytes'],
  bytes: ['string'],
};

/** Thrown internally if the specification allows no reading of the event. Not an Error, which would
 *  capture a stack. */
class NoReading {
  readonly why: string;

  constructor(why: string) {
    this.why = why;
  }
}
function refuse(why: string): never {
  throw new NoReading(why);
}

const lastPart = (name: string): string => name.slice(name.lastIndexOf('.') + 1);
const isNamed = (node: AvroNode): node is AvroNamedNode => 'name' in node;

function namesMatch(reader: AvroNamedNode, writer: AvroNamedNode): boolean {
  return lastPart(reader.name) === lastPart(writer.name) || reader.aliases.includes(writer.name);
}

/** Returns the index of the reader's union branch that reads the writer's type; -1 if there is
 *  none. */
function branchFor(reader: AvroUnionNode, writer: AvroNode): number {
  if (isNamed(writer)) {
    const sameKind = (node: AvroNode): node is AvroNamedNode => isNamed(node) && node.kind === writer.kind;
    const named = (is: (node: AvroNamedNode) => boolean): number =>
      reader.branches.findIndex((node) => sameKind(node) && is(node));
    // Order of matching: the full name, an alias, the name without its namespace.
    const inFull = named(({ name }) => name === writer.name);
    if (inFull >= 0) return inFull;
    const byAlias = named(({ aliases }) => aliases.includes(writer.name));
    if (byAlias >= 0) return byAlias;
    return named(({ name }) => lastPart(name) === lastPart(writer.name));
  }
  if (writer.kind !== 'primitive') return reader.branches.findIndex(({ kind }) => kind === writer.kind);
  const own = reader.branches.findIndex((node) => node.kind === 'primitive' && node.type === writer.type);
  if (own >= 0) return own;
  const promoted = PROMOTED[writer.type] ?? [];
  return reader.branches.findIndex((node) => node.kind === 'primitive' && promoted.includes(node.type));
}

/** Rounds to the nearest float in one step, ties to even. */
function floatOfLong(value: bigint): number {
  const size = value < 0n ? -value : value;
  const spare = BigInt(Math.max(0, size.toString(2).length - 24));
  const kept = size >> spare;
  const twiceRest = (size - (kept << spare)) << 1n;
  const one = spare === 0n ? 0n : 1n << spare;
  const up = twiceRest > one || (twiceRest === one && one > 0n && (kept & 1n) === 1n);
  const rounded = Number((up ? kept + 1n : kept) << spare);
  return value < 0n ? -rounded : rounded;
}

/** Only valid UTF-8 survives decoding and encoding unchanged. */
function textOf(bytes: Uint8Array): string {
  const buffer = Buffer.from(bytes);
  const text = buffer.toString('utf8');
  return Buffer.from(text, 'utf8').equals(buffer) ? text : refuse('the bytes are not UTF-8');
}

/** Plan that fills a reader's record from a writer's record. */
interface RecordPlan {
  /** Source of each field of the reader: its index among the writer's fields, or its default. */
  readonly sources: ReadonlyArray<{
    readonly field: AvroField;
    readonly from: number;
    readonly value: unknown;
  }>;
  /** Reason why no such record can be read. */
  readonly error: string | undefined;
  /** True: the value of a field that the writer renamed does not reach the reader. */
  readonly loses: boolean;
}

function planRecord(reader: AvroRecordNode, writer: AvroRecordNode): RecordPlan {
  const written = new Map(writer.fields.map(({ name }, i) => [name, i]));
  const readBy = new Map<number, string>();
  let error: string | undefined;
  // A schema reads itself by its own names only.
  const isSelf = reader === writer;
  const sources = reader.fields.map((field) => {
    const aliases = isSelf ? [] : field.aliases;
    const matches = new Set([field.name, ...aliases].flatMap((name) => written.get(name) ?? []));
    const [from] = matches;
    if (matches.size > 1) error ??= `field "${field.name}" names more than one written field`;
    if (from === undefined) {
      const value = field.hasDefault ? defaultOf(field) : NO_DEFAULT;
      if (value === NO_DEFAULT) error ??= `field "${field.name}" is not written and has no default that fits`;
      return { field, from: -1, value };
    }
    if (readBy.has(from)) error ??= `fields "${readBy.get(from)}" and "${field.name}" read one written field`;
    readBy.set(from, field.name);
    return { field, from, value: undefined };
  });
  const defaulted = new Set(sources.filter(({ from }) => from < 0).map(({ field }) => field.name));
  const loses = writer.fields.some(
    ({ aliases }, i) => !readBy.has(i) && aliases.some((alias) => defaulted.has(alias)),
  );
  return { sources, error, loses };
}

class Projector {
  private readonly plans = new Map<AvroNode, Map<AvroNode, RecordPlan>>();
  private lossless = true;

  /** @throws NoReading */
  project(datum: AvroDatum, reader: AvroNode, writer: AvroNode): Projection {
    this.lossless = true;
    const value = this.value(datum, reader, writer);
    return { kind: 'value', value, lossless: this.lossless };
  }

  private value(datum: AvroDatum, reader: AvroNode, writer: AvroNode): unknown {
    if (writer.kind === 'union') {
      const { branch, value } = datum as AvroBranchDatum;
      const written = writer.branches[branch] as AvroNode;
      // A schema reads itself branch by branch.
      if (reader === writer) return plainBranch(writer, branch, this.value(value, written, written));
      return this.value(value, reader, written);
    }
    if (reader.kind === 'union') {
      const branch = branchFor(reader, writer);
      if (branch < 0) refuse(`no branch of the reader's union takes ${avroTypeName(writer)}`);
      return plainBranch(reader, branch, this.value(datum, reader.branches[branch] as AvroNode, writer));
    }
    const [r, w] = [reader.logical, writer.logical];
    if (r !== undefined && w !== undefined) {
      const same =
        r.logicalType === w.logicalType && r.precision === w.precision && (r.scale ?? 0) === (w.scale ?? 0);
      if (!same) refuse(`${w.logicalType} is not ${r.logicalType} of the same digits`);
    }
    if (isNamed(reader) && isNamed(writer) && reader.kind === writer.kind && !namesMatch(reader, writer))
      refuse(`${writer.name} is not ${reader.name}`);
    if (reader.kind === 'primitive' && writer.kind === 'primitive')
      return this.primitive(datum, reader.type, writer.type);
    if (reader.kind === 'array' && writer.kind === 'array')
      return (datum as readonly AvroDatum[]).map((item) => this.value(item, reader.items, writer.items));
    if (reader.kind === 'map' && writer.kind === 'map')
      return objectOf(
        [...(datum as ReadonlyMap<string, AvroDatum>)].map(([key, value]) => [
          key,
          this.value(value, reader.values, writer.values),
        ]),
      );
    if (reader.kind === 'fixed' && writer.kind === 'fixed')
      return reader.size === writer.size
        ? Buffer.from(datum as Uint8Array)
        : refuse(`${writer.size} bytes are not ${reader.size}`);
    if (reader.kind === 'enum' && writer.kind === 'enum') {
      if (reader.symbols.includes(datum as string)) return datum;
      this.lossless = false;
      return reader.defaultSymbol ?? refuse(`the reader's enum has neither ${String(datum)} nor a default`);
    }
    if (reader.kind === 'record' && writer.kind === 'record')
      return this.record(datum as AvroRecordDatum, reader, writer);
    return refuse(`${avroTypeName(writer)} is not ${avroTypeName(reader)}`);
  }

  private primitive(datum: AvroDatum, reader: AvroPrimitive, writer: AvroPrimitive): unknown {
    if (reader === writer) return writer === 'bytes' ? Buffer.from(datum as Uint8Array) : datum;
    if (PROMOTED[writer]?.includes(reader) !== true) refuse(`${writer} is not promoted to ${reader}`);
    if (writer === 'string') return Buffer.from(datum as string, 'utf8');
    if (writer === 'bytes') return textOf(datum as Uint8Array);
    if (writer === 'float') return datum;
    const exact = BigInt(datum as number | bigint);
    if (reader === 'long') return exact;
    const rounded = reader === 'float' ? floatOfLong(exact) : Number(exact);
    if (BigInt(rounded) !== exact) this.lossless = false;
    return rounded;
  }

  private record(datum: AvroRecordDatum, reader: AvroRecordNode, writer: AvroRecordNode): unknown {
    const { sources, error, loses } = this.planOf(reader, writer);
    if (error !== undefined) refuse(error);
    if (loses) this.lossless = false;
    return objectOf(
      sources.map(({ field, from, value }) => [
        field.name,
        from < 0
          ? value
          : this.value(datum.fields[from] as AvroDatum, field.type, (writer.fields[from] as AvroField).type),
      ]),
    );
  }

  private planOf(reader: AvroRecordNode, writer: AvroRecordNode): RecordPlan {
    const known = this.plans.get(reader) ?? new Map<AvroNode, RecordPlan>();
    this.plans.set(reader, known);
    const plan = known.get(writer) ?? planRecord(reader, writer);
    known.set(writer, plan);
    return plan;
  }
}

/** Compiles the projection of a pair of schemas. */
export function avroProjector(reader: AvroNode, writer: AvroNode): (datum: AvroDatum) => Projection {
  const projector = new Projector();
  return (datum) => {
    try {
      return projector.project(datum, reader, writer);
    } catch (thrown) {
      if (thrown instanceof NoReading) return { kind: 'none', why: thrown.why };
      throw thrown;
    }
  };
}

export function projectAvro(datum: AvroDatum, writer: AvroNode, reader: AvroNode): Projection {
  return avroProjector(reader, writer)(datum);
}
