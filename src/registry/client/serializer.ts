/** Serializer of one schema: values to framed records.
 *
 *  Loading the schema is the only asynchronous step, and happens once; `serialize` is synchronous
 *  and does no I/O.
 */

import { MillraceError } from '../../core/errors.ts';
import { RecordSlab } from '../../formats/binary/record-slab.ts';
import type { SchemaFormat } from '../../formats/format.ts';
import type { RegistryClient } from '../../serde/client.ts';
import { COMPILED_CODECS, type RecordCodecs, type WriterCodec } from '../../serde/codec.ts';
import { type CodecChoice, recordCodecs } from '../../serde/codec-choice.ts';
import { jsonWriter } from '../../serde/json-codec.ts';
import type { JsonValidator } from '../../serde/json-validator.ts';
import { registryError } from '../errors.ts';
import type { SerdeTimes } from './serde-metrics.ts';
import { type Framing, WriterSchema, type WriterSchemaOptions, type WrittenSchema } from './writer-schema.ts';

export interface SerializerOptions extends WriterSchemaOptions {
  /** `reference` writes with avsc and protobufjs, for comparison: slower, with weaker checks.
   *  Default compiled. */
  readonly codec?: CodecChoice;
  /** Validates the values of a JSON Schema. Default: the package ajv, which the service installs.
   */
  readonly validator?: JsonValidator;
}

interface Loaded extends WrittenSchema, Framing {
  readonly codec: WriterCodec;
}

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
  private readonly writer: WriterSchema;
  private readonly options: SerializerOptions;
  private readonly times: SerdeTimes;
  private readonly slab = new RecordSlab();
  private loading: Promise<Loaded> | undefined;
  private loaded: Loaded | undefined;

  /** @throws bad_option */
  constructor(client: RegistryClient, options: SerializerOptions, times: SerdeTimes) {
    this.times = times;
    this.options = options;
    this.writer = new WriterSchema(client, options, 'serializer');
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

  /** Format of the schema. @throws schema_not_cached before a prefetch, see serialize */
  get format(): SchemaFormat {
    return this.ready().schema.format;
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
    const written = await this.writer.load();
    return this.compile(written, await recordCodecs(this.options.codec ?? 'compiled'));
  }

  private compile(written: WrittenSchema, codecs: RecordCodecs): Loaded {
    const { schema } = written;
    const { message, validator } = this.options;
    const codec = schema.format === 'JSON' ? jsonWriter(schema, validator) : codecs.writer(schema, message);
    return { ...written, codec, ...this.writer.framing(written, codec.messageIndexes) };
  }

  /** Loads from the caches. Undefined: a request, or the reference codec, is needed. */
  private cached(): Loaded | undefined {
    if (this.options.codec === 'reference') return undefined;
    const written = this.writer.cached();
    return written && this.compile(written, COMPILED_CODECS);
  }
}
