/** Live decode of the orders that a fleet writes: they are encoded with the schema of the writer,
 *  decoded with that of the reader, and compared with the fields that the generator wrote. Neither
 *  the compatibility rules nor the check of the consumer takes part. */
import { findMillraceError } from '../../src/core/errors.ts';
import type { Decode } from '../../src/formats/decode.ts';
import { Payloads } from '../../src/formats/payloads.ts';
import { parseSchema, type Schema } from '../../src/formats/schema.ts';
import { DEFAULT_ORDERS, OrderGenerator, type OrderShape } from '../../src/gen/order.ts';
import { type OrderFormat, orderAsRead, orderAsWritten, orderSchema } from '../../src/gen/order-versions.ts';
import { differenceOf } from '../../src/registry/proof/same.ts';
import { readerUnjudged, writerCodec } from '../../src/serde/codec.ts';

/** Seed of the only producer of a cell. */
const SEED = 1n;
/** Size of an encoded order at most, in bytes. */
const ORDER_BYTES = 4096;

export interface LiveDecode {
  readonly orders: number;
  /** Orders at which the decoder fails. */
  readonly unreadable: number;
  /** Orders that are decoded with a wrong or a lost value. */
  readonly misread: number;
  /** First failure; absent if there is none. */
  readonly shown?: string;
}

export const schemaOf = (shape: OrderShape, format: OrderFormat): Schema =>
  parseSchema(format === 'avro' ? 'AVRO' : 'PROTOBUF', orderSchema(shape, format));

const textOf = (value: unknown): string =>
  JSON.stringify(value, (_, one: unknown) => (typeof one === 'bigint' ? `${one}` : one)) ?? 'nothing';

/** First difference between two orders in words. */
function difference(wanted: unknown, got: unknown): string | undefined {
  const path = differenceOf(wanted, got);
  if (path === undefined) return undefined;
  const at = (value: unknown): unknown =>
    (path.match(/[\w]+/g) ?? []).reduce<unknown>(
      (one, key) => (one as Readonly<Record<string, unknown>>)?.[key],
      value,
    );
  return `${path.slice(1)} is ${textOf(at(got))} instead of ${textOf(at(wanted))}`;
}

/** Decodes the first orders of the seed. */
export function decodeOrders(
  format: OrderFormat,
  writer: OrderShape,
  reader: OrderShape,
  orders: number,
): LiveDecode {
  const [written, wanted] = [schemaOf(writer, format), schemaOf(reader, format)];
  const { encode, messageIndexes } = writerCodec(written);
  let decode: Decode;
  try {
    decode = readerUnjudged(wanted, written, [...(messageIndexes ?? [])]);
  } catch (thrown) {
    return { orders, unreadable: orders, misread: 0, shown: messageOf(thrown) };
  }
  const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: SEED });
  let unreadable = 0;
  let misread = 0;
  let shown: string | undefined;
  for (let index = 0; index < orders; index++) {
    const order = generator.order(index);
    const bytes = encodedOrder(encode, orderAsWritten(order, writer));
    try {
      const wrong = difference(orderAsRead(order, writer, reader), decode(bytes, 0, bytes.length));
      if (wrong === undefined) continue;
      misread++;
      shown ??= wrong;
    } catch (thrown) {
      unreadable++;
      shown ??= messageOf(thrown);
    }
  }
  return { orders, unreadable, misread, ...(shown === undefined ? {} : { shown }) };
}

function encodedOrder(encode: (value: unknown, into: Payloads) => void, order: unknown): Buffer {
  const into = new Payloads(1, ORDER_BYTES);
  encode(order, into);
  return into.bytes.subarray(0, into.used);
}

/** @throws the value itself unless it is an error of Millrace */
function messageOf(thrown: unknown): string {
  const known = findMillraceError(thrown);
  if (known === undefined) throw thrown;
  return known.message;
}
