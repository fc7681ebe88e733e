/** Compares the Protobuf parser and its descriptors with the messages and output of protoc. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { ResolvedReference } from '../../src/formats/content.ts';
import { readFields, type WireField } from '../../src/formats/protobuf/descriptor/bytes.ts';
import { descriptorBytes } from '../../src/formats/protobuf/descriptor/to-descriptor.ts';
import { protoLink } from '../../src/formats/protobuf/parse.ts';
import { packageRoot } from '../../src/shell/package.ts';

const vectorsOf = <T>(name: string): readonly T[] => {
  const path = join(packageRoot(), 'test', 'vectors', name);
  return (JSON.parse(readFileSync(path, 'utf8')) as { vectors: readonly T[] }).vectors;
};

interface Descriptor {
  readonly name: string;
  readonly source: string;
  readonly descriptor: string;
}
const files = vectorsOf<Descriptor>('proto-descriptors.json');
const byName = new Map(files.map((file) => [file.name, file]));

function referencesOf(source: string, made = new Map<string, ResolvedReference>()): ResolvedReference[] {
  return [...source.matchAll(/^import (?:public |weak )?"([^"]+)"/gm)].flatMap(([, name = '']) => {
    const file = byName.get(name);
    if (file === undefined) return [];
    const held = made.get(name);
    if (held !== undefined) return [held];
    const reference: ResolvedReference = {
      name,
      subject: name,
      version: 1,
      format: 'PROTOBUF',
      text: file.source,
      references: referencesOf(file.source, made),
    };
    made.set(name, reference);
    return [reference];
  });
}

describe('descriptors', () => {
  it('the recording contains at least 40 files', () => {
    expect(files.length).toBeGreaterThanOrEqual(40);
  });

  it.each(files.map((file) => [file.name, file] as const))(
    'the descriptor of %s equals the bytes of protoc',
    (name, file) => {
      const { link } = protoLink(file.source, { references: referencesOf(file.source) });
      expect(descriptorBytes(link, link.root, name).toString('base64')).toBe(file.descriptor);
    },
  );

  it.each(files.map((file) => [file.name, file] as const))(
    'the descriptor of %s has the same meaning when it is registered',
    (name, file) => {
      const references = referencesOf(file.source);
      const { link, text } = protoLink(file.descriptor, { references });
      expect(protoLink(text, { references }).text).toBe(text);
      const again = descriptorBytes(link, link.root, name);
      expect(meaning(again)).toEqual(meaning(Buffer.from(file.descriptor, 'base64')));
    },
  );

  it.each(files.map((file) => [file.name, file] as const))(
    'the printed text of %s prints to itself, normalised too',
    (_name, file) => {
      const references = referencesOf(file.source);
      for (const normalize of [false, true]) {
        const { text } = protoLink(file.source, { references, normalize });
        expect(protoLink(text, { references, normalize }).text).toBe(text);
      }
    },
  );

  it.each(files.map((file) => [file.name, file] as const))(
    'the printed and normalised text of %s have the same meaning',
    (name, file) => {
      const references = referencesOf(file.source);
      const source = meaning(Buffer.from(file.descriptor, 'base64'));
      for (const normalize of [false, true]) {
        const { text } = protoLink(file.source, { references, normalize });
        const { link } = protoLink(text, { references });
        expect(meaning(descriptorBytes(link, link.root, name), normalize)).toEqual(
          normalize ? meaning(Buffer.from(file.descriptor, 'base64'), true) : source,
        );
      }
    },
  );
});

type Kind = 'file' | 'message' | 'field' | 'enum' | 'service' | 'method' | 'plain' | 'options';
const PARTS: Readonly<Record<Kind, Readonly<Record<number, Kind>>>> = {
  file: { 4: 'message', 5: 'enum', 6: 'service', 7: 'field', 8: 'options' },
  message: { 2: 'field', 3: 'message', 4: 'enum', 5: 'plain', 6: 'field', 7: 'options', 9: 'plain' },
  field: { 8: 'options' },
  enum: { 2: 'plain', 3: 'options', 4: 'plain' },
  service: { 2: 'method', 3: 'options' },
  method: { 4: 'options' },
  plain: {},
  options: {},
};

/** Returns a descriptor without the order of unordered parts: fields, nested types, and parts of
 *  one custom option. The canonical layout moves them. Message indexes are tested where the order
 *  is kept.
 *  @param loose ignore also the order of enum values, imports, oneofs and single options, which
 *  normalization changes */
