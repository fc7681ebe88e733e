/** Checks of kernel arguments, with the error texts of the addon's binding. */
import { coreError } from '../../core/errors.ts';
import { BATCH, BATCH_HEADER } from '../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';

interface Batch {
  readonly buffer: ArrayBufferLike;
  readonly columns: { readonly header: Int32Array };
  readonly rowCount: number;
  readonly rowCapacity: number;
  readonly arenaCapacity?: number;
}

/** Checks that views and header of a batch agree: the reference implementation reads through the
 *  views, the addon by the header.
 *  @throws layout_mismatch */
export function demandHeader(batch: Batch, name: string): void {
  const { header } = batch.columns;
  if (
    header[BATCH_HEADER.MAGIC / 4] !== BATCH.MAGIC ||
    header[BATCH_HEADER.ROW_CAPACITY / 4] !== batch.rowCapacity ||
    (batch.arenaCapacity !== undefined && header[BATCH_HEADER.ARENA_CAPACITY / 4] !== batch.arenaCapacity)
  )
    throw coreError('layout_mismatch', `${name}: the buffer is not a batch of the expected layout`);
}

/** Row count of a batch, checked against its capacity. @throws layout_mismatch */
export function rowsOf(batch: Batch, name: string): number {
  demandHeader(batch, name);
  const rows = batch.rowCount >>> 0;
  if (rows > batch.rowCapacity)
    throw coreError('layout_mismatch', `${name}: the header says more rows than the batch has`);
  return rows;
}

/** Used bytes of the arena, checked against its capacity. @throws layout_mismatch */
export function arenaOf(records: RecordBatch, name: string): number {
  const used = records.arenaUsed >>> 0;
  if (used > records.arenaCapacity)
    throw coreError('layout_mismatch', `${name}: the header says more arena bytes than the batch has`);
  return used;
}

/** Checks the size of a batch or array to fill.
 *  @throws out_of_range when it has too few rows */
export function demandRows(capacity: number, rows: number, name: string): void {
  if (capacity < rows) throw coreError('out_of_range', `${name}: too few rows`);
}

/** Checks an integer. @throws out_of_range unless it is a whole number in [least, greatest] */
export function demandInteger(value: number, least: number, greatest: number, name: string): void {
  if (!(Number.isInteger(value) && value >= least && value <= greatest))
    throw coreError(
      'out_of_range',
      `${name}: expected a whole number from ${least} to ${greatest}, not ${value}`,
    );
}
