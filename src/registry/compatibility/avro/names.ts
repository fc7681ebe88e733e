/** Names of Avro types: which of a writer's types a reader's type is meant for.
 *
 *  Source: Apache Avro 1.12 specification, "Schema Resolution" (unqualified names) and "Aliases" (full names).
 */
import { type AvroNamedNode, type AvroNode, avroTypeName } from '../../../formats/avro/syntax/tree.ts';

/** Without the namespace. */
export const unqualified = (name: string): string => name.slice(name.lastIndexOf('.') + 1);

export const isNamed = (node: AvroNode): node is AvroNamedNode =>
  node.kind === 'record' || node.kind === 'enum' || node.kind === 'fixed';

/** A type in words: `record shop.Item`, `int`, `array`. */
export const typeWords = (node: AvroNode): string =>
  isNamed(node) ? `${node.kind} ${node.name}` : avroTypeName(node);

export type NameMatch = 'same' | 'alias' | 'namespace' | 'none';

export class Names {
  private readonly aliases = new Map<AvroNamedNode, ReadonlySet<string>>();

  /** How the names of two types of one kind match; `namespace`: but for their namespaces. */
  match(reader: AvroNamedNode, writer: AvroNamedNode): NameMatch {
    if (reader.name === writer.name) return 'same';
    if (reader.aliases.length > 0 && this.aliasesOf(reader).has(writer.name)) return 'alias';
    return unqualified(reader.name) === unqualified(writer.name) ? 'namespace' : 'none';
  }

  /** A type may have thousands of aliases and be used in thousands of places. */
  private aliasesOf(node: AvroNamedNode): ReadonlySet<string> {
    const aliases = this.aliases.get(node) ?? new Set(node.aliases);
    this.aliases.set(node, aliases);
    return aliases;
  }
}
