/** Place at which the engine began, for a verification: it must be the same place now. */
import { coreError } from '../../../core/errors.ts';
import type { BrokerDriver } from '../../../io/kafka/port.ts';
import { parseStart, type StartPosition } from '../../registry-clients/start.ts';
import { startOf } from '../source/start.ts';

type FixedStart = Exclude<StartPosition, { readonly kind: 'latest' | 'last' }>;

/** Offsets of the records of a partition that the topic has now. */
export interface KeptOffsets {
  readonly low: number;
  readonly high: number;
}

/** Parses `-start` of the job. @throws bad_value; usage for a place that moves with the topic */
export function fixedStart(text: string): FixedStart {
  const start = parseStart(text);
  if (start.kind !== 'latest' && start.kind !== 'last') return start;
  throw coreError(
    'usage',
    `-start=${text} depends on the end of the topic when the engine began, which is not recorded, so the same records cannot be found again`,
    {
      next: 'give -start=TIME or -start=OFFSET here, which goes before the start of a job file: the offsets are in the first lines of the engine\'s log, at "no checkpoint: starting at the given position"; or give about the time when it began, with -verify-from=TIME behind the windows of that time',
      details: { setting: 'start' },
    },
  );
}

/** Offsets at which the engine began. @throws usage if records of it are gone */
export async function firstOffsets(
  start: FixedStart,
  driver: BrokerDriver,
  { brokers, topic }: { readonly brokers: string; readonly topic: string },
  { bounds, fromMs }: { readonly bounds: readonly KeptOffsets[]; readonly fromMs: bigint | undefined },
): Promise<readonly number[]> {
  const { startAt } = startOf(start, driver, { brokers, topic });
  const offsets = (await startAt?.(bounds)) ?? bounds.map(({ low }) => low);
  const gone = bounds.findIndex(
    ({ low, high }, partition) =>
      low > 0 && low < high && mayBeGone(start, low, offsets[partition] as number),
  );
  if (gone >= 0 && fromMs === undefined)
    throw coreError(
      'usage',
      `partition ${gone} of ${topic} begins at offset ${bounds[gone]?.low}: earlier records are gone, so the first windows cannot be recomputed`,
      { next: 'give -verify-from=TIME with a time behind the first windows of the records that are left' },
    );
  return offsets;
}

/** True if the engine may have read records before the first one that is left, at `low`. */
function mayBeGone(start: FixedStart, low: number, offset: number): boolean {
  if (start.kind === 'offset') return start.offset < BigInt(low);
  // The removed records may have had the time too.
  return offset === low;
}
