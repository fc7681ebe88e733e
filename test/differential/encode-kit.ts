/** Columns encoded to frames by both kernels, compared with each other and with the payloads that
 *  the columns were decoded from. */
import { expect } from 'vitest';
import type { ColumnBatch } from '../../src/core/columns/batch.ts';
import { EncodedFrames } from '../../src/core/columns/frames.ts';
import {
  type ColumnEncoder,
  type ColumnKernels,
  type EncodeProgram,
  encodeColumns,
  type PayloadSpans,
} from '../../src/core/columns/kernel.ts';
import { COLUMN_SLOT, COLUMN_STATUS, ENCODE_STATUS } from '../../src/core/layout/layouts.gen.ts';
import type { Next } from '../property/registry-avro-decoder-kit.ts';
import { columnKernels } from './avro-columns-kit.ts';

/** Prefix of every frame. */
const PREFIX = Buffer.from([0, 0, 0, 1, 7]);

export type OpenEncoder = (kernels: ColumnKernels, program: EncodeProgram) => ColumnEncoder;

/** Encodes all rows into frames that start small, so that they grow on the way. */
function framesOf(encoder: ColumnEncoder, batch: ColumnBatch): EncodedFrames {
  const frames = EncodedFrames.create(Math.max(1, batch.rowCount), undefined, 16);
  expect(encodeColumns(encoder, batch, 0, batch.rowCount, PREFIX, frames)).toBe(batch.rowCount);
  return frames;
}

/** Everything that an encoder reports, and the bytes of all frames. */
function reported(frames: EncodedFrames): object {
  const rows = frames.rowCount;
  return {
    status: [...frames.status.subarray(0, rows)],
    errorColumn: [...frames.errorColumn.subarray(0, rows)],
    offsets: [...frames.offsets.subarray(0, rows + 1)],
    bytes: Buffer.from(frames.buffer, 0, frames.used).toString('hex'),
    capacity: frames.buffer.byteLength,
  };
}

/** Encodes a batch with every kernel and returns the frames, on which all kernels agree. */
export function encodedBy(open: OpenEncoder, program: EncodeProgram, batch: ColumnBatch): EncodedFrames {
  const [first, ...others] = columnKernels.map((kernels) => {
    const encoder = open(kernels, program);
    const frames = framesOf(encoder, batch);
    encoder.close();
    return frames;
  });
  for (const other of others) expect(reported(other)).toEqual(reported(first as EncodedFrames));
  return first as EncodedFrames;
}

/** Payload behind the prefix; null for a row without a frame. */
export function payloadOf(frames: EncodedFrames, row: number): Buffer | null {
  const frame = frames.frame(row);
  if (frame === null) return null;
  expect(frame.subarray(0, PREFIX.length)).toEqual(PREFIX);
  return frame.subarray(PREFIX.length);
}

/** Payloads of the frames as the input of a decoder. */
export function spansOfFrames(frames: EncodedFrames): PayloadSpans {
  const rows = frames.rowCount;
  const start = new Uint32Array(rows);
  const length = new Int32Array(rows);
  for (let row = 0; row < rows; row++) {
    const isFrame = frames.status[row] === ENCODE_STATUS.OK;
    start[row] = (frames.offsets[row] as number) + (isFrame ? PREFIX.length : 0);
    length[row] = isFrame
      ? (frames.offsets[row + 1] as number) - (frames.offsets[row] as number) - PREFIX.length
      : -1;
  }
  return { bytes: new Uint8Array(frames.buffer), start, length };
}

/** Checks that rows without a value have no frame, and that all others have one. */
export function checkStatuses(batch: ColumnBatch, frames: EncodedFrames): void {
  for (let row = 0; row < batch.rowCount; row++) {
    const decoded = batch.status[row];
    const expected =
      decoded === COLUMN_STATUS.OK
        ? ENCODE_STATUS.OK
        : decoded === COLUMN_STATUS.NULL_VALUE
          ? ENCODE_STATUS.NULL_VALUE
          : ENCODE_STATUS.NO_VALUE;
    expect(frames.status[row]).toBe(expected);
  }
}

const HOSTILE = [0x00, 0x01, 0x7f, 0x80, 0xc0, 0xff];

/** Changes bytes in the buffers of a batch: offsets, type ids, indexes, texts and bits. */
export function corrupt(batch: ColumnBatch, next: Next): void {
  // Chosen first: changed offsets would change the used bytes of texts.
  const buffers = batch.schema.all.flatMap((_, column) =>
    [COLUMN_SLOT.VALIDITY, COLUMN_SLOT.OFFSETS, COLUMN_SLOT.VALUES].map((slot) =>
      batch.bytesOf(column, slot),
    ),
  );
  for (let changes = 1 + next(6); changes > 0; changes--) {
    const bytes = buffers[next(buffers.length)] as Uint8Array;
    if (bytes.length === 0) continue;
    bytes[next(bytes.length)] = next(2) === 0 ? (HOSTILE[next(HOSTILE.length)] as number) : next(256);
  }
}
