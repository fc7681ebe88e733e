/** Check of a program for Avro payloads: every operand is within its bounds, so that no payload
 *  makes the interpreter access memory outside its arguments, or run without end. The addon checks
 *  the same rules in native/kernel/codec/avro_program.cc. */
import type { ColumnKind } from '../../../core/columns/column.ts';
import type { ColumnProgram } from '../../../core/columns/kernel.ts';
import { coreError } from '../../../core/errors.ts';
import { AVRO_OP, COLUMN_LIMIT } from '../../../core/layout/layouts.gen.ts';

/** Kinds of columns that an instruction appends to, with the column as its first operand. */
const KINDS: ReadonlyMap<number, readonly ColumnKind[]> = new Map<number, readonly ColumnKind[]>([
  [AVRO_OP.LAZY, ['binary']],
  [AVRO_OP.PICK, ['union']],
  [AVRO_OP.BOOL, ['bool']],
  [AVRO_OP.INT, ['int32']],
  [AVRO_OP.LONG, ['int64']],
  [AVRO_OP.INT_TO_LONG, ['int64']],
  [AVRO_OP.INT_TO_FLOAT, ['float32']],
  [AVRO_OP.LONG_TO_FLOAT, ['float32']],
  [AVRO_OP.FLOAT, ['float32']],
  [AVRO_OP.INT_TO_DOUBLE, ['float64']],
  [AVRO_OP.LONG_TO_DOUBLE, ['float64']],
  [AVRO_OP.FLOAT_TO_DOUBLE, ['float64']],
  [AVRO_OP.DOUBLE, ['float64']],
  [AVRO_OP.BYTES, ['utf8', 'binary']],
  [AVRO_OP.TEXT, ['utf8', 'binary']],
  [AVRO_OP.FIXED, ['fixed']],
  [AVRO_OP.DECIMAL, ['decimal128', 'decimal256']],
  [AVRO_OP.ENUM, ['dictionary']],
  [AVRO_OP.CONST_BOOL, ['bool']],
  [AVRO_OP.CONST_INT, ['int32', 'dictionary']],
  [
    AVRO_OP.CONST_BYTES,
    ['utf8', 'binary', 'int64', 'float32', 'float64', 'fixed', 'decimal128', 'decimal256'],
  ],
  [AVRO_OP.CLOSE, ['list', 'map', 'struct']],
]);

/** Words of each instruction, apart from the tables behind UNION, CHECK_ENUM and ENUM. */
const WORDS: ReadonlyMap<number, number> = new Map([
  [AVRO_OP.END, 1],
  [AVRO_OP.SKIP_INT, 1],
  [AVRO_OP.SKIP_LONG, 1],
  [AVRO_OP.SKIP_BOOL, 1],
  [AVRO_OP.SKIP_FIXED, 2],
  [AVRO_OP.SKIP_BYTES, 1],
  [AVRO_OP.SKIP_TEXT, 1],
  [AVRO_OP.SKIP_INDEX, 2],
  [AVRO_OP.CHECK_ENUM, 2],
  [AVRO_OP.REFUSE, 1],
  [AVRO_OP.CALL, 2],
  [AVRO_OP.JUMP, 2],
  [AVRO_OP.UNION, 2],
  [AVRO_OP.OPTIONAL, 4],
  [AVRO_OP.RECORD, 3],
  [AVRO_OP.ARRAY, 3],
  [AVRO_OP.MAP, 2],
  [AVRO_OP.LAZY, 4],
  [AVRO_OP.PICK, 3],
  [AVRO_OP.BOOL, 2],
  [AVRO_OP.INT, 2],
  [AVRO_OP.LONG, 2],
  [AVRO_OP.INT_TO_LONG, 2],
  [AVRO_OP.INT_TO_FLOAT, 2],
  [AVRO_OP.LONG_TO_FLOAT, 2],
  [AVRO_OP.FLOAT, 2],
  [AVRO_OP.INT_TO_DOUBLE, 2],
  [AVRO_OP.LONG_TO_DOUBLE, 2],
  [AVRO_OP.FLOAT_TO_DOUBLE, 2],
  [AVRO_OP.DOUBLE, 2],
  [AVRO_OP.BYTES, 2],
  [AVRO_OP.TEXT, 2],
  [AVRO_OP.FIXED, 2],
  [AVRO_OP.DECIMAL, 3],
  [AVRO_OP.ENUM, 3],
  [AVRO_OP.NULL, 2],
  [AVRO_OP.CONST_BOOL, 3],
  [AVRO_OP.CONST_INT, 3],
  [AVRO_OP.CONST_BYTES, 4],
  [AVRO_OP.CLOSE, 2],
]);

/** Blocks that a call may name. */
const CALLED: readonly number[] = [AVRO_OP.RECORD, AVRO_OP.ARRAY, AVRO_OP.MAP, AVRO_OP.REFUSE];

/** @throws out_of_range for code that is no program */
export function demandAvroProgram(program: ColumnProgram): void {
  const bad = new AvroProgramCheck(program).firstBadWord();
  if (bad >= 0) throw coreError('out_of_range', `program: a bad instruction at word ${bad}`);
}

class AvroProgramCheck {
  private readonly program: ColumnProgram;
  private readonly code: Int32Array;
  /** 1 where an instruction starts. */
  private readonly starts: Uint8Array;

