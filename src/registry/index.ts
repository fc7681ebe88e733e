/** Entry point `millrace/registry`: schemas and the rules between their versions, and a client of
 *  any registry. */
export type { NativeSetting } from '../addon/codec.ts';
export type { Column, ColumnKind, ColumnLogical } from '../core/columns/column.ts';
export type { ColumnData, ColumnValues } from '../core/columns/data.ts';
export type { ArrowBatch } from '../formats/arrow/columns.ts';
export type { ArrowModule } from '../formats/arrow/record-batch.ts';
export type { Reference, ResolvedReference } from '../formats/content.ts';
export { isSchemaFormat, SCHEMA_FORMATS, type SchemaFormat } from '../formats/format.ts';
export { parseSchema, type Schema } from '../formats/schema.ts';
export {
  isRegistryAway,
  type RegistryCacheOptions,
  RegistryClient,
  type RegistryClientOptions,
  type SubjectVersion,
} from '../serde/client.ts';
export { type WriterCodec, writerCodec } from '../serde/codec.ts';
export type { CodecChoice } from '../serde/codec-choice.ts';
export { QUARANTINE_REASONS, type QuarantineReason } from '../serde/errors.ts';
export type { JsonMisfit, JsonSchemaDocument, JsonValidator } from '../serde/json-validator.ts';
export { QUARANTINE_HEADER } from '../serde/quarantine.ts';
export type { RegistryRequests } from '../serde/requests.ts';
export {
  type FetchTransportOptions,
  fetchTransport,
  type RegistryTransport,
  type TransportAnswer,
} from '../serde/transport.ts';
export type { RegistryTls } from '../serde/urls-transport.ts';
export {
  type ColumnDecoderOptions,
  type ColumnInput,
  RecordColumnDecoder,
  type WriterRecords,
} from './client/column-decoder.ts';
export {
  type ColumnEncoderOptions,
  type EncoderInput,
  FramedRecords,
  RecordColumnEncoder,
} from './client/column-encoder.ts';
export { ColumnRecords, type ColumnRowState } from './client/column-records.ts';
export {
  type Deserialized,
  Deserializer,
  type DeserializerOptions,
} from './client/deserializer.ts';
export type { RecordHeaders } from './client/headers.ts';
export type { Prefetched, PrefetchOptions, TopicTail } from './client/prefetch.ts';
export { type ReaderIdentity, type RecordFault, recordFaultOf } from './client/record-fault.ts';
export type { FramedRecord, ReaderOptions, ReaderVersion } from './client/record-schemas.ts';
export { type RegistryAuth, SchemaRegistry, type SchemaRegistryOptions } from './client/schema-registry.ts';
export { Serializer, type SerializerOptions } from './client/serializer.ts';
export type { SubjectContext, SubjectStrategy } from './client/subject.ts';
export type { WriterSchemaOptions } from './client/writer-schema.ts';
export { type Finding, findingLine, isCompatible, type Severity } from './compatibility/finding.ts';
export { checkPair, judge, LEVELS, type Level, type Verdict } from './compatibility/modes.ts';
export { REGISTRY_ERRORS } from './errors.ts';
export { readerCodec } from './proof/reader.ts';
