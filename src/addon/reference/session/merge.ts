/** Merge of sorted runs of session parts; the addon's implementation is
 *  native/kernel/session/merge.cc. */
import { coreError } from '../../../core/errors.ts';
import { DURATION_MS_MAX, isEventTs } from '../../../core/time.ts';
import type { RowBytes } from '../../window-surface.ts';
import { demandInteger, demandRows } from '../check.ts';
import type { RowCells } from '../window/cells.ts';
import { compareKeys, compareStarts, type MergeInput, mergeInputs, rowWords } from '../window/run.ts';
import { isEmpty, LAST } from '../window/table.ts';
import { START, timeAt } from './table.ts';

/** True when a row is a session, or a part of one, whose times are within their limits. */
export function isSession(rows: Int32Array, at: number): boolean {
  return (
    !isEmpty(rows, at) &&
    isEventTs(rows[at + START + 1] as number) &&
    isEventTs(rows[at + LAST + 1] as number) &&
    timeAt(rows, at + START) <= timeAt(rows, at + LAST)
  );
}

function demandThat(holds: boolean, why: string): void {
  if (!holds) throw coreError('out_of_range', `pages: ${why}`);
}

function leastOf(inputs: readonly MergeInput[]): MergeInput | undefined {
  let least: MergeInput | undefined;
  for (const input of inputs) {
    if (input.at === input.end) continue;
    if (least === undefined || compareStarts(input.rows, input.at, least.rows, least.at) < 0) least = input;
  }
  return least;
}

/** WindowKernels.mergeSessions. */
export function mergeSessions(
  form: RowCells,
  gapMs: number,
  pages: readonly RowBytes[],
  cursors: Uint32Array,
  open: RowBytes,
  into: RowBytes,
): number {
  const { words } = form;
  demandInteger(gapMs, 1, DURATION_MS_MAX, 'gapMs');
  const held = rowWords(open, form);
  demandRows(held.length, words, 'open');
  const out = rowWords(into, form);
  const inputs = mergeInputs(form, pages, cursors);
  demandThat(isEmpty(held, 0) || isSession(held, 0), 'the open row is no session');
  let to = 0;
  const write = (): boolean => {
    if (to === out.length) return false;
    out.set(held.subarray(0, words), to);
    to += words;
    return true;
  };
  for (;;) {
    if (inputs.some((input) => input.at === input.end && !input.isLast)) break;
    const least = leastOf(inputs);
    if (least === undefined) {
      if (!isEmpty(held, 0) && write()) held.fill(0, 0, words);
      break;
    }
    const { rows, at } = least;
    demandThat(isSession(rows, at), 'a row that is no session');
    const isFirst = isEmpty(held, 0);
    demandThat(isFirst || compareStarts(rows, at, held, 0) >= 0, 'rows out of order');
    // Parts ascend by start, so a part that does not join the open session joins no earlier one.
    const isNear =
      !isFirst &&
      compareKeys(rows, at, held, 0) === 0 &&
      timeAt(rows, at + START) - timeAt(held, LAST) < gapMs;
    if (isNear) form.fold(rows, at, held, 0);
    else {
      if (!isFirst && !write()) break;
      held.set(rows.subarray(at, at + words));
    }
    least.at += words;
    const ascends = least.at === least.end || compareStarts(rows, least.at, rows, at) > 0;
    demandThat(ascends, 'rows out of order');
  }
  inputs.forEach((input, i) => {
    cursors[i * 3] = input.at / words;
  });
  return to / words;
}
