/** Matches the fields of a reader's record with the written fields.
 *  A field reads the written field of its own name or of one of its aliases. Aliases of written
 *  fields do not help the reader, but they reveal that a written value belongs to a field that now
 *  gets its default.
 *  Source: Apache Avro 1.12 specification, "Schema Resolution" and "Aliases". */
import type { AvroField, AvroNode, AvroRecordNode } from '../../../formats/avro/syntax/tree.ts';
import { isNamed, unqualified } from './names.ts';

export type FieldFate =
  | {
      readonly kind: 'reads';
      readonly field: AvroField;
      readonly written: AvroField;
      readonly byAlias: boolean;
    }
  | { readonly kind: 'ambiguous'; readonly field: AvroField; readonly names: readonly string[] }
  /** `other` reads the same written field. */
  | {
      readonly kind: 'read twice';
      readonly field: AvroField;
      readonly written: AvroField;
      readonly other: AvroField;
    }
  | {
      readonly kind: 'missing';
      readonly field: AvroField;
      /** Unread written field whose alias names this field. */
      readonly lost: AvroField | undefined;
      /** Only unread written field that this field could be a renaming of, by its shape. */
      readonly suspect: AvroField | undefined;
    };

export interface FieldFates {
  readonly fates: readonly FieldFate[];
  /** Written fields that no field reads. */
  readonly unread: readonly AvroField[];
  /** Number of aliases compared, for the step budget. */
  readonly steps: number;
}

/** Returns the shape of a type. Types of one shape are similar enough to suspect a renaming. */
function shapeOf(node: AvroNode): string {
  if (node.kind === 'primitive') return node.type;
  if (isNamed(node)) return `${node.kind} ${unqualified(node.name)}`;
  if (node.kind !== 'union') return node.kind;
  return node.branches.length > 3 ? node.kind : `union ${node.branches.map(shapeOf).join()}`;
}

/** Maps each shape to its only field; undefined if several fields have the shape. */
function uniqueByShape(fields: readonly AvroField[]): ReadonlyMap<string, AvroField | undefined> {
  const ones = new Map<string, AvroField | undefined>();
  for (const field of fields) {
    const shape = shapeOf(field.type);
    ones.set(shape, ones.has(shape) ? undefined : field);
  }
  return ones;
}

export function fieldFates(reader: AvroRecordNode, writer: AvroRecordNode): FieldFates {
  const written = new Map(writer.fields.map((field) => [field.name, field]));
  const readBy = new Map<AvroField, AvroField>();
  const fates: FieldFate[] = [];
  const missing: AvroField[] = [];
  let steps = 0;
  for (const field of reader.fields) {
    steps += field.aliases.length;
    const match = written.get(field.name);
    let names: string[] | undefined;
    let byAlias: AvroField | undefined;
    for (const alias of field.aliases) {
      const other = alias === field.name ? undefined : written.get(alias);
      if (other === undefined) continue;
      const before = match ?? byAlias;
      if (before === undefined) byAlias = other;
      else {
        names ??= [before.name];
        names.push(alias);
      }
    }
    const one = match ?? byAlias;
    if (names !== undefined) {
      for (const name of names) readBy.set(written.get(name) as AvroField, field);
      fates.push({ kind: 'ambiguous', field, names });
    } else if (one === undefined) missing.push(field);
    else {
      const other = readBy.get(one);
      if (other !== undefined) fates.push({ kind: 'read twice', field, written: one, other });
      else fates.push({ kind: 'reads', field, written: one, byAlias: match === undefined });
      readBy.set(one, field);
    }
  }
  const unread = writer.fields.filter((field) => !readBy.has(field));
  if (missing.length === 0) return { fates, unread, steps };
  const lost = new Map<string, AvroField>();
  for (const field of unread) {
    steps += field.aliases.length;
    for (const alias of field.aliases) lost.set(alias, field);
  }
  const wanted = uniqueByShape(missing);
  const left = uniqueByShape(unread);
  for (const field of missing) {
    const shape = shapeOf(field.type);
    const suspect = wanted.get(shape) === undefined ? undefined : left.get(shape);
    fates.push({ kind: 'missing', field, lost: lost.get(field.name), suspect });
  }
  return { fates, unread, steps };
}