  constructor(program: ColumnProgram) {
    this.program = program;
    this.code = program.code;
    this.starts = new Uint8Array(program.code.length);
  }

  /** Position of the first instruction that breaks a rule; -1 for a program. */
  firstBadWord(): number {
    const { code, starts } = this;
    let last = -1;
    if (code.length > COLUMN_LIMIT.PROGRAM_WORDS) return COLUMN_LIMIT.PROGRAM_WORDS;
    for (let pc = 0; pc < code.length; ) {
      const words = this.wordsAt(pc);
      if (words === 0 || pc + words > code.length) return pc;
      starts[pc] = 1;
      last = pc;
      pc += words;
    }
    // Control cannot leave the code: every path ends at an END.
    if (last < 0 || code[last] !== AVRO_OP.END) return Math.max(last, 0);
    for (let pc = 0; pc < code.length; pc += this.wordsAt(pc)) if (!this.isGood(pc)) return pc;
    return -1;
  }

  /** Words of the instruction at `pc`, with its table; 0 for none. */
  private wordsAt(pc: number): number {
    const op = this.code[pc] as number;
    const words = WORDS.get(op) ?? 0;
    const isTable = op === AVRO_OP.UNION || op === AVRO_OP.CHECK_ENUM || op === AVRO_OP.ENUM;
    if (!isTable) return words;
    const count = this.code[pc + words - 1] ?? -1;
    return count < 0 || count > COLUMN_LIMIT.PROGRAM_WORDS ? 0 : words + count;
  }

  private isGood(pc: number): boolean {
    const { code } = this;
    const op = code[pc] as number;
    const a = code[pc + 1] as number;
    const b = code[pc + 2] as number;
    switch (op) {
      case AVRO_OP.SKIP_FIXED:
      case AVRO_OP.SKIP_INDEX:
        return a >= 0;
      case AVRO_OP.CALL:
        return this.isStart(a) && CALLED.includes(code[a] as number);
      case AVRO_OP.JUMP:
        return this.isAhead(pc, a);
      case AVRO_OP.UNION:
        return code.subarray(pc + 2, pc + 2 + a).every((to) => this.isAhead(pc, to));
      case AVRO_OP.OPTIONAL:
        return (a === 0 || a === 1) && this.isColumn(b) && this.isAhead(pc, code[pc + 3] as number);
      case AVRO_OP.RECORD:
        return a >= 0 && this.isOptional(b, 'struct');
      case AVRO_OP.ARRAY:
        return (a === 0 || a === 1) && this.isOptional(b, 'list');
      case AVRO_OP.MAP:
        return a === -1 || (this.isColumn(a, ['map']) && this.isColumn(a + 2, ['utf8']));
      case AVRO_OP.NULL:
        return this.isColumn(a);
      default:
        return !KINDS.has(op) || (this.isColumn(a, KINDS.get(op)) && this.isValueGood(op, a, pc));
    }
  }

  private isValueGood(op: number, column: number, pc: number): boolean {
    const { code, program } = this;
    const { kind, children } = program.schema.all[column] as (typeof program.schema.all)[number];
    const b = code[pc + 2] as number;
    switch (op) {
      case AVRO_OP.LAZY:
        return b >= -1 && b <= 255 && this.isLazyGood(pc, code[pc + 3] as number);
      case AVRO_OP.PICK:
        return b >= 0 && b < children.length;
      case AVRO_OP.DECIMAL:
        return b >= 0 && b <= (kind === 'decimal128' ? 16 : 32);
      case AVRO_OP.ENUM:
        return true;
      case AVRO_OP.CONST_BYTES: {
        const length = code[pc + 3] as number;
        if (b < 0 || length < 0 || b + length > program.pool.length) return false;
        return kind === 'utf8' || kind === 'binary' || length === this.sizeOf(column);
      }
      default:
        return true;
    }
  }

  /** The block of a lazy value ends before `to`, its jumps stay inside, and it has no other. */
  private isLazyGood(pc: number, to: number): boolean {
    const { code } = this;
    if (!this.isAhead(pc + 3, to) || !this.isStart(to - 1) || code[to - 1] !== AVRO_OP.END) return false;
    for (let at = pc + 4; at < to; at += this.wordsAt(at)) {
      const op = code[at];
      if (op === AVRO_OP.LAZY) return false;
      const targets =
        op === AVRO_OP.UNION
          ? code.subarray(at + 2, at + 2 + (code[at + 1] as number))
          : op === AVRO_OP.JUMP
            ? code.subarray(at + 1, at + 2)
            : op === AVRO_OP.OPTIONAL
              ? code.subarray(at + 3, at + 4)
              : code.subarray(0, 0);
      if (!targets.every((target) => target < to)) return false;
    }
    return true;
  }

  private sizeOf(column: number): number {
    return this.program.schema.sizeOf(column);
  }

  private isStart(at: number): boolean {
    return at >= 0 && at < this.code.length && this.starts[at] === 1;
  }

  private isAhead(pc: number, to: number): boolean {
    return to > pc && this.isStart(to);
  }

  private isColumn(column: number, kinds?: readonly ColumnKind[]): boolean {
    const found = this.program.schema.all[column];
    return found !== undefined && (kinds === undefined || kinds.includes(found.kind));
  }

  private isOptional(column: number, kind: ColumnKind): boolean {
    return column === -1 || this.isColumn(column, [kind]);
  }
}
