/** Deserializer of a topic: framed records to values of the reader schema.
 *
 *  Each writer schema is fetched once and compiled once. A record whose schema is loaded is read
 *  without I/O.
 */
import { findMillraceError, MillraceError } from '../../core/errors.ts';
import { FRAME } from '../../core/layout/layouts.gen.ts';
import { avroTypeName } from '../../formats/avro/syntax/tree.ts';
import type { Reference, ResolvedReference } from '../../formats/content.ts';
import type { Decode } from '../../formats/decode.ts';
import type { SchemaFormat } from '../../formats/format.ts';
import { guidOf } from '../../formats/guid.ts';
import { parseSchema, type Schema } from '../../formats/schema.ts';
import type { RegistryClient } from '../../serde/client.ts';
import { COMPILED_CODECS, type RecordCodecs } from '../../serde/codec.ts';
import { type CodecChoice, recordCodecs } from '../../serde/codec-choice.ts';
import {
  KEY_ID_HEADER,
  type RecordId,
  type RecordMessage,
  readHeaderId,
  readMessage,
  readPrefixId,
  VALUE_ID_HEADER,
} from '../../serde/frame.ts';
import { registryError } from '../errors.ts';
import { readerCodec } from '../proof/reader.ts';
import { headerOf, type RecordHeaders } from './headers.ts';
import { versionOf } from './prefetch.ts';
import type { ReaderIdentity } from './record-fault.ts';
import type { SerdeTimes } from './serde-metrics.ts';

export interface DeserializerOptions {
  /** True: records are keys. Default false. */
  readonly isKey?: boolean;
  /** Schema of the values that the caller wants, Avro also as the parsed JSON. Default: each record
   *  is read with its writer's schema. Give this or `readerVersion`, not both. */
  readonly readerSchema?: string | object;
  /** Format of `readerSchema`; default AVRO. */
  readonly format?: SchemaFormat;
  /** Schemas that `readerSchema` refers to, by subject and version. */
  readonly references?: readonly Reference[];
  /** Version of a subject as the reader schema. */
  readonly readerVersion?: { readonly subject: string; readonly version: number | 'latest' };
  /** `reference` reads with avsc and protobufjs, for comparison: slower, with weaker checks.
   *  Default compiled. */
  readonly codec?: CodecChoice;
}

/** Value of a record, null or undefined for a tombstone, with its headers. */
export interface FramedRecord {
  readonly bytes: Uint8Array | null | undefined;
  readonly headers?: RecordHeaders | undefined;
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
/** Offset of the schema id in a prefix, and of the guid in a header. */
const ID_START = 1;

/** Record of a batch with its schema id; `id` is undefined for a tombstone, and for a record whose
 *  frame cannot be read, by `error`. */
interface Frame {
  readonly bytes: Uint8Array | null;
  readonly id: RecordId | undefined;
  readonly error?: unknown;
}

/** Error as a fact about one record. @throws the error itself where it is none */
function factOf(thrown: unknown): MillraceError {
  const error = findMillraceError(thrown);
  if (error?.row.reason === undefined) throw thrown;
  return error;
}

function framed(record: Uint8Array | null | undefined | FramedRecord): {
  readonly bytes: Uint8Array | null;
  readonly headers: RecordHeaders | undefined;
} {
  if (record === null || record === undefined || record instanceof Uint8Array)
    return { bytes: record ?? null, headers: undefined };
  return { bytes: record.bytes ?? null, headers: record.headers };
}

interface Reader {
  readonly schema: Schema;
  readonly identity: ReaderIdentity;
}

interface Writer {
  readonly schema: Schema;
  /** By the index of a top-level message, or by the indexes of a nested one. */
  readonly byPath: Map<number | string, Decode>;
}

/** Deserializer of framed records; made by `SchemaRegistry.deserializer`. */
export class Deserializer<T = unknown> {
  private readonly client: RegistryClient;
  private readonly options: DeserializerOptions;
  private readonly times: SerdeTimes;
  private readonly writers = new Map<number | string, Writer>();
  private reader: Reader | undefined;
  private codecs: RecordCodecs | undefined;
  private loading: Promise<void> | undefined;

  /** @throws bad_option */
  constructor(client: RegistryClient, options: DeserializerOptions, times: SerdeTimes) {
    this.client = client;
    this.times = times;
    this.options = options;
    if (options.codec !== 'reference') this.codecs = COMPILED_CODECS;
    if (options.readerSchema !== undefined && options.readerVersion !== undefined)
      throw registryError('bad_option', 'a deserializer has one reader schema', {
        next: 'give readerSchema or readerVersion',
      });
  }

