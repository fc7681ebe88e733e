/** Selects the kernels of the window engine: the addon or the TypeScript reference implementation.
 */

import { RowForm } from '../core/layout/row-form.ts';
import type { ValueColumns } from '../core/layout/value-columns.ts';
import type { BatchBytes } from './bytes.ts';
import { callAddon, loadAddon, type NativeMode } from './load.ts';
import { type Addon, batchBytes, type Values } from './raw.ts';
import { demandHeader } from './reference/check.ts';
import { referenceWindowKernels } from './reference/window/state.ts';
import type { RowRun, SessionState, SortedRun, WindowKernels, WindowState } from './window-surface.ts';

function checked(batch: Parameters<typeof demandHeader>[0], name: string): BatchBytes {
  demandHeader(batch, name);
  return batchBytes(batch);
}

type Run = ReturnType<Addon['windowSeal']>;

/** Sorts a run and wraps it. */
async function sorted(addon: Addon, run: Run): Promise<RowRun> {
  const rowCount = callAddon(() => addon.windowRunRows(run));
  await callAddon(() => addon.windowRunSort(run));
  return {
    rowCount,
    bytes: callAddon(() => addon.windowRunBytes(run)),
    read: (from, into) => callAddon(() => addon.windowRunRead(run, from, into)),
    readAside: async (from, into) => callAddon(() => addon.windowRunReadAside(run, from, into)),
    close: () => callAddon(() => addon.windowRunClose(run)),
  };
}

async function seal(
  addon: Addon,
  state: Parameters<Addon['windowSeal']>[0],
  sliceStart: number,
): Promise<SortedRun> {
  const run = callAddon(() => addon.windowSeal(state, sliceStart));
  return {
    ...(await sorted(addon, run)),
    sliceStart,
    find: (accountId, into) => callAddon(() => addon.windowRunFind(run, accountId, into)),
  };
}

/** Arguments of the values of a batch. */
const valuesOf = (values: ValueColumns | undefined): Values =>
  values === undefined
    ? [null, null, null, null]
    : [values.cells, values.valid, values.capacity, values.texts.cells];

function openState(addon: Addon, sliceMs: number, shards: number, form: RowForm): WindowState {
  const state = callAddon(() => addon.windowOpen(sliceMs, shards, form.words));
  return {
    form,
    accumulate: (events, admitted, values) =>
      callAddon(() =>
        addon.windowAccumulate(
          state,
          checked(events, 'events'),
          checked(admitted, 'admitted'),
          ...valuesOf(values),
        ),
      ),
    deltaBytesMax: () => callAddon(() => addon.windowDeltaBytesMax(state)),
    encodeDeltas: (out) => callAddon(() => addon.windowEncodeDeltas(state, out)),
    applyDeltas: (bytes, seq = 0, covered) =>
      callAddon(() => addon.windowApplyDeltas(state, bytes, seq, covered ?? null)),
    reserve: (sliceStart, rows) => callAddon(() => addon.windowReserve(state, sliceStart, rows)),
    load: (sliceStart, rows, count) => callAddon(() => addon.windowLoad(state, sliceStart, rows, count)),
    copy: (sliceStart, cursor, into) => callAddon(() => addon.windowCopy(state, sliceStart, cursor, into)),
    copyRange: (range, sliceStart, cursor, into) =>
      callAddon(() => addon.windowCopyRange(state, range, sliceStart, cursor, into)),
    find: (sliceStart, accountId, into) =>
      callAddon(() => addon.windowFind(state, sliceStart, accountId, into)),
    slices: (out) => callAddon(() => addon.windowSlices(state, out)),
    keyCount: () => callAddon(() => addon.windowKeys(state)),
    bytes: () => callAddon(() => addon.windowBytes(state)),
    drop: (sliceStart) => callAddon(() => addon.windowDrop(state, sliceStart)),
    trim: () => callAddon(() => addon.windowTrim(state)),
    seal: (sliceStart) => seal(addon, state, sliceStart),
    close: () => callAddon(() => addon.windowClose(state)),
  };
}

async function sortedFrom(addon: Addon, create: () => Run): Promise<RowRun> {
  return sorted(addon, callAddon(create));
}

function openSessions(addon: Addon, gapMs: number, shards: number, form: RowForm): SessionState {
  const state = callAddon(() => addon.sessionOpen(gapMs, shards, form.words));
  return {
    form,
    accumulate: (events, admitted, values) =>
      callAddon(() =>
        addon.sessionAccumulate(
          state,
          checked(events, 'events'),
          checked(admitted, 'admitted'),
          ...valuesOf(values),
        ),
      ),
    deltaBytesMax: () => callAddon(() => addon.sessionDeltaBytesMax(state)),
    encodeDeltas: (out) => callAddon(() => addon.sessionEncodeDeltas(state, out)),
    applyDeltas: (bytes, seq = 0, covered) =>
      callAddon(() => addon.sessionApplyDeltas(state, bytes, seq, covered ?? null)),
    reserve: (rows) => callAddon(() => addon.sessionReserve(state, rows)),
    load: (rows, count) => callAddon(() => addon.sessionLoad(state, rows, count)),
    copy: (cursor, into) => callAddon(() => addon.sessionCopy(state, cursor, into)),
    copyRange: (range, cursor, into) => callAddon(() => addon.sessionCopyRange(state, range, cursor, into)),
    find: (accountId, into) => callAddon(() => addon.sessionFind(state, accountId, into)),
    fire: (watermark) => sortedFrom(addon, () => addon.sessionFire(state, watermark)),
    detach: () => sortedFrom(addon, () => addon.sessionDetach(state)),
    trim: () => callAddon(() => addon.sessionTrim(state)),
    leastEnd: () => callAddon(() => addon.sessionLeastEnd(state)),
    sessionCount: () => callAddon(() => addon.sessionCount(state)),
    mergedCount: () => callAddon(() => addon.sessionMerged(state)),
    bytes: () => callAddon(() => addon.sessionBytes(state)),
    close: () => callAddon(() => addon.sessionClose(state)),
  };
}

function nativeWindowKernels(addon: Addon, form: RowForm): WindowKernels {
  const steps = form.words;
  return {
    name: 'native',
    form,
    admit: (clock, progress, records, events, from, admitted, refused) =>
      callAddon(() =>
        addon.windowAdmit(
          clock,
          progress,
          checked(records, 'records'),
          checked(events, 'events'),
          from,
          checked(admitted, 'admitted'),
          refused === undefined ? null : checked(refused, 'refused'),
        ),
      ),
    open: (sliceMs, shards) => openState(addon, sliceMs, shards, form),
    openSessions: (gapMs, shards) => openSessions(addon, gapMs, shards, form),
    merge: (pages, cursors, into) => callAddon(() => addon.windowMerge(pages, cursors, into, steps)),
    mergeAhead: async (pages, cursors, into) =>
      callAddon(() => addon.windowMergeAhead(pages, cursors, into, steps)),
    mergeSessions: (gapMs, pages, cursors, open, into) =>
      callAddon(() => addon.sessionMerge(gapMs, pages, cursors, open, into, steps)),
  };
}

/** Selects the kernels for rows of a form. @throws addon_missing, addon_mismatch as `loadAddon`
 *  does */
export function loadWindowKernels(mode: NativeMode, form: RowForm = RowForm.HEADS): WindowKernels {
  return mode === 'native' ? nativeWindowKernels(loadAddon(), form) : referenceWindowKernels(form);
}
