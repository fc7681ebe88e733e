/** Properties of both drivers: defaults, then the options, then the caller's librdkafka properties.
 */
import { coreError } from '../../core/errors.ts';
import { Secrets } from '../../core/secrets.ts';
import type {
  BrokerOptions,
  BrokerProperties,
  ConsumerOptions,
  ProducerOptions,
  TransactionalOptions,
} from './port.ts';

/** Time a new client waits for the first answer of a broker before it is `unreachable`. */
export const CONNECT_TIMEOUT_MS = 5000;

/** Default of the bytes in flight above which produce waits. */
export const QUEUE_BYTES_MAX = 64 * 1024 * 1024;

/** Default time after which the broker aborts an open transaction. */
const TRANSACTION_TIMEOUT_MS = 10_000;

const SHARED: BrokerProperties = {
  'socket.keepalive.enable': true,
  // With the default of ten seconds, a restarted broker would stay disconnected for that long.
  'reconnect.backoff.max.ms': 1000,
  'log.connection.close': false,
};

const CONSUMER: BrokerProperties = {
  'enable.auto.commit': false,
  'enable.auto.offset.store': false,
  'partition.assignment.strategy': 'cooperative-sticky',
  'fetch.wait.max.ms': 50,
  // A full queue delays the next fetch by this much; the default is a second.
  'fetch.queue.backoff.ms': 10,
  'queued.min.messages': 200_000,
  'queued.max.messages.kbytes': 131_072,
};

const PRODUCER: BrokerProperties = {
  // The partition that the Java client picks for the same key.
  partitioner: 'murmur2_random',
  'linger.ms': 5,
  'batch.num.messages': 10_000,
  'queue.buffering.max.messages': 1_000_000,
};

/** Properties whose values may be printed; none of these values contains a comma. Every other value
 *  is secret. */
export const SHOWN_PROPERTIES: ReadonlySet<string> = new Set([
  'acks',
  'api.version.request',
  'batch.num.messages',
  'batch.size',
  'broker.address.family',
  'broker.address.ttl',
  'check.crcs',
  'client.dns.lookup',
  'client.id',
  'client.rack',
  'compression.codec',
  'compression.level',
  'compression.type',
  'connections.max.idle.ms',
  'enable.idempotence',
  'enable.ssl.certificate.verification',
  'fetch.error.backoff.ms',
  'fetch.max.bytes',
  'fetch.message.max.bytes',
  'fetch.min.bytes',
  'fetch.wait.max.ms',
  'heartbeat.interval.ms',
  'isolation.level',
  'linger.ms',
  'max.in.flight.requests.per.connection',
  'max.partition.fetch.bytes',
  'max.poll.interval.ms',
  'message.max.bytes',
  'message.timeout.ms',
  'metadata.max.age.ms',
  'queue.buffering.max.kbytes',
  'queue.buffering.max.messages',
  'queue.buffering.max.ms',
  'queued.max.messages.kbytes',
  'queued.min.messages',
  'receive.message.max.bytes',
  'reconnect.backoff.max.ms',
  'reconnect.backoff.ms',
  'request.timeout.ms',
  'retry.backoff.max.ms',
  'retry.backoff.ms',
  'sasl.mechanism',
  'sasl.mechanisms',
  'security.protocol',
  'session.timeout.ms',
  'socket.connection.setup.timeout.ms',
  'socket.keepalive.enable',
  'socket.nagle.disable',
  'socket.timeout.ms',
  'ssl.ca.location',
  'ssl.certificate.location',
  'ssl.crl.location',
  'ssl.endpoint.identification.algorithm',
  'ssl.key.location',
  'ssl.keystore.location',
  'statistics.interval.ms',
  'transaction.timeout.ms',
]);

/** Least length of a value that is hidden in messages. A shorter one occurs in ordinary words, and
 *  the gaps in them would show it. */
const HIDDEN_CHARS_MIN = 3;

/** Secret values of a caller's properties, which messages of librdkafka may quote. */
export const secretsOf = (properties: BrokerProperties = {}): Secrets =>
  new Secrets(
    Object.entries(properties)
      .filter(([name]) => !SHOWN_PROPERTIES.has(name))
      .map(([, value]) => String(value))
      .filter((value) => value.length >= HIDDEN_CHARS_MIN),
  );

type Properties = Record<string, string>;

function texts(...layers: ReadonlyArray<BrokerProperties | undefined>): Properties {
  const out: Properties = {};
  for (const layer of layers) {
    for (const [name, value] of Object.entries(layer ?? {})) out[name] = String(value);
  }
  return out;
}

function common(options: BrokerOptions): BrokerProperties {
  return { 'metadata.broker.list': options.brokers, 'client.id': options.clientId };
}

export function clientProperties(options: BrokerOptions): Properties {
  return texts(SHARED, common(options), options.properties);
}

/** Properties of a consumer. A consumer with explicit partitions joins no group, but librdkafka
 *  requires a group name. */
export function consumerProperties(options: ConsumerOptions): Properties {
  // librdkafka opens no consumer queue for the group "".
  if (options.group === '') {
    throw coreError('bad_value', 'the name of a consumer group is empty', { next: 'give -group=NAME' });
  }
  return texts(
    SHARED,
    CONSUMER,
    common(options),
    {
      'group.id': options.group ?? `${options.clientId}-no-group`,
      'auto.offset.reset': options.autoOffsetReset ?? 'earliest',
      'enable.partition.eof': options.partitionEof ?? false,
      'isolation.level': `read_${options.isolation ?? 'committed'}`,
    },
    options.properties,
  );
}

/** Properties of a producer. Idempotence is on unless acks is 0 or 1, which exclude it. */
export function producerProperties(options: ProducerOptions): Properties {
  const acks = options.acks ?? -1;
  return texts(
    SHARED,
    PRODUCER,
    common(options),
    {
      acks,
      'enable.idempotence': options.idempotence ?? acks === -1,
      'compression.type': options.compression ?? 'none',
    },
    options.properties,
  );
}

export function transactionalProperties(options: TransactionalOptions): Properties {
  return texts(
    producerProperties({ ...options, acks: -1, idempotence: true, properties: {} }),
    {
      'transactional.id': options.transactionalId,
      'transaction.timeout.ms': options.transactionTimeoutMs ?? TRANSACTION_TIMEOUT_MS,
    },
    options.properties,
  );
}
