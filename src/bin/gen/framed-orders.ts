/** Encodes orders as framed records. Each schema version is registered once; each order is written
 *  with the version that the generator assigns. */

import type { Kernels } from '../../addon/surface.ts';
import type { Timers } from '../../core/clock.ts';
import { coreError } from '../../core/errors.ts';
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Metrics } from '../../core/metrics.ts';
import { Payloads } from '../../formats/payloads.ts';
import { parseSchema } from '../../formats/schema.ts';
import type { OrderShape } from '../../gen/order.ts';
import type { EncodeOrder } from '../../gen/order-source.ts';
import { inOrder, orderAsWritten, orderSchema } from '../../gen/order-versions.ts';
import { RegistryClient } from '../../serde/client.ts';
import { type WriterCodec, writerCodec } from '../../serde/codec.ts';
import { fetchTransport } from '../../serde/transport.ts';
import { systemRandom } from '../../shell/clock.ts';
import { type CredentialSettings, credentialsOf } from '../registry-clients/credentials.ts';

export interface FramedOrdersOptions {
  /** Address and credentials of the registry. */
  readonly registry: CredentialSettings;
  readonly subject: string;
  readonly format: 'avro' | 'protobuf';
  readonly versions: readonly OrderShape[];
  readonly timeoutMs: number;
  readonly kernels: Kernels;
  readonly clock: Timers;
  readonly metrics: Metrics;
}

/** Upper bound of a framed order. */
const FRAME_BYTES_MAX = 4096;
const UNKNOWN_ID_MS = 10_000;
const RETRIES = 2;
const RETRY_DELAY_MS = 100;

interface Writer {
  readonly codec: WriterCodec;
  readonly schemaId: number;
}

/** Registers the versions in ascending order and then the candidates, then encodes with them. The
 *  record key is the order_id.
 *  @throws any error of the registry; unreachable */
export async function framedOrders(options: FramedOrdersOptions): Promise<EncodeOrder> {
  const { subject, clock, metrics, kernels } = options;
  const { registry } = options.registry;
  if (!URL.canParse(registry) || !/^https?:$/.test(new URL(registry).protocol)) {
    throw coreError('bad_value', `-registry=${registry} is not an address`, {
      next: 'give http://host:port',
    });
  }
  const client = new RegistryClient({
    transport: fetchTransport({ ...credentialsOf(options.registry), timeoutMs: options.timeoutMs, clock }),
    clock,
    random: systemRandom,
    metrics,
    unknownForMs: UNKNOWN_ID_MS,
    retries: RETRIES,
    retryDelayMs: RETRY_DELAY_MS,
  });
  const format = options.format === 'avro' ? 'AVRO' : 'PROTOBUF';
  const writers = new Map<OrderShape, Writer>();
  for (const version of inOrder(options.versions)) {
    const text = orderSchema(version, options.format);
    const schemaId = await client.register(subject, format, text);
    writers.set(version, { codec: writerCodec(parseSchema(format, text)), schemaId });
  }
  const payloads = new Payloads(1, FRAME_BYTES_MAX);
  const frame = RecordBatch.create(1, FRAME_BYTES_MAX);
  return (order, version) => {
    const { codec, schemaId } = writers.get(version) as Writer;
    payloads.clear();
    codec.encode(orderAsWritten(order, version), payloads);
    frame.clear();
    kernels.writeFrames(
      payloads.bytes,
      payloads.start,
      payloads.length,
      1,
      schemaId,
      codec.messageIndexes,
      frame,
    );
    return { key: Buffer.from(order.order_id), value: frame.value(0) as Uint8Array };
  };
}
