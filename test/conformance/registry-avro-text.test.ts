/** Compares Avro texts with the texts that Java's Avro prints, byte for byte. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { parseAvroSchema, resolvedAvroText } from '../../src/formats/avro/schema.ts';
import type { ResolvedReference } from '../../src/formats/content.ts';

interface Vector {
  readonly what: string;
  readonly source: string;
  readonly references?: readonly string[];
  readonly canonical: string;
  readonly normalized?: string;
  readonly resolved?: string;
}
interface Doubtful {
  readonly what: string;
  readonly source: string;
  readonly strict: boolean;
  readonly lenient?: string;
}

const { texts, doubtful } = JSON.parse(
  readFileSync(new URL('../vectors/registry-avro-text.json', import.meta.url), 'utf8'),
) as { readonly texts: readonly Vector[]; readonly doubtful: readonly Doubtful[] };

const referencesOf = (vector: Vector): ResolvedReference[] =>
  (vector.references ?? []).map((text, i) => ({
    name: `reference ${i}`,
    subject: `subject-${i}`,
    version: 1,
    format: 'AVRO',
    text,
    references: [],
  }));

describe('canonical Avro text', () => {
  it('the vectors contain at least 60 Avro schemas', () => expect(texts.length).toBeGreaterThan(60));

  it.each(texts.map((vector) => [vector.what, vector] as const))(
    'the canonical text equals what Java prints for: %s',
    (_what, vector) => {
      const references = referencesOf(vector);
      const { text } = parseAvroSchema(vector.source, { references });
      expect(text).toBe(vector.canonical);
      expect(parseAvroSchema(text, { references }).text).toBe(text);
      expect(parseAvroSchema(text, { references, lenient: true }).text).toBe(text);
      if (vector.resolved !== undefined) expect(resolvedAvroText(text, references)).toBe(vector.resolved);
    },
  );
});

/** Cases in which the existing registries lose the null namespace of an inner type, which makes it
 *  another type. */
const NORMALISED_DIFFERENTLY: ReadonlyMap<string, string> = new Map([
  [
    'nested in the null namespace',
    '{"type":"record","name":"R","namespace":"n","fields":[{"name":"e","type":{"type":"fixed","name":"F","namespace":"","size":4}}]}',
  ],
]);

describe('normalised Avro text', () => {
  const normal = texts.filter(({ normalized }) => normalized !== undefined);
  it.each(normal.map((vector) => [vector.what, vector] as const))(
    'the normalised text equals what the existing registries store for: %s',
    (_what, vector) => {
      const references = referencesOf(vector);
      const { text } = parseAvroSchema(vector.source, { references, normalize: true });
      expect(text).toBe(NORMALISED_DIFFERENTLY.get(vector.what) ?? vector.normalized);
      expect(parseAvroSchema(text, { references, normalize: true }).text).toBe(text);
    },
  );
});

/** Texts that Millrace refuses and Java accepts, with the reason. */
const STRICTER: ReadonlyMap<string, string> = new Map([
  ['repeated key', 'two readers of the text may use different values'],
  ['use before definition', 'the specification forbids it, and most readers refuse it'],
  ['same enum twice', 'the specification forbids it'],
  ['empty union', 'it has no value'],
  ['empty enum', 'it has no value'],
  ['size 0', 'it has no value'],
]);
const LOOSER: ReadonlyMap<string, string> = new Map([
  ['unquoted', 'a text of one word has only one meaning'],
]);
/** Texts that even a lenient reader refuses although Java accepts them. Java prints none of these
 *  itself. */
const LENIENT_STRICTER: ReadonlySet<string> = new Set(['use before definition']);
/** Texts that a lenient reader accepts although Java does not, so that stored texts remain
 *  readable. */
const LENIENT_LOOSER: ReadonlySet<string> = new Set([
  'enum default',
  'a type as an object',
  'unquoted',
  'bad order',
]);

const accepts = (source: string, lenient: boolean): string | undefined => {
  try {
    return parseAvroSchema(source, { lenient }).text;
  } catch (thrown) {
    if (findMillraceError(thrown)?.code !== 'invalid_schema') throw thrown;
    return undefined;
  }
};

describe('doubtful Avro text', () => {
  it.each(doubtful.map((vector) => [vector.what, vector] as const))(
    'a doubtful Avro text is refused exactly where Java refuses it, with listed exceptions: %s',
    (what, vector) => {
      const expected = (vector.strict || LOOSER.has(what)) && !STRICTER.has(what);
      expect(accepts(vector.source, false) !== undefined).toBe(expected);
      const text = accepts(vector.source, true);
      if (LENIENT_LOOSER.has(what)) expect(text).toBeDefined();
      else if (LENIENT_STRICTER.has(what)) expect(text).toBeUndefined();
      else expect(text).toBe(vector.lenient);
    },
  );

  it('the lists of exceptions name only texts that exist', () => {
    const known = new Set(doubtful.map(({ what }) => what));
    for (const what of [...STRICTER.keys(), ...LOOSER.keys(), ...LENIENT_STRICTER, ...LENIENT_LOOSER])
      expect(known).toContain(what);
  });
});
