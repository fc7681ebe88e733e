/** Compiles a pair of Avro schemas to a program that fills columns.
 *
 *  It decides as codec/decoder.ts does: a part that cannot be resolved is an instruction that
 *  refuses the rows which reach it. Types that contain types are blocks, one for each pair of a
 *  column and a written type, so that the program of a recursive schema ends. Values that no column
 *  receives are checked as if they were read. */
import type { ColumnProgram } from '../../../core/columns/kernel.ts';
import { ColumnSchema } from '../../../core/columns/schema.ts';
import { AVRO_OP } from '../../../core/layout/layouts.gen.ts';
import { fillDatum, NoDefault } from '../codec/fill.ts';
import {
  doNamesMatch,
  type FieldMatches,
  isNamed,
  isPromotable,
  logicalDifference,
  matchFields,
  UnionBranches,
} from '../codec/match.ts';
import { takesNoByte } from '../codec/skip.ts';
import type {
  AvroArrayNode,
  AvroEnumNode,
  AvroField,
  AvroFixedNode,
  AvroMapNode,
  AvroNode,
  AvroPrimitive,
  AvroRecordNode,
  AvroUnionNode,
} from '../syntax/tree.ts';
import { type Block, Code, programTooLong } from './code.ts';
import { emitConstant } from './constant.ts';
import { indexesOf, type Plan, planOf } from './plan.ts';
import type { Origins } from './projection.ts';

/** Greatest number of fields of records that one compilation matches. */
const COMPILE_STEPS_MAX = 1_000_000;
/** Writers whose bytes one lazy column may hold: a tag is one byte. */
const LAZY_WRITERS_MAX = 256;

/** Types of the bytes in a lazy column. Where `writers` has several, the first byte of a value is
 *  the index of its writer. */
export interface LazyColumn {
  readonly reader: AvroNode;
  readonly writers: AvroNode[];
}

export interface CompiledColumns {
  readonly plan: Plan;
  readonly program: ColumnProgram;
  /** Lazy columns by preorder index. */
  readonly lazies: ReadonlyMap<number, LazyColumn>;
}

/** Types of which one contains others. */
type Composite = AvroRecordNode | AvroArrayNode | AvroMapNode;

/** Compiles any pair. @param origins records of a reduced reader's schema
 *  @throws incompatible_schema when the program becomes too long */
export function compileColumns(reader: AvroNode, writer: AvroNode, origins: Origins): CompiledColumns {
  return new Compiler(origins).compile(reader, writer);
}

/** Instruction that reads each promotion, by reader and writer. */
const READ: Readonly<Partial<Record<`${AvroPrimitive} ${AvroPrimitive}`, number>>> = {
  'null null': AVRO_OP.NULL,
  'boolean boolean': AVRO_OP.BOOL,
  'int int': AVRO_OP.INT,
  'long long': AVRO_OP.LONG,
  'long int': AVRO_OP.INT_TO_LONG,
  'float float': AVRO_OP.FLOAT,
  'float int': AVRO_OP.INT_TO_FLOAT,
  'float long': AVRO_OP.LONG_TO_FLOAT,
  'double double': AVRO_OP.DOUBLE,
  'double int': AVRO_OP.INT_TO_DOUBLE,
  'double long': AVRO_OP.LONG_TO_DOUBLE,
  'double float': AVRO_OP.FLOAT_TO_DOUBLE,
  'bytes bytes': AVRO_OP.BYTES,
  'bytes string': AVRO_OP.TEXT,
  'string string': AVRO_OP.TEXT,
  'string bytes': AVRO_OP.TEXT,
};

const SKIP: Readonly<Record<AvroPrimitive, readonly number[]>> = {
  null: [],
  boolean: [AVRO_OP.SKIP_BOOL],
  int: [AVRO_OP.SKIP_INT],
  long: [AVRO_OP.SKIP_LONG],
  float: [AVRO_OP.SKIP_FIXED, 4],
  double: [AVRO_OP.SKIP_FIXED, 8],
  bytes: [AVRO_OP.SKIP_BYTES],
  string: [AVRO_OP.SKIP_TEXT],
};

const isNull = (node: AvroNode): boolean => node.kind === 'primitive' && node.type === 'null';

