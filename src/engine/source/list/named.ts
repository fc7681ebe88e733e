/** The list that the settings of a job name, if they name one: each of its elements is an event. */
import { engineError } from '../../errors.ts';
import { type FieldPath, isListName, LIST_MARK, lacksMark, listOf } from './path.ts';

/** A path, and the setting that names it. */
export interface NamedPath {
  readonly flag: string;
  readonly path: FieldPath;
  /** True: a name in backquotes may end like the mark of a list, and means a field. */
  readonly isQuoted?: boolean;
}

const wrong = ({ flag, path }: NamedPath, why: string, next: string): Error =>
  engineError('bad_setting', `-${flag}=${path.join('.').slice(0, 200)} ${why}`, {
    next,
    details: { setting: flag },
  });

/** Path of the list; undefined: no path names one.
 *  @throws bad_setting for the elements of two lists, and for a path that leads into the list
 *  without naming its elements */
export function namedList(paths: readonly NamedPath[]): FieldPath | undefined {
  const lists = paths.flatMap((named) => {
    const list = named.isQuoted === true ? undefined : listOf(named.path);
    return list === undefined ? [] : [{ named, list }];
  });
  const [first] = lists;
  if (first === undefined) return undefined;
  const { list } = first;
  const text = list.join('.');
  const other = lists.find((one) => one.list.join('.') !== text);
  if (other !== undefined)
    throw wrong(
      other.named,
      `names the list ${other.list.join('.')}, and -${first.named.flag}=${first.named.path.join('.')} names ${text}: an event is an element of one list`,
      'name fields of one list and of the record, and run a job of its own for the other list',
    );
  const quoted = paths.find(({ path, isQuoted }) => isQuoted === true && path.some(isListName));
  if (quoted !== undefined)
    throw wrong(
      quoted,
      `names a field whose name ends with ${LIST_MARK}`,
      'leave that field out of a job that names the elements of a list',
    );
  const unmarked = paths.find(({ path }) => lacksMark(path, list));
  if (unmarked !== undefined)
    throw wrong(
      unmarked,
      `names ${text.slice(0, -LIST_MARK.length)} as a record, and -${first.named.flag}=${first.named.path.join('.')} names it as a list`,
      `write ${[...list, ...unmarked.path.slice(list.length)].join('.')}`,
    );
  return list;
}
