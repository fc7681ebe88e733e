/** Product 1: contracts. A schema registry, framed producers and consumers, and the rules between versions. */
export { registryFallbacks, WIRES, type Wire } from './api/answers.ts';
export { type ForwardTransport, forwardTransport, writeAtLeader } from './api/forward.ts';
export { SCHEMA_LIMITS, type SchemaLimits } from './api/limits.ts';
export {
  REGISTRY_BODY_BYTES_MAX,
  REGISTRY_PAGE_MAX,
  type RegistryApiOptions,
  registryDescription,
  registryRoutes,
} from './api/routes.ts';
export {
  isRegistryAway,
  RegistryClient,
  type RegistryClientOptions,
  type SubjectVersion,
} from './client/client.ts';
export {
  type FetchTransportOptions,
  fetchTransport,
  type RegistryTransport,
  type TransportAnswer,
} from './client/transport.ts';
export { type Finding, findingLine, isCompatible, type Severity } from './compatibility/finding.ts';
export { checkPair, judge, LEVELS, type Level, type Verdict } from './compatibility/modes.ts';
export {
  type ConsumerMetrics,
  consumerMetrics,
  GroupMember,
  type GroupMemberOptions,
} from './consumer/consumer.ts';
export { BatchDecoder, type DecodedBatch, type DecodedRow, type FailedRow } from './consumer/decoder.ts';
export { EndTracker } from './consumer/ends.ts';
export { QUARANTINE_HEADER, Quarantine } from './consumer/quarantine.ts';
export { type DecodedSink, FileSink, TopicSink } from './consumer/sink.ts';
export { QUARANTINE_REASONS, type QuarantineReason, REGISTRY_ERRORS, registryError } from './errors.ts';
export { FramedProducer, type FramedProducerOptions, producerMetrics } from './producer/producer.ts';
export { type ProducerRun, runProducers } from './producer/run.ts';
export { isSchemaFormat, SCHEMA_FORMATS, type SchemaFormat } from './schemas/format.ts';
export { parseSchema, type Schema } from './schemas/schema.ts';
export type { RequestGate } from './security/access.ts';
export { BasicScheme } from './security/basic.ts';
export { Gate } from './security/gate.ts';
export {
  fileKeys,
  JWKS_BYTES_MAX,
  type KeySet,
  type KeySource,
  parseKeySet,
  RemoteKeys,
} from './security/jwks.ts';
export { checkAlgorithms, JwtScheme } from './security/jwt.ts';
export {
  hashPassword,
  PASSWORD_BYTES_MAX,
  PASSWORD_USER,
  PASSWORDS_BYTES_MAX,
  parsePasswords,
} from './security/password.ts';
export { RULES_BYTES_MAX, Rules } from './security/rules.ts';
export { WatchedFile } from './security/watched-file.ts';
export { readerCodec, type WriterCodec, writerCodec } from './serde/codec.ts';
export { FileLog, REGISTRY_LOG_FILE } from './store/file-log.ts';
export { KafkaLog, type KafkaLogOptions } from './store/kafka-log.ts';
export type { RegistryLog } from './store/log.ts';
export { MemoryLog } from './store/memory-log.ts';
export { Registry } from './store/registry.ts';
export { exportStore, type Imported, importStore } from './store/transfer.ts';