class Compiler {
  private readonly origins: Origins;
  private readonly code = new Code();
  /** Blocks by what receives the value (a plan, a type that is only checked, or nothing) and the
   *  written type. */
  private readonly blocks = new Map<Plan | AvroNode | undefined, Map<AvroNode, Block>>();
  private readonly waiting: Array<() => void> = [];
  private readonly unions = new Map<AvroUnionNode, UnionBranches>();
  private readonly lazies = new Map<number, LazyColumn>();
  /** Tags of lazy values, which are known when all writers of their columns are. */
  private readonly tags: Array<{ readonly lazy: LazyColumn; readonly set: (hasTag: boolean) => void }> = [];

  private steps = 0;

  constructor(origins: Origins) {
    this.origins = origins;
  }

  compile(reader: AvroNode, writer: AvroNode): CompiledColumns {
    const plan = planOf(reader);
    this.emit(reader, writer, plan);
    this.code.emit(AVRO_OP.END);
    for (let next = this.waiting.pop(); next !== undefined; next = this.waiting.pop()) next();
    for (const { lazy, set } of this.tags) set(lazy.writers.length > 1);
    const top = plan.index < 0 ? plan.column.children : [plan.column];
    const program = { schema: new ColumnSchema(top), ...this.code.done() };
    return { plan, program, lazies: this.lazies };
  }

  /** Emits instructions that read a value into the column of `plan`, or only check it. */
  private emit(reader: AvroNode, writer: AvroNode, plan: Plan | undefined): void {
    if (plan?.isLazy === true && reader === plan.type) this.emitLazy(plan, writer);
    else if (writer.kind === 'union') this.emitUnion(reader, writer, plan);
    else if (reader.kind === 'union') this.emitBranch(reader, writer, plan);
    else this.emitPair(reader, writer, plan);
  }

  private emitPair(
    reader: Exclude<AvroNode, AvroUnionNode>,
    writer: Exclude<AvroNode, AvroUnionNode>,
    plan: Plan | undefined,
  ): void {
    const isOther =
      isNamed(reader) && isNamed(writer) && reader.kind === writer.kind && !doNamesMatch(reader, writer);
    const isComposite = reader.kind === 'record' || reader.kind === 'array' || reader.kind === 'map';
    if (isOther || logicalDifference(reader, writer) !== undefined) this.refuse();
    else if (reader.kind === 'primitive' && writer.kind === 'primitive')
      this.emitPrimitive(reader.type, writer.type, plan);
    else if (reader.kind === 'fixed' && writer.kind === 'fixed') this.emitFixed(reader, writer, plan);
    else if (reader.kind === 'enum' && writer.kind === 'enum') this.emitEnum(reader, writer, plan);
    else if (isComposite && reader.kind === writer.kind) this.call(reader, writer as Composite, plan);
    else this.refuse();
  }

  private refuse(): void {
    this.code.emit(AVRO_OP.REFUSE);
  }

  private emitPrimitive(reader: AvroPrimitive, writer: AvroPrimitive, plan: Plan | undefined): void {
    const isText = reader === 'string' || writer === 'string';
    if (reader !== writer && !isPromotable(writer, reader)) this.refuse();
    else if (plan === undefined) this.code.emit(...(isText ? SKIP.string : SKIP[writer]));
    else this.code.emit(READ[`${reader} ${writer}`] as number, plan.index);
  }

  private emitFixed(reader: AvroFixedNode, writer: AvroFixedNode, plan: Plan | undefined): void {
    if (reader.size !== writer.size) this.refuse();
    else if (plan === undefined) this.code.emit(AVRO_OP.SKIP_FIXED, writer.size);
    else if (plan.column.kind === 'fixed') this.code.emit(AVRO_OP.FIXED, plan.index);
    else this.code.emit(AVRO_OP.DECIMAL, plan.index, writer.size);
  }

  private emitEnum(reader: AvroEnumNode, writer: AvroEnumNode, plan: Plan | undefined): void {
    const known = indexesOf(reader);
    const otherwise = reader.defaultSymbol === undefined ? -1 : known.get(reader.defaultSymbol);
    const table = writer.symbols.map((symbol) => known.get(symbol) ?? otherwise ?? -1);
    if (plan === undefined) this.code.emit(AVRO_OP.CHECK_ENUM, table.length, ...table);
    else this.code.emit(AVRO_OP.ENUM, plan.index, table.length, ...table);
  }

