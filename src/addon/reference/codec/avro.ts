/** Interpreter of programs for Avro payloads; the addon's implementation is
 *  native/kernel/codec/avro.cc. Instructions: AVRO_OP in docs/reference/layouts.md. */
import type { ColumnDecoder, ColumnProgram } from '../../../core/columns/kernel.ts';
import { AVRO_OP } from '../../../core/layout/layouts.gen.ts';
import { AvroInput } from './avro-input.ts';
import { demandAvroProgram } from './avro-program.ts';
import { RowDecoder } from './row-decoder.ts';

/** Opens a program. @throws out_of_range for code that is no program */
export function openAvro(program: ColumnProgram): ColumnDecoder {
  demandAvroProgram(program);
  return new AvroColumns(program);
}

class AvroColumns extends RowDecoder {
  private readonly code: Int32Array;
  private readonly pool: Uint8Array;
  private readonly from = new AvroInput();

  constructor(program: ColumnProgram) {
    super(program);
    this.code = program.code.slice();
    this.pool = program.pool.slice();
  }

  protected readRow(bytes: Uint8Array, start: number, end: number): void {
    this.from.open(bytes, start, end);
    this.run(0);
    this.from.close();
  }

  /** Runs instructions up to the end of their block. */
  private run(start: number): void {
    const { code, from, into } = this;
    let pc = start;
    for (;;) {
      const op = code[pc] as number;
      const a = code[pc + 1] as number;
      const b = code[pc + 2] as number;
      switch (op) {
        case AVRO_OP.END:
          return;
        case AVRO_OP.REFUSE:
          throw from.incompatible();
        case AVRO_OP.CALL:
          this.composite(a);
          pc += 2;
          break;
        case AVRO_OP.RECORD:
        case AVRO_OP.ARRAY:
        case AVRO_OP.MAP:
          this.composite(pc);
          return;
        case AVRO_OP.JUMP:
          pc = a;
          break;
        case AVRO_OP.UNION:
          pc = code[pc + 2 + from.index(a)] as number;
          break;
        case AVRO_OP.OPTIONAL:
          if (from.index(2) === a) {
            into.empty(b);
            pc = code[pc + 3] as number;
          } else pc += 4;
          break;
        case AVRO_OP.LAZY: {
          const begun = from.at;
          this.run(pc + 4);
          into.text(a, from.bytes, begun, from.at - begun, b);
          pc = code[pc + 3] as number;
          break;
        }
        default:
          pc += op >= AVRO_OP.PICK && op < AVRO_OP.NULL ? this.read(op, a, pc) : this.other(op, a, pc);
      }
    }
  }

  /** Runs a block that a call names. */
  private composite(pc: number): void {
    const { code, from, into } = this;
    const a = code[pc + 1] as number;
    const b = code[pc + 2] as number;
    switch (code[pc]) {
      case AVRO_OP.RECORD: {
        const begun = from.at;
        from.enter();
        this.run(pc + 3);
        from.leave();
        if (a > 0) from.countEmpty(a);
        if (from.at === begun) from.countEmpty(1);
        if (b >= 0) into.close(b);
        return;
      }
      case AVRO_OP.ARRAY:
        from.blocks(a === 1, () => this.run(pc + 3));
        if (b >= 0) into.close(b);
        return;
      case AVRO_OP.MAP:
        from.blocks(false, () => {
          const key = from.text();
          if (a >= 0) into.text(a + 2, from.bytes, key, from.at - key);
          this.run(pc + 2);
          if (a >= 0) into.close(a + 1);
        });
        if (a >= 0) into.close(a);
        return;
      default:
        throw from.incompatible();
    }
  }

