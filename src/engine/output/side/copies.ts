/** Producer of copies: writes records to one topic and waits for their acknowledgement. */
import type { MillraceError } from '../../../core/errors.ts';
import { RECORD_HEADER } from '../../../core/layout/layouts.gen.ts';
import { RecordBatch, type RecordInput } from '../../../core/layout/record-batch.ts';
import type { BatchProducer, BrokerDriver, BrokerEvent } from '../../../io/kafka/port.ts';
import { PERMANENT_ERRORS } from '../sink/kafka.ts';

const BATCH_ROWS = 4096;
/** Delivery timeout: a copy without acknowledgement after this time counts as not written. */
const DELIVERY_MS = 15_000;

export interface CopyProducerParts {
  readonly driver: BrokerDriver;
  readonly brokers: string;
  readonly clientId: string;
  readonly topic: string;
  /** Bytes of a batch that is reused; a larger record gets a batch of its own. */
  readonly batchBytes: number;
  /** Properties of the broker client beside those of every producer of copies. */
  readonly properties?: Readonly<Record<string, string | number | boolean>>;
  /** Error of a failed write. @param isPermanent true: no retry can succeed */
  readonly failed: (failed: number, event: BrokerEvent, isPermanent: boolean) => MillraceError;
}

export class CopyProducer {
  private readonly parts: CopyProducerParts;
  private readonly batch: RecordBatch;
  private producer: BatchProducer | undefined;

  constructor(parts: CopyProducerParts) {
    this.parts = parts;
    this.batch = RecordBatch.create(BATCH_ROWS, parts.batchBytes);
  }

  /** Settles when every record is acknowledged. @throws the error of `failed`, and errors of the
   *  client */
  async send(records: Iterable<RecordInput>): Promise<void> {
    this.batch.clear();
    for (const record of records) {
      if (this.batch.append(record)) continue;
      await this.write(this.batch);
      if (!this.batch.append(record)) await this.write(batchOfOne(record));
    }
    await this.write(this.batch);
  }

  async close(): Promise<void> {
    const { producer } = this;
    this.producer = undefined;
    await producer?.close(0);
  }

  private async write(batch: RecordBatch): Promise<void> {
    if (batch.rowCount === 0) return;
    const { driver, brokers, clientId, topic, properties, failed: errorOf } = this.parts;
    this.producer ??= await driver.producer({
      ...{ brokers, clientId, acks: -1, idempotence: true, compression: 'lz4' },
      properties: { 'message.timeout.ms': DELIVERY_MS, 'linger.ms': 5, ...properties },
    });
    let failed: number;
    let events: readonly BrokerEvent[];
    try {
      ({ failed, events } = await this.producer.produce(batch, [topic]));
    } catch (thrown) {
      await this.close();
      throw thrown;
    }
    batch.clear();
    if (failed === 0) return;
    // A producer that has dropped records may refuse all later ones, so the next write opens a new
    // one.
    await this.close();
    const permanent = events.find((event) => PERMANENT_ERRORS.has(event.name));
    throw errorOf(failed, permanent ?? (events[0] as BrokerEvent), permanent !== undefined);
  }
}

function batchOfOne(record: RecordInput): RecordBatch {
  const { key, value, headers = [] } = record;
  const headerBytes = headers.reduce(
    (sum, [name, content]) => sum + RECORD_HEADER.BYTES + Buffer.byteLength(name) + (content?.length ?? 0),
    0,
  );
  const batch = RecordBatch.create(1, (key?.length ?? 0) + (value?.length ?? 0) + headerBytes);
  batch.append(record);
  return batch;
}
