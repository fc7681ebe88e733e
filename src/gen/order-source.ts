/** Fills record batches with orders; the caller passes the encoder. */
import { coreError } from '../core/errors.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';
import type { LogicalOrder, OrderGenerator, OrderShape } from './order.ts';
import { orderAsWritten } from './order-versions.ts';
import type { BatchSource } from './pump.ts';

/** Encoded order; the key is null for a row without a key. */
interface EncodedOrder {
  readonly key: Uint8Array | null;
  readonly value: Uint8Array;
}

export type EncodeOrder = (order: LogicalOrder, version: OrderShape, index: number) => EncodedOrder;

const utf8 = new TextEncoder();

/** Encodes an order as one JSON line: `{"version":1,"order":{…}}` with the fields of that version;
 *  64-bit numbers are decimal text. */
export const orderLine: EncodeOrder = (order, version) => {
  const text = JSON.stringify({ version, order: orderAsWritten(order, version) }, (_name, value: unknown) =>
    typeof value === 'bigint' ? value.toString() : value,
  );
  return { key: null, value: utf8.encode(`${text}\n`) };
};

export class OrderSource implements BatchSource {
  private readonly generator: OrderGenerator;
  private readonly versions: readonly OrderShape[];
  private readonly encode: EncodeOrder;
  private readonly count: number;
  private index = 0;

  constructor(
    generator: OrderGenerator,
    versions: readonly OrderShape[],
    encode: EncodeOrder,
    count: number,
  ) {
    this.generator = generator;
    this.versions = versions;
    this.encode = encode;
    this.count = count;
  }

  /** Replaces the content of the batch with the next orders. @throws out_of_range if one order does
   *  not fit an empty batch */
  fill(into: RecordBatch, most: number): number {
    into.clear();
    while (this.index < this.count && into.rowCount < most) {
      const order = this.generator.order(this.index);
      const version = this.generator.versionOf(this.index, this.versions);
      if (!into.append(this.encode(order, version, this.index))) {
        if (into.rowCount === 0)
          throw coreError('out_of_range', `order ${this.index} does not fit an empty batch`);
        break;
      }
      this.index++;
    }
    return into.rowCount;
  }
}