  /** Reads a value into a column. @returns the words of the instruction */
  private read(op: number, column: number, pc: number): number {
    const { code, from, into } = this;
    switch (op) {
      case AVRO_OP.PICK:
        into.pick(column, code[pc + 2] as number);
        return 3;
      case AVRO_OP.BOOL:
        into.bool(column, from.boolean());
        return 2;
      case AVRO_OP.INT:
        into.int32(column, from.int());
        return 2;
      case AVRO_OP.LONG:
        from.long();
        into.words(column, from.low, from.high);
        return 2;
      case AVRO_OP.INT_TO_LONG: {
        const value = from.int();
        into.words(column, value, value >> 31);
        return 2;
      }
      case AVRO_OP.INT_TO_FLOAT:
        into.float32(column, from.int());
        return 2;
      case AVRO_OP.LONG_TO_FLOAT:
        into.float32(column, from.longAsFloat());
        return 2;
      case AVRO_OP.INT_TO_DOUBLE:
        into.float64(column, from.int());
        return 2;
      case AVRO_OP.LONG_TO_DOUBLE:
        into.float64(column, from.longAsDouble());
        return 2;
      case AVRO_OP.FLOAT_TO_DOUBLE: {
        const value = from.float();
        // A NaN has one form, so that every implementation writes the same bytes.
        if (Number.isNaN(value)) into.words(column, 0, 0x7ff8_0000);
        else into.float64(column, value);
        return 2;
      }
      case AVRO_OP.FLOAT:
        into.fixed(column, from.bytes, from.consume(4));
        return 2;
      case AVRO_OP.DOUBLE:
        into.fixed(column, from.bytes, from.consume(8));
        return 2;
      case AVRO_OP.BYTES:
      case AVRO_OP.TEXT: {
        const start = op === AVRO_OP.TEXT ? from.text() : from.blob();
        into.text(column, from.bytes, start, from.at - start);
        return 2;
      }
      case AVRO_OP.FIXED:
        into.fixed(column, from.bytes, from.consume(into.sizeOf(column)));
        return 2;
      case AVRO_OP.DECIMAL: {
        const size = code[pc + 2] as number;
        into.decimal(column, from.bytes, from.consume(size), size);
        return 3;
      }
      default:
        into.int32(column, this.symbol(pc + 2));
        return 3 + (code[pc + 2] as number);
    }
  }

  /** Checks a value that no column receives, or appends a constant. @returns the words of the
   *  instruction */
  private other(op: number, a: number, pc: number): number {
    const { code, from, into } = this;
    switch (op) {
      case AVRO_OP.SKIP_INT:
        from.int();
        return 1;
      case AVRO_OP.SKIP_LONG:
        from.long();
        return 1;
      case AVRO_OP.SKIP_BOOL:
        from.boolean();
        return 1;
      case AVRO_OP.SKIP_FIXED:
        from.consume(a);
        return 2;
      case AVRO_OP.SKIP_BYTES:
        from.blob();
        return 1;
      case AVRO_OP.SKIP_TEXT:
        from.text();
        return 1;
      case AVRO_OP.SKIP_INDEX:
        from.index(a);
        return 2;
      case AVRO_OP.CHECK_ENUM:
        this.symbol(pc + 1);
        return 2 + a;
      case AVRO_OP.NULL:
        into.empty(a);
        return 2;
      case AVRO_OP.CONST_BOOL:
        into.bool(a, code[pc + 2] === 1);
        return 3;
      case AVRO_OP.CONST_INT:
        into.int32(a, code[pc + 2] as number);
        return 3;
      case AVRO_OP.CONST_BYTES: {
        const start = code[pc + 2] as number;
        if (into.isText(a)) into.text(a, this.pool, start, code[pc + 3] as number);
        else into.fixed(a, this.pool, start);
        return 4;
      }
      default:
        into.close(a);
        return 2;
    }
  }

  /** Reads an enum by the table at `table`: its count, then the reader's index of each symbol. */
  private symbol(table: number): number {
    const begun = this.from.at;
    const index = this.code[table + 1 + this.from.index(this.code[table] as number)] as number;
    if (index < 0) throw this.from.incompatible(begun);
    return index;
  }
}
