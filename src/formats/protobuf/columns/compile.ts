/** Compiles a message and its requested fields to a program that fills columns.
 *
 *  The program is a graph of nodes: one for each message at each struct column, and one for each
 *  message that is only checked. Words: PROTO_WORD in docs/reference/layouts.md. It decides as
 *  codec/decoder.ts does: values that no column receives are checked as if they were read. */
import type { ColumnProgram } from '../../../core/columns/kernel.ts';
import { ColumnSchema } from '../../../core/columns/schema.ts';
import { COLUMN_LIMIT, PROTO_FLAG, PROTO_KIND } from '../../../core/layout/layouts.gen.ts';
import { formatError } from '../../errors.ts';
import { WIRE } from '../codec/input.ts';
import { scalarOf } from '../codec/scalar.ts';
import { FIELD_NUMBER_MAX } from '../syntax/ast.ts';
import type { ProtoEnum, ProtoField, ProtoMessage } from '../tree.ts';
import { type FieldPlan, type MessagePlan, planOf, type Requested } from './plan.ts';

export interface CompiledProto {
  readonly plan: MessagePlan;
  readonly program: ColumnProgram;
}

/** Compiles a message. @throws invalid_schema for a message set, and for types that combine in too
 *  many ways */
export function compileProto(message: ProtoMessage, requested: Requested): CompiledProto {
  const plan = planOf(message, requested);
  const schema = new ColumnSchema(plan.fields.map(({ column }) => column));
  const code = new Compiler().compile(plan);
  return { plan, program: { schema, code, pool: new Uint8Array(0) } };
}

const NONE = -1;

export const SCALAR_KINDS: Readonly<Record<string, number>> = {
  int32: PROTO_KIND.INT32,
  uint32: PROTO_KIND.UINT32,
  sint32: PROTO_KIND.SINT32,
  bool: PROTO_KIND.BOOL,
  int64: PROTO_KIND.INT64,
  uint64: PROTO_KIND.INT64,
  sint64: PROTO_KIND.SINT64,
  fixed32: PROTO_KIND.FIXED32,
  sfixed32: PROTO_KIND.FIXED32,
  float: PROTO_KIND.FIXED32,
  fixed64: PROTO_KIND.FIXED64,
  sfixed64: PROTO_KIND.FIXED64,
  double: PROTO_KIND.FIXED64,
  string: PROTO_KIND.STRING,
  bytes: PROTO_KIND.BYTES,
};

export function kindOf({ message, enumeration, type }: ProtoField): number {
  if (message !== undefined) return PROTO_KIND.MESSAGE;
  if (enumeration === undefined) return SCALAR_KINDS[type] as number;
  return enumeration.closed ? PROTO_KIND.CLOSED_ENUM : PROTO_KIND.ENUM;
}

function flagsOf(field: ProtoField, isRaw: boolean): number {
  return (
    (field.repeated ? PROTO_FLAG.REPEATED : 0) |
    (field.presence ? PROTO_FLAG.PRESENCE : 0) |
    (field.required ? PROTO_FLAG.REQUIRED : 0) |
    (field.delimited ? PROTO_FLAG.GROUP : 0) |
    (field.mapKey === undefined ? 0 : PROTO_FLAG.MAP) |
    (isRaw ? PROTO_FLAG.RAW : 0)
  );
}

interface Node {
  readonly message: ProtoMessage;
  readonly plan: MessagePlan | undefined;
  readonly column: number;
}

class Compiler {
  /** Queue: nodes refer to each other, because types are recursive. */
  private readonly nodes: Node[] = [];
  private readonly checked = new Map<ProtoMessage, number>();
  private readonly enums: number[][] = [];
  private readonly enumIndexes = new Map<ProtoEnum, number>();
  private readonly oneofs: number[][] = [];
  private words = 0;

  compile(plan: MessagePlan): Int32Array {
    this.add({ message: plan.message, plan, column: NONE });
    const code: number[][] = [];
    for (let i = 0; i < this.nodes.length; i++) {
      const words = this.node(this.nodes[i] as Node);
      this.words += words.length;
      if (this.words > COLUMN_LIMIT.PROGRAM_WORDS)
        throw formatError('invalid_schema', 'the message types combine in too many ways for columns', {
          next: 'request fewer fields',
        });
      code.push(words);
    }
    const tables = [...this.enums, ...this.oneofs];
    const head = [this.nodes.length, this.enums.length, this.oneofs.length];
    return Int32Array.from([head, ...code, ...tables].flat());
  }

