/** Witness events of an Avro schema: each class of values of each leaf occurs once, while the rest
 *  of the event is the smallest possible. So a failure has one cause.
 *
 *  Fields take turns, so that a bounded number of events covers all of them. A recursive record is
 *  entered RECURSION_MAX times. With a route, the events follow it, and only the part at its end
 *  varies. */

import type { AvroNode, AvroRecordNode } from '../../../formats/avro/syntax/tree.ts';
import type { AvroDatum } from '../../../formats/datum.ts';
import { type Step, stepsOf } from '../../compatibility/finding.ts';
import { inTurns, mapped } from '../turns.ts';
import type { WitnessOptions } from '../witness.ts';
import { LeastEvents } from './least.ts';
import { AVRO_EDGES, AVRO_KEYS, fixedEdges } from './values.ts';

/** Times that a record is entered inside itself. */
const RECURSION_MAX = 2;
/** Most types inside types that are varied, and most steps of a route; deeper parts stay the
 *  smallest. */
const VARIED_DEPTH_MAX = 120;
/** Limits of a random event: types inside types, and bytes. Beyond them it uses the smallest
 *  values. */
const RANDOM_DEPTH_MAX = 6;
const RANDOM_BYTES_MAX = 20_000;
const RANDOM_ITEMS_MAX = 3;

/** Path of types that leads to a type. */
interface Way {
  readonly depth: number;
  /** Records of the path. */
  readonly records: Records | undefined;
}
interface Records {
  readonly record: AvroRecordNode;
  readonly outer: Records | undefined;
}
const ROOT: Way = { depth: 0, records: undefined };
const inside = ({ depth, records }: Way): Way => ({ depth: depth + 1, records });

function timesEntered(record: AvroRecordNode, way: Way): number {
  let times = 0;
  for (let one = way.records; one !== undefined; one = one.outer) if (one.record === record) times++;
  return times;
}

/** Skips the first value. */
function behindFirst<T>(source: Generator<T>): Generator<T> {
  source.next();
  return source;
}

class AvroWitnesses {
  private readonly least: LeastEvents;

  constructor(root: AvroNode) {
    this.least = new LeastEvents(root);
  }

  /** Yields each class of values of a type: the smallest value first, then values that differ from
   *  it. */
  *variants(node: AvroNode, way: Way): Generator<AvroDatum> {
    if (!this.least.has(node)) return;
    yield this.least.of(node);
    if (way.depth > VARIED_DEPTH_MAX) return;
    switch (node.kind) {
      case 'primitive':
        yield* AVRO_EDGES[node.type].slice(1);
        return;
      case 'fixed':
        yield* fixedEdges(node.size).slice(1);
        return;
      case 'enum':
        yield* node.symbols.slice(1);
        return;
      case 'array':
        yield* this.arrays(node.items, inside(way));
        return;
      case 'map':
        yield* this.maps(node.values, inside(way));
        return;
      case 'union': {
        const best = this.least.branchOf(node.branches);
        const branches = node.branches.map((type, branch) => {
          const values = this.variants(type, inside(way));
          return mapped(branch === best ? behindFirst(values) : values, (value) => ({ branch, value }));
        });
        yield* inTurns(branches);
        return;
      }
      case 'record':
        if (timesEntered(node, way) <= RECURSION_MAX)
          yield* this.records(node, { depth: way.depth + 1, records: { record: node, outer: way.records } });
    }
  }

  private records(node: AvroRecordNode, way: Way): Generator<AvroDatum> {
    const least = node.fields.map(({ type }) => this.least.of(type));
    return inTurns(
      node.fields.map(({ type }, i) =>
        mapped(behindFirst(this.variants(type, way)), (value) => ({ fields: least.with(i, value) })),
      ),
    );
  }

  /** Yields a list of two items, different if possible, and then lists of one item. */
  private *arrays(items: AvroNode, way: Way): Generator<AvroDatum> {
    const [first, second] = this.variants(items, way);
    if (first === undefined) return;
    yield [first, second ?? first];
    yield* mapped(this.variants(items, way), (value) => [value]);
  }

