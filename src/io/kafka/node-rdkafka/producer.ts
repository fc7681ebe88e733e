/** Producer of the node-rdkafka driver: one call and one delivery report a row, collected into
 *  batches.
 *
 *  Invariants: (1) batches enter the client one after the other, in the order of the calls; (2)
 *  every row gets exactly one status: from the call, its delivery report or the close.
 *  Limit of node-rdkafka: it sends header values as text. A row with a header that is null, not
 *  UTF-8 or contains a zero byte is refused with _INVALID_ARG, so its value is never altered.
 */
import { isUtf8 } from 'node:buffer';
import type { LibrdKafkaError, Producer } from 'node-rdkafka';
import { coreError } from '../../../core/errors.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import { brokerEvent, closedError, ERR, errorOfEvent, thrownEvent } from '../errors.ts';
import type { BatchProducer, BrokerEvent, DeliveryReport, ProducerOptions } from '../port.ts';
import { QUEUE_BYTES_MAX } from '../properties.ts';

/** Rows sent before the event loop runs other work. */
const SLICE_ROWS = 1000;
const POLL_MS = 2;
const CLOSE_TIMEOUT_MS = 30_000;
const NO_OFFSET = -1001n;
/** Bound of row numbers in the opaque number of a message; the number of the batch is above it. */
const ROWS_SPAN = 2 ** 24;

interface InFlightBatch {
  readonly batch: RecordBatch;
  readonly rows: number;
  readonly status: Int32Array;
  readonly offset: BigInt64Array;
  readonly events: Map<number, BrokerEvent>;
  settled: number;
  failed: number;
  done(): void;
}

type Header = Record<string, Buffer>;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const yieldLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function sentHeaders(batch: RecordBatch, row: number): Header[] | undefined {
  const out: Header[] = [];
  for (const [name, value] of batch.headers(row)) {
    if (value === null || !isUtf8(value) || value.includes(0) || name.includes('\0')) return undefined;
    out.push({ [name]: Buffer.from(value) });
  }
  return out;
}

export class NodeProducer implements BatchProducer {
  protected readonly client: Producer;
  private readonly queueBytesMax: number;
  private readonly inFlight = new Map<number, InFlightBatch>();
  private nextBatch = 0;
  private turn: Promise<void> = Promise.resolve();
  private bytes = 0;
  private polling = false;
  protected closing: Promise<void> | undefined;
  /** True once calls that wait for queue space must fail with `closed`. */
  private stopsWaiting = false;
  /** True once another thread frees the client. */
  private disconnecting = false;
  /** Transaction step that a worker executes. */
  protected stepping: Promise<unknown> = Promise.resolve();
  private fatal: BrokerEvent | undefined;

  constructor(client: Producer, options: ProducerOptions) {
    this.client = client;
    this.queueBytesMax = options.queueBytesMax ?? QUEUE_BYTES_MAX;
    client.on('delivery-report', (error, report) => {
      const opaque = report.opaque as number;
      const flight = this.inFlight.get(Math.floor(opaque / ROWS_SPAN));
      if (flight === undefined) return;
      const event = error ? thrownEvent(error) : undefined;
      this.settle(flight, opaque % ROWS_SPAN, event, BigInt(report.offset ?? NO_OFFSET));
    });
    client.on('event.error', (error) => {
      const event = thrownEvent(error);
      if (event.fatal) this.fatal = event;
    });
  }

  async produce(batch: RecordBatch, topics: readonly string[]): Promise<DeliveryReport> {
    this.checkUsable();
    const rows = batch.rowCount;
    for (let row = 0; row < rows; row++) {
      if (topics[batch.columns.topicIndex[row] as number] === undefined) {
        throw coreError(
          'out_of_range',
          `row ${row} names topic ${batch.columns.topicIndex[row]} of ${topics.length}`,
        );
      }
    }
    const number = this.nextBatch++;
    const report = { status: new Int32Array(rows), offset: new BigInt64Array(rows).fill(NO_OFFSET) };
    const events = new Map<number, BrokerEvent>();
    let flight: InFlightBatch | undefined;
    const all = new Promise<void>((resolve) => {
      flight = { batch, rows, ...report, events, settled: 0, failed: 0, done: resolve };
      if (rows === 0) resolve();
    });
    const sending = this.turn.then(() => this.send(flight as InFlightBatch, number, topics));
    this.turn = sending.catch(() => {});
    try {
      await sending;
      await all;
    } finally {
      this.inFlight.delete(number);
    }
    const failed = (flight as unknown as InFlightBatch).failed;
    return { delivered: rows - failed, failed, ...report, events: [...events.values()] };
  }

  queuedBytes(): number {
    return this.bytes;
  }

  async flush(timeoutMs: number): Promise<void> {
    if (this.closing !== undefined) throw closedError('producer');
    const deadline = performance.now() + timeoutMs;
    await Promise.race([this.turn, sleep(timeoutMs)]);
    const error = await this.flushClient(Math.max(1, Math.ceil(deadline - performance.now())));
    if (error !== undefined) throw errorOfEvent('flush', error);
  }

  close(flushMs = CLOSE_TIMEOUT_MS): Promise<void> {
    this.closing ??= this.end(Math.max(1, Math.ceil(flushMs)));
    return this.closing;
  }

