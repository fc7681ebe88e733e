/** Admission of the rows of a record: it stops between records alone, and a row without an event
 *  moves only the position. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { loadWindowKernels } from '../../../../src/addon/windows.ts';
import { AdmittedBatch } from '../../../../src/core/layout/admitted-batch.ts';
import { EventBatch } from '../../../../src/core/layout/event-batch.ts';
import { EVENT_STATUS } from '../../../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { RefusedBatch } from '../../../../src/core/layout/refused-batch.ts';
import { PartitionWatermarks } from '../../../../src/engine/source/admission.ts';
import { runs } from '../../../tier.ts';
import { SIDES, type Side } from '../input/input-kit.ts';

interface Row {
  readonly partition: number;
  readonly offset: number;
  readonly eventTs: number;
  readonly status?: number;
}

const TIMES = { sizeMs: 10, slideMs: 10, skewMs: 0, latenessMs: 0, maxFutureMs: undefined };

function batchesOf(rows: readonly Row[]) {
  const count = Math.max(1, rows.length);
  const records = RecordBatch.create(count, 0);
  const events = EventBatch.create(count);
  rows.forEach(({ partition, offset, eventTs, status = EVENT_STATUS.OK }, row) => {
    records.columns.partition[row] = partition;
    records.columns.offset[row] = BigInt(offset);
    events.columns.eventTs[row] = BigInt(eventTs);
    events.columns.status[row] = status;
  });
  records.rowCount = rows.length;
  events.rowCount = rows.length;
  return { records, events };
}

/** Admits all rows. Each step has the number of rows that it took, and those that it admitted. */
function admitted(side: Side, rows: readonly Row[], partitions = 2) {
  const watermarks = new PartitionWatermarks(loadWindowKernels(side), TIMES, partitions);
  const { records, events } = batchesOf(rows);
  const into = AdmittedBatch.create(Math.max(1, rows.length));
  const refused = RefusedBatch.create(Math.max(1, rows.length));
  const steps: Array<{ readonly taken: number; readonly rows: readonly number[]; readonly late: number }> =
    [];
  for (let from = 0; from < rows.length; ) {
    const taken = watermarks.admit(records, events, from, into, refused);
    steps.push({ taken, rows: [...into.columns.row.subarray(0, into.rowCount)], late: refused.rowCount });
    from += taken;
    // Every window up to the frontier fires.
    watermarks.nextEnd = Number.POSITIVE_INFINITY;
  }
  return { steps, totals: watermarks.totals(), progress: watermarks.progress().map(({ offset }) => offset) };
}

describe.each(SIDES)('admission of the rows of a record, %s', (side) => {
  const row = (offset: number, eventTs: number, status?: number): Row => ({
    ...{ partition: 0, offset, eventTs },
    ...(status === undefined ? {} : { status }),
  });

  it('a window that becomes due inside a record stops the rows at the end of the record', () => {
    const { steps, totals, progress } = admitted(
      side,
      [row(0, 1), row(1, 2), row(1, 30), row(1, 31), row(2, 3)],
      1,
    );
    expect(steps).toEqual([
      { taken: 4, rows: [0, 1, 2, 3], late: 0 },
      { taken: 1, rows: [], late: 1 },
    ]);
    expect(totals).toMatchObject({ consumed: 5, accepted: 4, droppedLate: 1, invalid: 0 });
    expect(progress).toEqual([3]);
  });

  it('a row without an event is not counted, and its position is passed', () => {
    const none = EVENT_STATUS.NO_EVENT;
    const { totals, progress } = admitted(
      side,
      [row(0, 0, none), row(1, 5), row(1, 0, none), row(7, 0, none)],
      1,
    );
    expect(totals).toMatchObject({ consumed: 1, accepted: 1, invalid: 0 });
    expect(progress).toEqual([8]);
  });

  it('an offset that occurs again behind another row is out of place', () => {
    expect(() => admitted(side, [row(3, 1), row(4, 1), row(3, 1)], 1)).toThrow();
    const apart = [row(3, 1), { partition: 1, offset: 3, eventTs: 1 }, row(3, 1)];
    expect(() => admitted(side, apart)).toThrow();
  });
});

describe('admission of records with several rows', () => {
  it('both implementations take the same rows, and stop between records alone', () => {
    const record = fc.record({
      partition: fc.nat(1),
      times: fc.array(fc.integer({ min: -30, max: 30 }), { minLength: 1, maxLength: 70 }),
      status: fc.constantFrom(
        ...Object.values(EVENT_STATUS).filter((one) => one !== EVENT_STATUS.BAD_LENGTH),
      ),
      luck: fc.nat(3),
    });
    fc.assert(
      fc.property(fc.array(record, { maxLength: 12 }), fc.nat(8), (all, drift) => {
        const next = [0, 0];
        const rows = all.flatMap(({ partition, times, status, luck }, at): Row[] => {
          const offset = next[partition] as number;
          next[partition] = offset + 1 + (luck === 0 ? 2 : 0);
          return times.map((time, element) => ({
            ...{ partition, offset, eventTs: time + at * drift },
            status: luck === 1 && element === 0 ? status : EVENT_STATUS.OK,
          }));
        });
        const native = admitted('native', rows);
        expect(native).toEqual(admitted('reference', rows));
        let end = 0;
        for (const { taken } of native.steps) {
          end += taken;
          const [last, first] = [rows[end - 1], rows[end]];
          if (first !== undefined)
            expect(first.offset !== last?.offset || first.partition !== last.partition).toBe(true);
        }
      }),
      { numRuns: runs(300) },
    );
  });
});
