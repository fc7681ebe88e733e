/** Compares the decoder with Apache Avro on the JVM: the same value, or an error on both sides.
 *  Known differences, including those of avsc, are in test/vectors/registry-avro-resolution.json
 *  with their reasons. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { encodeAvro } from '../../src/formats/avro/codec/encoder.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { datumOf, drawingFrom } from '../property/registry-avro-decoder-kit.ts';
import { readerSchema, writerSchema } from '../property/registry-avro-pairs-kit.ts';
import { avscAnswers, type Case, javaAnswers, parse, testedAnswers } from './registry-avro-say.ts';

interface Vector {
  readonly what: string;
  readonly writer: string;
  readonly reader: string;
  readonly hex: string;
  readonly ours: string;
  readonly java: string;
  readonly avsc: string;
  readonly why: string;
}
const { vectors } = JSON.parse(
  readFileSync(join(packageRoot(), 'test', 'vectors', 'registry-avro-resolution.json'), 'utf8'),
) as { readonly vectors: readonly Vector[] };
const recorded = vectors.map(
  ({ writer, reader, hex }): Case => ({ writer, reader, payloads: [Buffer.from(hex, 'hex')] }),
);

/** False for a schema without the definition of a type that it uses. */
function isSchema(text: string): boolean {
  try {
    parse(text);
    return true;
  } catch (thrown) {
    if (/is not defined before it/.test((thrown as Error).message)) return false;
    throw thrown;
  }
}

const PAIRS = 5_000;

/** Record names, with aliases, of each union of a schema that has a record. */
function recordsOfUnions(text: string): readonly (readonly string[])[] {
  const named = new Map<string, readonly string[]>();
  const unions: (readonly string[])[] = [];
  const visit = (node: unknown, space: string): void => {
    if (Array.isArray(node)) {
      for (const branch of node) visit(branch, space);
      const names = node.flatMap((branch) => {
        const name =
          typeof branch === 'string' ? branch : String((branch as { readonly name?: string }).name);
        return named.get(name) ?? named.get(`${space}.${name}`) ?? [];
      });
      if (names.length > 0) unions.push(names);
    } else if (typeof node === 'object' && node !== null) {
      const {
        type,
        name,
        namespace,
        aliases = [],
        fields = [],
        items,
        values,
      } = node as Record<string, never>;
      const full = String(name).includes('.') ? String(name) : `${namespace ?? space}.${name}`;
      const own = full.slice(0, full.lastIndexOf('.'));
      const qualified = (aliases as string[]).map((one) => (one.includes('.') ? one : `${own}.${one}`));
      if (type === 'record') named.set(full, [full, ...qualified]);
      for (const field of fields as { readonly type: unknown }[]) visit(field.type, own);
      for (const inner of [type, items, values]) if (typeof inner === 'object') visit(inner, space);
    }
  };
  visit(JSON.parse(text), '');
  return unions;
}

/** True if a union of the reader may lack a record of the writer's union by its name, so that Java
 *  matches another record by its structure: the recorded difference that random pairs meet.
 */
function mayMatchByStructure({ writer, reader }: Case): boolean {
  const written = recordsOfUnions(writer).flat();
  return recordsOfUnions(reader).some((names) => written.some((name) => !names.includes(name)));
}

function randomCases(): Case[] {
  const cases: Case[] = [];
  const numbers = fc.array(fc.nat(1_000_000), { minLength: 200, maxLength: 200 });
  for (const drawn of fc.sample(numbers, PAIRS * 2)) {
    const next = drawingFrom(drawn);
    const json = writerSchema(next);
    const reader = JSON.stringify(readerSchema(json, next));
    if (!isSchema(JSON.stringify(json)) || !isSchema(reader)) continue;
    const writer = parse(JSON.stringify(json));
    const payloads = Array.from({ length: 3 }, () => encodeAvro(writer.tree, datumOf(writer.tree, next)));
    cases.push({ writer: writer.text, reader, payloads });
    if (cases.length === PAIRS) break;
  }
  return cases;
}

const random = randomCases();
/** Answers in the order of `random`, then of `recorded`. */
let java: string[][] = [];
beforeAll(async () => {
  java = await javaAnswers([...random, ...recorded]);
});

describe('random pairs', () => {
  it('Apache Avro for the JVM reads the events that our decoder reads and refuses the others', () => {
    expect(random.length).toBe(PAIRS);
    const differing: unknown[] = [];
    const seen = { values: 0, refused: 0, notUtf8: 0, byStructure: 0 };
    random.forEach((one, i) => {
      testedAnswers(one).forEach((ours, k) => {
        const theirs = java[i]?.[k] as string;
        // Java decodes any bytes as a string, also invalid UTF-8.
        if (ours === '!malformed_payload' && !theirs.startsWith('!')) {
          seen.notUtf8++;
          return;
        }
        if (ours === '!incompatible_schema' && !theirs.startsWith('!') && mayMatchByStructure(one)) {
          seen.byStructure++;
          return;
        }
        if (ours.startsWith('!')) seen.refused++;
        else seen.values++;
        const same = theirs.startsWith('!') ? ours.startsWith('!') : ours === theirs;
        if (!same) differing.push({ ...one, payloads: one.payloads[k]?.toString('hex'), ours, theirs });
      });
    });
    expect(differing.slice(0, 5)).toEqual([]);
    const all = PAIRS * 3;
    expect(seen.values).toBeGreaterThan(all * 0.5);
    expect(seen.refused).toBeGreaterThan(all * 0.05);
    expect(seen.notUtf8).toBeLessThan(all * 0.02);
    expect(seen.byStructure).toBeLessThan(all * 0.001);
  });
});

describe('recorded differences', () => {
  it.each(vectors.map((vector, index) => [vector.what, vector, index] as const))(
    'our decoder, Java and avsc differ as recorded for %s',
    (_what, vector, index) => {
      const one = recorded[index] as Case;
      expect({
        ours: testedAnswers(one)[0],
        java: java[PAIRS + index]?.[0],
        avsc: avscAnswers(one)[0],
      }).toEqual({
        ours: vector.ours,
        java: vector.java,
        avsc: vector.avsc,
      });
    },
  );
});
