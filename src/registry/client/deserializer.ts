/** Deserializer of a topic: framed records to values of the reader schema.
 *
 *  Each writer schema is fetched once and compiled once. A record whose schema is loaded is read
 *  without I/O.
 */
import { findMillraceError, type MillraceError } from '../../core/errors.ts';
import { FRAME } from '../../core/layout/layouts.gen.ts';
import { avroTypeName } from '../../formats/avro/syntax/tree.ts';
import type { Decode } from '../../formats/decode.ts';
import type { Schema } from '../../formats/schema.ts';
import type { RegistryClient } from '../../serde/client.ts';
import { COMPILED_CODECS, type RecordCodecs } from '../../serde/codec.ts';
import { type CodecChoice, recordCodecs } from '../../serde/codec-choice.ts';
import { type RecordId, type RecordMessage, readMessage } from '../../serde/frame.ts';
import { jsonReader } from '../../serde/json-codec.ts';
import type { JsonValidator } from '../../serde/json-validator.ts';
import { readerCodec } from '../proof/reader.ts';
import type { RecordHeaders } from './headers.ts';
import { type FramedRecord, notCached, type ReaderOptions, RecordSchemas } from './record-schemas.ts';
import type { SerdeTimes } from './serde-metrics.ts';

export interface DeserializerOptions extends ReaderOptions {
  /** `reference` reads with avsc and protobufjs, for comparison: slower, with weaker checks.
   *  Default compiled. */
  readonly codec?: CodecChoice;
  /** Validates values by a JSON Schema that is the reader schema. Default: the package ajv, which
   *  the service installs. Without a reader schema, JSON records are not validated. */
  readonly validator?: JsonValidator;
}

/** Result of one record of a batch: a value, or the reason why there is none. */
export type Deserialized<T> =
  | { readonly value: T; readonly error?: undefined }
  | { readonly value?: undefined; readonly error: MillraceError };

/** Most message paths cached for one writer schema; further paths, which only hostile input has,
 *  are compiled for each record. */
const PATHS_MAX = 1024;

/** Offset of the message indexes in a schema id header: behind its version and the guid. */
const HEADER_INDEXES_START = 17;

/** Deserializer of framed records; made by `SchemaRegistry.deserializer`. */
export class Deserializer<T = unknown> {
  private readonly client: RegistryClient;
  private readonly options: DeserializerOptions;
  private readonly times: SerdeTimes;
  private readonly schemas: RecordSchemas;
  /** Decoders of each writer schema, by the index of a top-level message, or by the indexes of a
   *  nested one. */
  private readonly decoders = new Map<number | string, Map<number | string, Decode>>();
  private codecs: RecordCodecs | undefined;

  /** @throws bad_option */
  constructor(client: RegistryClient, options: DeserializerOptions, times: SerdeTimes) {
    this.client = client;
    this.times = times;
    this.options = options;
    this.schemas = new RecordSchemas(client, options, 'deserializer');
    if (options.codec !== 'reference') this.codecs = COMPILED_CODECS;
  }

  /** Loads the reader schema, and the writer schemas of these ids.
   *  @param ids schema ids whose records are expected
   *  @returns this deserializer
   *  @throws invalid_schema, subject_not_found, version_not_found, schema_not_found,
   *    registry_unavailable, registry_protocol, unauthenticated, forbidden
   */
  async prefetch(ids: readonly number[] = []): Promise<this> {
    await this.loadReader();
    await Promise.all(ids.map((id) => this.schemas.loadWriter(id)));
    return this;
  }

  /** Deserializes a record; null for a tombstone (null or undefined).
   *  @param headers headers of the record, for schema ids in a header
   *  @throws bad_magic, truncated_frame, bad_message_index, unknown_schema_id, incompatible_schema,
   *    malformed_payload: facts about the record, which `recordFaultOf` returns from the error;
   *    registry_unavailable, registry_protocol, unauthenticated, forbidden: retry later
   */
  async deserialize(bytes: Uint8Array | null | undefined, headers?: RecordHeaders): Promise<T | null> {
    if (bytes === null || bytes === undefined) return null;
    if (this.codecs === undefined || this.schemas.isWaiting) await this.loadReader();
    const id = this.schemas.recordId(bytes, headers);
    if (this.schemas.has(id.id)) this.client.countHits(1);
    else await this.schemas.loadWriter(id.id);
    return this.decode(bytes, id);
  }

