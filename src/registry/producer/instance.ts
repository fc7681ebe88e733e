/** Producer of framed records: values are encoded, framed and passed to the broker client in
 *  batches.
 *  Invariants: (1) `send` resolves when its rows are encoded and passed on, `finish` when each row
 *  has its delivery report;
 *  (2) a row that is not acknowledged ends the run with an error, it is never dropped silently;
 *  (3) at most BATCHES_IN_FLIGHT_MAX pooled batches exist, which bounds memory if the broker is
 *  slow. */

import type { Kernels } from '../../addon/surface.ts';
import type { Clock } from '../../core/clock.ts';
import { FRAME, RECORD_FLAG } from '../../core/layout/layouts.gen.ts';
import { RecordBatch, type RecordHeader } from '../../core/layout/record-batch.ts';
import type { Counter, Histogram, Metrics } from '../../core/metrics.ts';
import { Payloads } from '../../formats/payloads.ts';
import type { BatchProducer } from '../../io/kafka/port.ts';
import type { WriterCodec } from '../../serde/codec.ts';
import { batchOf } from '../consumer/deliver.ts';
import { registryError } from '../errors.ts';

const BATCHES_IN_FLIGHT_MAX = 4;
/** Estimated bytes of an encoded row with its key; a batch of larger rows holds fewer rows. */
const ROW_BYTES = 1024;
/** Frame header, and a message-index array of the greatest depth at five bytes a number. */
const FRAME_BYTES_MAX = FRAME.HEADER_BYTES + 5 * (FRAME.MESSAGE_DEPTH_MAX + 1);

export interface FramedProducerOptions {
  readonly producer: BatchProducer;
  readonly topic: string;
  readonly codec: WriterCodec;
  /** Looks up the id of the codec's schema; called once a batch. */
  readonly schemaId: () => Promise<number>;
  readonly kernels: Kernels;
  readonly clock: Clock;
  readonly batchRows: number;
  /** Key of a row, or null for none. */
  readonly keyOf: (value: unknown) => string | Uint8Array | null;
  /** Milliseconds that the caller took to prepare a value for the codec. Default 0. */
  readonly preparedMs?: (value: unknown) => number;
  /** Headers of every record. Default: none. */
  readonly headers?: readonly RecordHeader[] | undefined;
  readonly metrics: ProducerMetrics;
}

export interface ProducerMetrics {
  readonly produced: Counter;
  readonly bytes: Counter;
  readonly encodeSeconds: Histogram;
  readonly overheadSeconds: Histogram;
}

export function producerMetrics(metrics: Metrics): ProducerMetrics {
  return {
    produced: metrics.counter('produced_records_total', 'Records acknowledged by the broker.'),
    bytes: metrics.counter('produced_bytes_total', 'Bytes of the values of those records.'),
    encodeSeconds: metrics.histogram(
      'serde_encode_seconds',
      'Time to encode one value, without framing and network.',
    ),
    overheadSeconds: metrics.histogram(
      'serde_overhead_seconds',
      'Time to encode one value and to frame it with its key (framing as the mean of its batch), without network.',
    ),
  };
}

export class FramedProducer {
  private readonly options: FramedProducerOptions;
  private readonly topics: readonly string[];
  private readonly payloads: Payloads;
  /** Milliseconds that each value of the batch took. */
  private readonly encodeMs: Float64Array;
  /** Encoded headers; all rows of a batch share one copy. */
  private readonly headers: Uint8Array;
  private readonly free: RecordBatch[] = [];
  private readonly waiters: Array<() => void> = [];
  private readonly inFlight = new Set<Promise<void>>();
  private failure: unknown;

  constructor(options: FramedProducerOptions) {
    this.options = options;
    this.topics = [options.topic];
    this.payloads = new Payloads(options.batchRows, options.batchRows * ROW_BYTES);
    this.encodeMs = new Float64Array(options.batchRows);
    this.headers = encodedHeaders(options.headers ?? []);
    for (let i = 0; i < BATCHES_IN_FLIGHT_MAX; i++)
      this.free.push(RecordBatch.create(options.batchRows, options.batchRows * ROW_BYTES));
  }

  /** Encodes values and passes them to the broker client. Waits for a free batch, not for
   *  acknowledgements.
   *  @throws value_refused (nothing of this call was sent), not_delivered of an earlier call, the
   *  errors of `schemaId` */
  async send(values: readonly unknown[]): Promise<void> {
    for (let from = 0; from < values.length; from += this.options.batchRows) {
      await this.sendSome(values.slice(from, from + this.options.batchRows));
    }
  }

  private async sendSome(values: readonly unknown[]): Promise<void> {
    const { codec, clock } = this.options;
    const schemaId = await this.options.schemaId();
    const batch = await this.takeBatch();
    // No await from here to the last `produce`, so no other `send` can use the payloads meanwhile.
    const { payloads } = this;
    payloads.clear();
    try {
      let before = clock.monotonicMs();
      for (let i = 0; i < values.length; i++) {
        codec.encode(values[i], payloads);
        const after = clock.monotonicMs();
        this.encodeMs[i] = after - before + (this.options.preparedMs?.(values[i]) ?? 0);
        before = after;
      }
    } catch (thrown) {
      this.releaseBatch(batch);
      throw thrown;
    }
    const keys = values.map((value) => {
      const key = this.options.keyOf(value);
      return typeof key === 'string' ? Buffer.from(key, 'utf8') : key;
    });
    const startMs = clock.monotonicMs();
    let done = this.fill(batch, schemaId, keys, 0);
    this.observe((clock.monotonicMs() - startMs) / Math.max(1, done));
    this.produce(batch);
    // Rows that do not fit go into batches allocated for them. Such large rows are rare.
    while (done < payloads.count) {
      const rows = payloads.count - done;
      const bytes =
        payloads.used -
        (payloads.start[done] as number) +
        rows * FRAME_BYTES_MAX +
        keyBytes(keys, done) +
        this.headers.length;
      const extra = RecordBatch.create(rows, bytes);
      done += this.fill(extra, schemaId, keys, done);
      this.produce(extra);
    }
  }

