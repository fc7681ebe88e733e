/** Reduces a reader's schema to requested fields, so that only they become columns. */
import { formatError } from '../../errors.ts';
import { shownName } from '../codec/match.ts';
import type { AvroNode, AvroRecordNode } from '../syntax/tree.ts';

/** Requested fields of a type, by name; undefined: all of it. */
type Wanted = Map<string, Wanted> | undefined;

/** Records of a reduced schema, each with the record that it was made from. */
export type Origins = ReadonlyMap<AvroNode, AvroNode>;

/** Reduces `reader` to the fields that `paths` name. A path consists of field names with dots, such
 *  as `customer.address.city`; it passes through arrays, maps and unions without a name of their
 *  own, and means a whole record where it ends at one.
 *  @throws unknown_field for a path that names no field */
export function projected(
  reader: AvroNode,
  paths: readonly string[],
): { readonly node: AvroNode; readonly origins: Origins } {
  const missing = paths.find((path) => !hasPath(reader, path.split('.')));
  if (missing !== undefined)
    throw formatError('unknown_field', `the reader's schema has no field ${shownName(missing)}`, {
      next: 'name fields of records, with dots between them',
      details: { path: missing },
    });
  const wanted: NonNullable<Wanted> = new Map();
  for (const path of paths) add(wanted, path);
  const origins = new Map<AvroNode, AvroNode>();
  return { node: reduced(reader, wanted, origins), origins };
}

function hasPath(node: AvroNode, [name, ...inner]: readonly string[]): boolean {
  switch (node.kind) {
    case 'array':
      return hasPath(node.items, [name as string, ...inner]);
    case 'map':
      return hasPath(node.values, [name as string, ...inner]);
    case 'union':
      return node.branches.some((branch) => hasPath(branch, [name as string, ...inner]));
    case 'record': {
      const field = node.fields.find((one) => one.name === name);
      return field !== undefined && (inner.length === 0 || hasPath(field.type, inner));
    }
    default:
      return false;
  }
}

function add(wanted: NonNullable<Wanted>, path: string): void {
  let at = wanted;
  const names = path.split('.');
  for (const [depth, name] of names.entries()) {
    if (at.has(name) && at.get(name) === undefined) return;
    if (depth === names.length - 1) {
      at.set(name, undefined);
      return;
    }
    const inner = at.get(name) ?? new Map();
    at.set(name, inner);
    at = inner;
  }
}

function reduced(node: AvroNode, wanted: Wanted, origins: Map<AvroNode, AvroNode>): AvroNode {
  if (wanted === undefined) return node;
  switch (node.kind) {
    case 'array':
      return { ...node, items: reduced(node.items, wanted, origins) };
    case 'map':
      return { ...node, values: reduced(node.values, wanted, origins) };
    case 'union':
      return { ...node, branches: node.branches.map((branch) => reduced(branch, wanted, origins)) };
    case 'record': {
      const fields = node.fields
        .filter(({ name }) => wanted.has(name))
        .map((field) => ({ ...field, type: reduced(field.type, wanted.get(field.name), origins) }));
      const record: AvroRecordNode = { ...node, fields };
      origins.set(record, node);
      return record;
    }
    default:
      return node;
  }
}
