/** The quarantine topic of the engine: invalid records as they were, with the headers that every
 *  quarantine has, so that `millrace consumer -quarantine` lists them and `-redrive` replays them.
 *
 *  A record may occur more than once after a crash or a failed write: its id, which is its source
 *  position and a digest of its content, identifies the copies. */
import type { RecordInput } from '../../../core/layout/record-batch.ts';
import type { BrokerDriver } from '../../../io/kafka/port.ts';
import { cachedUtf8, QUARANTINE_RECORD_BYTES_MAX, quarantineHeaders } from '../../../serde/quarantine.ts';
import { engineError } from '../../errors.ts';
import { CopyProducer } from '../side/copies.ts';
import type { SideTopic } from '../side/sender.ts';
import type { QuarantineCopy } from './rows.ts';

/** Bytes of a batch of a few thousand usual records. */
const BATCH_BYTES = 2 * 1024 * 1024;

export interface KafkaQuarantineParts {
  readonly driver: BrokerDriver;
  readonly brokers: string;
  readonly topic: string;
  readonly sourceTopic: string;
  /** Creates the topic if it may and must; called before the first record. Absent: the topic
   *  exists. */
  readonly prepare?: () => Promise<void>;
}

/** Quarantine in a Kafka topic: each invalid record whole, with its reason and its place.
 */
export class KafkaQuarantine implements SideTopic<QuarantineCopy> {
  private readonly parts: KafkaQuarantineParts;
  private readonly producer: CopyProducer;
  private isPrepared = false;

  constructor(parts: KafkaQuarantineParts) {
    this.parts = parts;
    const { driver, brokers, topic } = parts;
    this.producer = new CopyProducer({
      ...{ driver, brokers, topic, clientId: 'millrace-engine-quarantine', batchBytes: BATCH_BYTES },
      properties: { 'message.max.bytes': QUARANTINE_RECORD_BYTES_MAX },
      failed: (failed, event, isPermanent) => {
        const line = `${failed} invalid records were not written to topic ${topic}: ${event.message}`;
        if (!isPermanent) return engineError('quarantine_failed', line, { details: { event } });
        return engineError('quarantine_refused', line, {
          next: 'fix the cause that the broker reports, for a record that is too large by a larger max.message.bytes of the topic, and restart; the records are sent then',
          details: { event },
        });
      },
    });
  }

  /** @throws quarantine_failed, quarantine_refused, and errors of the client */
  async send(copies: readonly QuarantineCopy[]): Promise<void> {
    if (!this.isPrepared) await this.parts.prepare?.();
    this.isPrepared = true;
    const { sourceTopic } = this.parts;
    const text = cachedUtf8();
    await this.producer.send(copies.map((copy) => recordOf(copy, sourceTopic, text)));
  }

  close(): Promise<void> {
    return this.producer.close();
  }
}

function recordOf(
  { key, value, headers, timestampMs, ...copy }: QuarantineCopy,
  topic: string,
  text: (value: string) => Uint8Array,
): RecordInput {
  return {
    ...{ key, value, headers: [...headers, ...quarantineHeaders({ ...copy, topic }, text)] },
    ...(timestampMs === undefined ? {} : { timestamp: timestampMs }),
  };
}
