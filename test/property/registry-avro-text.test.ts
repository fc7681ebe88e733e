/** The reader and the printer of Avro texts, over random schemas. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { parseAvroSchema, resolvedAvroText } from '../../src/formats/avro/schema.ts';
import type { AvroNode } from '../../src/formats/avro/syntax/tree.ts';
import { avroTypeName } from '../../src/formats/avro/syntax/tree.ts';
import type { ResolvedReference } from '../../src/formats/content.ts';
import { positionOf } from '../../src/formats/json/text.ts';
import { runs } from '../tier.ts';
import { avroSchema, type Json } from './registry-avro-kit.ts';

const canonical = (source: string): string => parseAvroSchema(source, {}).text;
const normal = (source: string): string => parseAvroSchema(source, { normalize: true }).text;

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Returns the same schema with the keys of its types and fields in reverse order. Objects inside
 *  properties keep their order. */
function withReversedKeys(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withReversedKeys);
  if (!isObject(schema)) return schema;
  const inner = (key: string, value: unknown): unknown => {
    if (key === 'type' || key === 'items' || key === 'values') return withReversedKeys(value);
    if (key === 'fields') return (value as unknown[]).map(withReversedKeys);
    return value;
  };
  return Object.fromEntries(
    Object.entries(schema)
      .reverse()
      .map(([key, value]) => [key, inner(key, value)]),
  );
}

/** Returns every type of a tree, each named type once. */
function nodesOf(root: AvroNode): AvroNode[] {
  const seen = new Set<AvroNode>();
  const visit = (node: AvroNode): void => {
    if (seen.has(node)) return;
    seen.add(node);
    if (node.kind === 'record') for (const field of node.fields) visit(field.type);
    else if (node.kind === 'array') visit(node.items);
    else if (node.kind === 'map') visit(node.values);
    else if (node.kind === 'union') for (const branch of node.branches) visit(branch);
  };
  visit(root);
  return [...seen];
}

describe('canonical Avro text', () => {
  it('the canonical text is read back as itself, strictly, leniently and with white space', () => {
    fc.assert(
      fc.property(avroSchema, (schema) => {
        const text = canonical(JSON.stringify(schema));
        expect(canonical(text)).toBe(text);
        expect(canonical(JSON.stringify(schema, null, 3))).toBe(text);
        expect(parseAvroSchema(text, { lenient: true }).text).toBe(text);
        expect(resolvedAvroText(text, [])).toBe(text);
      }),
      { numRuns: runs(300) },
    );
  });

  it('the canonical text defines the same types as its source', () => {
    const shape = (source: string): unknown => {
      const nodes = nodesOf(parseAvroSchema(source, {}).tree);
      const index = (node: AvroNode): number => nodes.indexOf(node);
      return nodes.map((node) => {
        const { at: _at, ...rest } = node;
        if (node.kind === 'array') return { ...rest, items: index(node.items) };
        if (node.kind === 'map') return { ...rest, values: index(node.values) };
        if (node.kind === 'union') return { ...rest, branches: node.branches.map(index) };
        if (node.kind !== 'record') return rest;
        const fields = node.fields.map(({ name, aliases, hasDefault, type }) => ({
          name,
          aliases,
          hasDefault,
          type: index(type),
        }));
        return { ...rest, fields };
      });
    };
    fc.assert(
      fc.property(avroSchema, (schema) => {
        const source = JSON.stringify(schema);
        expect(shape(canonical(source))).toEqual(shape(source));
      }),
      { numRuns: runs(200) },
    );
  });
});

describe('normalized Avro text', () => {
  it('the normalized text is the same for all orders of keys, and normalizes to itself', () => {
    fc.assert(
      fc.property(avroSchema, (schema) => {
        const source = JSON.stringify(schema);
        const text = normal(source);
        expect(normal(text)).toBe(text);
        expect(canonical(text)).toBe(text);
        expect(normal(canonical(source))).toBe(text);
        expect(normal(JSON.stringify(withReversedKeys(schema)))).toBe(text);
      }),
      { numRuns: runs(300) },
    );
  });
});

