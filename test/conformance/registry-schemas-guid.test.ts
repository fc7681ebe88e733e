/** Compares guids with those of the existing registries. */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import type { Json, Reference, SchemaContent } from '../../src/formats/content.ts';
import type { SchemaFormat } from '../../src/formats/format.ts';
import { guidOf } from '../../src/formats/guid.ts';

interface Vectors {
  readonly texts: Readonly<Record<SchemaFormat, string>>;
  readonly references: readonly Reference[];
  readonly metadata: Json;
  readonly ruleSet: Json;
  readonly guids: Readonly<Record<SchemaFormat, Readonly<Record<string, string>>>>;
}

const vectors = JSON.parse(
  readFileSync(new URL('../vectors/registry-guid.json', import.meta.url), 'utf8'),
) as Vectors;

const contentOf = (format: SchemaFormat, key: string): SchemaContent => ({
  format,
  text: vectors.texts[format],
  references: key[0] === '1' ? vectors.references : [],
  ...(key[1] === '1' ? { metadata: vectors.metadata } : {}),
  ...(key[2] === '1' ? { ruleSet: vectors.ruleSet } : {}),
});

describe('guid vectors', () => {
  for (const format of ['AVRO', 'PROTOBUF', 'JSON'] as const) {
    for (const [key, guid] of Object.entries(vectors.guids[format])) {
      test(`the guid of a content equals the guid of the other registries: ${format} ${key}`, () =>
        expect(guidOf(contentOf(format, key))).toBe(guid));
    }
  }

  test('the vectors contain 24 different guids', () => {
    const all = Object.values(vectors.guids).flatMap((guids) => Object.values(guids));
    expect(new Set(all).size).toBe(24);
  });
});

describe('guid content', () => {
  const plain: SchemaContent = { format: 'AVRO', text: '"int"', references: [] };

  test('the order of keys and of set members does not change a guid', () => {
    const one = { tags: { a: ['x', 'y'], b: ['z'] }, properties: { p: '1', q: '2' }, sensitive: ['s', 't'] };
    const other = {
      sensitive: ['t', 's'],
      properties: { q: '2', p: '1' },
      tags: { b: ['z'], a: ['y', 'x'] },
    };
    expect(guidOf({ ...plain, metadata: one })).toBe(guidOf({ ...plain, metadata: other }));
  });

  test('an empty metadata has another guid than no metadata', () => {
    expect(guidOf({ ...plain, metadata: {} })).not.toBe(guidOf(plain));
  });

  test('a rule without kind and mode has the guid of the default kind and mode', () => {
    const rule = { name: 'r', type: 'CEL' };
    const full = { ...rule, kind: 'TRANSFORM', mode: 'WRITEREAD' };
    expect(guidOf({ ...plain, ruleSet: { domainRules: [rule] } })).toBe(
      guidOf({ ...plain, ruleSet: { domainRules: [full] } }),
    );
    expect(guidOf({ ...plain, ruleSet: { domainRules: [{ ...rule, disabled: true }] } })).not.toBe(
      guidOf({ ...plain, ruleSet: { domainRules: [full] } }),
    );
  });

  test('hostile metadata gets a guid and does not throw', () => {
    for (const metadata of [
      [],
      'x',
      7,
      { tags: 3, properties: [null], sensitive: { a: 1 } },
      { tags: { a: [{}] } },
    ])
      expect(guidOf({ ...plain, metadata: metadata as Json })).toMatch(
        /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/,
      );
  });
});