  /** Deserializes a record whose schemas this object or `SchemaRegistry.prefetch` has loaded.
   *  @throws schema_not_cached for a schema that is not; invalid_schema; the record's errors of
   *    deserialize
   */
  deserializeSync(bytes: Uint8Array | null | undefined, headers?: RecordHeaders): T | null {
    if (bytes === null || bytes === undefined) return null;
    this.schemas.demandReader();
    if (this.codecs === undefined) throw notCached('the reference codec');
    return this.decode(bytes, this.schemas.recordId(bytes, headers));
  }

  /** Deserializes records in order; a bad record costs its own row only.
   *  @throws registry_unavailable, registry_protocol, unauthenticated, forbidden: retry the batch
   */
  async deserializeBatch(
    records: readonly (Uint8Array | null | undefined | FramedRecord)[],
  ): Promise<Deserialized<T | null>[]> {
    await this.loadReader();
    const frames = records.map((record) => this.schemas.frameOf(record));
    const failed = await this.schemas.loadIds(frames.map(({ id }) => id?.id));
    return frames.map(({ bytes, id, error: unframed }) => {
      try {
        if (bytes === null) return { value: null };
        if (id === undefined) throw unframed;
        const missing = failed.get(id.id);
        if (missing !== undefined) throw missing;
        return { value: this.decode(bytes, id) };
      } catch (thrown) {
        const error = findMillraceError(thrown);
        if (error?.row.reason === undefined) throw thrown;
        return { error };
      }
    });
  }

  private async loadReader(): Promise<void> {
    if (this.codecs !== undefined && !this.schemas.isWaiting) return;
    this.codecs ??= await recordCodecs(this.options.codec ?? 'compiled');
    await this.schemas.loadReader();
  }

  private decode(bytes: Uint8Array, id: RecordId): T {
    const startMs = this.times.nowMs();
    const writer = this.schemas.writerOf(id.id);
    let message: RecordMessage | undefined;
    try {
      message = readMessage(id, writer.format === 'PROTOBUF');
      const decode = this.codecOf(id.id, writer, message);
      const buffer = Buffer.isBuffer(bytes)
        ? bytes
        : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      const value = decode(buffer, message.payloadStart, buffer.length) as T;
      this.times.deserialized(startMs);
      return value;
    } catch (thrown) {
      throw this.schemas.described(thrown, { schemaId: id.id, ...placeOf(thrown, writer, id, message) });
    }
  }

  private codecOf(id: number | string, writer: Schema, { index, path }: RecordMessage): Decode {
    const key = index >= 0 ? index : path.join();
    const known = this.decoders.get(id)?.get(key);
    if (known !== undefined) return known;
    const reader = this.schemas.reader?.schema;
    const made =
      writer.format === 'JSON'
        ? jsonReader(reader, this.options.validator)
        : readerCodec(reader ?? writer, writer, path, this.codecs);
    const byPath = this.decoders.get(id) ?? new Map<number | string, Decode>();
    if (byPath.size < PATHS_MAX) this.decoders.set(id, byPath.set(key, made));
    return made;
  }
}

/** Place of an error in the record. @param message undefined where the message indexes cannot be
 *  read */
export function placeOf(
  thrown: unknown,
  writer: Schema,
  id: RecordId,
  message: RecordMessage | undefined,
): Readonly<Record<string, unknown>> {
  const error = findMillraceError(thrown);
  if (message === undefined || error === undefined) return {};
  if (error.code === 'bad_message_index')
    return typeof id.id === 'number' ? { byte: FRAME.HEADER_BYTES } : { headerByte: HEADER_INDEXES_START };
  const { at } = error.details;
  const offset = typeof at === 'number' ? at : 0;
  return { path: rootOf(writer, message.path), at: offset, byte: message.payloadStart + offset };
}

/** Name of the record in the paths of errors. */
function rootOf(writer: Schema, path: readonly number[]): string {
  if (writer.format === 'AVRO') return avroTypeName(writer.tree).replace(/^.*\./s, '');
  if (writer.format === 'JSON') return '';
  const key = path.join();
  return writer.tree.messages.find((message) => message.path.join() === key)?.name ?? '';
}
