/** Which branch of a reader's union takes a written type.
 *
 *  The branch that is the written type itself comes first, so that a union always reads itself: a named type by its full
 *  name, then by a branch's alias, then by the unqualified name alone; any other by its type. Only then the first branch
 *  that the type may be promoted to. What is inside a branch does not choose it.
 *  Source: Apache Avro 1.12 specification, "Schema Resolution"; exact before promoted, as Resolver.java of apache/avro.
 */
import {
  type AvroNode,
  type AvroPrimitive,
  type AvroUnionNode,
  avroTypeName,
} from '../../../formats/avro/syntax/tree.ts';
import { isNamed, unqualified } from './names.ts';

export type Promotion = 'exact' | 'rounds' | 'not always text';

/** PROMOTIONS[writer][reader]: what a reader of another primitive type gets. Absent: an error. */
export const PROMOTIONS: Readonly<
  Partial<Record<AvroPrimitive, Readonly<Partial<Record<AvroPrimitive, Promotion>>>>>
> = {
  int: { long: 'exact', float: 'rounds', double: 'exact' },
  long: { float: 'rounds', double: 'rounds' },
  float: { double: 'exact' },
  string: { bytes: 'exact' },
  bytes: { string: 'not always text' },
};

/** The branches of one union by what chooses them. */
export class BranchIndex {
  /** Aliases looked at to make it. */
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

  /** @param writer no union */
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
