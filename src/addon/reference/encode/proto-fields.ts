/** Fields of messages as a program states them, checked against the columns. The addon checks the
 *  same rules in native/kernel/encode/proto_fields.cc. */
import type { Column, ColumnKind } from '../../../core/columns/column.ts';
import type { EncodeProgram } from '../../../core/columns/kernel.ts';
import { coreError } from '../../../core/errors.ts';
import { ENCODE_LIMIT, PROTO_FLAG, PROTO_KIND, PROTO_PUT } from '../../../core/layout/layouts.gen.ts';
import { openProtobuf } from '../codec/protobuf.ts';
import { badProgram, readTables } from './row-encoder.ts';
import { NO_COLUMNS, ValueCheck } from './value-check.ts';

export interface PutField {
  readonly kind: number;
  readonly flags: number;
  readonly number: number;
  /** Column of the field, and of its values: the item of a list, the value of a map. */
  readonly column: number;
  readonly value: number;
  readonly oneof: number;
  /** Kind of a map's key; -1 for none. */
  readonly key: number;
  /** Fields of a message; otherwise absent. */
  readonly message?: readonly PutField[];
  /** Number of each symbol of a closed enum; otherwise absent. */
  readonly numbers?: Int32Array;
  /** Check of a message as bytes; otherwise absent. */
  readonly check?: ValueCheck;
}

export const has = ({ flags }: Pick<PutField, 'flags'>, flag: number): boolean => (flags & flag) !== 0;

const FLAGS_MASK =
  PROTO_FLAG.REPEATED |
  PROTO_FLAG.REQUIRED |
  PROTO_FLAG.GROUP |
  PROTO_FLAG.MAP |
  PROTO_FLAG.RAW |
  PROTO_FLAG.PACKED |
  PROTO_FLAG.HIDES_ZERO;
const NUMBER_MAX = 2 ** 29 - 1;
const WIRE_LENGTH = 2;

/** Wire type of a value. */
export function wireOf(kind: number): number {
  switch (kind) {
    case PROTO_KIND.FIXED32:
      return 5;
    case PROTO_KIND.FIXED64:
      return 1;
    case PROTO_KIND.STRING:
    case PROTO_KIND.BYTES:
    case PROTO_KIND.MESSAGE:
      return WIRE_LENGTH;
    default:
      return 0;
  }
}

/** Kinds of columns whose values each kind of field has; a message as bytes is binary. */
const FITS: Readonly<Record<number, readonly ColumnKind[]>> = {
  [PROTO_KIND.INT32]: ['int32'],
  [PROTO_KIND.SINT32]: ['int32'],
  [PROTO_KIND.ENUM]: ['int32'],
  [PROTO_KIND.UINT32]: ['uint32'],
  [PROTO_KIND.BOOL]: ['bool'],
  [PROTO_KIND.INT64]: ['int64', 'uint64'],
  [PROTO_KIND.SINT64]: ['int64'],
  [PROTO_KIND.FIXED32]: ['int32', 'uint32', 'float32'],
  [PROTO_KIND.FIXED64]: ['int64', 'uint64', 'float64'],
  [PROTO_KIND.STRING]: ['utf8'],
  [PROTO_KIND.BYTES]: ['binary'],
  [PROTO_KIND.CLOSED_ENUM]: ['dictionary'],
  [PROTO_KIND.MESSAGE]: ['struct'],
};

function fits(kind: number, column: Column, isRaw: boolean): boolean {
  return isRaw ? column.kind === 'binary' : FITS[kind]?.includes(column.kind) === true;
}

/** Reads the fields of the message of the rows. @throws out_of_range for words that are no program
 */
export function readPutProgram({ schema, code, tables }: EncodeProgram): readonly PutField[] {
  const lists = readTables(tables);
  if (code.length !== schema.all.length * PROTO_PUT.COUNT) throw badProgram(0);
  return new Reader(schema, code, lists).fields(schema.topIndex);
}

class Reader {
  private readonly schema: EncodeProgram['schema'];
  private readonly code: Int32Array;
  private readonly tables: readonly Int32Array[];

  constructor(schema: EncodeProgram['schema'], code: Int32Array, tables: readonly Int32Array[]) {
    this.schema = schema;
    this.code = code;
    this.tables = tables;
  }

