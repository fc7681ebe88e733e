/** Times of ISO 8601 in Flink SQL, in every form that the engine reads (source/input/iso.ts).
 *
 *  Formats and casts of Flink read fewer forms, and a cast to TIMESTAMP moves a day that a month
 *  lacks. So a pattern decides whether a text is a time, and its parts are added up. A cast to DATE
 *  is null for a day that does not exist. */
import { quotedText } from '../../formats/flink/sql.ts';

/** Pattern of a time whose day may not exist. `$` also matches before the end of a line, so a
 *  lookahead demands the end of the text. */
export const ISO_PATTERN =
  '^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.,][0-9]{1,18})?)?([Zz]|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])(?![^Z]|Z)';

/** Milliseconds since the epoch of a text; null if it is no time. */
export function isoMillisSql(text: string): string {
  const number = (part: string): string => `TRY_CAST(${part} AS BIGINT)`;
  const at = (first: number): string => number(`SUBSTRING(${text}, ${first}, 2)`);
  const found = (pattern: string): string => `REGEXP_EXTRACT(${text}, ${quotedText(pattern)}, 1)`;
  const orZero = (value: string): string => `COALESCE(${value}, 0)`;
  const date = `TRY_CAST(SUBSTRING(${text}, 1, 10) AS DATE)`;
  const millis = `SUBSTRING(${found('[.,]([0-9]+)')} || '00', 1, 3)`;
  const zone = `${number(found('[+-]([0-9]{2}):?[0-9]{2}$'))} * 60 + ${number(found('[+-][0-9]{2}:?([0-9]{2})$'))}`;
  const sum = [
    `TIMESTAMPDIFF(DAY, DATE '1970-01-01', ${date}) * CAST(86400000 AS BIGINT)`,
    `${at(12)} * 3600000`,
    `${at(15)} * 60000`,
    `${orZero(number(found('^.{16}:([0-9]{2})')))} * 1000`,
    orZero(number(millis)),
    `${orZero(zone)} * CASE WHEN REGEXP(${text}, '-[0-9]{2}:?[0-9]{2}$') THEN 60000 ELSE -60000 END`,
  ].join(' + ');
  return `CASE WHEN REGEXP(${text}, ${quotedText(ISO_PATTERN)}) THEN ${sum} END`;
}
