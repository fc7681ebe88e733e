/** Serializer of one schema: values to framed records.
 *
 *  Loading the schema is the only asynchronous step, and happens once; `serialize` is synchronous
 *  and does no I/O.
 */

import { framePrefix } from '../../addon/reference/frame.ts';
import { MillraceError } from '../../core/errors.ts';
import { RecordSlab } from '../../formats/binary/record-slab.ts';
import type { Reference } from '../../formats/content.ts';
import type { SchemaFormat } from '../../formats/format.ts';
import { guidOf } from '../../formats/guid.ts';
import { parseSchema, type Schema } from '../../formats/schema.ts';
import type { RegistryClient } from '../../serde/client.ts';
import { COMPILED_CODECS, type RecordCodecs, type WriterCodec } from '../../serde/codec.ts';
import { type CodecChoice, recordCodecs } from '../../serde/codec-choice.ts';
import { idHeaderOf, KEY_ID_HEADER, VALUE_ID_HEADER } from '../../serde/frame.ts';
import { registryError } from '../errors.ts';
import { versionOf } from './prefetch.ts';
import type { SerdeTimes } from './serde-metrics.ts';
import { recordNameOf, type SubjectStrategy, subjectOf } from './subject.ts';

export interface SerializerOptions {
  /** Topic of the records. */
  readonly topic: string;
  /** True: records are keys. Default false. */
  readonly isKey?: boolean;
  /** Default TopicName. */
  readonly subject?: SubjectStrategy;
  /** Format of `schema`; default AVRO. */
  readonly format?: SchemaFormat;
  /** Text of the schema; Avro also as the parsed JSON. Give this or `version`. */
  readonly schema?: string | object;
  /** Schemas that `schema` refers to, by subject and version. */
  readonly references?: readonly Reference[];
  /** Version of the subject to write with. Give this or `schema`. */
  readonly version?: number | 'latest';
  /** True: registers `schema`. Default false: the subject must have it already. */
  readonly autoRegister?: boolean;
  /** `prefix`: the id is before the payload. `headers`: the guid is in a record header. Default
   *  prefix. */
  readonly header?: 'prefix' | 'headers';
  /** Full name of the Protobuf message; default: the first of the file. */
  readonly message?: string;
  /** `reference` writes with avsc and protobufjs, for comparison: slower, with weaker checks.
   *  Default compiled. */
  readonly codec?: CodecChoice;
}

const NOTHING = Buffer.alloc(0);

interface Loaded {
  readonly schema: Schema;
  readonly codec: WriterCodec;
  readonly id: number;
  readonly prefix: Buffer;
  readonly headers: Readonly<Record<string, Buffer>>;
}

const textOf = (schema: string | object): string =>
  typeof schema === 'string' ? schema : JSON.stringify(schema);

function withSchemaId(thrown: unknown, schemaId: number): unknown {
  if (!(thrown instanceof MillraceError)) return thrown;
  const { code, row, message, next, details } = thrown;
  return new MillraceError(code, row, message, {
    ...(next === undefined ? {} : { next }),
    cause: thrown,
    details: { ...details, schemaId },
  });
}

/** Serializer of one schema for one topic; made by `SchemaRegistry.serializer`. */
export class Serializer<T = unknown> {
  private readonly client: RegistryClient;
  private readonly options: SerializerOptions;
  private readonly times: SerdeTimes;
  private readonly slab = new RecordSlab();
  private loading: Promise<Loaded> | undefined;
  private loaded: Loaded | undefined;

  /** @throws bad_option */
  constructor(client: RegistryClient, options: SerializerOptions, times: SerdeTimes) {
    this.client = client;
    this.times = times;
    this.options = options;
    const { schema, version, autoRegister } = options;
    if ((schema === undefined) === (version === undefined))
      throw registryError(
        'bad_option',
        'a serializer writes either a given schema or a version of the subject',
        {
          next: 'give schema or version',
        },
      );
    if (autoRegister === true && schema === undefined)
      throw registryError('bad_option', 'autoRegister needs a schema to register', { next: 'give schema' });
  }

  /** Loads the schema and its id, once. A failed load is repeated by the next call.
   *  @returns this serializer
   *  @throws bad_option, invalid_schema, incompatible, subject_not_found, version_not_found,
   *    schema_not_found, registry_unavailable, registry_protocol, unauthenticated, forbidden
   */
  async prefetch(): Promise<this> {
    this.loading ??= this.load();
    try {
      this.loaded = await this.loading;
    } catch (thrown) {
      this.loading = undefined;
      throw thrown;
    }
    return this;
  }

