/** Decoding of 256 B events into columns: the addon's kernel against the TypeScript reference. */
import { EventBatch } from '../src/core/layout/event-batch.ts';
import { EVENT } from '../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../src/core/layout/record-batch.ts';
import type { Bench } from './harness.ts';
import { BATCH_ROWS, benchKernels, type KernelCase, patternBytes, ring } from './kernels.ts';

/** `offAlignment` bytes precede the first value, as keys and headers do. */
const decodeCase = (metric: string, offAlignment: number): KernelCase => ({
  metric,
  make() {
    const batches = ring((turn) => {
      const records = RecordBatch.create(BATCH_ROWS, BATCH_ROWS * EVENT.BYTES + offAlignment);
      const values = patternBytes(BATCH_ROWS * EVENT.BYTES, turn);
      records.arenaUsed = offAlignment;
      for (let row = 0; row < BATCH_ROWS; row++)
        records.append({ value: values.subarray(row * EVENT.BYTES, (row + 1) * EVENT.BYTES) });
      return { records, events: EventBatch.create(BATCH_ROWS) };
    });
    return {
      step(kernels, turn) {
        const { records, events } = batches[turn] as (typeof batches)[number];
        kernels.decodeEvents(records, events);
      },
      outputs: () => batches.map(({ events }) => events.buffer),
    };
  },
});

export const bench: Bench = {
  name: 'decode',
  summary: 'Decode of 256 B events into columns, kernel against TypeScript reference.',
  run: (context) =>
    benchKernels(context, [
      decodeCase('event decode, aligned', 0),
      decodeCase('event decode, off alignment', 3),
    ]),
};
