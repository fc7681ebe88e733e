/** State of a comparison of two documents: decided pairs, and equality of parts. */
import { type JsonNode, memberOf } from '../../../formats/json/text.ts';
import type { Finding, Findings } from '../finding.ts';
import { type JsonDocument, type SchemaNode, sameValue, stringOf } from './node.ts';

/** Most schemas nested inside each other along one path. */
export const DEPTH_MAX = 200;

/** Map with a pair of nodes as key. */
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

/** Pair that is compatible under the assumption that pairs around it are compatible. */
interface Assumed {
  readonly reader: SchemaNode;
  readonly writer: SchemaNode;
  /** Index of the outermost enclosing pair that was assumed compatible. */
  assumedIndex: number;
  /** Depth in the document where the pair occurred. */
  readonly inside: number;
}

/** Cache of decisions, so that each pair is compared once, however often it is referred to.
 *
 *  Recursive schemas are compared as in "Subtyping Recursive Types" (Amadio and Cardelli): a pair
 *  is assumed compatible inside itself. A pair that is compatible only under such an assumption is
 *  kept as assumed. It becomes decided when the outermost assumed pair is found compatible, and is
 *  forgotten when a pair around it is refused. A refusal holds in any case. */
export class Decided {
  private readonly known = new PairMap<readonly Finding[]>();
  private readonly assumptions = new PairMap<Assumed>();
  /** Assumptions in the order in which they were made. */
  private readonly order: Assumed[] = [];

  get(reader: SchemaNode, writer: SchemaNode): readonly Finding[] | undefined {
    return this.known.get(reader, writer);
  }

  /** Returns an assumption that holds at this depth. The depth matters, because a reference that
   *  leads back to its own place must still be found. */
  assumed(reader: SchemaNode, writer: SchemaNode, inside: number): Assumed | undefined {
    const found = this.assumptions.get(reader, writer);
    return found !== undefined && found.inside <= inside ? found : undefined;
  }

  /** Number of assumptions. Assumptions made after a mark belong to the pair that took the mark. */
  get mark(): number {
    return this.order.length;
  }

  refuse(reader: SchemaNode, writer: SchemaNode, findings: readonly Finding[], mark: number): void {
    for (const one of this.order.splice(mark)) this.assumptions.delete(one.reader, one.writer);
    this.known.set(reader, writer, findings);
  }

  /** Accepts a pair that depends on no assumption outside itself, and all assumptions made within
   *  it. */
  accept(reader: SchemaNode, writer: SchemaNode, mark: number): void {
    for (const one of this.order.splice(mark)) {
      this.assumptions.delete(one.reader, one.writer);
      // A refusal of the pair since then has priority.
      if (this.known.get(one.reader, one.writer) === undefined) this.known.set(one.reader, one.writer, []);
    }
    this.known.set(reader, writer, []);
  }

  assume(assumed: Assumed, mark: number): void {
    for (let i = mark; i < this.order.length; i++)
      (this.order[i] as Assumed).assumedIndex = assumed.assumedIndex;
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

  /** True if two parts have the same text and meaning: their references lead to equal parts too. */
  of(reader: JsonNode, writer: JsonNode): boolean {
    const assumedEqual: Array<readonly [JsonNode, JsonNode]> = [];
    const isSame = this.isSame(reader, writer, assumedEqual, 0);
    // A difference proves nothing about the pairs that were equal so far, so they are undecided
    // again.
    if (!isSame)
      for (const [one, other] of assumedEqual) if (this.known.get(one, other)) this.known.delete(one, other);
    return isSame;
  }

  /** @param assumedEqual pairs of objects that are treated as equal until a difference is found */
  private isSame(
    reader: JsonNode,
    writer: JsonNode,
    assumedEqual: Array<readonly [JsonNode, JsonNode]>,
    depth: number,
  ): boolean {
    if (!this.findings.spend(1, '') || depth > DEPTH_MAX) return false;
    if (reader.kind === 'array' && writer.kind === 'array') {
      const { items } = writer;
      return (
        reader.items.length === items.length &&
        reader.items.every((item, i) => this.isSame(item, items[i] as JsonNode, assumedEqual, depth + 1))
      );
    }
    if (reader.kind !== 'object' || writer.kind !== 'object') return sameValue(reader, writer);
    const known = this.known.get(reader, writer);
    if (known !== undefined) return known;
    this.known.set(reader, writer, true);
    assumedEqual.push([reader, writer]);
    const isSame =
      reader.members.size === writer.members.size &&
      [...reader.members].every(([key, { value }]) => {
        const other = memberOf(writer, key);
        if (other === undefined || !this.isSame(value, other, assumedEqual, depth + 1)) return false;
        const reference = key === '$ref' ? stringOf(value) : undefined;
        return reference === undefined || this.leads(reference, assumedEqual, depth + 1);
      });
    if (!isSame) this.known.set(reader, writer, false);
    return isSame;
  }

  private leads(
    reference: string,
    assumedEqual: Array<readonly [JsonNode, JsonNode]>,
    depth: number,
  ): boolean {
    const one = this.reader.target(reference);
    const two = this.writer.target(reference);
    if (one !== undefined && two !== undefined) return this.isSame(one, two, assumedEqual, depth);
    // A reference outside the document is equal only if both documents refer to the same set of
    // texts.
    const { outside } = this.reader;
    return !reference.startsWith('#') && outside !== '' && outside === this.writer.outside;
  }
}
