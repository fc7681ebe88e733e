/** Names of tables and columns from configuration: parsed, and quoted in every statement, so that
 *  no text of a user becomes SQL. */
import { coreError } from '../../../core/errors.ts';

/** PostgreSQL truncates longer names, so a longer one would mean another table. */
const NAME_BYTES_MAX = 63;
const SHOWN_CHARS_MAX = 80;
const PLAIN = /^[A-Za-z_][A-Za-z0-9_$]*/;
const QUOTED = /^"((?:[^"]|"")+)"/;

/** Name of a table, with its parts quoted for SQL. */
export interface TableName {
  /** Name as it was given, for texts. */
  readonly given: string;
  readonly sql: string;
  /** Quoted schema with its dot, or empty. */
  readonly schemaDot: string;
  /** Name without its schema, unquoted. */
  readonly local: string;
}

export const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;

function bad(what: string, text: string, why: string): Error {
  return coreError('bad_value', `${what} ${JSON.stringify(text.slice(0, SHOWN_CHARS_MAX))} ${why}`, {
    next: 'give a name as SQL writes it: name, "Name", schema.name or "My Schema"."My Table"',
  });
}

function checked(name: string, what: string, text: string): string {
  if (name.includes('\0')) throw bad(what, text, 'has a zero character');
  if (Buffer.byteLength(name) > NAME_BYTES_MAX)
    throw bad(what, text, `has a part of more than ${NAME_BYTES_MAX} bytes`);
  return name;
}

/** Reads one identifier; a plain one is folded to lower case, as SQL does. */
function readPart(text: string): { readonly name: string; readonly rest: string } | undefined {
  const inQuotes = QUOTED.exec(text);
  if (inQuotes !== null)
    return {
      name: (inQuotes[1] as string).replaceAll('""', '"'),
      rest: text.slice(inQuotes[0].length),
    };
  const plain = PLAIN.exec(text);
  if (plain === null) return undefined;
  return { name: plain[0].toLowerCase(), rest: text.slice(plain[0].length) };
}

/** Parses `name` or `schema.name`, each part plain or in double quotes.
 *  @param what setting that the error names
 *  @throws bad_value */
export function tableName(text: string, what: string): TableName {
  const first = readPart(text);
  if (first === undefined) throw bad(what, text, 'is not the name of a table');
  const second = first.rest.startsWith('.') ? readPart(first.rest.slice(1)) : undefined;
  const last = second ?? first;
  if (last.rest !== '') throw bad(what, text, 'is not the name of a table');
  const schemaDot = second === undefined ? '' : `${quoted(checked(first.name, what, text))}.`;
  const local = checked(last.name, what, text);
  return { given: text, sql: `${schemaDot}${quoted(local)}`, schemaDot, local };
}

/** Parses one column name, plain or in double quotes, and returns it unquoted.
 *  @throws bad_value */
export function columnName(text: string, what: string): string {
  const part = readPart(text);
  if (part === undefined || part.rest !== '') throw bad(what, text, 'is not the name of a column');
  return checked(part.name, what, text);
}
