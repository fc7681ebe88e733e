/** Plain form of Avro values that a consumer's program sees: objects, arrays, bigint for long,
 *  Buffers.
 *
 *  A value of a union appears without its branch if its kind identifies the branch. If two branches
 *  look alike to a program (`string` and an enum, `bytes` and a fixed, maps and records), it is
 *  `{"name of the branch": value}`; null stays null. Numbers stay plain: a bigint is a long. */

import { branchKey } from '../../../formats/avro/codec/branch.ts';
import type { AvroNode, AvroUnionNode } from '../../../formats/avro/syntax/tree.ts';

/** Builds an object of these entries, with any keys. */
export function objectOf(entries: Iterable<readonly [string, unknown]>): Record<string, unknown> {
  const object: Record<string, unknown> = {};
  for (const [key, value] of entries) {
    // An assignment to `__proto__` would set the prototype.
    if (key === '__proto__')
      Object.defineProperty(object, key, { value, enumerable: true, writable: true, configurable: true });
    else object[key] = value;
  }
  return object;
}

const looksLike = (node: AvroNode): string => {
  if (node.kind === 'primitive') return node.type;
  if (node.kind === 'fixed') return 'bytes';
  if (node.kind === 'enum') return 'string';
  return node.kind === 'array' ? 'array' : 'object';
};

const alike = new WeakMap<AvroUnionNode, boolean>();

function looksAlike(union: AvroUnionNode): boolean {
  const known = alike.get(union);
  if (known !== undefined) return known;
  const seen = new Set(union.branches.map(looksLike));
  const made = seen.size < union.branches.length;
  alike.set(union, made);
  return made;
}

/** @param value plain value of that branch */
export function plainBranch(union: AvroUnionNode, branch: number, value: unknown): unknown {
  if (value === null || !looksAlike(union)) return value;
  return objectOf([[branchKey(union.branches[branch] as AvroNode), value]]);
}
