/** Check of values that a binary column holds as bytes, which are copied into a payload: each is
 *  decoded into a batch without columns. */
import { ColumnBatch } from '../../../core/columns/batch.ts';
import type { ColumnDecoder } from '../../../core/columns/kernel.ts';
import { ColumnSchema } from '../../../core/columns/schema.ts';
import { COLUMN_STATUS, ENCODE_LIMIT } from '../../../core/layout/layouts.gen.ts';

export const NO_COLUMNS = new ColumnSchema([]);

/** Field 1 of a message, a message. */
const WRAP_TAG = (1 << 3) | 2;

export class ValueCheck {
  private readonly decoder: ColumnDecoder;
  private readonly wraps: number;
  private readonly batch = ColumnBatch.create(NO_COLUMNS, 1);

  /** @param wraps messages that are written around each value before it is decoded: `decoder` then
   *  reads the outermost of them */
  constructor(decoder: ColumnDecoder, wraps: number) {
    this.decoder = decoder;
    this.wraps = wraps;
  }

  isValue(value: Uint8Array): boolean {
    if (value.length > ENCODE_LIMIT.PAYLOAD_BYTES) return false;
    let bytes = value;
    for (let i = 0; i < this.wraps; i++)
      bytes = Buffer.concat([Buffer.of(WRAP_TAG), varint(bytes.length), bytes]);
    this.batch.clear();
    const spans = { bytes, start: Uint32Array.of(0), length: Int32Array.of(bytes.length) };
    this.decoder.decode(spans, 0, 1, this.batch, false);
    return this.batch.status[0] === COLUMN_STATUS.OK;
  }
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 127; rest >>>= 7) bytes.push((rest & 127) | 128);
  return Buffer.of(...bytes, rest);
}
