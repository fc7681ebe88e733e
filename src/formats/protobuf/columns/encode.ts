/** Compiles a message to a program that encodes its columns: PROTO_PUT words for each column of a
 *  field. The columns are those of a reader of the message (plan.ts). Fields are written as
 *  codec/value-encoder.ts writes them. A binary message has a check: a program that decodes it
 *  inside as many messages as are around it, so that it counts their nesting too. */
import type { EncodeProgram } from '../../../core/columns/kernel.ts';
import { ColumnSchema } from '../../../core/columns/schema.ts';
import { PROTO_FLAG, PROTO_KIND, PROTO_PUT } from '../../../core/layout/layouts.gen.ts';
import { formatError } from '../../errors.ts';
import { FIELD_NUMBER_MAX } from '../syntax/ast.ts';
import type { ProtoField, ProtoMessage } from '../tree.ts';
import { compileProto, kindOf, SCALAR_KINDS } from './compile.ts';
import { type FieldPlan, type MessagePlan, planOf } from './plan.ts';

export interface CompiledProtoEncode {
  readonly plan: MessagePlan;
  readonly program: EncodeProgram;
}

/** Compiles a message. @throws invalid_schema for a message set, and for types that combine in too
 *  many ways */
export function compileProtoEncode(message: ProtoMessage): CompiledProtoEncode {
  const plan = planOf(message, undefined);
  const schema = new ColumnSchema(plan.fields.map(({ column }) => column));
  return { plan, program: { schema, ...new EncodeCompiler(schema.all.length).compile(plan) } };
}

const NONE = -1;

class EncodeCompiler {
  private readonly code: Int32Array;
  private readonly tables: number[][] = [];
  private oneofs = 0;

  constructor(columns: number) {
    this.code = new Int32Array(columns * PROTO_PUT.COUNT);
  }

  compile(plan: MessagePlan): Pick<EncodeProgram, 'code' | 'tables'> {
    this.message(plan, 0);
    const words = this.tables.flatMap((table) => [table.length, ...table]);
    return { code: this.code, tables: Int32Array.from(words) };
  }

  /** @param depth messages and map entries around the message */
  private message({ message, fields }: MessagePlan, depth: number): void {
    if (message.messageSet === true)
      throw formatError('invalid_schema', `${message.name} is a message set, which has no columns`, {
        next: 'encode its records one at a time',
      });
    const names = [...new Set(fields.flatMap(({ field }) => field.oneof ?? []))];
    const first = this.oneofs;
    this.oneofs += names.length;
    for (const plan of fields) {
      const { oneof } = plan.field;
      this.field(plan, oneof === undefined ? NONE : first + names.indexOf(oneof), depth);
    }
  }

  private field(plan: FieldPlan, oneof: number, depth: number): void {
    const { field, index, inner } = plan;
    if (field.number > FIELD_NUMBER_MAX)
      throw formatError(
        'invalid_schema',
        `${field.name} has the number ${field.number}, which is too large`,
        {
          next: `use a number up to ${FIELD_NUMBER_MAX}`,
        },
      );
    // A map entry is a message around its value.
    const inside = depth + (field.mapKey === undefined ? 1 : 2);
    const at = index * PROTO_PUT.COUNT;
    this.code[at + PROTO_PUT.KIND] = kindOf(field);
    this.code[at + PROTO_PUT.FLAGS] = flagsOf(plan);
    this.code[at + PROTO_PUT.NUMBER] = field.number;
    this.code[at + PROTO_PUT.ONEOF] = oneof;
    this.code[at + PROTO_PUT.OPERAND] = this.operand(plan, inside);
    this.code[at + PROTO_PUT.KEY] =
      field.mapKey === undefined ? NONE : (SCALAR_KINDS[field.mapKey] as number);
    if (inner !== undefined) this.message(inner, inside);
  }

  private operand({ field, isRaw }: FieldPlan, depth: number): number {
    if (isRaw) return this.tables.push(checkOf(field.message as ProtoMessage, depth)) - 1;
    const { enumeration } = field;
    return enumeration?.closed === true ? this.tables.push([...enumeration.values.keys()]) - 1 : NONE;
  }
}

function flagsOf({ field, isRaw }: FieldPlan): number {
  const { repeated, presence, required, message, delimited, mapKey, packed } = field;
  const isMap = mapKey !== undefined;
  const hidesZero = !isMap && !repeated && !presence && !required && message === undefined;
  return (
    (repeated ? PROTO_FLAG.REPEATED : 0) |
    (required ? PROTO_FLAG.REQUIRED : 0) |
    (delimited ? PROTO_FLAG.GROUP : 0) |
    (isMap ? PROTO_FLAG.MAP : 0) |
    (isRaw ? PROTO_FLAG.RAW : 0) |
    (repeated && packed && kindOf(field) !== PROTO_KIND.MESSAGE ? PROTO_FLAG.PACKED : 0) |
    (hidesZero ? PROTO_FLAG.HIDES_ZERO : 0)
  );
}

/** Number of messages around a value, and the program without columns that decodes the outermost
 *  of them. */
function checkOf(message: ProtoMessage, depth: number): number[] {
  let wrapped = message;
  for (let i = 0; i < depth; i++) wrapped = wrapper(wrapped);
  return [depth, ...compileProto(wrapped, new Map()).program.code];
}

const wrapper = (message: ProtoMessage): ProtoMessage => {
  const field: ProtoField = {
    name: 'value',
    jsonName: 'value',
    number: 1,
    type: 'message',
    message,
    enumeration: undefined,
    mapKey: undefined,
    repeated: false,
    required: false,
    presence: true,
    oneof: undefined,
    packed: false,
    delimited: false,
    at: message.at,
  };
  return {
    name: `${message.name}.Wrapper`,
    path: [],
    fields: [field],
    reserved: message.reserved,
    unknown: false,
    at: message.at,
  };
};
