/** Names of the Kafka client's properties: those that a user may set, and those that Millrace does
 *  not accept, with the reason. Source: CONFIGURATION.md of librdkafka 2.12; a test compares them.
 */

/** Properties of librdkafka that a user may set. */
export const ACCEPTED: ReadonlySet<string> = new Set(
  `
allow.auto.create.topics api.version.fallback.ms api.version.request
api.version.request.timeout.ms batch.num.messages batch.size broker.address.family
broker.address.ttl broker.version.fallback check.crcs client.dns.lookup client.id client.rack
compression.codec compression.level compression.type connections.max.idle.ms
coordinator.query.interval.ms delivery.timeout.ms enable.metrics.push enable.random.seed
enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification fetch.error.backoff.ms
fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms
heartbeat.interval.ms https.ca.location https.ca.pem linger.ms log.connection.close
log.thread.name log_level max.in.flight max.in.flight.requests.per.connection
max.partition.fetch.bytes max.poll.interval.ms message.copy.max.bytes message.max.bytes
message.send.max.retries message.timeout.ms metadata.max.age.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages receive.message.max.bytes
reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
retries retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab
sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name
sasl.mechanism sasl.mechanisms sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id
sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method
sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url sasl.password sasl.username
security.protocol session.timeout.ms socket.blocking.max.ms socket.connection.setup.timeout.ms
socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes
socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem
ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list
ssl.endpoint.identification.algorithm ssl.key.location ssl.key.password ssl.key.pem
ssl.keystore.location ssl.keystore.password ssl.sigalgs.list statistics.interval.ms
sticky.partitioning.linger.ms topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
topic.metadata.refresh.sparse transaction.timeout.ms
`
    .trim()
    .split(/\s+/),
);

const COMMAND_SETS = 'the command sets it, because its guarantees depend on it';
const LOADS_CODE = 'it loads or runs other code in this process';
const NO_EFFECT = 'it has no effect here';

const because = (reason: string, names: string): Array<[string, string]> =>
  names.split(/\s+/).map((name) => [name, reason]);

/** Properties of librdkafka that are refused, with the reason. */
export const REFUSED: ReadonlyMap<string, string> = new Map([
  ...because('give -brokers', 'metadata.broker.list bootstrap.servers'),
  ...because('give -group, where the command has it', 'group.id'),
  ...because(
    COMMAND_SETS,
    'acks request.required.acks enable.idempotence enable.gapless.guarantee transactional.id partitioner queuing.strategy',
  ),
  ...because(
    COMMAND_SETS,
    'enable.auto.commit auto.commit.enable auto.commit.interval.ms enable.auto.offset.store enable.partition.eof auto.offset.reset',
  ),
  ...because(
    COMMAND_SETS,
    'group.instance.id group.protocol group.protocol.type group.remote.assignor partition.assignment.strategy isolation.level',
  ),
  ...because(
    COMMAND_SETS,
    'delivery.report.only.error produce.offset.report consume.callback.max.messages topic.blacklist',
  ),
  ...because(
    LOADS_CODE,
    'plugin.library.paths ssl.engine.location ssl.engine.id ssl.providers sasl.kerberos.kinit.cmd',
  ),
  ...because(
    NO_EFFECT,
    'builtin.features log.queue internal.termination.signal enabled_events offset.store.method offset.store.path offset.store.sync.interval.ms',
  ),
  ['debug', 'its output may contain secrets'],
]);

/** Names of the Java client with another name in librdkafka and the same values. */
export const RENAMED: ReadonlyMap<string, string> = new Map([
  ['sasl.mechanism', 'sasl.mechanisms'],
  ['fetch.max.wait.ms', 'fetch.wait.max.ms'],
  ['max.request.size', 'message.max.bytes'],
  ['send.buffer.bytes', 'socket.send.buffer.bytes'],
  ['receive.buffer.bytes', 'socket.receive.buffer.bytes'],
  ['ssl.keystore.key', 'ssl.key.pem'],
  ['ssl.keystore.certificate.chain', 'ssl.certificate.pem'],
  ['ssl.truststore.certificates', 'ssl.ca.pem'],
]);

/** Properties of files shared with Java services that concern no connection to Kafka. */
export const IGNORED =
  /^((key|value)\.(de)?serializer|schema\.registry\..+|basic\.auth\..+|bearer\.auth\..+|auto\.register\.schemas|use\.latest\.version|auto\.include\.jmx\.reporter|metric\.reporters)$/;
