/** Shard hash of account ids: the addon's kernel against the TypeScript reference. */
import { EventBatch } from '../src/core/layout/event-batch.ts';
import type { Bench } from './harness.ts';
import { BATCH_ROWS, benchKernels, type KernelCase, patternBytes, ring } from './kernels.ts';

const hashCase = (shards: number): KernelCase => ({
  metric: `shard hash, ${shards} shards`,
  make() {
    const batches = ring((turn) => {
      const events = EventBatch.create(BATCH_ROWS);
      const ids = new Uint8Array(events.buffer, events.columns.accountId.byteOffset, BATCH_ROWS * 8);
      ids.set(patternBytes(ids.length, turn));
      events.rowCount = BATCH_ROWS;
      return { events, out: new Int32Array(BATCH_ROWS) };
    });
    return {
      step(kernels, turn) {
        const { events, out } = batches[turn] as (typeof batches)[number];
        kernels.shardOf(events, shards, out);
      },
      outputs: () => batches.map(({ out }) => out.buffer),
    };
  },
});

export const bench: Bench = {
  name: 'hash',
  summary: 'Owner shard of each row of an event batch, kernel against TypeScript reference.',
  // A power of two uses a mask, any other number a remainder.
  run: (context) => benchKernels(context, [hashCase(8), hashCase(7)]),
};