  private *maps(values: AvroNode, way: Way): Generator<AvroDatum> {
    const [first, second] = this.variants(values, way);
    if (first === undefined) return;
    yield new Map([
      ['a', first],
      ['b', second ?? first],
    ]);
    const [key, ...others] = AVRO_KEYS;
    for (const other of others) yield new Map([[other, first]]);
    yield* mapped(this.variants(values, way), (value) => new Map([[key, value]]));
  }

  /** Follows the steps, and yields the events that `make` yields at their end. */
  *along(
    node: AvroNode,
    steps: readonly Step[],
    make: (node: AvroNode) => Generator<AvroDatum>,
  ): Generator<AvroDatum> {
    const [step, ...rest] = steps;
    if (step === undefined) {
      yield* make(node);
      return;
    }
    if (node.kind === 'record' && step.kind === 'field') {
      const at = node.fields.findIndex(({ name }) => name === step.key);
      const field = node.fields[at];
      if (field === undefined || !node.fields.every(({ type }) => this.least.has(type))) return;
      const least = node.fields.map(({ type }) => this.least.of(type));
      yield* mapped(this.along(field.type, rest, make), (value) => ({ fields: least.with(at, value) }));
    } else if (node.kind === 'array' && step.kind === 'item') {
      yield* mapped(this.along(node.items, rest, make), (value) => [value]);
    } else if (node.kind === 'map' && step.kind === 'value') {
      yield* mapped(this.along(node.values, rest, make), (value) => new Map([[AVRO_KEYS[0], value]]));
    } else if (node.kind === 'union' && step.kind === 'branch') {
      const { index: branch } = step;
      const type = node.branches[branch];
      if (type !== undefined) yield* mapped(this.along(type, rest, make), (value) => ({ branch, value }));
    }
  }

  has(node: AvroNode): boolean {
    return this.least.has(node);
  }

  /** Returns a random mix of edge values. */
  mix(node: AvroNode, random: () => number): AvroDatum {
    let bytes = RANDOM_BYTES_MAX;
    const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
    const mix = (node: AvroNode, depth: number): AvroDatum => {
      bytes -= 1 + this.least.bytesOf(node);
      if (depth > RANDOM_DEPTH_MAX || bytes < 0) return this.least.of(node);
      const part = (type: AvroNode): AvroDatum => mix(type, depth + 1);
      switch (node.kind) {
        case 'primitive':
          return pick(AVRO_EDGES[node.type]);
        case 'fixed':
          return pick(fixedEdges(node.size));
        case 'enum':
          return pick(node.symbols);
        case 'array': {
          const length = this.least.has(node.items) ? Math.floor(random() * (RANDOM_ITEMS_MAX + 1)) : 0;
          return Array.from({ length }, () => part(node.items));
        }
        case 'map': {
          const keys = AVRO_KEYS.filter(() => this.least.has(node.values) && random() < 0.4);
          return new Map(keys.map((key) => [key, part(node.values)]));
        }
        case 'union': {
          const open = [...node.branches.entries()].filter(([, type]) => this.least.has(type));
          const [branch, type] = pick(open);
          return { branch, value: part(type) };
        }
        case 'record':
          return { fields: node.fields.map(({ type }) => part(type)) };
      }
    };
    return mix(node, 0);
  }
}

/** See FormatProof.witnesses. */
export function* avroWitnesses(
  writer: AvroNode,
  { route, limit, random, onlyRandom = false }: WitnessOptions,
): Generator<AvroDatum> {
  const witnesses = new AvroWitnesses(writer);
  const steps = stepsOf(route);
  if (steps.length > VARIED_DEPTH_MAX) return;
  let left = limit;
  if (!onlyRandom)
    for (const one of witnesses.along(writer, steps, (node) => witnesses.variants(node, ROOT))) {
      if (left-- <= 0) return;
      yield one;
    }
  if (random === undefined) return;
  const mix = function* (node: AvroNode): Generator<AvroDatum> {
    while (witnesses.has(node)) yield witnesses.mix(node, random);
  };
  for (const one of witnesses.along(writer, steps, mix)) {
    if (left-- <= 0) return;
    yield one;
  }
}
