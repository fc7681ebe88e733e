/** Schema that records are written with: loaded once, from requests or from the caches. */
import { framePrefix } from '../../addon/reference/frame.ts';
import { namedContext } from '../../core/subject.ts';
import type { Reference } from '../../formats/content.ts';
import type { SchemaFormat } from '../../formats/format.ts';
import { guidOf } from '../../formats/guid.ts';
import { writtenMessage } from '../../formats/protobuf/codec/record-codec.ts';
import { parseSchema, type Schema } from '../../formats/schema.ts';
import type { RegistryClient } from '../../serde/client.ts';
import { idHeaderOf, KEY_ID_HEADER, VALUE_ID_HEADER } from '../../serde/frame.ts';
import { registryError } from '../errors.ts';
import { checkWriterOptions, demandObject, RECORD_FORMATS } from './options.ts';
import { versionOf } from './prefetch.ts';
import { recordNameOf, type SubjectStrategy, subjectOf } from './subject.ts';

export interface WriterSchemaOptions {
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
  /** Schemas that `schema` refers to, by subject and version. A subject that names no context is
   *  one of the context of the schema's subject. */
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
}

const NOTHING = Buffer.alloc(0);

/** A schema with its id. */
export interface WrittenSchema {
  readonly schema: Schema;
  readonly id: number;
  /** Guid of the schema; empty where no header needs it. */
  readonly guid: string;
}

/** Schema of a subject with its id. */
interface Resolved {
  readonly schema: Schema;
  readonly subject: string;
  readonly id: number;
}

/** Parts of a record besides its payload. */
export interface Framing {
  readonly prefix: Buffer;
  readonly headers: Readonly<Record<string, Buffer>>;
}

const textOf = (schema: string | object): string =>
  typeof schema === 'string' ? schema : JSON.stringify(schema);

export class WriterSchema {
  private readonly client: RegistryClient;
  private readonly options: WriterSchemaOptions;

  /** @param what the object that writes, for messages; @param formats that it writes
   *  @throws bad_option */
  constructor(client: RegistryClient, options: WriterSchemaOptions, what: string, formats = RECORD_FORMATS) {
    demandObject(`the argument of a ${what}`, options);
    checkWriterOptions(options, formats);
    this.client = client;
    this.options = options;
    const { schema, version, autoRegister } = options;
    if ((schema === undefined) === (version === undefined))
      throw registryError(
        'bad_option',
        `a ${what} writes either a given schema or a version of the subject`,
        { next: 'give schema or version' },
      );
    if (autoRegister === true && schema === undefined)
      throw registryError('bad_option', 'autoRegister needs a schema to register', { next: 'give schema' });
  }

  /** Loads the schema and its id.
   *  @throws bad_option, invalid_schema, incompatible, subject_not_found, version_not_found,
   *    schema_not_found, registry_unavailable, registry_protocol, unauthenticated, forbidden */
  async load(): Promise<WrittenSchema> {
    const { schema, id, subject } = await this.resolve();
    const guid = this.options.header === 'headers' ? await this.client.guidOf(id, subject) : '';
    return { schema, id, guid };
  }

  /** Loads from the caches. Undefined: a request is needed. */
  cached(): WrittenSchema | undefined {
    const { schema: given, version, format = 'AVRO', references = [], message } = this.options;
    if (given === undefined)
      return versionOf(this.client.cachedVersions(this.subjectWith(undefined)), version ?? 'latest');
    if (references.length > 0) return undefined;
    const schema = parseSchema(format, textOf(given));
    const versions = this.client.cachedVersions(this.subjectWith(recordNameOf(schema, message)));
    // As the registry looks a text up: a version without metadata and rules, else one with them.
    const equal = versions?.filter(({ schema: { identity } }) => identity === schema.identity) ?? [];
    const plain = guidOf({ format, text: schema.text, references });
    const found = equal.findLast((one) => one.guid === plain) ?? equal.at(-1);
    return found && { schema, id: found.id, guid: found.guid };
  }

  /** @param messageIndexes of the written message; null for Avro */
  framing({ id, guid }: WrittenSchema, messageIndexes: Int32Array | null): Framing {
    const { header, isKey } = this.options;
    if (header !== 'headers') return { prefix: Buffer.from(framePrefix(id, messageIndexes)), headers: {} };
    const name = isKey === true ? KEY_ID_HEADER : VALUE_ID_HEADER;
    return { prefix: NOTHING, headers: { [name]: idHeaderOf(guid, messageIndexes) } };
  }

  private async resolve(): Promise<Resolved> {
    const { schema: given, version, format = 'AVRO', references = [], autoRegister } = this.options;
    if (given === undefined) {
      const subject = this.subjectWith(undefined);
      return this.client.version(subject, String(version));
    }
    const text = textOf(given);
    const { schema, subject } = await this.parse(text);
    if (autoRegister === true)
      return { schema, subject, id: await this.client.register(subject, format, text, references) };
    const found = await this.client.findVersion(subject, format, text, references);
    if (found === undefined)
      throw registryError('schema_not_found', `the subject ${subject} does not have this schema`, {
        next: 'register it, or set autoRegister',
      });
    return { schema, subject, id: found.id };
  }

  /** Parses the given schema. Its references are those of the context of its subject, which may
   *  depend on the name of the parsed record. */
  private async parse(text: string): Promise<Omit<Resolved, 'id'>> {
    const { references = [] } = this.options;
    const context = references.length === 0 ? '' : this.likelyContext();
    const parsed = await this.parseWithin(context, text);
    const own = namedContext(parsed.subject);
    return references.length === 0 || own === context ? parsed : this.parseWithin(own, text);
  }

  private async parseWithin(context: string, text: string): Promise<Omit<Resolved, 'id'>> {
    const { format = 'AVRO', references = [], message } = this.options;
    const resolved = await this.client.resolve(references, context);
    const schema = parseSchema(format, text, { references: resolved });
    // A message that the schema lacks is refused before the schema is registered.
    if (schema.format === 'PROTOBUF') writtenMessage(schema, message);
    return { schema, subject: this.subjectWith(recordNameOf(schema, message)) };
  }

  /** Context of the subject as far as it is known before the schema is parsed. */
  private likelyContext(): string {
    if (typeof this.options.subject !== 'function') return '';
    try {
      return namedContext(this.subjectWith(undefined));
    } catch {
      // The function needs the name of the record.
      return '';
    }
  }

  private subjectWith(recordName: string | undefined): string {
    const { topic, isKey = false, subject = 'TopicName' } = this.options;
    return subjectOf(subject, { topic, isKey, recordName });
  }
}
