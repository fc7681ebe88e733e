/** Forms of the answers with windows: JSON, or CSV for a client that prefers it. */

import {
  type ColumnType,
  type ColumnValue,
  columnText,
  type ResultColumn,
  type TopItem,
  topItems,
} from '../output/columns.ts';
import { csvCell } from '../output/csv.ts';
import type { WindowResult } from '../window/accumulator.ts';
import { type AskedKey, keyJson, type ShownKeys } from './keys.ts';

/** Media types of the forms; of equally preferred ones the first is answered. */
export const MEDIA_TYPES = {
  json: 'application/json',
  csv: 'text/csv',
  events: 'text/event-stream',
} as const;
export type AnswerForm = keyof typeof MEDIA_TYPES;

/** Content-Type of CSV answers. Source: RFC 4180, 3. */
export const CSV_TYPE = 'text/csv; charset=utf-8; header=present';

/** Form that a client prefers by its Accept lines; JSON where it names none of the forms. */
export function formOf(accept: readonly string[]): AnswerForm {
  const ranges = accept
    .join(',')
    .toLowerCase()
    .split(',')
    .map((part) => {
      const [type = '', ...parameters] = part.split(';').map((text) => text.trim());
      const q = parameters.find((one) => one.startsWith('q='));
      return { type, quality: q === undefined ? 1 : Number(q.slice(2)) || 0 };
    });
  const qualityOf = (type: string): number => {
    const patterns = [type, type.replace(/\/.*/, '/*'), '*/*'];
    for (const pattern of patterns) {
      const found = ranges.find((range) => range.type === pattern);
      if (found !== undefined) return found.quality;
    }
    return 0;
  };
  let best: AnswerForm = 'json';
  for (const form of Object.keys(MEDIA_TYPES) as AnswerForm[])
    if (qualityOf(MEDIA_TYPES[form]) > qualityOf(MEDIA_TYPES[best])) best = form;
  return best;
}

/** Value in JSON: 64-bit integers and times as texts, bytes as hexadecimal digits; a double that is
 *  no finite number as text; a list of values as a list. */
const jsonValue = (
  type: ColumnType,
  value: ColumnValue,
): string | number | boolean | null | readonly TopItem[] =>
  type === 'top' && value !== null
    ? topItems(value as string)
    : value === null || typeof value === 'boolean' || (type === 'f64' && Number.isFinite(value))
      ? (value as number | boolean | null)
      : columnText(value);

/** A window as JSON. @param more members after the columns */
export function windowJson(
  result: WindowResult,
  keys: ShownKeys & { readonly columns: readonly ResultColumn[] },
  more: object = {},
): object {
  const values = keys.columns
    .filter(({ role }) => role !== 'key')
    .map(({ name, type, read }) => [name, jsonValue(type, read(result))] as const);
  return { ...keyJson(result, keys), ...Object.fromEntries(values), ...more };
}

/** Windows as CSV, with a header. @param extra further column, with a cell for each row */
export function windowsCsv(
  rows: readonly WindowResult[],
  columns: readonly ResultColumn[],
  extra?: { readonly name: string; readonly cells: readonly string[] },
): string {
  const names = [...columns.map(({ name }) => name), ...(extra === undefined ? [] : [extra.name])];
  const lines = rows.map((row, at) => {
    const cells = columns.map(({ read }) => csvCell(columnText(read(row))));
    if (extra !== undefined) cells.push(extra.cells[at] ?? '');
    return cells.join();
  });
  return `${[names.join(), ...lines].join('\r\n')}\r\n`;
}

/** The result with the key of the query: rows that are read by a key may not have it. */
export const withKey = (result: WindowResult, { key }: AskedKey): WindowResult =>
  key === undefined ? result : { ...result, key };
