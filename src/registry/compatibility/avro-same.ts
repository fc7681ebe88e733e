/** Are two Avro types equal in everything that decides how bytes are read?
 *
 *  Invariant: what was decided for a pair stays decided, so that all questions about two schemas together cost what
 *  their pairs cost once. A pair is equal unless a difference can be reached from it; cycles are equal on their own.
 */
import type { AvroField, AvroNode } from '../schemas/avro-tree.ts';

interface Pair {
  readonly a: AvroNode;
  readonly b: AvroNode;
  same: boolean;
  /** Pairs that are equal only if this one is. */
  readonly outer: Pair[];
}

export class SameTypes {
  private readonly pairs = new Map<AvroNode, Map<AvroNode, Pair>>();

  /** `steps`: pairs looked at for the answer. */
  decide(a: AvroNode, b: AvroNode): { readonly same: boolean; readonly steps: number } {
    const held = this.pairs.get(a)?.get(b);
    if (held !== undefined) return { same: held.same, steps: 1 };
    const first = this.add(a, b);
    const found = [first];
    const wrong: Pair[] = [];
    let steps = 1;
    for (let i = 0; i < found.length; i++) {
      const pair = found[i] as Pair;
      const inner = innerPairs(pair.a, pair.b);
      if (inner === undefined) wrong.push(pair);
      for (const [one, other] of inner ?? []) {
        steps++;
        const known = this.pairs.get(one)?.get(other);
        const next = known ?? this.add(one, other);
        if (known === undefined) found.push(next);
        if (next.same) next.outer.push(pair);
        else wrong.push(pair);
      }
    }
    for (let pair = wrong.pop(); pair !== undefined; pair = wrong.pop()) {
      if (!pair.same) continue;
      pair.same = false;
      wrong.push(...pair.outer.splice(0));
    }
    for (const { outer } of found) outer.length = 0;
    return { same: first.same, steps };
  }

  private add(a: AvroNode, b: AvroNode): Pair {
    const pair: Pair = { a, b, same: true, outer: [] };
    const others = this.pairs.get(a) ?? new Map<AvroNode, Pair>();
    this.pairs.set(a, others.set(b, pair));
    return pair;
  }
}

/** What has to be equal for the two to be; undefined where they differ themselves. */
function innerPairs(a: AvroNode, b: AvroNode): ReadonlyArray<readonly [AvroNode, AvroNode]> | undefined {
  if (JSON.stringify(a.logical) !== JSON.stringify(b.logical)) return undefined;
  if (a.kind === 'primitive' && b.kind === 'primitive') return a.type === b.type ? [] : undefined;
  if (a.kind === 'array' && b.kind === 'array') return [[a.items, b.items]];
  if (a.kind === 'map' && b.kind === 'map') return [[a.values, b.values]];
  if (a.kind === 'fixed' && b.kind === 'fixed')
    return a.name === b.name && a.size === b.size ? [] : undefined;
  if (a.kind === 'enum' && b.kind === 'enum')
    return a.name === b.name && a.symbols.join() === b.symbols.join() ? [] : undefined;
  if (a.kind === 'union' && b.kind === 'union') {
    if (a.branches.length !== b.branches.length) return undefined;
    return a.branches.map((branch, i) => [branch, b.branches[i] as AvroNode]);
  }
  if (a.kind === 'record' && b.kind === 'record') {
    if (a.name !== b.name || a.fields.length !== b.fields.length) return undefined;
    if (a.fields.some(({ name }, i) => name !== b.fields[i]?.name)) return undefined;
    return a.fields.map(({ type }, i) => [type, (b.fields[i] as AvroField).type]);
  }
  return undefined;
}