  fields(columns: readonly number[]): readonly PutField[] {
    return columns.map((column) => this.field(column));
  }

  private field(column: number): PutField {
    const at = column * PROTO_PUT.COUNT;
    const word = (offset: number): number => this.code[at + offset] as number;
    const flags = word(PROTO_PUT.FLAGS);
    const isMap = (flags & PROTO_FLAG.MAP) !== 0;
    const isList = (flags & PROTO_FLAG.REPEATED) !== 0;
    const field = {
      kind: word(PROTO_PUT.KIND),
      flags,
      number: word(PROTO_PUT.NUMBER),
      column,
      value: column + (isMap ? 3 : isList ? 1 : 0),
      oneof: word(PROTO_PUT.ONEOF),
      key: word(PROTO_PUT.KEY),
    };
    if (!areWordsGood(field, this.schema.all.length) || !this.areColumnsGood(field)) throw badProgram(at);
    return { ...field, ...this.operand(field, word(PROTO_PUT.OPERAND), at) };
  }

  private areColumnsGood(field: PutField): boolean {
    const own = this.schema.all[field.column] as Column;
    const isMap = has(field, PROTO_FLAG.MAP);
    if (isMap || has(field, PROTO_FLAG.REPEATED)) {
      if (own.kind !== (isMap ? 'map' : 'list') || own.nullable) return false;
      if (isMap && !this.isKeyGood(field)) return false;
      if (this.schema.all[field.value]?.nullable !== false) return false;
    }
    const value = this.schema.all[field.value] as Column;
    return fits(field.kind, value, has(field, PROTO_FLAG.RAW));
  }

  private isKeyGood({ key, column }: PutField): boolean {
    const found = this.schema.all[column + 2] as Column;
    const isKey = key >= PROTO_KIND.INT32 && key <= PROTO_KIND.STRING;
    const isFloat = found.kind === 'float32' || found.kind === 'float64';
    return isKey && !isFloat && !found.nullable && fits(key, found, false);
  }

  private operand(
    field: PutField,
    operand: number,
    at: number,
  ): Pick<PutField, 'message' | 'numbers' | 'check'> {
    const isRaw = has(field, PROTO_FLAG.RAW);
    if (field.kind !== PROTO_KIND.CLOSED_ENUM && !isRaw) {
      if (operand !== -1) throw badProgram(at);
      if (field.kind !== PROTO_KIND.MESSAGE) return {};
      return { message: this.fields(this.schema.childrenOf(field.value)) };
    }
    const table = this.tables[operand];
    if (table === undefined) throw badProgram(at);
    if (!isRaw) return { numbers: table };
    const wraps = table[0] ?? -1;
    if (wraps < 0 || wraps > ENCODE_LIMIT.WRAPS) throw badProgram(at);
    return { check: checkOf(table.subarray(1), wraps, at) };
  }
}

function checkOf(code: Int32Array, wraps: number, at: number): ValueCheck {
  try {
    const decoder = openProtobuf({ schema: NO_COLUMNS, code, pool: new Uint8Array(0) });
    return new ValueCheck(decoder, wraps);
  } catch (cause) {
    throw coreError('out_of_range', `program: a bad instruction at word ${at}`, { cause });
  }
}

function areWordsGood(field: PutField, columns: number): boolean {
  const { kind, flags, number, oneof, key } = field;
  const isMap = has(field, PROTO_FLAG.MAP);
  const isList = has(field, PROTO_FLAG.REPEATED);
  const isMessage = kind === PROTO_KIND.MESSAGE;
  return (
    (flags & ~FLAGS_MASK) === 0 &&
    number >= 1 &&
    number <= NUMBER_MAX &&
    oneof >= -1 &&
    oneof < columns &&
    !(isMap && isList) &&
    !((isMap || isList) && (has(field, PROTO_FLAG.HIDES_ZERO) || oneof >= 0)) &&
    !(has(field, PROTO_FLAG.PACKED) && (!isList || wireOf(kind) === WIRE_LENGTH)) &&
    !(has(field, PROTO_FLAG.GROUP) && (!isMessage || isMap)) &&
    !(has(field, PROTO_FLAG.RAW) && !isMessage) &&
    (isMap || key === -1)
  );
}