  /** Loads the reader schema, and the writer schemas of these ids.
   *  @param ids schema ids whose records are expected
   *  @returns this deserializer
   *  @throws invalid_schema, subject_not_found, version_not_found, schema_not_found,
   *    registry_unavailable, registry_protocol, unauthenticated, forbidden
   */
  async prefetch(ids: readonly number[] = []): Promise<this> {
    await this.loadReader();
    await Promise.all(ids.map((id) => this.loadWriter(id)));
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
    if (this.isWaiting) await this.loadReader();
    const id = this.recordId(bytes, headers);
    const known = this.writers.get(id.id);
    if (known !== undefined) this.client.countHits(1);
    return this.decode(bytes, id, known ?? (await this.loadWriter(id.id)));
  }

  /** Deserializes a record whose schemas this object or `SchemaRegistry.prefetch` has loaded.
   *  @throws schema_not_cached for a schema that is not; invalid_schema; the record's errors of
   *    deserialize
   */
  deserializeSync(bytes: Uint8Array | null | undefined, headers?: RecordHeaders): T | null {
    if (bytes === null || bytes === undefined) return null;
    if (this.hasReader) this.reader ??= this.cachedReader();
    if (this.isWaiting) throw notCached('the reference codec');
    const id = this.recordId(bytes, headers);
    return this.decode(bytes, id, this.writerOf(id.id));
  }

  /** Deserializes records in order; a bad record costs its own row only.
   *  @throws registry_unavailable, registry_protocol, unauthenticated, forbidden: retry the batch
   */
  async deserializeBatch(
    records: readonly (Uint8Array | null | undefined | FramedRecord)[],
  ): Promise<Deserialized<T | null>[]> {
    await this.loadReader();
    const frames = records.map((record) => this.frameOf(record));
    const failed = await this.loadWriters(frames);
    return frames.map(({ bytes, id, error }) => {
      try {
        if (bytes === null) return { value: null };
        if (id === undefined) throw error;
        const missing = failed.get(id.id);
        if (missing !== undefined) throw missing;
        return { value: this.decode(bytes, id, this.writerOf(id.id)) };
      } catch (thrown) {
        return { error: factOf(thrown) };
      }
    });
  }

  /** Reads the frame of a record of a batch, once. */
  private frameOf(record: Uint8Array | null | undefined | FramedRecord): Frame {
    const { bytes, headers } = framed(record);
    try {
      return { bytes, id: bytes === null ? undefined : this.recordId(bytes, headers) };
    } catch (error) {
      return { bytes, id: undefined, error };
    }
  }

  /** Loads the writer schemas of a batch, all in parallel. Returns the errors of those that have
   *  none, by id.
   */
  private async loadWriters(frames: readonly Frame[]): Promise<ReadonlyMap<number | string, MillraceError>> {
    const missing = new Map<number, number>();
    const guids = new Set<string>();
    for (const frame of frames) {
      const id = frame.id?.id;
      if (id === undefined || this.writers.has(id)) continue;
      if (typeof id === 'number') missing.set(id, (missing.get(id) ?? 0) + 1);
      else guids.add(id);
    }
    const failed = new Map<number | string, MillraceError>();
    const byId = async (): Promise<void> => {
      for (const [id, found] of await this.client.schemasById(missing))
        if (found instanceof MillraceError) failed.set(id, this.unreadable(found, id) as MillraceError);
        else this.keep(id, found);
    };
    const byGuid = [...guids].map(async (guid) => {
      try {
        await this.loadWriter(guid);
      } catch (thrown) {
        failed.set(guid, factOf(thrown));
      }
    });
    await Promise.all([missing.size > 0 ? byId() : undefined, ...byGuid]);
    return failed;
  }

  private get hasReader(): boolean {
    return this.options.readerSchema !== undefined || this.options.readerVersion !== undefined;
  }

  /** True until the reader schema and the codecs are loaded. */
  private get isWaiting(): boolean {
    return this.codecs === undefined || (this.reader === undefined && this.hasReader);
  }

  private async loadReader(): Promise<void> {
    if (!this.isWaiting) return;
    this.loading ??= this.fetchReader();
    try {
      await this.loading;
    } finally {
      this.loading = undefined;
    }
  }

  /** Reader schema without a request. @throws schema_not_cached, invalid_schema */
  private cachedReader(): Reader {
    const { readerSchema, readerVersion, references = [] } = this.options;
    if (readerVersion === undefined) {
      if (references.length > 0 || readerSchema === undefined) throw notCached('the reader schema');
      return this.givenReader([]);
    }
    const { subject, version } = readerVersion;
    const found = versionOf(this.client.cachedVersions(subject), version);
    if (found === undefined) throw notCached('the reader schema');
    return { schema: found.schema, identity: { subject, version: found.version, schemaId: found.id } };
  }

