/** Kit for window kernels: both implementations, batches made from plain rows, and the observable
 *  state. */
import fc from 'fast-check';
import type { SortedRun, WindowKernels, WindowState } from '../../src/addon/window-surface.ts';
import { loadWindowKernels } from '../../src/addon/windows.ts';
import { AdmittedBatch } from '../../src/core/layout/admitted-batch.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { ACCUMULATOR, EVENT_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { RefusedBatch } from '../../src/core/layout/refused-batch.ts';
import { shareSmallBatches } from '../native-threads.ts';

// Every state of several shards uses threads, whatever the size of its batches.
shareSmallBatches();
export const native = loadWindowKernels('native');
export const reference = loadWindowKernels('reference');
export const SIDES: readonly WindowKernels[] = [reference, native];
export const ROW_BYTES = ACCUMULATOR.BYTES;

export const I64_MIN = -(2n ** 63n);
export const I64_MAX = 2n ** 63n - 1n;

export interface EventRow {
  readonly partition?: number;
  readonly offset?: bigint;
  readonly timestamp?: bigint;
  readonly timestampType?: number;
  readonly accountId?: bigint;
  readonly value?: bigint;
  readonly eventTs: bigint;
  readonly status?: number;
}

export interface Batches {
  readonly records: RecordBatch;
  readonly events: EventBatch;
  readonly admitted: AdmittedBatch;
  readonly refused: RefusedBatch;
}

export function batchesOf(rows: readonly EventRow[], shared = false): Batches {
  const capacity = Math.max(1, rows.length);
  const records = RecordBatch.create(capacity, 64, shared);
  const events = EventBatch.create(capacity, shared);
  rows.forEach((row, i) => {
    records.columns.partition[i] = row.partition ?? 0;
    records.columns.offset[i] = row.offset ?? BigInt(i);
    records.columns.timestamp[i] = row.timestamp ?? 0n;
    records.columns.timestampType[i] = row.timestampType ?? 0;
    events.columns.accountId[i] = row.accountId ?? 0n;
    events.columns.value[i] = row.value ?? 0n;
    events.columns.eventTs[i] = row.eventTs;
    events.columns.status[i] = row.status ?? EVENT_STATUS.OK;
  });
  records.rowCount = rows.length;
  events.rowCount = rows.length;
  const admitted = AdmittedBatch.create(capacity, shared);
  return { records, events, admitted, refused: RefusedBatch.create(capacity, shared) };
}

/** Admits every row to its slice without a time check. */
export function admitAll(batches: Batches, sliceMs: bigint): void {
  const { events, admitted } = batches;
  for (let row = 0; row < events.rowCount; row++) {
    const ts = events.columns.eventTs[row] as bigint;
    const past = ((ts % sliceMs) + sliceMs) % sliceMs;
    admitted.columns.row[row] = row;
    admitted.columns.slice[row] = ts - past;
  }
  admitted.rowCount = events.rowCount;
}

export const hexOf = (buffer: ArrayBufferLike): string => Buffer.from(new Uint8Array(buffer)).toString('hex');

/** Returns the value of a call, or the code of its error. */
export function outcome<T>(call: () => T): T | string {
  try {
    return call();
  } catch (thrown) {
    return `${(thrown as { code?: string }).code}`;
  }
}

export function slicesOf(state: WindowState): number[] {
  const out = new Float64Array(state.slices(new Float64Array(0)));
  state.slices(out);
  return [...out];
}

export function deltasOf(state: WindowState): Uint8Array {
  const out = new Uint8Array(state.deltaBytesMax());
  return out.slice(0, state.encodeDeltas(out));
}

/** Reads the rows of a run in pages of `pageRows`. */
export function rowsOf(run: SortedRun, pageRows: number): Uint8Array {
  const rows = new Uint8Array(run.rowCount * ROW_BYTES);
  const page = new ArrayBuffer(pageRows * ROW_BYTES);
  for (let from = 0; from < run.rowCount; ) {
    const count = run.read(from, page);
    rows.set(new Uint8Array(page, 0, count * ROW_BYTES), from * ROW_BYTES);
    from += count;
  }
  return rows;
}

/** Removes and returns everything that a state contains, slice by slice. */
export async function emptied(state: WindowState, pageRows = 7): Promise<ReadonlyArray<readonly unknown[]>> {
  const found: Array<readonly unknown[]> = [];
  for (const start of slicesOf(state)) {
    const run = await state.seal(start);
    const rows = rowsOf(run, pageRows);
    found.push([start, run.rowCount, run.bytes, hexOf(rows.buffer)]);
    run.close();
  }
  return found;
}

/** Bytes with one to three changes: another byte, a shorter end, and sometimes a corrected length
 *  at `lengthAt`, so that the rest is parsed. */
export const changed = (whole: Uint8Array, lengthAt: number): fc.Arbitrary<Uint8Array> =>
  fc
    .array(
      fc.record({
        at: fc.nat(whole.length),
        byte: fc.nat(255),
        cut: fc.option(fc.nat(whole.length), { freq: 5 }),
        mend: fc.boolean(),
      }),
      { minLength: 1, maxLength: 3 },
    )
    .map((changes) => {
      let bytes = whole.slice();
      for (const { at, byte, cut, mend } of changes) {
        if (cut !== null) bytes = bytes.slice(0, cut);
        if (at < bytes.length) bytes[at] = byte;
        if (mend && bytes.length >= lengthAt + 4)
          new DataView(bytes.buffer).setUint32(lengthAt, bytes.length, true);
      }
      return bytes;
    });
