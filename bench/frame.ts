/** Scanning and writing of wire frames: the addon's kernels against the TypeScript reference. */

import { loadKernels } from '../src/addon/load.ts';
import { FrameBatch } from '../src/core/layout/frame-batch.ts';
import { RecordBatch } from '../src/core/layout/record-batch.ts';
import type { Bench } from './harness.ts';
import { BATCH_ROWS, benchKernels, type KernelCase, patternBytes, ring } from './kernels.ts';

const SCHEMA_ID = 100_042;
/** Payloads of an order, about 512 B on the wire. */
const PAYLOAD_BYTES = 500;
/** Room for the payload with the longest prefix used here. */
const FRAME_BYTES_MAX = PAYLOAD_BYTES + 16;

/** Message index paths: Avro (none), a first message, and a nested message. */
const PATHS: ReadonlyArray<readonly [string, Int32Array | null]> = [
  ['Avro', null],
  ['Protobuf [0]', Int32Array.of(0)],
  ['Protobuf [2,1]', Int32Array.of(2, 1)],
];

function payloads(turn: number) {
  const start = new Uint32Array(BATCH_ROWS);
  const length = new Int32Array(BATCH_ROWS).fill(PAYLOAD_BYTES);
  for (let row = 0; row < BATCH_ROWS; row++) start[row] = row * PAYLOAD_BYTES;
  return { bytes: patternBytes(BATCH_ROWS * PAYLOAD_BYTES, turn), start, length };
}

const writeCase = (name: string, path: Int32Array | null): KernelCase => ({
  metric: `frame write, ${name}`,
  make() {
    const batches = ring((turn) => ({
      ...payloads(turn),
      into: RecordBatch.create(BATCH_ROWS, BATCH_ROWS * FRAME_BYTES_MAX),
    }));
    return {
      step(kernels, turn) {
        const { bytes, start, length, into } = batches[turn] as (typeof batches)[number];
        into.clear();
        kernels.writeFrames(bytes, start, length, BATCH_ROWS, SCHEMA_ID, path, into);
      },
      outputs: () => batches.map(({ into }) => into.buffer),
    };
  },
});

const scanCase = (name: string, path: Int32Array | null): KernelCase => ({
  metric: `frame scan, ${name}`,
  make() {
    const batches = ring((turn) => {
      const { bytes, start, length } = payloads(turn);
      const records = RecordBatch.create(BATCH_ROWS, BATCH_ROWS * FRAME_BYTES_MAX);
      loadKernels('reference').writeFrames(bytes, start, length, BATCH_ROWS, SCHEMA_ID, path, records);
      return { records, frames: FrameBatch.create(BATCH_ROWS) };
    });
    return {
      step(kernels, turn) {
        const { records, frames } = batches[turn] as (typeof batches)[number];
        kernels.scanFrames(records, path !== null, frames);
      },
      outputs: () => batches.map(({ frames }) => frames.buffer),
    };
  },
});

export const bench: Bench = {
  name: 'frame',
  summary: 'Scan and write of wire frames over a batch, kernel against TypeScript reference.',
  run: (context) =>
    benchKernels(
      context,
      PATHS.flatMap(([name, path]) => [scanCase(name, path), writeCase(name, path)]),
    ),
};
