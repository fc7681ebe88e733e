/** Matching of Avro type names between reader and writer schema.
 *  Source: Apache Avro 1.12 specification, "Schema Resolution" (unqualified names) and "Aliases"
 *  (full names). */
import { type AvroNamedNode, type AvroNode, avroTypeName } from '../../../formats/avro/syntax/tree.ts';

/** Name without its namespace. */
export const unqualified = (name: string): string => name.slice(name.lastIndexOf('.') + 1);

export const isNamed = (node: AvroNode): node is AvroNamedNode =>
  node.kind === 'record' || node.kind === 'enum' || node.kind === 'fixed';

/** Describes a type: `record shop.Item`, `int`, `array`. */
export const typeWords = (node: AvroNode): string =>
  isNamed(node) ? `${node.kind} ${node.name}` : avroTypeName(node);

export type NameMatch = 'same' | 'alias' | 'namespace' | 'none';

export class Names {
  private readonly aliases = new Map<AvroNamedNode, ReadonlySet<string>>();

  /** Compares the names of two types of one kind; `namespace`: they differ only in the namespace.
   */
  match(reader: AvroNamedNode, writer: AvroNamedNode): NameMatch {
    if (reader.name === writer.name) return 'same';
    if (reader.aliases.length > 0 && this.aliasesOf(reader).has(writer.name)) return 'alias';
    return unqualified(reader.name) === unqualified(writer.name) ? 'namespace' : 'none';
  }

  /** Caches alias sets, because a type may have thousands of aliases and be used in thousands of
   *  places. */
  private aliasesOf(node: AvroNamedNode): ReadonlySet<string> {
    const aliases = this.aliases.get(node) ?? new Set(node.aliases);
    this.aliases.set(node, aliases);
    return aliases;
  }
}