  private emitUnion(reader: AvroNode, writer: AvroUnionNode, plan: Plan | undefined): void {
    const { branches } = writer;
    const nullAt = branches.findIndex(isNull);
    if (plan?.column.nullable === true && branches.length === 2 && nullAt >= 0) {
      if (reader.kind === 'union' && reader.branches.some(isNull)) {
        this.code.emit(AVRO_OP.OPTIONAL, nullAt, plan.index);
        const behind = this.code.hole();
        this.emit(reader, branches[1 - nullAt] as AvroNode, plan);
        this.code.patch(behind, this.code.at);
        return;
      }
    }
    this.emitTable(branches, (branch) => this.emit(reader, branch, plan));
  }

  /** Emits one sequence of instructions for each branch. */
  private emitTable(branches: readonly AvroNode[], emit: (branch: AvroNode) => void): void {
    this.code.emit(AVRO_OP.UNION, branches.length);
    const starts = branches.map(() => this.code.hole());
    const ends: number[] = [];
    branches.forEach((branch, index) => {
      this.code.patch(starts[index] as number, this.code.at);
      emit(branch);
      if (index === branches.length - 1) return;
      this.code.emit(AVRO_OP.JUMP);
      ends.push(this.code.hole());
    });
    for (const end of ends) this.code.patch(end, this.code.at);
  }

  private emitBranch(reader: AvroUnionNode, writer: AvroNode, plan: Plan | undefined): void {
    const union = this.unions.get(reader) ?? new UnionBranches(reader);
    this.unions.set(reader, union);
    const index = union.indexFor(writer);
    if (index === undefined) {
      this.refuse();
      return;
    }
    const branch = reader.branches[index] as AvroNode;
    if (plan?.column.kind === 'union') {
      this.code.emit(AVRO_OP.PICK, plan.index, index);
      this.emit(branch, writer, plan.parts[index]);
    } else if (plan !== undefined && isNull(branch)) this.code.emit(AVRO_OP.NULL, plan.index);
    else this.emit(branch, writer, plan);
  }

  private lazyOf(
    { index, type }: Plan,
    writer: AvroNode,
  ): { readonly lazy: LazyColumn; readonly tag: number } {
    const lazy = this.lazies.get(index) ?? { reader: type, writers: [] };
    this.lazies.set(index, lazy);
    if (!lazy.writers.includes(writer)) lazy.writers.push(writer);
    if (lazy.writers.length > LAZY_WRITERS_MAX) throw programTooLong();
    return { lazy, tag: lazy.writers.indexOf(writer) };
  }

  private emitLazy(plan: Plan, writer: AvroNode): void {
    const { lazy, tag } = this.lazyOf(plan, writer);
    this.code.emit(AVRO_OP.LAZY, plan.index);
    const hole = this.code.hole();
    const behind = this.code.hole();
    this.emit(plan.type, writer, undefined);
    this.code.emit(AVRO_OP.END);
    this.code.patch(behind, this.code.at);
    this.tags.push({ lazy, set: (hasTag) => this.code.patch(hole, hasTag ? tag : -1) });
  }

  /** Emits a default of a lazy column, written as the reader's own type. */
  private emitLazyConstant(plan: Plan, type: AvroNode, bytes: Buffer): void {
    const { lazy, tag } = this.lazyOf(plan, type);
    const tagged = this.code.constant(Buffer.concat([Buffer.of(tag), bytes]));
    this.code.emit(AVRO_OP.CONST_BYTES, plan.index);
    const at = this.code.hole();
    const length = this.code.hole();
    this.tags.push({
      lazy,
      set: (hasTag) => {
        this.code.patch(at, hasTag ? tagged : tagged + 1);
        this.code.patch(length, hasTag ? bytes.length + 1 : bytes.length);
      },
    });
  }

  private call(reader: Composite, writer: Composite, plan: Plan | undefined): void {
    this.callBlock(plan ?? reader, writer, () => {
      if (reader.kind === 'record') this.record(reader, writer as AvroRecordNode, plan);
      else if (reader.kind === 'array') this.array(reader, writer as AvroArrayNode, plan);
      else this.map(reader, writer as AvroMapNode, plan);
    });
  }

