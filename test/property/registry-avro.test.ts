/** Compares the Avro verdict with a live decode. The verdict must equal the worst outcome of any
 *  event, and the decoder must return each event as the specification promises
 *  (registry-avro-oracle.ts). */
import { describe, expect, it } from 'vitest';
import type { AvroNode } from '../../src/formats/avro/syntax/tree.ts';
import { parseSchema } from '../../src/formats/schema.ts';
import { checkAvro } from '../../src/registry/compatibility/avro/checker.ts';
import { type Finding, isCompatible, stepsOf } from '../../src/registry/compatibility/finding.ts';
import { liveDecode, type Outcome } from './registry-avro-oracle.ts';
import { CHANGES, pairOf, type SchemaPair } from './registry-avro-pairs.ts';

const PRIMITIVES = ['null', 'boolean', 'int', 'long', 'float', 'double', 'bytes', 'string'];
/** Number of seeds; each seed gives a pair that is compared in both directions. */
const PAIRS = 1_000;
const PART = 200;

function treeOf(json: unknown): AvroNode {
  // Lenient, as for a store that reads accepted texts: defaults may not fit their type.
  const schema = parseSchema('AVRO', JSON.stringify(json), { lenient: true });
  if (schema.format !== 'AVRO') throw new Error(`the schema has the format ${schema.format} instead of AVRO`);
  return schema.tree;
}

function verdictOf(findings: readonly Finding[]): Outcome {
  if (!isCompatible(findings)) return 'FAIL';
  return findings.some(({ severity }) => severity === 'lossy') ? 'LOSSY' : 'OK';
}

/** Returns the type at the end of a route; undefined if the route leads to no type. */
function endOf(root: AvroNode, { route }: Finding): AvroNode | undefined {
  let node: AvroNode | undefined = root;
  for (const step of stepsOf(route)) {
    if (step.kind === 'field' && node?.kind === 'record')
      node = node.fields.find(({ name }) => name === step.key)?.type;
    else if (step.kind === 'item' && node?.kind === 'array') node = node.items;
    else if (step.kind === 'value' && node?.kind === 'map') node = node.values;
    else if (step.kind === 'branch' && node?.kind === 'union') node = node.branches[step.index];
    else return undefined;
  }
  return node;
}

interface Compared {
  readonly outcome: Outcome;
  readonly events: number;
}

function compare(reader: unknown, writer: unknown, seed: unknown): Compared {
  const [r, w] = [treeOf(reader), treeOf(writer)];
  const findings = checkAvro(r, w);
  const live = liveDecode(r, w);
  const outcome = verdictOf(findings);
  // A type without finite events has no event that shows a finding.
  const expected = live.events === 0 ? 'OK' : live.outcome;
  const [readerText, writerText] = [JSON.stringify(reader), JSON.stringify(writer)];
  const problems = [...live.wrong];
  if (outcome !== expected) problems.push(`the verdict is ${outcome}, live decode ${expected}`);
  for (const finding of findings) {
    if (finding.severity === 'unjudged') problems.push('unjudged');
    if (endOf(w, finding) === undefined) problems.push(`${finding.rule} has no route`);
    for (const [place, text] of [
      [finding.reader, readerText],
      [finding.writer, writerText],
    ] as const)
      if (place === undefined || !('at' in place) || place.at >= text.length)
        problems.push(`${finding.rule} has no place`);
  }
  if (problems.length > 0) problems.push(`seed ${seed}: ${readerText} reads ${writerText}`);
  expect(problems).toEqual([]);
  return { outcome, events: live.events };
}

describe('primitive type pairs', () => {
  const around: ReadonlyArray<(type: string) => unknown> = [
    (type) => type,
    (type) => ({ type: 'record', name: 'Order', fields: [{ name: 'f', type }] }),
    (type) => ({ type: 'array', items: { type: 'map', values: type } }),
    (type) => (type === 'null' ? ['null', 'boolean'] : ['null', type]),
  ];
  it.each(PRIMITIVES)('the verdict of %s read as each primitive type equals the live decode', (writer) => {
    for (const reader of PRIMITIVES)
      for (const wrap of around) compare(wrap(reader), wrap(writer), 'primitive');
  });
});

describe('random Avro pairs', () => {
  const outcomes: Record<Outcome, number> = { OK: 0, LOSSY: 0, FAIL: 0 };
  const changes = new Map<string, number>();
  let invalid = 0;

  const isValid = ({ other }: SchemaPair): boolean => {
    try {
      treeOf(other);
      return true;
    } catch {
      return false;
    }
  };
  for (let from = 1; from <= PAIRS; from += PART)
    it(`the verdict equals the live decode for random pairs with seeds from ${from}`, () => {
      for (let seed = from; seed < from + PART; seed++) {
        const pair = pairOf(seed);
        // A change may add a type to a union that already contains it.
        if (!isValid(pair)) invalid++;
        else {
          outcomes[compare(pair.other, pair.one, seed).outcome]++;
          outcomes[compare(pair.one, pair.other, seed).outcome]++;
          for (const change of pair.changes) changes.set(change, (changes.get(change) ?? 0) + 1);
        }
      }
    });

  it('the random pairs contain every kind of change and outcome', () => {
    const all = outcomes.OK + outcomes.LOSSY + outcomes.FAIL;
    expect(invalid).toBeLessThan(PAIRS / 50);
    expect(outcomes.OK / all).toBeGreaterThan(0.3);
    expect(outcomes.FAIL / all).toBeGreaterThan(0.3);
    expect(outcomes.LOSSY).toBeGreaterThan(20);
    for (const change of Object.keys(CHANGES)) expect(changes.get(change), change).toBeGreaterThan(5);
  });
});