  /** Observes the encode and frame time of each row of the current batch. */
  private observe(frameMs: number): void {
    const { encodeSeconds, overheadSeconds } = this.options.metrics;
    for (let row = 0; row < this.payloads.count; row++) {
      const encodeMs = this.encodeMs[row] as number;
      encodeSeconds.observe(encodeMs / 1000);
      overheadSeconds.observe((encodeMs + frameMs) / 1000);
    }
  }

  /** Frames payloads starting at `from`, as many as fit with their keys. Returns their number. */
  private fill(
    batch: RecordBatch,
    schemaId: number,
    keys: ReadonlyArray<Uint8Array | null>,
    from: number,
  ): number {
    const { payloads } = this;
    const { kernels, codec } = this.options;
    let fits = 0;
    let room = batch.arenaCapacity - this.headers.length;
    for (let row = from; row < payloads.count && fits < batch.rowCapacity; row++) {
      room -= (payloads.length[row] as number) + FRAME_BYTES_MAX + (keys[row]?.length ?? 0);
      if (room < 0) break;
      fits++;
    }
    batch.clear();
    const taken = kernels.writeFrames(
      payloads.bytes,
      payloads.start.subarray(from),
      payloads.length.subarray(from),
      fits,
      schemaId,
      codec.messageIndexes,
      batch,
    );
    const { keyStart, keyLength, flags, arena } = batch.columns;
    let at = batch.arenaUsed;
    for (let row = 0; row < taken; row++) {
      const key = keys[from + row];
      if (key === null || key === undefined) continue;
      arena.set(key, at);
      keyStart[row] = at;
      keyLength[row] = key.length;
      flags[row] = (flags[row] as number) & ~RECORD_FLAG.KEY_NULL;
      at += key.length;
    }
    batch.arenaUsed = at;
    this.addHeaders(batch);
    return taken;
  }

  private addHeaders(batch: RecordBatch): void {
    const { headers } = this;
    if (headers.length === 0) return;
    const { headersStart, headersLength, flags, arena } = batch.columns;
    const at = batch.arenaUsed;
    arena.set(headers, at);
    batch.arenaUsed = at + headers.length;
    for (let row = 0; row < batch.rowCount; row++) {
      headersStart[row] = at;
      headersLength[row] = headers.length;
      flags[row] = (flags[row] as number) | RECORD_FLAG.HAS_HEADERS;
    }
  }

  private produce(batch: RecordBatch): void {
    if (batch.rowCount === 0) {
      this.releaseBatch(batch);
      return;
    }
    const sent = this.options.producer
      .produce(batch, this.topics)
      .then((report) => {
        if (report.failed > 0) {
          const why = report.events.map((event) => `${event.name}: ${event.message}`).join('; ');
          throw registryError(
            'not_delivered',
            `${report.failed} of ${batch.rowCount} records were not acknowledged by topic ${this.options.topic}: ${why}`,
            {
              next: 'check the broker and run again',
            },
          );
        }
        let bytes = 0;
        for (let row = 0; row < batch.rowCount; row++)
          bytes += Math.max(0, batch.columns.valueLength[row] as number);
        this.options.metrics.produced.add(batch.rowCount);
        this.options.metrics.bytes.add(bytes);
      })
      .catch((thrown: unknown) => {
        this.failure ??= thrown;
      })
      .finally(() => {
        this.inFlight.delete(sent);
        this.releaseBatch(batch);
      });
    this.inFlight.add(sent);
  }

  private async takeBatch(): Promise<RecordBatch> {
    for (;;) {
      if (this.failure !== undefined) throw this.failure;
      const batch = this.free.pop();
      if (batch !== undefined) return batch;
      await new Promise<void>((resolve) => this.waiters.push(resolve));
    }
  }

  private releaseBatch(batch: RecordBatch): void {
    if (this.free.length < BATCHES_IN_FLIGHT_MAX) this.free.push(batch);
    for (const wake of this.waiters.splice(0)) wake();
  }

  /** Waits until every row has its delivery report. @throws not_delivered */
  async finish(): Promise<void> {
    while (this.inFlight.size > 0) await Promise.all(this.inFlight);
    if (this.failure !== undefined) throw this.failure;
  }
}

function keyBytes(keys: ReadonlyArray<Uint8Array | null>, from: number): number {
  let bytes = 0;
  for (let row = from; row < keys.length; row++) bytes += keys[row]?.length ?? 0;
  return bytes;
}

/** Bytes of headers as a batch holds them. */
function encodedHeaders(headers: readonly RecordHeader[]): Uint8Array {
  if (headers.length === 0) return new Uint8Array();
  const { columns } = batchOf([{ headers }]);
  const at = columns.headersStart[0] as number;
  return columns.arena.slice(at, at + (columns.headersLength[0] as number));
}
