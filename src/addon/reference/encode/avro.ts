/** Encoder of columns as Avro payloads; the addon's implementation is native/kernel/encode/avro.cc.
 *  Words: AVRO_PUT in docs/reference/layouts.md. */
import type { Column } from '../../../core/columns/column.ts';
import type { ColumnEncoder, EncodeProgram } from '../../../core/columns/kernel.ts';
import { AVRO_PUT } from '../../../core/layout/layouts.gen.ts';
import { openAvro } from '../codec/avro.ts';
import { broken, refused } from './payload-sink.ts';
import { badProgram, RowEncoder, readTables } from './row-encoder.ts';
import { NO_COLUMNS, ValueCheck } from './value-check.ts';

/** Greatest branch whose number is one byte. */
const BRANCH_MAX = 63;

/** Opens a program. @throws out_of_range for words that are no program */
export function openAvroEncoder(program: EncodeProgram): ColumnEncoder {
  const checks = readTables(program.tables).map(
    (code) => new ValueCheck(openAvro({ schema: NO_COLUMNS, code, pool: new Uint8Array(0) }), 0),
  );
  const { schema, code } = program;
  if (code.length !== schema.all.length * AVRO_PUT.COUNT) throw badProgram(0);
  const puts = schema.all.map((column, index) => {
    const at = index * AVRO_PUT.COUNT;
    const put = {
      valueBranch: code[at + AVRO_PUT.VALUE_BRANCH] as number,
      nullBranch: code[at + AVRO_PUT.NULL_BRANCH] as number,
      operand: code[at + AVRO_PUT.OPERAND] as number,
    };
    if (!isGood(column, schema.sizeOf(index), put, checks.length)) throw badProgram(at);
    return put;
  });
  return new AvroEncoder(program, puts, checks);
}

/** Words of a program about one column. */
interface AvroPut {
  readonly valueBranch: number;
  readonly nullBranch: number;
  readonly operand: number;
}

function isGood({ kind, nullable }: Column, size: number, put: AvroPut, checks: number): boolean {
  const { valueBranch, nullBranch, operand } = put;
  const isBranch = (branch: number): boolean => branch >= -1 && branch <= BRANCH_MAX;
  if (!isBranch(valueBranch) || !isBranch(nullBranch) || nullable !== nullBranch >= 0) return false;
  if (nullBranch >= 0 && valueBranch < 0) return false;
  switch (kind) {
    case 'uint32':
    case 'uint64':
      return false;
    case 'dictionary':
      return operand >= 0;
    case 'binary':
      return operand >= -1 && operand < checks;
    case 'decimal128':
    case 'decimal256':
      return operand >= 0 && operand <= size;
    default:
      return operand === -1;
  }
}

class AvroEncoder extends RowEncoder {
  private readonly puts: readonly AvroPut[];
  private readonly checks: readonly ValueCheck[];

  constructor(program: EncodeProgram, puts: readonly AvroPut[], checks: readonly ValueCheck[]) {
    super(program);
    this.puts = puts;
    this.checks = checks;
  }

  protected putRow(row: number): void {
    for (const column of this.from.schema.topIndex) this.put(column, row);
  }

  private put(column: number, at: number): void {
    const { valueBranch, nullBranch } = this.puts[column] as AvroPut;
    if (valueBranch >= 0) {
      const isNull = this.from.isNull(column, at);
      this.into.byte(2 * (isNull ? nullBranch : valueBranch));
      if (isNull) return;
    }
    this.putValue(column, at);
  }

  private putValue(column: number, at: number): void {
    const { from, into } = this;
    switch (from.kinds[column]) {
      case 'null':
        return;
      case 'bool':
        into.byte(from.bool(column, at) ? 1 : 0);
        return;
      case 'int32':
        into.zigzag(BigInt(from.view.getInt32(from.cell(column, at), true)));
        return;
      case 'int64':
        into.zigzag(from.view.getBigInt64(from.cell(column, at), true));
        return;
      case 'utf8':
        into.text(from.text(column, at), column, 1n, true);
        return;
      case 'binary':
        this.putBinary(column, at);
        return;
      case 'list':
      case 'map':
        this.putList(column, at);
        return;
      case 'struct':
        for (const child of from.children[column] as readonly number[]) this.put(child, at);
        return;
      case 'union':
        this.putUnion(column, at);
        return;
      default:
        this.putCell(column, at);
    }
  }

  /** Writes a value whose number of bytes the schema fixes, and an enum. */
  private putCell(column: number, at: number): void {
    const { from, into } = this;
    const size = from.schema.sizeOf(column);
    const cell = from.bytes.subarray(from.cell(column, at), from.cell(column, at) + size);
    const { operand } = this.puts[column] as AvroPut;
    switch (from.kinds[column]) {
      case 'dictionary': {
        const symbol = from.view.getUint32(from.cell(column, at), true);
        if (symbol >= operand) throw refused(column);
        into.zigzag(BigInt(symbol));
        return;
      }
      case 'fixed':
        into.reserve(size);
        into.raw(cell);
        return;
      case 'decimal128':
      case 'decimal256': {
        const written = cell.slice(0, operand).reverse();
        const sign = (written[0] ?? 0) >= 0x80 ? 0xff : 0;
        if (!cell.subarray(operand).every((byte) => byte === sign)) throw refused(column);
        into.raw(written);
        return;
      }
      default:
        into.raw(cell);
    }
  }

  private putBinary(column: number, at: number): void {
    const value = this.from.text(column, at);
    const { operand } = this.puts[column] as AvroPut;
    if (operand < 0) {
      this.into.text(value, column, 1n, false);
      return;
    }
    if (value === undefined) throw broken(column);
    this.into.reserve(value.length);
    if (!(this.checks[operand] as ValueCheck).isValue(value)) throw refused(column);
    this.into.raw(value);
  }

  private putList(column: number, at: number): void {
    const { from, into } = this;
    const found = from.elements(column, at, from.lengthOf(column + 1));
    if (found === undefined) throw broken(column);
    if (found.end > found.start) into.zigzag(BigInt(found.end - found.start));
    for (let i = found.start; i < found.end; i++) {
      into.reserve(0);
      this.put(column + 1, i);
    }
    into.byte(0);
  }

  private putUnion(column: number, at: number): void {
    const { from, into } = this;
    const branch = from.typeId(column, at);
    const element = from.element(column, at);
    const child = from.children[column]?.[branch];
    if (child === undefined || element >= from.lengthOf(child)) throw broken(column);
    into.zigzag(BigInt(branch));
    this.put(child, element);
  }
}
