/** Instructions that append the default of a field which the writer's schema lacks. */
import { AVRO_OP } from '../../../core/layout/layouts.gen.ts';
import type { AvroBranchDatum, AvroDatum, AvroRecordDatum } from '../../datum.ts';
import { encodeAvro } from '../codec/encoder.ts';
import type { AvroNode, AvroPrimitive, AvroUnionNode } from '../syntax/tree.ts';
import type { Code } from './code.ts';
import { indexesOf, type Plan } from './plan.ts';

/** Appends a value to a lazy column as the bytes that `type` has for it. */
type EmitLazy = (plan: Plan, type: AvroNode, bytes: Buffer) => void;

/** Emits instructions that append `datum` to the column of `plan`. @param type of the datum: the
 *  plan's own type, or the union around it */
export function emitConstant(
  code: Code,
  emitLazy: EmitLazy,
  plan: Plan,
  type: AvroNode,
  datum: AvroDatum,
): void {
  const { index } = plan;
  if (plan.isLazy && type === plan.type) {
    emitLazy(plan, type, encodeAvro(type, datum));
    return;
  }
  const inside = (part: Plan, inner: AvroNode, value: AvroDatum): void =>
    emitConstant(code, emitLazy, part, inner, value);
  switch (type.kind) {
    case 'union':
      emitBranch(code, inside, plan, type, datum as AvroBranchDatum);
      return;
    case 'primitive':
      emitPrimitive(code, index, type.type, datum);
      return;
    case 'enum':
      code.emit(AVRO_OP.CONST_INT, index, indexesOf(type).get(datum as string) as number);
      return;
    case 'fixed':
      emitBytes(code, index, fixedBytes(plan, datum as Uint8Array));
      return;
    case 'array':
      for (const item of datum as readonly AvroDatum[]) inside(plan.parts[0] as Plan, type.items, item);
      code.emit(AVRO_OP.CLOSE, index);
      return;
    case 'map':
      for (const [key, value] of datum as ReadonlyMap<string, AvroDatum>) {
        emitBytes(code, index + 2, Buffer.from(key));
        inside(plan.parts[0] as Plan, type.values, value);
        code.emit(AVRO_OP.CLOSE, index + 1);
      }
      code.emit(AVRO_OP.CLOSE, index);
      return;
    case 'record':
      (datum as AvroRecordDatum).fields.forEach((value, i) => {
        inside(plan.parts[i] as Plan, (type.fields[i] as (typeof type.fields)[number]).type, value);
      });
      code.emit(AVRO_OP.CLOSE, index);
  }
}

function emitBranch(
  code: Code,
  inside: (part: Plan, type: AvroNode, value: AvroDatum) => void,
  plan: Plan,
  union: AvroUnionNode,
  { branch, value }: AvroBranchDatum,
): void {
  const type = union.branches[branch] as AvroNode;
  if (plan.column.kind === 'union') {
    code.emit(AVRO_OP.PICK, plan.index, branch);
    inside(plan.parts[branch] as Plan, type, value);
  } else if (value === null) code.emit(AVRO_OP.NULL, plan.index);
  else inside(plan, type, value);
}

function emitBytes(code: Code, column: number, bytes: Buffer): void {
  code.emit(AVRO_OP.CONST_BYTES, column, code.constant(bytes), bytes.length);
}

function emitPrimitive(code: Code, column: number, type: AvroPrimitive, datum: AvroDatum): void {
  const cell = Buffer.alloc(8);
  switch (type) {
    case 'null':
      code.emit(AVRO_OP.NULL, column);
      return;
    case 'boolean':
      code.emit(AVRO_OP.CONST_BOOL, column, datum === true ? 1 : 0);
      return;
    case 'int':
      code.emit(AVRO_OP.CONST_INT, column, datum as number);
      return;
    case 'long':
      cell.writeBigInt64LE(datum as bigint);
      emitBytes(code, column, cell);
      return;
    case 'float':
      cell.writeFloatLE(datum as number);
      emitBytes(code, column, cell.subarray(0, 4));
      return;
    case 'double':
      cell.writeDoubleLE(datum as number);
      emitBytes(code, column, cell);
      return;
    case 'bytes':
      emitBytes(code, column, Buffer.from(datum as Uint8Array));
      return;
    case 'string':
      emitBytes(code, column, Buffer.from(datum as string));
  }
}

/** Bytes of a fixed in its column: a decimal is little-endian and has the column's size. */
function fixedBytes({ column }: Plan, written: Uint8Array): Buffer {
  if (column.kind === 'fixed') return Buffer.from(written);
  const bytes = Buffer.alloc(column.kind === 'decimal128' ? 16 : 32, (written[0] ?? 0) >= 0x80 ? 0xff : 0);
  bytes.set(Buffer.from(written).reverse());
  return bytes;
}
