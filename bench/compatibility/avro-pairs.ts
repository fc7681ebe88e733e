/** Random pairs of Avro schemas, each generated from its number: a schema, and a copy with named
 *  changes. */
import { AVRO_CHANGE_NAMES, AVRO_CHANGES, type AvroChange } from './avro-changes.ts';
import { Chance, Copy, printAvro, SchemaGenerator, type Type } from './avro-model.ts';

export interface AvroPair {
  readonly seed: number;
  readonly writer: string;
  readonly reader: string;
  readonly changes: readonly AvroChange[];
  /** Schema that reads: BACKWARD, the changed schema; FORWARD, the original. */
  readonly direction: 'BACKWARD' | 'FORWARD';
  /** Records around the innermost change. */
  readonly depth: number;
}

/** Generates pair n. Its first change is the n-th of the list, so that all classes are equally
 *  frequent. */
export function avroPair(seed: number): AvroPair {
  const chance = new Chance(Math.imul(seed, 0x9e3779b1) ^ 0x5bd1e995);
  const generator = new SchemaGenerator(chance);
  const root = generator.record(0, 1);
  // Half of the schemas have nested records, up to four deep.
  let outer = root;
  const deepest = chance.maybe(0.5) ? 2 + chance.below(3) : 0;
  for (let depth = 1; depth <= deepest; depth++) {
    const inner = generator.record(depth);
    const held: Type[] = [inner, { kind: 'array', items: inner }, { kind: 'map', values: inner }];
    outer.fields.push(generator.field(chance.pick(held), 0));
    outer = inner;
  }
  const changes: AvroChange[] = [AVRO_CHANGE_NAMES[seed % AVRO_CHANGE_NAMES.length] as AvroChange];
  while (changes.length < 3 && chance.maybe(0.2)) {
    const more = chance.pick(AVRO_CHANGE_NAMES);
    // Planting the same change twice would define a name twice.
    if (!changes.includes(more)) changes.push(more);
  }
  const planted = changes.map((change) => AVRO_CHANGES[change](generator));
  const copy = new Copy();
  const changed = copy.of(root);
  for (const { apply } of planted) apply(copy);
  const [before, after] = [printAvro(root), printAvro(changed)];
  const backward = chance.maybe(0.5);
  return {
    seed,
    writer: backward ? before : after,
    reader: backward ? after : before,
    changes,
    direction: backward ? 'BACKWARD' : 'FORWARD',
    depth: Math.max(...planted.map(({ depth }) => depth)),
  };
}
