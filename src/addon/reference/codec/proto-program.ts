/** Reads and checks a program for Protobuf payloads. Words: PROTO_WORD in
 *  docs/reference/layouts.md. Every operand is checked, so that no payload makes the interpreter
 *  access memory outside its arguments. The addon checks the same rules in
 *  native/kernel/codec/protobuf_program.cc. */
import type { Column, ColumnKind } from '../../../core/columns/column.ts';
import type { ColumnProgram } from '../../../core/columns/kernel.ts';
import type { ColumnSchema } from '../../../core/columns/schema.ts';
import { coreError } from '../../../core/errors.ts';
import { COLUMN_LIMIT, PROTO_FLAG, PROTO_KIND, PROTO_WORD } from '../../../core/layout/layouts.gen.ts';

export interface ProtoFieldCode {
  /** PROTO_KIND.* */
  readonly kind: number;
  /** PROTO_FLAG.* */
  readonly flags: number;
  /** Column of the field; -1 for none. */
  readonly column: number;
  /** Node of a message. */
  readonly child: number;
  /** Index of each number of a closed enum. */
  readonly symbols: ReadonlyMap<number, number> | undefined;
  /** Fields of the oneof, itself included. */
  readonly members: readonly number[] | undefined;
  /** PROTO_KIND.* of a map's key; -1 for none. */
  readonly key: number;
  /** Number of an open enum's default. */
  readonly zero: number;
}

export interface ProtoNodeCode {
  /** Struct column that a message appends to; -1 for none. */
  readonly column: number;
  /** Fields that a message counts. */
  readonly spend: number;
  readonly fields: readonly ProtoFieldCode[];
  readonly required: readonly number[];
  readonly tags: ReadonlyMap<number, { readonly field: number; readonly isRun: boolean }>;
}

const CELLS_32: readonly ColumnKind[] = ['int32', 'uint32', 'float32'];
const CELLS_64: readonly ColumnKind[] = ['int64', 'uint64', 'float64'];
/** Kinds of columns that a value is appended to. */
const COLUMNS: ReadonlyMap<number, readonly ColumnKind[]> = new Map<number, readonly ColumnKind[]>([
  [PROTO_KIND.INT32, CELLS_32],
  [PROTO_KIND.UINT32, CELLS_32],
  [PROTO_KIND.SINT32, CELLS_32],
  [PROTO_KIND.FIXED32, CELLS_32],
  [PROTO_KIND.ENUM, CELLS_32],
  [PROTO_KIND.CLOSED_ENUM, ['dictionary']],
  [PROTO_KIND.BOOL, ['bool']],
  [PROTO_KIND.INT64, CELLS_64],
  [PROTO_KIND.SINT64, CELLS_64],
  [PROTO_KIND.FIXED64, CELLS_64],
  [PROTO_KIND.STRING, ['utf8', 'binary']],
  [PROTO_KIND.BYTES, ['utf8', 'binary']],
  [PROTO_KIND.MESSAGE, ['struct']],
]);
const KEYS: readonly number[] = [
  PROTO_KIND.INT32,
  PROTO_KIND.UINT32,
  PROTO_KIND.SINT32,
  PROTO_KIND.BOOL,
  PROTO_KIND.INT64,
  PROTO_KIND.SINT64,
  PROTO_KIND.FIXED32,
  PROTO_KIND.FIXED64,
  PROTO_KIND.STRING,
];
/** Flags of a program that decodes; the others belong to programs that encode. */
const DECODE_FLAGS =
  PROTO_FLAG.REPEATED |
  PROTO_FLAG.PRESENCE |
  PROTO_FLAG.REQUIRED |
  PROTO_FLAG.GROUP |
  PROTO_FLAG.MAP |
  PROTO_FLAG.RAW;

/** Column of the values of a field: behind the list, or behind entries and key of the map. */
export function valueColumn({ column, flags }: Pick<ProtoFieldCode, 'column' | 'flags'>): number {
  if ((flags & PROTO_FLAG.MAP) !== 0) return column + 3;
  return (flags & PROTO_FLAG.REPEATED) !== 0 ? column + 1 : column;
}

/** @throws out_of_range for code that is no program */
export const readProtoProgram = (program: ColumnProgram): readonly ProtoNodeCode[] =>
  new ProtoProgramReader(program).read();

class ProtoProgramReader {
  private readonly schema: ColumnSchema;
  private readonly code: Int32Array;
  private at = 0;
  private nodes = 0;
  private readonly enums: Array<ReadonlyMap<number, number>> = [];
  private readonly oneofs: Array<readonly number[]> = [];

  constructor({ schema, code }: ColumnProgram) {
    this.schema = schema;
    this.code = code;
  }

  read(): readonly ProtoNodeCode[] {
    const { code } = this;
    if (code.length > COLUMN_LIMIT.PROGRAM_WORDS) throw this.bad(COLUMN_LIMIT.PROGRAM_WORDS);
    this.nodes = this.count(PROTO_WORD.NODE);
    const enums = this.count(1);
    const oneofs = this.count(1);
    if (this.nodes === 0) throw this.bad(0);
    const starts: number[] = [];
    for (let i = 0; i < this.nodes; i++) {
      starts.push(this.at);
      this.word();
      const fields = this.count(PROTO_WORD.FIELD);
      this.word();
      const tags = this.count(PROTO_WORD.TAG);
      this.skip(fields * PROTO_WORD.FIELD + tags * PROTO_WORD.TAG);
    }
    for (let i = 0; i < enums; i++) this.enums.push(this.enumTable());
    for (let i = 0; i < oneofs; i++) this.oneofs.push(this.oneof());
    if (this.at !== code.length) throw this.bad(this.at);
    return starts.map((start, i) => this.node(start, i === 0));
  }

