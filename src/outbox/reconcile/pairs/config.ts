/** Pairs that a user configures: a JSON file, or two tables with the columns of the library. */
import { coreError } from '../../../core/errors.ts';
import { parseDuration } from '../../../core/quantity.ts';
import { MESSAGE_CLASSES, type PairConfig } from './pair.ts';
import type { SideConfig } from './side.ts';

const PAIRS_MAX = 32;
/** Names become values of labels. */
const NAME = /^[a-z][a-z0-9_]{0,39}$/;
const SIDE_FIELDS = new Set(['table', 'id', 'time', 'order', 'value', 'state']);
const PAIR_FIELDS = new Set(['name', 'outbox', 'inbox', 'keep']);

/** Columns of outboxTableSql. */
const OUTBOX_COLUMNS = { id: 'msg_id', time: 'created_at', order: 'id', state: 'published_at' } as const;
/** Columns of inboxTableSql. */
const INBOX_COLUMNS = { id: 'msg_id', time: 'processed_at' } as const;

/** Pair of an outbox and an inbox that the library made. */
export const libraryPair = (outbox: string, inbox: string): PairConfig => ({
  name: 'outbox_inbox',
  left: { table: outbox, ...OUTBOX_COLUMNS },
  right: { table: inbox, ...INBOX_COLUMNS },
  classes: MESSAGE_CLASSES,
  judgesLate: true,
});

function bad(path: string, why: string): Error {
  return coreError('bad_file', `the pairs of ${path}: ${why}`, {
    next: 'give {"pairs": [{"name": "shop", "outbox": {"table": "outbox"}, "inbox": {"table": "inbox"}}]}',
  });
}

type Fields = Readonly<Record<string, unknown>>;

function fieldsOf(path: string, value: unknown, what: string, known: ReadonlySet<string>): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw bad(path, `${what} is not an object`);
  const unknown = Object.keys(value).find((name) => !known.has(name));
  if (unknown !== undefined)
    throw bad(path, `${what} has the unknown field ${JSON.stringify(unknown.slice(0, 40))}`);
  return value as Fields;
}

function sideOf(path: string, value: unknown, what: string, columns: Omit<SideConfig, 'table'>): SideConfig {
  const fields = fieldsOf(path, value, what, SIDE_FIELDS);
  for (const [name, text] of Object.entries(fields))
    if (typeof text !== 'string' || text === '') throw bad(path, `${name} of ${what} is not a name`);
  if (fields['table'] === undefined) throw bad(path, `${what} has no table`);
  // A side that names columns of its own has none of the columns that it leaves out.
  const own = Object.keys(fields).some((name) => name !== 'table');
  if (own && (fields['id'] === undefined || fields['time'] === undefined))
    throw bad(path, `${what} names some of its columns, but not both id and time`);
  return { ...(own ? {} : columns), ...fields } as unknown as SideConfig;
}

function keepOf(path: string, value: unknown, what: string): number | undefined {
  if (value === undefined) return undefined;
  const ms = typeof value === 'string' ? parseDuration(value) : undefined;
  if (ms === undefined || ms <= 0) throw bad(path, `keep of ${what} is not a duration such as 24h`);
  return ms;
}

/** Parses the text of a file of pairs. @throws bad_file */
export function parsePairs(path: string, text: string): readonly PairConfig[] {
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch {
    throw bad(path, 'the file is not JSON');
  }
  const { pairs } = fieldsOf(path, document, 'the file', new Set(['pairs']));
  if (!Array.isArray(pairs) || pairs.length === 0) throw bad(path, 'there is no list of pairs');
  if (pairs.length > PAIRS_MAX)
    throw bad(path, `there are ${pairs.length} pairs; at most ${PAIRS_MAX} are compared`);
  const names = new Set<string>();
  return pairs.map((value: unknown, at) => {
    const fields = fieldsOf(path, value, `pair ${at + 1}`, PAIR_FIELDS);
    const { name } = fields;
    if (typeof name !== 'string' || !NAME.test(name))
      throw bad(path, `the name of pair ${at + 1} is not 1 to 40 lower-case letters, digits and _`);
    if (names.has(name)) throw bad(path, `two pairs have the name ${name}`);
    names.add(name);
    const keepMs = keepOf(path, fields['keep'], name);
    return {
      name,
      left: sideOf(path, fields['outbox'], `the outbox of ${name}`, OUTBOX_COLUMNS),
      right: sideOf(path, fields['inbox'], `the inbox of ${name}`, INBOX_COLUMNS),
      ...(keepMs === undefined ? {} : { keepMs }),
      classes: MESSAGE_CLASSES,
      judgesLate: true,
    };
  });
}
