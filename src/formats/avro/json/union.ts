/** Forms of a union's value in JSON: plain, or an object whose one key names the branch, as Avro's
 *  JSON encoding requires: `{"string":"a"}`. Null is never wrapped. */
import { branchKey } from '../codec/branch.ts';
import { shortName } from '../codec/match.ts';
import { type AvroNode, type AvroUnionNode, avroTypeName } from '../syntax/tree.ts';

type JsonLook = 'null' | 'boolean' | 'number' | 'string' | 'array' | 'object';

/** JSON type of a branch's values. */
export function lookOf(branch: AvroNode): JsonLook {
  switch (branch.kind) {
    case 'fixed':
    case 'enum':
      return 'string';
    case 'record':
    case 'map':
      return 'object';
    case 'array':
      return 'array';
    case 'union':
      return 'object';
    case 'primitive':
      if (branch.type === 'null' || branch.type === 'boolean') return branch.type;
      return branch.type === 'string' || branch.type === 'bytes' ? 'string' : 'number';
  }
}

/** A union's branches by the names that a JSON value may use for them. */
export class BranchNames {
  private readonly byName = new Map<string, number>();
  /** True when two branches have the same JSON type, so a plain value does not identify one. */
  readonly isAmbiguous: boolean;

  constructor(union: AvroUnionNode) {
    const { branches } = union;
    for (const name of [avroTypeName, branchKey, (node: AvroNode) => shortName(avroTypeName(node))])
      branches.forEach((branch, index) => {
        const key = name(branch);
        if (!this.byName.has(key)) this.byName.set(key, index);
      });
    const looks = branches.map(lookOf);
    this.isAmbiguous = new Set(looks).size < looks.length;
  }

  /** Index of the branch with this name; undefined for none. */
  indexOf(name: string): number | undefined {
    return this.byName.get(name);
  }
}
