/** Immutable sorted table of rows, as two parallel arrays. A change creates new arrays, so a
 *  snapshot costs nothing. */
import { compareKeys } from '../core/rows.ts';

export interface SortedTable {
  readonly keys: readonly Uint8Array[];
  readonly values: readonly Uint8Array[];
}

export const EMPTY: SortedTable = { keys: [], values: [] };

/** Returns the index of the first row whose key is not below `key`. */
export function lowerBound(table: SortedTable, key: Uint8Array): number {
  let low = 0;
  let high = table.keys.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compareKeys(table.keys[middle] as Uint8Array, key) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Sorts rows by key; of several rows with one key the last one is kept. */
export function tableOf(rows: ReadonlyArray<readonly [Uint8Array, Uint8Array]>): SortedTable {
  const order = rows.map((_, i) => i);
  order.sort(
    (a, b) =>
      compareKeys((rows[a] as [Uint8Array, Uint8Array])[0], (rows[b] as [Uint8Array, Uint8Array])[0]) ||
      a - b,
  );
  const keys: Uint8Array[] = [];
  const values: Uint8Array[] = [];
  for (const i of order) {
    const [key, value] = rows[i] as readonly [Uint8Array, Uint8Array];
    const last = keys.at(-1);
    if (last !== undefined && compareKeys(last, key) === 0) values[values.length - 1] = value;
    else {
      keys.push(key);
      values.push(value);
    }
  }
  return { keys, values };
}

/** Merges two tables; rows of `over` take precedence. */
export function merged(under: SortedTable, over: SortedTable): SortedTable {
  const keys: Uint8Array[] = [];
  const values: Uint8Array[] = [];
  let at = 0;
  for (let i = 0; i < over.keys.length; i++) {
    const key = over.keys[i] as Uint8Array;
    for (; at < under.keys.length; at++) {
      const order = compareKeys(under.keys[at] as Uint8Array, key);
      if (order >= 0) {
        if (order === 0) at++;
        break;
      }
      keys.push(under.keys[at] as Uint8Array);
      values.push(under.values[at] as Uint8Array);
    }
    keys.push(key);
    values.push(over.values[i] as Uint8Array);
  }
  for (; at < under.keys.length; at++) {
    keys.push(under.keys[at] as Uint8Array);
    values.push(under.values[at] as Uint8Array);
  }
  return { keys, values };
}

/** Returns the row numbers of [from, to). */
export function rangeOf(
  table: SortedTable,
  from: Uint8Array | null,
  to: Uint8Array | null,
): readonly [first: number, end: number] {
  const first = from === null ? 0 : lowerBound(table, from);
  return [first, Math.max(first, to === null ? table.keys.length : lowerBound(table, to))];
}

export function without(table: SortedTable, from: Uint8Array | null, to: Uint8Array | null): SortedTable {
  const [first, end] = rangeOf(table, from, to);
  const cut = (cells: readonly Uint8Array[]): Uint8Array[] => [...cells.slice(0, first), ...cells.slice(end)];
  return { keys: cut(table.keys), values: cut(table.values) };
}

export function bytesOf(table: SortedTable): number {
  let bytes = 0;
  for (let i = 0; i < table.keys.length; i++)
    bytes += (table.keys[i] as Uint8Array).length + (table.values[i] as Uint8Array).length;
  return bytes;
}
