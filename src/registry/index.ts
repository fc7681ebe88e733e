/** Product 1: contracts. A schema registry, framed producers and consumers, and the rules between versions. */
/** The gate, for a server that mounts the registry's routes itself. */
export * from '../access/index.ts';
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
export { QUARANTINE_HEADER, QUARANTINE_HEADER_BYTES_MAX, Quarantine } from './consumer/quarantine.ts';
export { type DecodedSink, FileSink, TopicSink } from './consumer/sink.ts';
export { QUARANTINE_REASONS, type QuarantineReason, REGISTRY_ERRORS } from './errors.ts';
export { FramedProducer, type FramedProducerOptions, producerMetrics } from './producer/producer.ts';
export { type ProducerRun, runProducers } from './producer/run.ts';
export { readerCodec } from './proof/reader.ts';
export type { Reference, ResolvedReference } from './schemas/content.ts';
export { isSchemaFormat, SCHEMA_FORMATS, type SchemaFormat } from './schemas/format.ts';
export { parseSchema, type Schema } from './schemas/schema.ts';
export { type WriterCodec, writerCodec } from './serde/codec.ts';
export * from './server.ts';
