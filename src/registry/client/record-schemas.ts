/** Schemas of framed records: the reader schema that a program wants, and the writer schemas of the
 *  ids in records, each loaded once. */
import { findMillraceError, MillraceError } from '../../core/errors.ts';
import { namedContext } from '../../core/subject.ts';
import type { Reference, ResolvedReference } from '../../formats/content.ts';
import type { SchemaFormat } from '../../formats/format.ts';
import { guidOf } from '../../formats/guid.ts';
import { parseSchema, type Schema } from '../../formats/schema.ts';
import type { RegistryClient, SubjectVersion } from '../../serde/client.ts';
import {
  KEY_ID_HEADER,
  type RecordId,
  readHeaderId,
  readPrefixId,
  VALUE_ID_HEADER,
} from '../../serde/frame.ts';
import { registryError } from '../errors.ts';
import { headerOf, type RecordHeaders } from './headers.ts';
import { checkReaderOptions, demandBytes, demandObject, RECORD_FORMATS } from './options.ts';
import { versionOf } from './prefetch.ts';
import type { ReaderIdentity } from './record-fault.ts';

/** Schema that records are read with. */
export interface ReaderOptions {
  /** True: records are keys. Default false. */
  readonly isKey?: boolean;
  /** Schema of the values that the caller wants, Avro also as the parsed JSON. Default: each record
   *  is read with its writer's schema. Give this or `readerVersion`, not both. */
  readonly readerSchema?: string | object;
  /** Format of `readerSchema`; default AVRO. */
  readonly format?: SchemaFormat;
  /** Schemas that `readerSchema` refers to, by subject and version. */
  readonly references?: readonly Reference[];
  /** Version of a subject as the reader schema; `writer` states the default: each record is read
   *  with its writer's schema. */
  readonly readerVersion?: ReaderVersion | 'writer';
  /** Context of the schema ids in the records, such as `.staging`. Default: the context of
   *  `readerVersion`; without one, that of the registry's address. */
  readonly context?: string;
}

export interface ReaderVersion {
  readonly subject: string;
  readonly version: number | 'latest';
}

/** Value of a record, null or undefined for a tombstone, with its headers. */
export interface FramedRecord {
  readonly bytes: Uint8Array | null | undefined;
  readonly headers?: RecordHeaders | undefined;
}

/** Record of either form. */
export interface Framed {
  readonly bytes: Uint8Array | null;
  readonly headers: RecordHeaders | undefined;
}

/** @throws bad_option for a record of another type */
export function framed(record: Uint8Array | null | undefined | FramedRecord): Framed {
  if (record === null || record === undefined) return { bytes: null, headers: undefined };
  if (record instanceof Uint8Array) return { bytes: record, headers: undefined };
  if (!Object.hasOwn(record, 'bytes')) demandBytes(record);
  const { bytes, headers } = record;
  if (bytes !== null && bytes !== undefined) demandBytes(bytes);
  return { bytes: bytes ?? null, headers };
}

/** Record of a batch with its schema id; `id` is undefined for a tombstone, and for a record whose
 *  frame cannot be read, by `error`. */
interface RecordFrame {
  readonly bytes: Uint8Array | null;
  readonly id: RecordId | undefined;
  readonly error?: unknown;
}

interface Reader {
  readonly schema: Schema;
  /** Context of the version; undefined for a given schema. */
  readonly context: string | undefined;
  readonly identity: ReaderIdentity;
}

/** Reader schema of a version. */
const readerOf = ({ subject }: ReaderVersion, { schema, context, version, id }: SubjectVersion): Reader => ({
  schema,
  context,
  identity: { subject, version, schemaId: id },
});

/** Offset of the schema id in a prefix, and of the guid in a header. */
const ID_START = 1;

export const notCached = (what: string): Error =>
  registryError('schema_not_cached', `${what} is not loaded`, {
    next: 'await registry.prefetch(topic), or prefetch() of this object, first',
  });

export class RecordSchemas {
  private readonly client: RegistryClient;
  private readonly options: ReaderOptions;
  private readonly readerVersion: ReaderVersion | undefined;
  private readonly writers = new Map<number | string, Schema>();
  private loading: Promise<Reader> | undefined;
  /** The reader schema, once it is loaded; undefined where each record has its writer's. */
  reader: Reader | undefined;

  /** @param what the object that reads, for messages; @param formats that it reads
   *  @throws bad_option */
  constructor(client: RegistryClient, options: ReaderOptions, what: string, formats = RECORD_FORMATS) {
    demandObject(`the argument of a ${what}`, options);
    checkReaderOptions(options, formats);
    const { readerVersion } = options;
    this.client = client;
    this.options = options;
    this.readerVersion = readerVersion === 'writer' ? undefined : readerVersion;
    if (options.readerSchema !== undefined && readerVersion !== undefined)
      throw registryError('bad_option', `a ${what} has one reader schema`, {
        next: 'give readerSchema or readerVersion',
      });
  }

  get hasReader(): boolean {
    return this.options.readerSchema !== undefined || this.readerVersion !== undefined;
  }

  /** True until the reader schema is loaded. */
  get isWaiting(): boolean {
    return this.reader === undefined && this.hasReader;
  }