  /** Id of the schema. @throws schema_not_cached before a prefetch, see serialize */
  get schemaId(): number {
    return this.ready().id;
  }

  /** Headers of every record: the schema id header, or none. @throws schema_not_cached */
  get headers(): Readonly<Record<string, Buffer>> {
    return this.ready().headers;
  }

  /** Serializes a value. The bytes of the result belong to the caller; short results share their
   *  ArrayBuffer, as those of `Buffer.allocUnsafe` do. The schema was loaded by this object's
   *  prefetch, or by `SchemaRegistry.prefetch` of the topic: then `latest` is the latest version of
   *  that time, and a given schema is one without references that the subject has.
   *  @throws value_refused with the details `path` of the part that does not fit and `schemaId`;
   *    schema_not_cached
   */
  serialize(value: T): Buffer {
    const { codec, prefix, id } = this.ready();
    const { slab, times } = this;
    const startMs = times.nowMs();
    slab.begin(prefix);
    try {
      codec.encode(value, slab);
    } catch (thrown) {
      slab.abandon();
      throw withSchemaId(thrown, id);
    }
    const record = slab.end();
    times.serialized(startMs);
    return record;
  }

  /** Serializes values in order. @throws as serialize; then no record is returned */
  serializeBatch(values: readonly T[]): Buffer[] {
    return values.map((value) => this.serialize(value));
  }

  private ready(): Loaded {
    this.loaded ??= this.cached();
    if (this.loaded === undefined)
      throw registryError('schema_not_cached', 'the schema of this serializer is not loaded', {
        next: 'await serializer.prefetch() or registry.prefetch(topic) first',
      });
    return this.loaded;
  }

  private async load(): Promise<Loaded> {
    const { codec = 'compiled', header } = this.options;
    const { schema, id } = await this.resolve();
    const guid = header === 'headers' ? await this.client.guidOf(id) : '';
    return this.compile(schema, id, guid, await recordCodecs(codec));
  }

  /** @param guid of the schema, used with `header: 'headers'` */
  private compile(schema: Schema, id: number, guid: string, codecs: RecordCodecs): Loaded {
    const { message, header, isKey } = this.options;
    const codec = codecs.writer(schema, message);
    const { messageIndexes } = codec;
    if (header !== 'headers')
      return { schema, codec, id, prefix: Buffer.from(framePrefix(id, messageIndexes)), headers: {} };
    const name = isKey === true ? KEY_ID_HEADER : VALUE_ID_HEADER;
    return { schema, codec, id, prefix: NOTHING, headers: { [name]: idHeaderOf(guid, messageIndexes) } };
  }

  /** Loads from the caches. Undefined: a request, or the reference codec, is needed. */
  private cached(): Loaded | undefined {
    if (this.options.codec === 'reference') return undefined;
    const { schema: given, version, format = 'AVRO', references = [], message } = this.options;
    if (given === undefined) {
      const found = versionOf(this.client.cachedVersions(this.subjectWith(undefined)), version ?? 'latest');
      return found && this.compile(found.schema, found.id, found.guid, COMPILED_CODECS);
    }
    if (references.length > 0) return undefined;
    const schema = parseSchema(format, textOf(given));
    const versions = this.client.cachedVersions(this.subjectWith(recordNameOf(schema, message)));
    const guid = guidOf({ format, text: schema.text, references });
    const found = versions?.find((one) => one.guid === guid);
    return found && this.compile(schema, found.id, guid, COMPILED_CODECS);
  }

  private async resolve(): Promise<{ readonly schema: Schema; readonly id: number }> {
    const { schema: given, version, format = 'AVRO', references = [], autoRegister, message } = this.options;
    if (given === undefined) {
      const subject = this.subjectWith(undefined);
      return this.client.version(subject, String(version));
    }
    const text = textOf(given);
    const resolved = await this.client.resolve(references);
    const schema = parseSchema(format, text, { references: resolved });
    const subject = this.subjectWith(recordNameOf(schema, message));
    if (autoRegister === true)
      return { schema, id: await this.client.register(subject, format, text, references) };
    const found = await this.client.findVersion(subject, format, text, references);
    if (found === undefined)
      throw registryError('schema_not_found', `the subject ${subject} does not have this schema`, {
        next: 'register it, or set autoRegister',
      });
    return { schema, id: found.id };
  }

  private subjectWith(recordName: string | undefined): string {
    const { topic, isKey = false, subject = 'TopicName' } = this.options;
    return subjectOf(subject, { topic, isKey, recordName });
  }
}
