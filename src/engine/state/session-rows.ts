/** Merge of streams with parts of sessions, each ascending by account_id (unsigned) and start, into
 *  whole sessions in that order. */

import type { WindowKernels } from '../../addon/window-surface.ts';
import { ACCUMULATOR } from '../../core/layout/layouts.gen.ts';
import { FAN_IN, inGroups, PagedMerge, type RowStream } from './rows.ts';

type MergeSessions = Pick<WindowKernels, 'mergeSessions' | 'form'>;

/** Streams whole sessions: parts of one key that are less than a gap apart become one session. */
export function mergedSessions(
  kernels: MergeSessions,
  gapMs: number,
  inputs: readonly RowStream[],
): RowStream {
  const { bytes } = kernels.form;
  const merged = (group: readonly RowStream[]): RowStream => {
    // Session that may continue in later pages.
    const open = new Uint8Array(bytes);
    const count = new BigUint64Array(open.buffer, ACCUMULATOR.COUNT, 1);
    return new PagedMerge(
      group,
      bytes,
      (pages, cursors, into) => kernels.mergeSessions(gapMs, pages, cursors, open, into),
      () => count[0] !== 0n,
    );
  };
  return merged(inGroups(inputs, merged));
}

/** Returns the whole sessions of one key, ascending by start. Each input ascends by start too. */
export function wholeSessions(
  kernels: MergeSessions,
  gapMs: number,
  parts: readonly Uint8Array[],
): Uint8Array {
  const { bytes } = kernels.form;
  let left = parts.filter(({ length }) => length > 0);
  do {
    const merged: Uint8Array[] = [];
    for (let from = 0; from < left.length; from += FAN_IN) {
      const pages = left.slice(from, from + FAN_IN);
      const cursors = Uint32Array.from(pages.flatMap(({ length }) => [0, length / bytes, 1]));
      const into = new Uint8Array(pages.reduce((sum, { length }) => sum + length, 0));
      const rows = kernels.mergeSessions(gapMs, pages, cursors, new Uint8Array(bytes), into);
      merged.push(into.subarray(0, rows * bytes));
    }
    left = merged;
  } while (left.length > 1);
  return left[0] ?? new Uint8Array(0);
}
