/** Two documents that are compared: whether parts of them mean the same, and which pairs were decided before. */
import { type JsonNode, memberOf } from '../schemas/json-text.ts';
import type { Finding, Findings } from './finding.ts';
import { type JsonDocument, type SchemaNode, sameValue, stringOf } from './json-node.ts';

/** Schemas inside schemas, along one way. */
export const DEPTH_MAX = 200;

/** What was decided about pairs, so that a part that is referred to often is compared once. */
export class Decided {
  private readonly known = new Map<SchemaNode, Map<SchemaNode, readonly Finding[]>>();

  get(reader: SchemaNode, writer: SchemaNode): readonly Finding[] | undefined {
    return this.known.get(reader)?.get(writer);
  }
  set(reader: SchemaNode, writer: SchemaNode, findings: readonly Finding[]): void {
    const others = this.known.get(reader) ?? new Map<SchemaNode, readonly Finding[]>();
    this.known.set(reader, others.set(writer, findings));
  }
}

export class Sameness {
  private readonly reader: JsonDocument;
  private readonly writer: JsonDocument;
  private readonly findings: Findings;

  constructor(reader: JsonDocument, writer: JsonDocument, findings: Findings) {
    this.reader = reader;
    this.writer = writer;
    this.findings = findings;
  }

  /** The same text, meaning the same: references lead to the same in turn. */
  of(reader: JsonNode, writer: JsonNode, met = new Map<JsonNode, JsonNode>(), depth = 0): boolean {
    if (!this.findings.spend(1, '') || depth > DEPTH_MAX) return false;
    if (reader.kind === 'array' && writer.kind === 'array') {
      const { items } = writer;
      return (
        reader.items.length === items.length &&
        reader.items.every((item, i) => this.of(item, items[i] as JsonNode, met, depth + 1))
      );
    }
    if (reader.kind !== 'object' || writer.kind !== 'object') return sameValue(reader, writer);
    if (met.get(reader) === writer) return true;
    met.set(reader, writer);
    if (reader.members.size !== writer.members.size) return false;
    return [...reader.members].every(([key, { value }]) => {
      const other = memberOf(writer, key);
      if (other === undefined || !this.of(value, other, met, depth + 1)) return false;
      const reference = key === '$ref' ? stringOf(value) : undefined;
      return reference === undefined || this.leads(reference, met, depth + 1);
    });
  }

  private leads(reference: string, met: Map<JsonNode, JsonNode>, depth: number): boolean {
    const one = this.reader.target(reference);
    const two = this.writer.target(reference);
    if (one !== undefined && two !== undefined) return this.of(one, two, met, depth);
    // What stands outside is the same where all that either document refers to is.
    const { outside } = this.reader;
    return !reference.startsWith('#') && outside !== '' && outside === this.writer.outside;
  }
}