function meaning(bytes: Buffer, loose = false): unknown {
  const of = (content: Buffer, kind: Kind): unknown => {
    const fields = readFields(content) as WireField[];
    if (kind === 'options') return optionBytesOf(fields);
    const out = new Map<number, unknown[]>();
    for (const { number, wire, value, bytes: inner } of fields) {
      // Public and weak indexes follow the order of imports, which the layout changes.
      if (kind === 'file' && [3, 10, 11].includes(number)) continue;
      // An explicit and an implicit proto2 are the same syntax.
      if (kind === 'file' && number === 12 && inner.toString() === 'proto2') continue;
      if (loose && kind === 'field' && number === 9) continue;
      const part = PARTS[kind][number];
      const held = out.get(number) ?? [];
      out.set(number, held);
      held.push(wire !== 2 ? String(value) : part === undefined ? inner.toString('hex') : of(inner, part));
    }
    // Empty options of a method have no meaning.
    if (kind === 'method' && JSON.stringify(out.get(4)) === '[{}]') out.delete(4);
    const sorted = [...out].map(([number, values]) => {
      const isOrdered =
        PARTS[kind][number] === undefined && !(loose && (kind === 'message' || kind === 'enum'));
      const keepsOrder = kind === 'enum' && !loose;
      const list =
        isOrdered || keepsOrder
          ? values
          : [...values].sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
      return [number, list] as const;
    });
    return Object.fromEntries(sorted);
  };
  return of(bytes, 'file');
}

/** Joins the occurrences of one option: protoc writes the parts of `(a).b` separately, and a reader
 *  merges them. */
function optionBytesOf(fields: readonly WireField[]): Record<string, string[]> {
  const out: Record<string, string[]> = {};
  for (const { number, wire, value, bytes } of fields) {
    const held = out[number] ?? [];
    out[number] = held;
    if (wire !== 2) held.push(String(value));
    else for (const part of partsOf(bytes)) held.push(part);
  }
  for (const held of Object.values(out)) held.sort();
  return out;
}

/** Returns the fields of bytes that may be a message, otherwise the bytes themselves. */
function partsOf(bytes: Buffer): string[] {
  const fields = readFields(bytes);
  if (fields === undefined || fields.length === 0) return [bytes.toString('hex')];
  return fields.map(
    ({ number, wire, value, bytes: inner }) =>
      `${number}:${wire}:${value}:${partsOf(inner).sort().join(' ')}`,
  );
}

interface Verdict {
  readonly source: string;
  readonly accepted: boolean;
  readonly says: string;
}

/** Texts for which the registry's verdict differs, with the reason. */
const DIFFERENT_VERDICTS: ReadonlyMap<string, string> = new Map([
  ['enum E { option allow_alias = true; A = 0; B = 1; }', 'a superfluous option has no effect'],
  ['message M { reserved 536870912; }', 'no field can have that number'],
  ['message M { reserved "1x"; }', 'no field can have that name'],
  ['option optimize_for = SPEED;', 'a schema declares something'],
  ['option java_package = "\\400";', 'a schema declares something'],
  ["option java_package = 'x';", 'a schema declares something'],
  ['// only', 'a schema declares something'],
  ['', 'a schema declares something'],
  [
    'import "google/protobuf/any.proto"; import "google/protobuf/any.proto"; message M {}',
    'existing registries accept a repeated import',
  ],
]);

describe('verdicts', () => {
  const verdicts = vectorsOf<Verdict>('proto-verdicts.json');

  it('the recorded verdicts contain accepted and refused texts', () => {
    expect(verdicts.filter(({ accepted }) => accepted).length).toBeGreaterThan(50);
    expect(verdicts.filter(({ accepted }) => !accepted).length).toBeGreaterThan(150);
  });

  it('our parser agrees with protoc on every text but the listed ones, and refuses with a clear error', () => {
    const differing: string[] = [];
    for (const { source, accepted, says } of verdicts) {
      let refusal: { code?: string; message?: string } | undefined;
      try {
        protoLink(source);
      } catch (thrown) {
        refusal = thrown as { code?: string; message?: string };
        expect({ source, code: refusal.code }).toEqual({ source, code: 'invalid_schema' });
        expect(refusal.message).toMatch(/^invalid Protobuf schema: ./);
      }
      const body = source.replace(/^[^\n]*\n/, '');
      if ((refusal === undefined) !== accepted && !DIFFERENT_VERDICTS.has(body))
        differing.push(`${source} | ${says} | ${refusal?.message}`);
    }
    expect(differing).toEqual([]);
  });

  it('our parser reports the same line as protoc', () => {
    const elsewhere: string[] = [];
    for (const { source, accepted, says } of verdicts) {
      const line = /^(\d+):\d+:/.exec(says)?.[1];
      // An unterminated construct is reported at its beginning, not at the end of the text.
      if (accepted || line === undefined || says.includes('End-of-file')) continue;
      try {
        protoLink(source);
      } catch (thrown) {
        const { details, message } = thrown as { details: { line?: number }; message: string };
        // An error without a line: the file declares nothing.
        if (details.line !== undefined && String(details.line) !== line)
          elsewhere.push(`${source} | ${says} | ${message}`);
      }
    }
    expect(elsewhere).toEqual([]);
  });
});
