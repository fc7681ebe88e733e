/** Properties that the direct client cannot obey. librdkafka then serves. */
import type { BrokerProperties } from '../port.ts';

/** SASL mechanisms of the direct client. */
const MECHANISMS = new Set(['PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512']);

/** Properties that the direct client obeys. */
const OBEYED = new Set([
  'auto.offset.reset',
  'bootstrap.servers',
  'client.id',
  'enable.partition.eof',
  'enable.ssl.certificate.verification',
  'fetch.max.bytes',
  'fetch.message.max.bytes',
  'fetch.min.bytes',
  'fetch.wait.max.ms',
  'isolation.level',
  'max.partition.fetch.bytes',
  'metadata.broker.list',
  'queued.max.messages.kbytes',
  'receive.message.max.bytes',
  'reconnect.backoff.max.ms',
  'reconnect.backoff.ms',
  'sasl.mechanism',
  'sasl.mechanisms',
  'sasl.password',
  'sasl.username',
  'security.protocol',
  'socket.connection.setup.timeout.ms',
  'socket.keepalive.enable',
  'socket.timeout.ms',
  'ssl.ca.location',
  'ssl.ca.pem',
  'ssl.certificate.location',
  'ssl.certificate.pem',
  'ssl.endpoint.identification.algorithm',
  'ssl.key.location',
  'ssl.key.password',
  'ssl.key.pem',
  'ssl.keystore.location',
  'ssl.keystore.password',
  'topic.metadata.refresh.interval.ms',
]);

/** Properties of groups, producers and the log of librdkafka, or of its own queues: they change
 *  nothing about the records that are read, nor about who may read them. */
const NEUTRAL =
  /^(acks|broker\.version\.fallback|coordinator\.query\.interval\.ms|delivery\.timeout\.ms|enable\.(metrics\.push|random\.seed)|log_level|request\.(required\.acks|timeout\.ms)|reconnect\.backoff\.jitter\.ms|retries|sticky\.partitioning\.linger\.ms|api\.version\..+|batch\..+|check\.crcs|compression\..+|connections\.max\.idle\.ms|debug|enable\.(auto\..+|idempotence)|fetch\.(error|queue)\.backoff\.ms|group\..+|heartbeat\.interval\.ms|linger\.ms|log\..+|max\.in\.flight.*|max\.poll\.interval\.ms|message\..+|metadata\.max\.age\.ms|partition(er|\.assignment\.strategy)|queue\.buffering\..+|queued\.min\.messages|retry\.backoff.+|session\.timeout\.ms|socket\.(blocking\.max\.ms|max\.fails|nagle\.disable|send\.buffer\.bytes|receive\.buffer\.bytes)|statistics\..+|topic\.metadata\..+|transaction.*)$/;

const WITH_SASL = new Set(['sasl_plaintext', 'sasl_ssl']);

/** Returns the reason why the direct client cannot read with these properties of librdkafka;
 *  undefined: it can. The text quotes no value but the SASL mechanism.
 *  @example
 *  directObstacle({ 'sasl.mechanism': 'GSSAPI', 'security.protocol': 'sasl_ssl' });
 */
export function directObstacle(properties: BrokerProperties): string | undefined {
  const unknown = Object.keys(properties).filter((name) => !OBEYED.has(name) && !NEUTRAL.test(name));
  if (unknown.length > 0) return `it does not know ${unknown.join(', ')}`;
  const protocol = String(properties['security.protocol'] ?? 'plaintext').toLowerCase();
  if (!WITH_SASL.has(protocol)) return undefined;
  const mechanism = String(properties['sasl.mechanisms'] ?? properties['sasl.mechanism'] ?? 'GSSAPI');
  return MECHANISMS.has(mechanism) ? undefined : `it has no SASL mechanism ${mechanism}`;
}
