/** Paths of fields: the names of nested records. The name of a list ends with LIST_MARK where the
 *  path means its elements: `order.items[].qty`. */

export type FieldPath = readonly string[];

/** Behind the name of a list. No field of Avro or Protobuf has it in its name. */
export const LIST_MARK = '[]';

/** Greatest number of names in a path. */
const PATH_NAMES_MAX = 32;
const NAME = /^[^\s@:[\]]+(?:\[\])?$/u;

const isMarked = (name: string): boolean => name.endsWith(LIST_MARK);

export const plainName = (name: string): string => (isMarked(name) ? name.slice(0, -LIST_MARK.length) : name);

export const plainPath = (path: FieldPath): FieldPath => path.map(plainName);

/** True for the name of a list whose elements a path means. */
export const isListName = isMarked;

/** Why names are no path; undefined: they are one. */
export function pathFault(path: FieldPath): string | undefined {
  if (path.length > PATH_NAMES_MAX || path.some((name) => !NAME.test(name)))
    return 'is not the path of a field';
  return path.filter(isMarked).length > 1 ? 'names the elements of a list inside a list' : undefined;
}

/** Advice for a text that is no path. */
export const PATH_NEXT =
  'name a field, with dots into nested records, such as customer.id, and [] behind the name of one list, such as items[].qty';

/** Path of the list whose elements a path means; undefined: it means a field of the record. */
export function listOf(path: FieldPath): FieldPath | undefined {
  const at = path.findIndex(isMarked);
  return at < 0 ? undefined : path.slice(0, at + 1);
}

/** True if a path means the elements of the list, or fields of them. */
export const isInList = (path: FieldPath, list: FieldPath | undefined): boolean =>
  list !== undefined && path.length >= list.length && list.every((name, at) => name === path[at]);

/** True if a path leads into the list, and does not say so. */
export function lacksMark(path: FieldPath, list: FieldPath): boolean {
  const plain = plainPath(list);
  const isBelow =
    path.length >= plain.length && plain.every((name, at) => name === plainName(path[at] ?? ''));
  return isBelow && !isInList(path, list);
}