  private async end(flushMs: number): Promise<void> {
    await Promise.race([this.turn, new Promise((resolve) => setTimeout(resolve, flushMs).unref())]);
    this.stopsWaiting = true;
    await this.turn;
    await this.stepping;
    if (this.inFlight.size > 0) await this.flushClient(this.fatal === undefined ? flushMs : 1);
    // Reports pass through the event loop a hundred at a time.
    for (let waited = 0; this.inFlight.size > 0 && waited < 500; waited += POLL_MS) await sleep(POLL_MS);
    this.disconnecting = true;
    await new Promise<void>((resolve) => {
      // The client's disconnect flushes once more; no rows are left.
      this.client.disconnect(1, () => resolve());
    });
    for (const flight of this.inFlight.values()) {
      for (let row = 0; row < flight.rows; row++) {
        if (flight.status[row] === 0 && flight.offset[row] === NO_OFFSET)
          this.settle(flight, row, brokerEvent(ERR.PURGE_QUEUE), NO_OFFSET);
      }
      flight.done();
    }
  }

  private flushClient(timeoutMs: number): Promise<BrokerEvent | undefined> {
    return new Promise((resolve) =>
      this.client.flush(timeoutMs, (error) => resolve(error ? thrownEvent(error) : undefined)),
    );
  }

  /** Checks that the producer works. @param waited the call began before close, which waits for it
   */
  private checkUsable(waited = false): void {
    if (this.closing !== undefined && !waited) throw closedError('producer');
    if (this.fatal !== undefined) throw errorOfEvent('the producer cannot continue', this.fatal);
  }

  private async send(flight: InFlightBatch, number: number, topics: readonly string[]): Promise<void> {
    while (this.bytes >= this.queueBytesMax) {
      this.checkUsable(true);
      if (this.stopsWaiting) throw closedError('producer');
      await sleep(POLL_MS);
    }
    this.checkUsable(true);
    this.inFlight.set(number, flight);
    void this.poll();
    const { topicIndex, partition, timestamp } = flight.batch.columns;
    /** Queue-full error of an earlier row. Later rows fail with it: sending them would overtake
     *  that row. */
    let full: BrokerEvent | undefined;
    for (let row = 0; row < flight.rows; row++) {
      if (row % SLICE_ROWS === SLICE_ROWS - 1) await yieldLoop();
      this.bytes += this.bytesOf(flight.batch, row);
      if (full !== undefined) {
        this.settle(flight, row, full, NO_OFFSET);
        continue;
      }
      const headers =
        (flight.batch.columns.headersLength[row] as number) > 0 ? sentHeaders(flight.batch, row) : [];
      if (headers === undefined) {
        this.settle(
          flight,
          row,
          brokerEvent(
            ERR.INVALID_ARG,
            'the node-rdkafka driver sends header values as text: no null, no zero byte, UTF-8 only',
          ),
          NO_OFFSET,
        );
        continue;
      }
      const topic = topics[topicIndex[row] as number] as string;
      const opaque = number * ROWS_SPAN + row;
      for (;;) {
        const error = this.offer(
          flight.batch,
          row,
          topic,
          partition[row] as number,
          Number(timestamp[row]),
          opaque,
          headers,
        );
        if (error === undefined) break;
        if (error.code !== ERR.QUEUE_FULL || this.stopsWaiting) {
          if (error.fatal) this.fatal = error;
          if (error.code === ERR.QUEUE_FULL) full = error;
          this.settle(flight, row, error, NO_OFFSET);
          break;
        }
        await sleep(POLL_MS);
      }
    }
  }

  private offer(
    batch: RecordBatch,
    row: number,
    topic: string,
    partition: number,
    timestamp: number,
    opaque: number,
    headers: Header[],
  ): BrokerEvent | undefined {
    const { keyStart, keyLength, valueStart, valueLength, arena } = batch.columns;
    const bytes = (start: number, length: number): Buffer | null =>
      length < 0 ? null : Buffer.from(batch.buffer as ArrayBuffer, arena.byteOffset + start, length);
    const key = bytes(keyStart[row] as number, keyLength[row] as number);
    const value = bytes(valueStart[row] as number, valueLength[row] as number);
    try {
      this.client.produce(topic, partition < 0 ? null : partition, value, key, timestamp, opaque, headers);
      return undefined;
    } catch (thrown) {
      return thrownEvent(thrown as LibrdKafkaError);
    }
  }

  private bytesOf(batch: RecordBatch, row: number): number {
    const { keyLength, valueLength, headersLength } = batch.columns;
    return (
      Math.max(0, keyLength[row] as number) +
      Math.max(0, valueLength[row] as number) +
      (headersLength[row] as number)
    );
  }

  private settle(flight: InFlightBatch, row: number, event: BrokerEvent | undefined, offset: bigint): void {
    this.bytes -= this.bytesOf(flight.batch, row);
    flight.offset[row] = event === undefined ? offset : NO_OFFSET;
    flight.status[row] = event?.code ?? 0;
    if (event !== undefined) {
      flight.failed++;
      if (!flight.events.has(event.code)) flight.events.set(event.code, event);
    }
    if (++flight.settled === flight.rows) flight.done();
  }

  /** Polls while rows are in flight: delivery reports arrive with polls only. */
  private async poll(): Promise<void> {
    if (this.polling) return;
    this.polling = true;
    while (this.inFlight.size > 0 && !this.disconnecting && this.client.isConnected()) {
      this.client.poll();
      await sleep(POLL_MS);
    }
    this.polling = false;
  }
}
