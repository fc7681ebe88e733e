/** Compiles an Avro schema to a program that encodes its columns: AVRO_PUT words for each.
 *
 *  The columns are those of a reader of the schema (plan.ts). A binary column with encoded values
 *  has a check: a program that decodes such a value below as many records as are around it, so that
 *  it counts their nesting too. */
import type { EncodeProgram } from '../../../core/columns/kernel.ts';
import { ColumnSchema } from '../../../core/columns/schema.ts';
import { AVRO_PUT } from '../../../core/layout/layouts.gen.ts';
import { formatError } from '../../errors.ts';
import type { AvroFixedNode, AvroNode, AvroRecordNode, AvroUnionNode } from '../syntax/tree.ts';
import { compileColumns } from './compile.ts';
import { type Plan, planOf } from './plan.ts';

export interface CompiledEncode {
  readonly plan: Plan;
  readonly program: EncodeProgram;
}

/** Compiles a schema. @throws invalid_schema for a union without branches, incompatible_schema for
 *  a schema that combines its types in too many ways */
export function compileEncode(tree: AvroNode): CompiledEncode {
  const plan = planOf(tree);
  const schema = new ColumnSchema(plan.index < 0 ? plan.column.children : [plan.column]);
  return { plan, program: { schema, ...new EncodeCompiler(schema.all.length).compile(tree, plan) } };
}

const NONE = -1;

class EncodeCompiler {
  private readonly code: Int32Array;
  private readonly tables: Int32Array[] = [];
  /** Checks by type and nesting. */
  private readonly checks = new Map<AvroNode, Map<number, number>>();

  constructor(columns: number) {
    this.code = new Int32Array(columns * AVRO_PUT.COUNT).fill(NONE);
  }

  compile(tree: AvroNode, plan: Plan): Pick<EncodeProgram, 'code' | 'tables'> {
    this.visit(tree, plan, 0);
    const words = this.tables.flatMap((table) => [table.length, ...table]);
    return { code: this.code, tables: Int32Array.from(words) };
  }

  /** @param depth records, arrays and maps around the value */
  private visit(node: AvroNode, plan: Plan, depth: number): void {
    const { column, index, type, isLazy } = plan;
    const at = index * AVRO_PUT.COUNT;
    if (isLazy) this.code[at + AVRO_PUT.OPERAND] = this.check(type, depth);
    if (node.kind === 'union' && (column.kind !== 'union' || isLazy)) {
      if (node === type && isLazy) return;
      this.branches(node, plan);
      if (!isLazy && type !== node) this.parts(type, plan, depth);
      return;
    }
    if (!isLazy) this.parts(node, plan, depth);
  }

  /** States the branches of a union whose value is one column, or nothing but null. */
  private branches({ branches }: AvroUnionNode, { column, index, type }: Plan): void {
    const at = index * AVRO_PUT.COUNT;
    const nullAt = branches.findIndex((branch) => branch.kind === 'primitive' && branch.type === 'null');
    const valueAt = column.kind === 'null' ? nullAt : branches.indexOf(type);
    if (valueAt < 0)
      throw formatError('invalid_schema', 'a union without branches has no values', {
        next: 'give the union a branch',
      });
    this.code[at + AVRO_PUT.VALUE_BRANCH] = valueAt;
    if (column.nullable) this.code[at + AVRO_PUT.NULL_BRANCH] = nullAt;
  }

  private parts(node: AvroNode, plan: Plan, depth: number): void {
    const operand = plan.index * AVRO_PUT.COUNT + AVRO_PUT.OPERAND;
    switch (node.kind) {
      case 'enum':
        this.code[operand] = node.symbols.length;
        return;
      case 'fixed':
        if (isDecimal(plan)) this.code[operand] = (node as AvroFixedNode).size;
        return;
      case 'array':
        this.visit(node.items, plan.parts[0] as Plan, depth + 1);
        return;
      case 'map':
        this.visit(node.values, plan.parts[0] as Plan, depth + 1);
        return;
      case 'record':
        node.fields.forEach((field, i) => {
          this.visit(field.type, plan.parts[i] as Plan, depth + 1);
        });
        return;
      case 'union':
        node.branches.forEach((branch, i) => {
          this.visit(branch, plan.parts[i] as Plan, depth);
        });
    }
  }

  private check(type: AvroNode, depth: number): number {
    const known = this.checks.get(type) ?? new Map<number, number>();
    this.checks.set(type, known);
    let index = known.get(depth);
    if (index === undefined) {
      index = this.tables.push(checkCode(type, depth)) - 1;
      known.set(depth, index);
    }
    return index;
  }
}

const isDecimal = ({ column }: Plan): boolean => column.kind === 'decimal128' || column.kind === 'decimal256';

/** Program without columns that decodes values of a type below `depth` records, at least one. */
function checkCode(type: AvroNode, depth: number): Int32Array {
  let wrapped = wrapper(type, 0);
  for (let i = 1; i < depth; i++) wrapped = wrapper(wrapped, i);
  const reader: AvroRecordNode = { ...wrapped, fields: [] };
  return compileColumns(reader, wrapped, new Map<AvroNode, AvroNode>([[reader, wrapped]])).program.code;
}

const wrapper = (type: AvroNode, index: number): AvroRecordNode => ({
  kind: 'record',
  name: `millrace.Wrapper${index}`,
  aliases: [],
  at: 0,
  fields: [{ name: 'value', aliases: [], type, hasDefault: false, defaultJson: undefined, at: 0 }],
});
