/** CPU of the codec and of the generator alone, measured apart from the load: on one thread of this
 *  process, over the same orders, with the functions that producer and consumer call. */
import { chooseNative, loadKernels } from '../../src/addon/load.ts';
import { invariant } from '../../src/core/errors.ts';
import { FrameBatch } from '../../src/core/layout/frame-batch.ts';
import { FRAME_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { Payloads } from '../../src/formats/payloads.ts';
import { DEFAULT_ORDERS, OrderGenerator } from '../../src/gen/order.ts';
import type { OrderFormat } from '../../src/gen/order-versions.ts';
import { fitOf } from '../../src/registry/producer/fit.ts';
import { readerUnjudged, writerCodec } from '../../src/serde/codec.ts';
import type { BenchContext } from '../harness.ts';
import { schemaOf } from '../rollout/decode.ts';
import { passNs } from '../serde/timing.ts';
import { READER_VERSION, WRITER_VERSION } from './load.ts';

const ROWS = 1024;
const ROW_BYTES = 1024;
const TIME_MS = 2000;
const TIME_MS_SMOKE = 20;
const SCHEMA_ID = 1;

/** CPU seconds for a million events. */
export interface CodecSeconds {
  readonly generate: number;
  /** Encode and frame. */
  readonly encode: number;
  /** Scan the frame and decode with the reader schema, once. */
  readonly decode: number;
}

/** Parts that the passes share. */
function partsOf(context: BenchContext, format: OrderFormat) {
  const writer = schemaOf(WRITER_VERSION, format);
  const codec = writerCodec(writer);
  const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: 1n });
  const sample = Array.from({ length: ROWS }, (_, index) => generator.order(index));
  const convert =
    fitOf(
      writer,
      sample.find(({ items }) => items.length > 0),
    ) ?? ((value: unknown) => value);
  return {
    kernels: loadKernels(chooseNative(context.settings.native).mode),
    codec,
    decode: readerUnjudged(schemaOf(READER_VERSION, format), writer, [...(codec.messageIndexes ?? [])]),
    orderAt: (index: number): unknown => convert(generator.order(index)),
    payloads: new Payloads(ROWS, ROWS * ROW_BYTES),
    batch: RecordBatch.create(ROWS, ROWS * ROW_BYTES),
    frames: FrameBatch.create(ROWS),
  };
}

export async function codecSeconds(context: BenchContext, format: OrderFormat): Promise<CodecSeconds> {
  const { kernels, codec, decode, orderAt, payloads, batch, frames } = partsOf(context, format);
  const timeMs = context.smoke ? TIME_MS_SMOKE : TIME_MS;
  const kept: { last?: unknown } = {};
  let next = 0;
  const generate = (): void => {
    for (let row = 0; row < ROWS; row++) kept.last = orderAt(next++);
  };
  const orders = Array.from({ length: ROWS }, (_, index) => orderAt(index));
  const encode = (): void => {
    payloads.clear();
    for (const order of orders) codec.encode(order, payloads);
    batch.clear();
    const { bytes, start, length } = payloads;
    const taken = kernels.writeFrames(bytes, start, length, ROWS, SCHEMA_ID, codec.messageIndexes, batch);
    invariant(taken === ROWS, 'a batch has room for the framed orders');
  };
  encode();
  const { arena } = batch.columns;
  const bytes = Buffer.from(arena.buffer as ArrayBuffer, arena.byteOffset, arena.byteLength);
  const read = (): void => {
    kernels.scanFrames(batch, format === 'protobuf', frames);
    const { status, payloadStart, payloadLength } = frames.columns;
    for (let row = 0; row < ROWS; row++) {
      invariant(status[row] === FRAME_STATUS.OK, 'every frame can be read');
      const from = payloadStart[row] as number;
      kept.last = decode(bytes, from, from + (payloadLength[row] as number));
    }
  };
  // Nanoseconds for one event are milliseconds for a million events.
  const seconds = async (pass: () => void): Promise<number> => (await passNs(pass, ROWS, timeMs)) / 1000;
  return { generate: await seconds(generate), encode: await seconds(encode), decode: await seconds(read) };
}
