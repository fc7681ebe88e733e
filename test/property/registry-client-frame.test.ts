/** The frame of one record as the client library reads it, compared with the kernels of batches. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { framePrefix } from '../../src/addon/reference/frame.ts';
import { referenceKernels } from '../../src/addon/reference/kernels.ts';
import { findMillraceError } from '../../src/core/errors.ts';
import { FrameBatch } from '../../src/core/layout/frame-batch.ts';
import { FRAME_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { serdeError } from '../../src/serde/errors.ts';
import { idHeaderOf, messagePath, readHeaderId, readMessage, readPrefixId } from '../../src/serde/frame.ts';
import { runs } from '../tier.ts';

const records = RecordBatch.create(1, 4096);
const frames = FrameBatch.create(1);
const STATUS: Readonly<Record<number, string>> = {
  [FRAME_STATUS.BAD_MAGIC]: 'bad_magic',
  [FRAME_STATUS.TRUNCATED]: 'truncated_frame',
  [FRAME_STATUS.BAD_MESSAGE_INDEX]: 'bad_message_index',
};

/** Frame that the kernels find, or the code of their refusal. */
function byKernels(bytes: Uint8Array, hasIndexes: boolean): unknown {
  records.clear();
  records.append({ key: null, value: bytes });
  referenceKernels.scanFrames(records, hasIndexes, frames);
  const { status, schemaId, payloadStart, indexStart } = frames.columns;
  if (status[0] !== FRAME_STATUS.OK) return STATUS[status[0] as number];
  const start = records.columns.valueStart[0] as number;
  const all = records.columns.arena;
  const path = hasIndexes ? messagePath(all, indexStart[0] as number, payloadStart[0] as number) : [0];
  return { id: schemaId[0], path, payloadStart: (payloadStart[0] as number) - start };
}

function byLibrary(bytes: Uint8Array, hasIndexes: boolean): unknown {
  try {
    const id = readPrefixId(bytes);
    const { path, payloadStart } = readMessage(id, hasIndexes);
    return { id: id.id, path, payloadStart };
  } catch (thrown) {
    return findMillraceError(thrown)?.code;
  }
}

const path = fc.array(fc.nat(2 ** 31 - 1), { minLength: 1, maxLength: 8 });
const rest = fc.uint8Array({ maxLength: 24 });

test('the library and the kernels read the same frame, or refuse it for the same reason', () => {
  const anyBytes = fc.oneof(
    rest,
    rest.map((bytes) => Uint8Array.from([0, 0, 0, 0, 7, ...bytes])),
    fc
      .tuple(fc.nat(2 ** 32 - 1), path, rest)
      .map(([id, indexes, bytes]) => Buffer.concat([framePrefix(id, Int32Array.from(indexes)), bytes])),
  );
  fc.assert(
    fc.property(anyBytes, fc.boolean(), (bytes, hasIndexes) => {
      expect(byLibrary(bytes, hasIndexes)).toEqual(byKernels(bytes, hasIndexes));
    }),
    { numRuns: runs(5000) },
  );
});

test('a schema id header makes the round trip', () => {
  fc.assert(
    fc.property(fc.uuid(), fc.option(path), (guid, indexes) => {
      const id = readHeaderId(idHeaderOf(guid, indexes === null ? null : Int32Array.from(indexes)));
      expect(id.id).toBe(guid);
      expect(readMessage(id, indexes !== null)).toMatchObject({ path: indexes ?? [0], payloadStart: 0 });
    }),
  );
});

test('a schema id header that is cut short or of another version is refused', () => {
  const header = idHeaderOf('01234567-89ab-4def-8123-456789abcdef', Int32Array.of(3, 1));
  for (let length = 1; length < header.length; length++)
    expect(() => readMessage(readHeaderId(header.subarray(0, length)), true)).toThrow(
      serdeError('truncated_frame', `a schema id header of ${length} bytes is too short for a frame`).message,
    );
  expect(() => readHeaderId(Buffer.from([0, ...header.subarray(1)]))).toThrow('version 0x01');
  expect(() => readHeaderId(Buffer.alloc(0))).toThrow('version 0x01');
});
