/** Two documents that are compared: whether parts of them mean the same, and which pairs were decided before. */
import { type JsonNode, memberOf } from '../../../formats/json/text.ts';
import type { Finding, Findings } from '../finding.ts';
import { type JsonDocument, type SchemaNode, sameValue, stringOf } from './node.ts';

/** Schemas inside schemas, along one way. */
export const DEPTH_MAX = 200;

/** Values by a pair of nodes. */
class PairMap<T> {
  private readonly byReader = new Map<JsonNode, Map<JsonNode, T>>();

  get(reader: JsonNode, writer: JsonNode): T | undefined {
    return this.byReader.get(reader)?.get(writer);
  }
  set(reader: JsonNode, writer: JsonNode, value: T): void {
    const held = this.byReader.get(reader);
    if (held === undefined) this.byReader.set(reader, new Map([[writer, value]]));
    else held.set(writer, value);
  }
  delete(reader: JsonNode, writer: JsonNode): void {
    this.byReader.get(reader)?.delete(writer);
  }
}

/** A pair that nothing stands against, as long as nothing stands against the pairs around it. */
interface Assumed {
  readonly reader: SchemaNode;
  readonly writer: SchemaNode;
  /** Index of the outermost pair under way that was taken for granted. */
  granted: number;
  /** Depth in the document where the pair was met. */
  readonly inside: number;
}

/** Decisions about pairs, so that each pair is compared once, however often it is referred to.
 *
 *  Recursive schemas are compared as in "subtyping recursive types" of Amadio and Cardelli: a pair is taken for granted
 *  inside itself. What was found fine that way is kept as an assumption, which becomes a decision when the outermost pair
 *  that was granted is found fine, and is forgotten when a pair around it is refused. A refusal stays true in any case.
 */
export class Decided {
  private readonly known = new PairMap<readonly Finding[]>();
  private readonly assumptions = new PairMap<Assumed>();
  /** In the order in which they were made. */
  private readonly order: Assumed[] = [];

  get(reader: SchemaNode, writer: SchemaNode): readonly Finding[] | undefined {
    return this.known.get(reader, writer);
  }

  /** An assumption that holds at this depth: a reference that leads back to its own place is told by depth. */
  assumed(reader: SchemaNode, writer: SchemaNode, inside: number): Assumed | undefined {
    const found = this.assumptions.get(reader, writer);
    return found !== undefined && found.inside <= inside ? found : undefined;
  }

  /** Number of assumptions: later ones belong to the pair that asks. */
  get mark(): number {
    return this.order.length;
  }

  refuse(reader: SchemaNode, writer: SchemaNode, findings: readonly Finding[], mark: number): void {
    for (const one of this.order.splice(mark)) this.assumptions.delete(one.reader, one.writer);
    this.known.set(reader, writer, findings);
  }

  /** Takes nothing for granted that is not decided with it. */
  accept(reader: SchemaNode, writer: SchemaNode, mark: number): void {
    for (const one of this.order.splice(mark)) {
      this.assumptions.delete(one.reader, one.writer);
      // Refused nearer to the root since then.
      if (this.known.get(one.reader, one.writer) === undefined) this.known.set(one.reader, one.writer, []);
    }
    this.known.set(reader, writer, []);
  }

  assume(assumed: Assumed, mark: number): void {
    for (let i = mark; i < this.order.length; i++) (this.order[i] as Assumed).granted = assumed.granted;
    this.order.push(assumed);
    this.assumptions.set(assumed.reader, assumed.writer, assumed);
  }
}

export class Sameness {
  private readonly reader: JsonDocument;
  private readonly writer: JsonDocument;
  private readonly findings: Findings;
  private readonly known = new PairMap<boolean>();

  constructor(reader: JsonDocument, writer: JsonDocument, findings: Findings) {
    this.reader = reader;
    this.writer = writer;
    this.findings = findings;
  }

  /** The same text, meaning the same: references lead to the same in turn. */
  of(reader: JsonNode, writer: JsonNode): boolean {
    const met: Array<readonly [JsonNode, JsonNode]> = [];
    const isSame = this.isSame(reader, writer, met, 0);
    // Pairs that were met on the way to a difference are not decided by it.
    if (!isSame)
      for (const [one, other] of met) if (this.known.get(one, other)) this.known.delete(one, other);
    return isSame;
  }

  /** @param met objects that are taken for the same until a difference is found */
  private isSame(
    reader: JsonNode,
    writer: JsonNode,
    met: Array<readonly [JsonNode, JsonNode]>,
    depth: number,
  ): boolean {
    if (!this.findings.spend(1, '') || depth > DEPTH_MAX) return false;
    if (reader.kind === 'array' && writer.kind === 'array') {
      const { items } = writer;
      return (
        reader.items.length === items.length &&
        reader.items.every((item, i) => this.isSame(item, items[i] as JsonNode, met, depth + 1))
      );
    }
    if (reader.kind !== 'object' || writer.kind !== 'object') return sameValue(reader, writer);
    const known = this.known.get(reader, writer);
    if (known !== undefined) return known;
    this.known.set(reader, writer, true);
    met.push([reader, writer]);
    const isSame =
      reader.members.size === writer.members.size &&
      [...reader.members].every(([key, { value }]) => {
        const other = memberOf(writer, key);
        if (other === undefined || !this.isSame(value, other, met, depth + 1)) return false;
        const reference = key === '$ref' ? stringOf(value) : undefined;
        return reference === undefined || this.leads(reference, met, depth + 1);
      });
    if (!isSame) this.known.set(reader, writer, false);
    return isSame;
  }

  private leads(reference: string, met: Array<readonly [JsonNode, JsonNode]>, depth: number): boolean {
    const one = this.reader.target(reference);
    const two = this.writer.target(reference);
    if (one !== undefined && two !== undefined) return this.isSame(one, two, met, depth);
    // What stands outside is the same where all that either document refers to is.
    const { outside } = this.reader;
    return !reference.startsWith('#') && outside !== '' && outside === this.writer.outside;
  }
}
