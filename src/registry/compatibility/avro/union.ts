/** Selects the branch of a reader's union for a written type.
 *
 *  An exact match comes first, so that a union always reads itself: a named type by its full name,
 *  then by a branch's alias, then by the unqualified name; any other type by its kind. Without an
 *  exact match, the first branch to which the type can be promoted is selected. The contents of a
 *  branch do not matter.
 *  Source: Apache Avro 1.12 specification, "Schema Resolution"; exact before promoted, as
 *  Resolver.java of apache/avro. */
import {
  type AvroNode,
  type AvroPrimitive,
  type AvroUnionNode,
  avroTypeName,
} from '../../../formats/avro/syntax/tree.ts';
import { isNamed, unqualified } from './names.ts';

export type Promotion = 'exact' | 'rounds' | 'not always text';

/** PROMOTIONS[writer][reader]: effect of reading a primitive type as another one. Absent: an error.
 */
export const PROMOTIONS: Readonly<
  Partial<Record<AvroPrimitive, Readonly<Partial<Record<AvroPrimitive, Promotion>>>>>
> = {
  int: { long: 'exact', float: 'rounds', double: 'exact' },
  long: { float: 'rounds', double: 'rounds' },
  float: { double: 'exact' },
  string: { bytes: 'exact' },
  bytes: { string: 'not always text' },
};

/** Index of the branches of one union by their names and kinds. */
export class BranchIndex {
  /** Number of aliases indexed, for the step budget. */
  readonly steps: number;
  private readonly full = new Map<string, AvroNode>();
  private readonly alias = new Map<string, AvroNode>();
  private readonly short = new Map<string, AvroNode>();
  private readonly plain = new Map<string, { readonly node: AvroNode; readonly index: number }>();

  constructor({ branches }: AvroUnionNode) {
    let steps = 0;
    const first = (map: Map<string, AvroNode>, key: string, node: AvroNode): void => {
      if (!map.has(key)) map.set(key, node);
    };
    for (const [index, node] of branches.entries()) {
      if (!isNamed(node)) {
        this.plain.set(avroTypeName(node), { node, index });
        continue;
      }
      first(this.full, `${node.kind} ${node.name}`, node);
      first(this.short, `${node.kind} ${unqualified(node.name)}`, node);
      for (const name of node.aliases) first(this.alias, `${node.kind} ${name}`, node);
      steps += node.aliases.length;
    }
    this.steps = steps;
  }

  /** @param writer any type except a union */
  choose(writer: AvroNode): AvroNode | undefined {
    if (isNamed(writer)) {
      const name = `${writer.kind} ${writer.name}`;
      return (
        this.full.get(name) ??
        this.alias.get(name) ??
        this.short.get(`${writer.kind} ${unqualified(writer.name)}`)
      );
    }
    const same = this.plain.get(avroTypeName(writer));
    if (same !== undefined || writer.kind !== 'primitive') return same?.node;
    let chosen: { readonly node: AvroNode; readonly index: number } | undefined;
    for (const type of Object.keys(PROMOTIONS[writer.type] ?? {})) {
      const branch = this.plain.get(type);
      if (branch !== undefined && (chosen === undefined || branch.index < chosen.index)) chosen = branch;
    }
    return chosen?.node;
  }
}