  /** Loads the reader schema, once. A failed load is repeated by the next call. */
  async loadReader(): Promise<void> {
    if (!this.isWaiting) return;
    this.loading ??= this.fetchReader();
    try {
      this.reader = await this.loading;
    } finally {
      this.loading = undefined;
    }
  }

  /** Loads the reader schema without a request. @throws schema_not_cached, invalid_schema */
  demandReader(): void {
    if (this.hasReader) this.reader ??= this.cachedReader();
  }

  /** Context of the ids of the records; empty: that of the registry's address. */
  private get context(): string {
    const { context } = this.options;
    return context ?? this.reader?.context ?? namedContext(this.readerVersion?.subject ?? '');
  }

  has(id: number | string): boolean {
    return this.writers.has(id);
  }

  /** Writer schema without a request. @throws schema_not_cached */
  writerOf(id: number | string): Schema {
    const known = this.writers.get(id);
    if (known !== undefined) return known;
    const schema = this.client.cachedSchema(id, this.context);
    if (schema === undefined) throw notCached(`the schema ${id}`);
    this.writers.set(id, schema);
    return schema;
  }

  async loadWriter(id: number | string): Promise<void> {
    try {
      const schema =
        typeof id === 'number'
          ? await this.client.schemaById(id, this.context)
          : await this.client.schemaByGuid(id);
      this.writers.set(id, schema);
    } catch (cause) {
      throw this.unreadable(cause, id);
    }
  }

  /** Loads the writer schemas of a batch, as `RegistryClient.schemasOf`. Returns the errors of
   *  those that have none, by id.
   */
  loadWriters(records: readonly Framed[]): Promise<ReadonlyMap<number | string, MillraceError>> {
    return this.loadIds(
      records.map(({ bytes, headers }) => (bytes === null ? undefined : this.idOf(bytes, headers))),
    );
  }

  /** Loads the writer schemas of these ids, as `loadWriters`. @param ids one for each record */
  async loadIds(
    ids: ReadonlyArray<number | string | undefined>,
  ): Promise<ReadonlyMap<number | string, MillraceError>> {
    const missing = new Map<number | string, number>();
    for (const id of ids)
      if (id !== undefined && !this.writers.has(id)) missing.set(id, (missing.get(id) ?? 0) + 1);
    const failed = new Map<number | string, MillraceError>();
    if (missing.size === 0) return failed;
    for (const [id, found] of await this.client.schemasOf(missing, this.context))
      if (found instanceof MillraceError) failed.set(id, this.unreadable(found, id) as MillraceError);
      else this.writers.set(id, found);
    return failed;
  }

  /** Id of a record: the header first, then the prefix, as the existing deserializers do.
   *  @throws bad_magic, truncated_frame, bad_option for a record that is not bytes */
  recordId(bytes: Uint8Array, headers: RecordHeaders | undefined): RecordId {
    demandBytes(bytes);
    try {
      const header = headerOf(headers, this.options.isKey === true ? KEY_ID_HEADER : VALUE_ID_HEADER);
      return header === undefined ? readPrefixId(bytes) : readHeaderId(header);
    } catch (thrown) {
      throw this.described(thrown, {});
    }
  }

  /** Reads the frame of a record of a batch, once. */
  frameOf(record: Uint8Array | null | undefined | FramedRecord): RecordFrame {
    const { bytes, headers } = framed(record);
    try {
      return { bytes, id: bytes === null ? undefined : this.recordId(bytes, headers) };
    } catch (error) {
      return { bytes, id: undefined, error };
    }
  }

  /** Adds details to an error that is a fact about a record; any other error stays. */
  described(thrown: unknown, more: Readonly<Record<string, unknown>>): unknown {
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

  /** Undefined for a record without a readable id, whose decoding then fails. */
  private idOf(bytes: Uint8Array, headers: RecordHeaders | undefined): number | string | undefined {
    try {
      return this.recordId(bytes, headers).id;
    } catch {
      return undefined;
    }
  }

  /** Reader schema without a request. @throws schema_not_cached, invalid_schema */
  private cachedReader(): Reader {
    const { readerSchema, references = [] } = this.options;
    const { readerVersion } = this;
    if (readerVersion === undefined) {
      if (references.length > 0 || readerSchema === undefined) throw notCached('the reader schema');
      return this.givenReader([]);
    }
    const { subject, version } = readerVersion;
    const found = versionOf(this.client.cachedVersions(subject), version);
    if (found === undefined) throw notCached('the reader schema');
    return readerOf(readerVersion, found);
  }

  private givenReader(resolved: readonly ResolvedReference[]): Reader {
    const { readerSchema, format = 'AVRO', references = [] } = this.options;
    const text = typeof readerSchema === 'string' ? readerSchema : JSON.stringify(readerSchema);
    const schema = parseSchema(format, text, { references: resolved });
    const identity = { guid: guidOf({ format, text: schema.text, references }) };
    return { schema, context: undefined, identity };
  }

  private async fetchReader(): Promise<Reader> {
    const { readerVersion } = this;
    const { references = [] } = this.options;
    if (readerVersion === undefined)
      return this.givenReader(await this.client.resolve(references, this.context));
    const { subject, version } = readerVersion;
    return readerOf(readerVersion, await this.client.version(subject, String(version)));
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
}
