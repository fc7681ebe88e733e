/** Pages of fired rows in the forms that a store has them in. */
import { RowForm } from '../../../core/layout/row-form.ts';
import type { RowEras } from '../../aggregate/eras.ts';
import { KeyColumn } from '../../keys/column.ts';
import type { FiredPage } from '../../window/firing.ts';
import { ResultRows } from '../sink/rows.ts';

/** Returns the rows of a page in the forms of their windows, each page with rows of one form. The
 *  page itself if all of its rows have the newest form. */
export function pagesOfEras(page: FiredPage, eras: RowEras): readonly FiredPage[] {
  if (eras.isOne || page.rowCount === 0) return [page];
  if (page.bounds.kind === 'window') return [inForm(page, eras, page.bounds.start)];
  const rows = new ResultRows(page);
  const byForm = new Map<RowForm, number[]>();
  for (let row = 0; row < page.rowCount; row++) {
    const form = eras.formAt(rows.windowStart(row));
    const own = byForm.get(form);
    if (own === undefined) byForm.set(form, [row]);
    else own.push(row);
  }
  if (byForm.size === 1) return [inForm(page, eras, rows.windowStart(0))];
  return [...byForm.values()].map((own) =>
    inForm(selected(page, own), eras, rows.windowStart(own[0] as number)),
  );
}

/** Page with the rows in the form of windows of a start. */
function inForm(page: FiredPage, eras: RowEras, windowStart: number): FiredPage {
  const mapping = eras.mappingAt(windowStart);
  if (mapping.to === eras.current) return page;
  const rows = new Uint8Array(page.rowCount * mapping.to.bytes);
  mapping.map(page.rows, page.rowCount, rows);
  return { ...page, rows, form: mapping.to };
}

/** Page of some rows, in their order. */
function selected(page: FiredPage, chosen: readonly number[]): FiredPage {
  const { bytes } = page.form ?? RowForm.HEADS;
  const rows = new Uint8Array(chosen.length * bytes);
  chosen.forEach((row, at) => {
    rows.set(page.rows.subarray(row * bytes, (row + 1) * bytes), at * bytes);
  });
  const { keys } = page;
  if (keys === undefined) return { ...page, rows, rowCount: chosen.length };
  const parts = chosen.map((row) => keys.key(row));
  let end = 0;
  const ends = Uint32Array.from(parts, (key) => (end += key.length));
  return { ...page, rows, rowCount: chosen.length, keys: new KeyColumn(Buffer.concat(parts), ends) };
}
