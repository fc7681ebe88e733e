/** Random pairs of Protobuf schemas, each generated from its number: a file, and a copy with named
 *  changes. */
import { Chance, Copy } from './avro-model.ts';
import { PROTO_CHANGE_NAMES, PROTO_CHANGES, type ProtoChange, syntaxesOf } from './proto-changes.ts';
import { ProtoGenerator, printProto } from './proto-model.ts';

export interface ProtoPair {
  readonly seed: number;
  readonly writer: string;
  readonly reader: string;
  readonly changes: readonly ProtoChange[];
  /** Schema that reads: BACKWARD, the changed schema; FORWARD, the original. */
  readonly direction: 'BACKWARD' | 'FORWARD';
  /** Messages around the innermost change. */
  readonly depth: number;
}

/** Generates pair n. Its first change is the n-th of the list, so that all classes are equally
 *  frequent. */
export function protoPair(seed: number): ProtoPair {
  const chance = new Chance(Math.imul(seed, 0x9e3779b1) ^ 0x2545f491);
  const first = PROTO_CHANGE_NAMES[seed % PROTO_CHANGE_NAMES.length] as ProtoChange;
  const generator = new ProtoGenerator(chance, syntaxesOf(first));
  const changes = [first];
  while (changes.length < 3 && chance.maybe(0.2)) changes.push(chance.pick(PROTO_CHANGE_NAMES));
  const planted = changes.map((change) => PROTO_CHANGES[change](generator));
  const { file, depth } = generator;
  const copy = new Copy();
  const changed = copy.of(file);
  for (const apply of planted) apply(copy, changed);
  const [before, after] = [printProto(file), printProto(changed)];
  const backward = chance.maybe(0.5);
  return {
    seed,
    writer: backward ? before : after,
    reader: backward ? after : before,
    changes,
    direction: backward ? 'BACKWARD' : 'FORWARD',
    depth,
  };
}
