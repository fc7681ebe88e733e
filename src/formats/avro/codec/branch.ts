/** Form of a union's value in a program: the plain value, or, where two branches have the same
 *  JavaScript type, an object whose one key names the branch, `{"n.Card":{…}}`. Null is never
 *  wrapped.
 *
 *  Number branches do not count as the same type: a long is a bigint, and the others are written by
 *  the narrowest branch that holds them. */
import { type AvroNode, type AvroUnionNode, avroTypeName } from '../syntax/tree.ts';

/** JavaScript type of a branch's values; numbers, booleans, arrays and null each have one of their
 *  own. */
function jsTypeOf(branch: AvroNode): string {
  if (branch.kind === 'fixed' || (branch.kind === 'primitive' && branch.type === 'bytes')) return 'buffer';
  if (branch.kind === 'enum' || (branch.kind === 'primitive' && branch.type === 'string')) return 'string';
  if (branch.kind === 'record' || branch.kind === 'map') return 'object';
  return avroTypeName(branch);
}

export function isWrapped(union: AvroUnionNode): boolean {
  const looks = union.branches.map(jsTypeOf);
  return new Set(looks).size < looks.length;
}

const PRIMITIVE_WORD = /(^|\.)(null|boolean|int|long|float|double|bytes|string)$/;

/** A name in the spelling of the codecs. Names that our reader accepts and avsc refuses, from
 *  schemas of other registries, are escaped in the same way for producers and consumers. */
export function escapedName(name: string): string {
  const plain = name
    .split('.')
    .map((part) => part.replace(/[^A-Za-z0-9_]/gu, (char) => `_x${char.codePointAt(0)?.toString(16)}_`))
    .map((part) => (/^[A-Za-z_]/.test(part) && part !== '__proto__' ? part : `_${part}`))
    .join('.');
  return PRIMITIVE_WORD.test(plain) ? `${plain}_` : plain;
}

/** Key of a wrapped value. */
export function branchKey(branch: AvroNode): string {
  switch (branch.kind) {
    case 'record':
    case 'enum':
    case 'fixed':
      return escapedName(branch.name);
    default:
      return avroTypeName(branch);
  }
}