  private add(node: Node): number {
    if (node.message.messageSet === true)
      throw formatError('invalid_schema', `${node.message.name} is a message set, which has no columns`, {
        next: 'decode its records one at a time',
      });
    return this.nodes.push(node) - 1;
  }

  /** Node of a message that no column receives. */
  private check(message: ProtoMessage): number {
    const known = this.checked.get(message);
    if (known !== undefined) return known;
    const made = this.add({ message, plan: undefined, column: NONE });
    this.checked.set(message, made);
    return made;
  }

  private node({ message, plan, column }: Node): number[] {
    const known = message.fields.filter((field) => field.message?.unknown !== true);
    const plans = new Map(plan?.fields.map((one) => [one.field, one]));
    const oneofs = this.oneofsOf(known);
    const fields = known.flatMap((field) => this.field(field, plans.get(field), oneofs));
    const tags = known
      .flatMap((field, index) => tagsOf(field, index))
      .sort(([a], [b]) => ((a as number) >>> 0) - ((b as number) >>> 0));
    return [column, known.length, message.fields.length, tags.length, ...fields, ...tags.flat()];
  }

  /** Index of each oneof by its name. */
  private oneofsOf(fields: readonly ProtoField[]): ReadonlyMap<string, number> {
    const members = new Map<string, number[]>();
    fields.forEach(({ oneof }, index) => {
      if (oneof !== undefined) members.set(oneof, [...(members.get(oneof) ?? []), index]);
    });
    return new Map([...members].map(([name, list]) => [name, this.oneofs.push([list.length, ...list]) - 1]));
  }

  private field(
    field: ProtoField,
    plan: FieldPlan | undefined,
    oneofs: ReadonlyMap<string, number>,
  ): number[] {
    const kind = kindOf(field);
    const column = plan?.index ?? NONE;
    const oneof = field.oneof === undefined ? NONE : (oneofs.get(field.oneof) as number);
    const key = field.mapKey === undefined ? NONE : (SCALAR_KINDS[field.mapKey] as number);
    const zero = kind === PROTO_KIND.ENUM ? ([...(field.enumeration?.values.keys() ?? [])][0] ?? 0) : 0;
    return [kind, flagsOf(field, plan?.isRaw === true), column, this.child(field, plan), oneof, key, zero];
  }

  private child({ message, enumeration, mapKey, repeated }: ProtoField, plan: FieldPlan | undefined): number {
    if (message !== undefined) {
      if (plan?.inner === undefined) return this.check(message);
      const above = mapKey !== undefined ? 3 : repeated ? 1 : 0;
      return this.add({ message, plan: plan.inner, column: plan.index + above });
    }
    return enumeration?.closed === true ? this.enumTable(enumeration) : NONE;
  }

  private enumTable(enumeration: ProtoEnum): number {
    const known = this.enumIndexes.get(enumeration);
    if (known !== undefined) return known;
    const numbers = [...enumeration.values.keys()].map((number, index) => [number, index] as const);
    numbers.sort(([a], [b]) => a - b);
    const made = this.enums.push([numbers.length, ...numbers.flat()]) - 1;
    this.enumIndexes.set(enumeration, made);
    return made;
  }
}

/** Tags that a field is read from, each with the field and 1 for a packed run. */
function tagsOf(field: ProtoField, index: number): number[][] {
  const { number, message, mapKey, enumeration, type, repeated, delimited } = field;
  if (number > FIELD_NUMBER_MAX) return [];
  const tagOf = (wire: number): number => (number << 3) | wire;
  if (mapKey !== undefined) return [[tagOf(WIRE.LENGTH), index, 0]];
  if (message !== undefined) return [[tagOf(delimited ? WIRE.GROUP : WIRE.LENGTH), index, 0]];
  const { wire } = scalarOf(enumeration === undefined ? type : 'int32');
  const single = [tagOf(wire), index, 0];
  return repeated && wire !== WIRE.LENGTH ? [single, [tagOf(WIRE.LENGTH), index, 1]] : [single];
}