  /** Emits a call of the block of `key` and `writer`, which `write` writes the first time. */
  private callBlock(key: Plan | AvroNode | undefined, writer: AvroNode, write: () => void): void {
    const known = this.blocks.get(key) ?? new Map<AvroNode, Block>();
    this.blocks.set(key, known);
    let block = known.get(writer);
    if (block === undefined) {
      const made: Block = { at: -1 };
      block = made;
      known.set(writer, made);
      this.waiting.push(() => {
        made.at = this.code.at;
        write();
        this.code.emit(AVRO_OP.END);
      });
    }
    this.code.emit(AVRO_OP.CALL);
    this.code.emitBlock(block);
  }

  private array(reader: AvroArrayNode, writer: AvroArrayNode, plan: Plan | undefined): void {
    this.code.emit(AVRO_OP.ARRAY, takesNoByte(writer.items) ? 1 : 0, plan?.index ?? -1);
    this.emit(reader.items, writer.items, plan?.parts[0]);
  }

  private map(reader: AvroMapNode, writer: AvroMapNode, plan: Plan | undefined): void {
    this.code.emit(AVRO_OP.MAP, plan?.index ?? -1);
    this.emit(reader.values, writer.values, plan?.parts[0]);
  }

  private record(reader: AvroRecordNode, writer: AvroRecordNode, plan: Plan | undefined): void {
    const aliases = reader.fields.reduce((sum, field) => sum + field.aliases.length, 0);
    this.steps += reader.fields.length + aliases + writer.fields.length;
    if (this.steps > COMPILE_STEPS_MAX) throw programTooLong();
    const matches = this.matches(reader, writer);
    if (typeof matches === 'string') {
      this.refuse();
      return;
    }
    const fills = matches.missing.map((field) => ({ field, datum: fillDatum(field) }));
    if (fills.some(({ datum }) => datum instanceof NoDefault)) {
      this.refuse();
      return;
    }
    const parts = new Map(reader.fields.map((field, index) => [field, plan?.parts[index]]));
    const nulls = writer.fields.filter((field) => takesNoByte(field.type)).length;
    this.code.emit(AVRO_OP.RECORD, nulls, plan?.index ?? -1);
    writer.fields.forEach((written, index) => {
      const taken = matches.taken[index];
      if (taken === undefined) this.skip(written.type);
      else this.emit(taken.type, written.type, parts.get(taken));
    });
    for (const { field, datum } of fills) {
      const part = parts.get(field);
      if (part === undefined || datum instanceof NoDefault) continue;
      emitConstant(
        this.code,
        (column, type, bytes) => this.emitLazyConstant(column, type, bytes),
        part,
        field.type,
        datum,
      );
    }
  }

  private matches(reader: AvroRecordNode, writer: AvroRecordNode): FieldMatches | string {
    // A record reads itself field by field, whatever its aliases.
    if (reader !== writer && this.origins.get(reader) !== writer) return matchFields(reader, writer);
    const byName = new Map<string, AvroField>(reader.fields.map((field) => [field.name, field]));
    return { taken: writer.fields.map((field) => byName.get(field.name)), missing: [] };
  }

  /** Emits instructions that check a written value of any type and drop it. */
  private skip(node: AvroNode): void {
    switch (node.kind) {
      case 'primitive': {
        this.code.emit(...SKIP[node.type]);
        return;
      }
      case 'fixed': {
        this.code.emit(AVRO_OP.SKIP_FIXED, node.size);
        return;
      }
      case 'enum': {
        this.code.emit(AVRO_OP.SKIP_INDEX, node.symbols.length);
        return;
      }
      case 'union': {
        this.emitTable(node.branches, (branch) => this.skip(branch));
        return;
      }
      default:
        this.callBlock(undefined, node, () => this.skipParts(node));
    }
  }

  private skipParts(node: Composite): void {
    if (node.kind === 'array') {
      this.code.emit(AVRO_OP.ARRAY, takesNoByte(node.items) ? 1 : 0, -1);
      this.skip(node.items);
    } else if (node.kind === 'map') {
      this.code.emit(AVRO_OP.MAP, -1);
      this.skip(node.values);
    } else {
      const nulls = node.fields.filter((field) => takesNoByte(field.type)).length;
      this.code.emit(AVRO_OP.RECORD, nulls, -1);
      for (const field of node.fields) this.skip(field.type);
    }
  }
}
