/** Product 1: contracts. A schema registry, framed producers and consumers, and the rules between
 *  versions.
 */
/** Access control, for a server that mounts the registry's routes itself. */
export * from '../access/index.ts';
export type { Reference, ResolvedReference } from '../formats/content.ts';
export { isSchemaFormat, SCHEMA_FORMATS, type SchemaFormat } from '../formats/format.ts';
export { parseSchema, type Schema } from '../formats/schema.ts';
export {
  isRegistryAway,
  RegistryClient,
  type RegistryClientOptions,
  type SubjectVersion,
} from '../serde/client.ts';
export { type WriterCodec, writerCodec } from '../serde/codec.ts';
export { QUARANTINE_REASONS, type QuarantineReason } from '../serde/errors.ts';
export {
  type FetchTransportOptions,
  fetchTransport,
  type RegistryTransport,
  type TransportAnswer,
} from '../serde/transport.ts';
export { type Finding, findingLine, isCompatible, type Severity } from './compatibility/finding.ts';
export { checkPair, judge, LEVELS, type Level, type Verdict } from './compatibility/modes.ts';
export { BatchDecoder, type DecodedBatch, type DecodedRow, type FailedRow } from './consumer/decoder.ts';
export { EndTracker } from './consumer/ends.ts';
export {
  type ConsumerMetrics,
  consumerMetrics,
  GroupMember,
  type GroupMemberOptions,
} from './consumer/member.ts';
export { QUARANTINE_HEADER, QUARANTINE_HEADER_BYTES_MAX, Quarantine } from './consumer/quarantine.ts';
export { type DecodedSink, FileSink, TopicSink } from './consumer/sink.ts';
export { REGISTRY_ERRORS } from './errors.ts';
export { FramedProducer, type FramedProducerOptions, producerMetrics } from './producer/instance.ts';
export { type ProducerRun, runProducers } from './producer/run.ts';
export { readerCodec } from './proof/reader.ts';
export * from './server.ts';
