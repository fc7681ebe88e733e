/** Message and context of a handler, in the form that the Kafka transport of NestJS gives them. */
import type { InboxRecord } from '../inbox/port.ts';

/** JSON of objects and arrays is parsed; other texts stay texts. */
type Decoded = object | string | Buffer | null;

export interface KafkaMessage {
  readonly key: Decoded;
  readonly value: Decoded;
  readonly headers: Readonly<Record<string, Decoded>>;
  readonly topic: string;
  readonly partition: number;
  /** Decimal text. */
  readonly offset: string;
  /** Milliseconds since the epoch, decimal text. */
  readonly timestamp: string;
}

/** Decodes like KafkaParser of NestJS: bytes that begin with a zero are framed by a schema and stay
 *  bytes. */
function decoded(bytes: Uint8Array | null): Decoded {
  if (bytes === null) return null;
  // A copy: the bytes of a record are valid until its handler settles.
  const copy = Buffer.from(bytes);
  if (copy[0] === 0) return copy;
  const text = copy.toString('utf8');
  if (!text.startsWith('{') && !text.startsWith('[')) return text;
  try {
    return JSON.parse(text) as object;
  } catch {
    return text;
  }
}

/** Message of a record. */
export function messageOf(record: InboxRecord): KafkaMessage {
  return {
    key: decoded(record.key),
    value: decoded(record.value),
    headers: Object.fromEntries(record.headers.map(([name, value]) => [name, decoded(value)])),
    topic: record.topic,
    partition: record.partition,
    offset: record.offset.toString(),
    timestamp: String(record.timestampMs),
  };
}

/** Context of a message, for a parameter with @Ctx(). It has the methods of KafkaContext that do
 *  not need a Kafka client.
 */
export class MillraceContext<T> {
  private readonly message: KafkaMessage;
  private readonly transaction: T;
  private readonly msgId: string;

  constructor(message: KafkaMessage, transaction: T, msgId: string) {
    this.message = message;
    this.transaction = transaction;
    this.msgId = msgId;
  }

  getMessage(): KafkaMessage {
    return this.message;
  }

  getTopic(): string {
    return this.message.topic;
  }

  getPartition(): number {
    return this.message.partition;
  }

  /** Id of the message, the idempotency key for calls to other services. */
  getMessageId(): string {
    return this.msgId;
  }

  /** Transaction of the effect. */
  getTransaction(): T {
    return this.transaction;
  }

  /** Arguments in the order of KafkaContext. */
  getArgs(): readonly [KafkaMessage, number, string] {
    return [this.message, this.message.partition, this.message.topic];
  }

  getArgByIndex(index: 0 | 1 | 2): KafkaMessage | number | string {
    return this.getArgs()[index];
  }
}