  private givenReader(resolved: readonly ResolvedReference[]): Reader {
    const { readerSchema, format = 'AVRO', references = [] } = this.options;
    const text = typeof readerSchema === 'string' ? readerSchema : JSON.stringify(readerSchema);
    const schema = parseSchema(format, text, { references: resolved });
    return { schema, identity: { guid: guidOf({ format, text: schema.text, references }) } };
  }

  private async fetchReader(): Promise<void> {
    this.codecs = await recordCodecs(this.options.codec ?? 'compiled');
    if (!this.hasReader) return;
    const { readerVersion, references = [] } = this.options;
    if (readerVersion !== undefined) {
      const { subject, version } = readerVersion;
      const found = await this.client.version(subject, String(version));
      const identity = { subject, version: found.version, schemaId: found.id };
      this.reader = { schema: found.schema, identity };
      return;
    }
    this.reader = this.givenReader(await this.client.resolve(references));
  }

  private async loadWriter(id: number | string): Promise<Writer> {
    try {
      const schema =
        typeof id === 'number' ? await this.client.schemaById(id) : await this.client.schemaByGuid(id);
      return this.keep(id, schema);
    } catch (cause) {
      throw this.unreadable(cause, id);
    }
  }

  /** Error of a writer schema that was not loaded. An id that the registry does not know is a fact
   *  about the record. */
  private unreadable(thrown: unknown, id: number | string): unknown {
    const error = findMillraceError(thrown);
    const fact =
      error?.code === 'schema_not_found'
        ? registryError('unknown_schema_id', error.message, { cause: error })
        : thrown;
    const byte = typeof id === 'number' ? { byte: ID_START } : { headerByte: ID_START };
    return this.described(fact, { ...byte, schemaId: id });
  }

  /** Adds details to an error that is a fact about a record; any other error stays. */
  private described(thrown: unknown, more: Readonly<Record<string, unknown>>): unknown {
    const error = findMillraceError(thrown);
    const reason = error?.row.reason;
    if (error === undefined || reason === undefined) return thrown;
    const { code, row, message, next } = error;
    const reader = this.reader === undefined ? {} : { reader: this.reader.identity };
    return new MillraceError(code, row, message, {
      ...(next === undefined ? {} : { next }),
      cause: thrown,
      details: { ...more, ...error.details, ...reader, reason },
    });
  }

  private keep(id: number | string, schema: Schema): Writer {
    const known = this.writers.get(id);
    if (known !== undefined) return known;
    const writer = { schema, byPath: new Map<string, Decode>() };
    this.writers.set(id, writer);
    return writer;
  }

  /** Writer schema without a request. @throws schema_not_cached */
  private writerOf(id: number | string): Writer {
    const known = this.writers.get(id);
    if (known !== undefined) return known;
    const schema = this.client.cachedSchema(id);
    if (schema === undefined) throw notCached(`the schema ${id}`);
    return this.keep(id, schema);
  }

  /** The header first, then the prefix, as the existing deserializers do. */
  private recordId(bytes: Uint8Array, headers: RecordHeaders | undefined): RecordId {
    try {
      const header = headerOf(headers, this.options.isKey === true ? KEY_ID_HEADER : VALUE_ID_HEADER);
      return header === undefined ? readPrefixId(bytes) : readHeaderId(header);
    } catch (thrown) {
      throw this.described(thrown, {});
    }
  }

  private decode(bytes: Uint8Array, id: RecordId, writer: Writer): T {
    const startMs = this.times.nowMs();
    let message: RecordMessage | undefined;
    try {
      message = readMessage(id, writer.schema.format === 'PROTOBUF');
      const decode = this.codecOf(writer, message);
      const buffer = Buffer.isBuffer(bytes)
        ? bytes
        : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      const value = decode(buffer, message.payloadStart, buffer.length) as T;
      this.times.deserialized(startMs);
      return value;
    } catch (thrown) {
      throw this.described(thrown, { schemaId: id.id, ...placeOf(thrown, writer.schema, id, message) });
    }
  }

  private codecOf(writer: Writer, { index, path }: RecordMessage): Decode {
    const key = index >= 0 ? index : path.join();
    const known = writer.byPath.get(key);
    if (known !== undefined) return known;
    const made = readerCodec(this.reader?.schema ?? writer.schema, writer.schema, path, this.codecs);
    if (writer.byPath.size < PATHS_MAX) writer.byPath.set(key, made);
    return made;
  }
}

const notCached = (what: string): Error =>
  registryError('schema_not_cached', `${what} is not loaded`, {
    next: 'await registry.prefetch(topic), deserializer.prefetch() or deserialize() first',
  });

/** Place of an error in the record. @param message undefined where the message indexes cannot be
 *  read */
function placeOf(
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
