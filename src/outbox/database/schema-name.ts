/** Checks schema names that enter SQL text and connection options without quotes, and that
 *  PostgreSQL lets a user create. */
import { coreError } from '../../core/errors.ts';

const PLAIN = /^[a-z_][a-z0-9_]{0,62}$/;
const SHOWN_CHARS_MAX = 80;

/** Key words that SQL does not accept as names without quotes. */
const KEY_WORDS = new Set(
  `all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation column
   concurrently constraint create cross current_catalog current_date current_role current_schema current_time
   current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze from
   full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit localtime
   localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references returning
   right select session_user similar some symmetric system_user table tablesample then to trailing true union unique user
   using variadic verbose when where window with`.split(/\s+/),
);

function unusableReason(name: string): { readonly why: string; readonly next: string } | undefined {
  if (!PLAIN.test(name))
    return {
      why: 'is not a plain schema name',
      next: 'use lower-case letters, digits and _ (at most 63, no digit first)',
    };
  if (name.startsWith('pg_') || name === 'information_schema')
    return {
      why: 'names a schema that PostgreSQL keeps for itself',
      next: 'use another name: those that begin with pg_, and information_schema, are reserved',
    };
  if (KEY_WORDS.has(name))
    return { why: 'is a key word of SQL', next: `use another name, such as ${name}_1` };
  return undefined;
}

/** Checks a schema name. @param what setting that the error names. @throws bad_value */
export function requirePlainSchema(name: string, what = '-schema'): void {
  const found = unusableReason(name);
  if (found === undefined) return;
  throw coreError('bad_value', `${what}=${name.slice(0, SHOWN_CHARS_MAX)} ${found.why}`, {
    next: found.next,
  });
}