describe('positions in Avro texts', () => {
  it('the position of a node is the beginning of its JSON', () => {
    fc.assert(
      fc.property(avroSchema, fc.integer({ min: 0, max: 4 }), (schema, indent) => {
        const source = JSON.stringify(schema, null, indent);
        for (const node of nodesOf(parseAvroSchema(source, {}).tree)) {
          const rest = source.slice(node.at);
          if (node.kind === 'union') expect(rest[0]).toBe('[');
          else if (node.kind === 'primitive') expect(/^(\{|")/.test(rest)).toBe(true);
          else expect(rest[0]).toBe('{');
          if (node.kind === 'record')
            for (const field of node.fields) {
              expect(source[field.at]).toBe('{');
              const end = source.indexOf(`"${field.name}"`, field.at);
              expect(end).toBeGreaterThan(field.at);
            }
          if (rest[0] === '"') expect(rest.startsWith(`"${avroTypeName(node)}"`)).toBe(true);
        }
      }),
      { numRuns: runs(200) },
    );
  });

  it('the position of an error is the position of its cause', () => {
    /** Paths of all types in the JSON of a schema. */
    const paths = (schema: unknown, path: readonly (string | number)[]): (readonly (string | number)[])[] => {
      if (typeof schema === 'string') return [path];
      if (Array.isArray(schema)) return schema.flatMap((item, i) => paths(item, [...path, i]));
      if (!isObject(schema)) return [];
      const fields = schema['fields'];
      if (Array.isArray(fields))
        return fields.flatMap((field, i) => paths((field as Json)['type'], [...path, 'fields', i, 'type']));
      for (const key of ['items', 'values']) if (key in schema) return paths(schema[key], [...path, key]);
      return [];
    };
    const replaced = (schema: unknown, path: readonly (string | number)[], by: unknown): unknown => {
      const [key, ...rest] = path;
      if (key === undefined) return by;
      const copy = (Array.isArray(schema) ? [...schema] : { ...(schema as Json) }) as Record<
        string | number,
        unknown
      >;
      copy[key] = replaced(copy[key], rest, by);
      return copy;
    };
    fc.assert(
      fc.property(avroSchema, fc.nat(), fc.integer({ min: 0, max: 4 }), (schema, choice, indent) => {
        const all = paths(schema, []);
        if (all.length === 0) return;
        const path = all[choice % all.length] as readonly (string | number)[];
        const source = JSON.stringify(replaced(schema, path, 'no.such.Type'), null, indent);
        const at = source.indexOf('"no.such.Type"');
        let error: unknown;
        try {
          canonical(source);
        } catch (thrown) {
          error = thrown;
        }
        const found = findMillraceError(error);
        expect(found?.code).toBe('invalid_schema');
        const { line, column } = positionOf(source, at);
        expect(found?.details).toEqual({ line, column });
        expect(found?.message).toContain(`at line ${line}, column ${column}`);
      }),
      { numRuns: runs(200) },
    );
  });
});

describe('Avro references', () => {
  /** Moves the first nested named types to texts of their own. */
  it('a schema with references resolves to the same text as the whole schema', () => {
    let judged = 0;
    fc.assert(
      fc.property(avroSchema, (schema) => {
        const whole = canonical(JSON.stringify(schema));
        const parsed = JSON.parse(whole) as unknown;
        const references: ResolvedReference[] = [];
        const cut = (part: unknown, namespace: string, top: boolean): unknown => {
          if (Array.isArray(part)) return part.map((item) => cut(item, namespace, false));
          if (!isObject(part)) return part;
          const name = part['name'];
          const own = part['namespace'] ?? namespace;
          if (typeof name !== 'string') {
            const key = 'items' in part ? 'items' : 'values';
            return key in part ? { ...part, [key]: cut(part[key], namespace, false) } : part;
          }
          const fields = part['fields'];
          const shallow = {
            ...part,
            namespace: own,
            ...(Array.isArray(fields)
              ? {
                  fields: fields.map((field: Json) => ({
                    ...field,
                    type: cut(field['type'], own as string, false),
                  })),
                }
              : {}),
          };
          // A type that refers to itself, or has no namespace for a reference, is not moved.
          const full = `${own}.${name}`;
          const inside = JSON.stringify(shallow['fields' as keyof typeof shallow] ?? '');
          if (top || own === '' || new RegExp(`"(${name}|${full.replaceAll('.', '\\.')})"`).test(inside))
            return shallow;
          references.push({
            name: full,
            subject: full,
            version: 1,
            format: 'AVRO',
            text: JSON.stringify(shallow),
            references: [],
          });
          return full;
        };
        const main = JSON.stringify(cut(parsed, '', true));
        let text: string;
        try {
          text = parseAvroSchema(main, { references }).text;
        } catch (thrown) {
          // A moved type may use a type that the rest defines earlier.
          if (/is not defined before it/.test((thrown as Error).message)) return;
          throw thrown;
        }
        expect(parseAvroSchema(text, { references }).text).toBe(text);
        expect(resolvedAvroText(text, references)).toBe(whole);
        if (references.length > 0) judged++;
      }),
      { numRuns: runs(600) },
    );
    expect(judged).toBeGreaterThan(runs(20));
  });
});