  private bad(at: number): Error {
    return coreError('out_of_range', `program: a bad word at ${at}`);
  }

  private word(): number {
    if (this.at >= this.code.length) throw this.bad(this.at);
    return this.code[this.at++] as number;
  }

  /** Reads a count of parts with so many words each, which the code has room for. */
  private count(words: number): number {
    const at = this.at;
    const count = this.word();
    if (count < 0 || count * words > this.code.length - this.at) throw this.bad(at);
    return count;
  }

  private skip(words: number): void {
    if (words > this.code.length - this.at) throw this.bad(this.at);
    this.at += words;
  }

  private enumTable(): ReadonlyMap<number, number> {
    const count = this.count(2);
    const symbols = new Map<number, number>();
    let last = Number.NEGATIVE_INFINITY;
    for (let i = 0; i < count; i++) {
      const at = this.at;
      const number = this.word();
      const index = this.word();
      if (number <= last || index < 0) throw this.bad(at);
      last = number;
      symbols.set(number, index);
    }
    return symbols;
  }

  private oneof(): readonly number[] {
    return Array.from({ length: this.count(1) }, () => this.word());
  }

  private node(start: number, isRoot: boolean): ProtoNodeCode {
    this.at = start;
    const column = this.word();
    const fieldCount = this.word();
    const spend = this.word();
    const tagCount = this.word();
    if (!(isRoot ? column === -1 : column === -1 || this.isColumn(column, ['struct']))) throw this.bad(start);
    // Counted fields bound the memory of frames.
    if (spend < fieldCount) throw this.bad(start);
    const fields = Array.from({ length: fieldCount }, () => this.field(fieldCount));
    const tags = new Map<number, { readonly field: number; readonly isRun: boolean }>();
    let last = -1;
    for (let i = 0; i < tagCount; i++) {
      const at = this.at;
      const tag = this.word() >>> 0;
      const field = this.word();
      const run = this.word();
      if (tag <= last || field < 0 || field >= fieldCount || run < 0 || run > 1) throw this.bad(at);
      if (run === 1 && !isRunnable(fields[field] as ProtoFieldCode)) throw this.bad(at);
      last = tag;
      tags.set(tag, { field, isRun: run === 1 });
    }
    const required = fields.flatMap(({ flags }, i) => ((flags & PROTO_FLAG.REQUIRED) === 0 ? [] : [i]));
    return { column, spend, fields, required, tags };
  }

  private field(fieldCount: number): ProtoFieldCode {
    const at = this.at;
    const [kind, flags, column, child, oneof, key, zero] = Array.from({ length: PROTO_WORD.FIELD }, () =>
      this.word(),
    ) as [number, number, number, number, number, number, number];
    const members = oneof < 0 ? undefined : this.oneofs[oneof];
    const isMap = (flags & PROTO_FLAG.MAP) !== 0;
    const isMessage = kind === PROTO_KIND.MESSAGE;
    const isGood =
      COLUMNS.has(kind) &&
      (flags & ~DECODE_FLAGS) === 0 &&
      (isMessage || (flags & (PROTO_FLAG.RAW | PROTO_FLAG.GROUP)) === 0) &&
      (isMap ? KEYS.includes(key) && (flags & PROTO_FLAG.REPEATED) === 0 : key === -1) &&
      (!isMessage || (child >= 0 && child < this.nodes)) &&
      (kind !== PROTO_KIND.CLOSED_ENUM || this.enums[child] !== undefined) &&
      (oneof < 0 || (members?.every((member) => member >= 0 && member < fieldCount) ?? false)) &&
      (oneof < 0 || (flags & (PROTO_FLAG.MAP | PROTO_FLAG.REPEATED)) === 0) &&
      this.isColumnGood(kind, flags, column, key);
    if (!isGood) throw this.bad(at);
    const symbols = kind === PROTO_KIND.CLOSED_ENUM ? this.enums[child] : undefined;
    return { kind, flags, column, child, symbols, members, key, zero };
  }

  private isColumnGood(kind: number, flags: number, column: number, key: number): boolean {
    if (column === -1) return true;
    const value =
      (flags & PROTO_FLAG.RAW) === 0 ? (COLUMNS.get(kind) ?? []) : (['binary'] as readonly ColumnKind[]);
    if (!this.isColumn(valueColumn({ column, flags }), value)) return false;
    if ((flags & PROTO_FLAG.MAP) !== 0)
      return this.isColumn(column, ['map']) && this.isColumn(column + 2, COLUMNS.get(key) ?? []);
    return (flags & PROTO_FLAG.REPEATED) === 0 || this.isColumn(column, ['list']);
  }

  private isColumn(column: number, kinds: readonly ColumnKind[]): boolean {
    const found: Column | undefined = this.schema.all[column];
    return column >= 0 && found !== undefined && kinds.includes(found.kind);
  }
}

/** True for a field whose values may be in one packed run. */
const isRunnable = ({ kind, flags }: ProtoFieldCode): boolean =>
  (flags & PROTO_FLAG.REPEATED) !== 0 &&
  kind !== PROTO_KIND.MESSAGE &&
  kind !== PROTO_KIND.STRING &&
  kind !== PROTO_KIND.BYTES;
