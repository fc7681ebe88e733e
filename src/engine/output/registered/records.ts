/** Records of results that a schema of the registry describes: framed Avro, Protobuf or JSON.
 *
 *  Invariant: a result has one record key, byte for byte, as long as the schema of the keys does
 *  not change, so compaction keeps the newest record of each key and window. */
import { framePrefix } from '../../../addon/reference/frame.ts';
import { bytesOfInteger, decimalText, integerOfBytes, unscaledOf } from '../../../core/decimal/exact.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { Decode, WriterCodec } from '../../../formats/decode.ts';
import type { SchemaFormat } from '../../../formats/format.ts';
import { type JsonMember, type JsonNode, readJson } from '../../../formats/json/text.ts';
import { Payloads } from '../../../formats/payloads.ts';
import { parseSchema, type Schema } from '../../../formats/schema.ts';
import type { RegistryClient } from '../../../serde/client.ts';
import { readerUnjudged, writerCodec } from '../../../serde/codec.ts';
import { readMessage, readPrefixId } from '../../../serde/frame.ts';
import { engineError } from '../../errors.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import {
  type ColumnType,
  type ColumnValue,
  type ResultColumn,
  type ResultShape,
  resultOfValues,
  shapeOfKeys,
  type TopItem,
  topItems,
  topText,
} from '../columns.ts';
import type { ResultRecords } from '../sink/kafka-records.ts';
import {
  columnsOfPart,
  NON_FINITE,
  partsOfSchema,
  plainNumbers,
  type RecordPart,
  schemaTextOf,
} from './schemas.ts';

export const RECORD_FORMATS = ['avro', 'protobuf', 'json'] as const;
export type RecordFormat = (typeof RECORD_FORMATS)[number];
const SCHEMA_FORMAT: Readonly<Record<RecordFormat, SchemaFormat>> = {
  avro: 'AVRO',
  protobuf: 'PROTOBUF',
  json: 'JSON',
};
/** Initial room of one encoded record. */
const RECORD_BYTES = 4_096;
/** Most characters of a registry's reason in an error. */
const REASON_CHARS_MAX = 1_000;
const REFUSED_NEXT =
  'give the results a topic of their own, or change the compatibility level or the mode of the subject';

export interface RegisteredRecordsParts {
  readonly client: RegistryClient;
  readonly format: RecordFormat;
  readonly topic: string;
  /** Aggregates of the results that are read; absent: count, sum, min and max. */
  readonly aggregate?: string | undefined;
  /** Early results are read too. */
  readonly emit?: 'updates' | undefined;
}

/** Encoder of one part of the records. */
interface PartEncoder {
  readonly id: number;
  encode(result: WindowResult): Uint8Array;
}

export class RegisteredRecords implements ResultRecords {
  private readonly parts: RegisteredRecordsParts;
  private encoders: Readonly<Record<RecordPart, PartEncoder>> | undefined;
  private readonly decoders = new Map<number, (bytes: Uint8Array) => WindowResult>();
  private shape: ResultShape | undefined;

  constructor(parts: RegisteredRecordsParts) {
    this.parts = parts;
  }

  get readShape(): ResultShape | undefined {
    return this.shape;
  }

  /** Registers the schemas of the results under the rules of their subjects.
   *  @throws sink_refused, registry_unavailable, unauthenticated, forbidden */
  async register({ columns }: ResultShape): Promise<void> {
    const { client } = this.parts;
    // Both parts are judged before one is registered.
    for (const part of ['key', 'value'] as const) await this.judge(part, columns);
    await this.open(columns, (subject, format, text) => client.register(subject, format, text));
  }

  /** Finds the schemas of the results. @throws sink_missing, sink_refused, registry_unavailable */
  async find({ columns }: ResultShape): Promise<void> {
    if (this.encoders !== undefined) return;
    const { client } = this.parts;
    await this.open(columns, async (subject, format, text) => {
      const found = await absent(client.findVersion(subject, format, text, []));
      if (found !== undefined) return found.id;
      throw engineError('sink_missing', `the subject ${subject} does not have the schema of the results`, {
        next: 'run the engine with -migrate once, which registers it',
      });
    });
  }

  /** @throws sink_refused if the subject has versions that the schema is not compatible with */
  private async judge(part: RecordPart, columns: readonly ResultColumn[]): Promise<void> {
    const { client, topic, format } = this.parts;
    const subject = `${topic}-${part}`;
    const latest = await absent(client.version(subject, 'latest'));
    if (latest === undefined) return;
    const text = schemaTextOf(SCHEMA_FORMAT[format], part, columns, latest.schema);
    const { compatible, messages } = await client.judge(subject, SCHEMA_FORMAT[format], text, []);
    if (!compatible) throw refused(subject, messages.join('; ') || 'it is not compatible', undefined);
  }

  private async open(
    columns: readonly ResultColumn[],
    idOf: (subject: string, format: SchemaFormat, text: string) => Promise<number>,
  ): Promise<void> {
    const { client, topic, format } = this.parts;
    const schemaFormat = SCHEMA_FORMAT[format];
    const opened = async (part: RecordPart): Promise<PartEncoder> => {
      const subject = `${topic}-${part}`;
      try {
        const latest = await absent(client.version(subject, 'latest'));
        const text = schemaTextOf(schemaFormat, part, columns, latest?.schema);
        const id = await idOf(subject, schemaFormat, text);
        return encoderOf(parseSchema(schemaFormat, text), id, columnsOfPart(part, columns));
      } catch (thrown) {
        throw refusal(subject, thrown);
      }
    };
    // The schema of the keys first: where it is refused, none is registered.
    const key = await opened('key');
    this.encoders = { key, value: await opened('value') };
  }

  /** REQUIRES: `register` or `find` has settled */
  encode(result: WindowResult): { readonly key: Uint8Array; readonly value: Uint8Array } {
    const { key, value } = this.encoders as NonNullable<typeof this.encoders>;
    return { key: key.encode(result), value: value.encode(result) };
  }

  /** Decodes a value with the schema of its frame; undefined: it is no result.
   *  @throws registry_unavailable */
  async decode(value: Uint8Array): Promise<WindowResult | undefined> {
    try {
      const { id } = readPrefixId(value);
      let decoder = this.decoders.get(id as number);
      if (decoder === undefined) {
        const schema = await this.parts.client.schemaById(id as number);
        const parts = partsOfSchema(schema);
        if (parts === undefined) return undefined;
        this.shape ??= shapeOfKeys(parts, this.parts.aggregate, this.parts.emit);
        decoder = decoderOf(schema, this.shape);
        this.decoders.set(id as number, decoder);
      }
      return decoder(value);
    } catch (thrown) {
      if (findMillraceError(thrown)?.kind === 'unavailable') throw thrown;
      return undefined;
    }
  }
}

/** Undefined where the registry has no such subject, version or schema. */
async function absent<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (thrown) {
    const code = findMillraceError(thrown)?.code ?? '';
    if (code === 'subject_not_found' || code === 'version_not_found') return undefined;
    throw thrown;
  }
}

/** Error for what the registry refused, before anything was written. */
function refusal(subject: string, thrown: unknown): unknown {
  const known = findMillraceError(thrown);
  const isOwn = known?.code.startsWith('sink_') === true;
  if (known === undefined || isOwn || known.kind === 'unavailable') return thrown;
  if (known.code === 'unauthenticated' || known.code === 'forbidden') return thrown;
  return refused(subject, known.message, thrown);
}

const refused = (subject: string, why: string, cause: unknown): Error =>
  engineError(
    'sink_refused',
    `the registry refuses the schema of the results in the subject ${subject}: ${why.slice(0, REASON_CHARS_MAX)}`,
    { next: REFUSED_NEXT, ...(cause === undefined ? {} : { cause }) },
  );

function encoderOf(schema: Schema, id: number, columns: readonly ResultColumn[]): PartEncoder {
  if (schema.format === 'JSON') {
    const prefix = framePrefix(id, null);
    const numbers = plainNumbers(schema);
    return {
      id,
      encode: (result) =>
        new Uint8Array(Buffer.concat([prefix, Buffer.from(jsonOf(columns, result, numbers))])),
    };
  }
  const codec: WriterCodec = writerCodec(schema);
  const prefix = framePrefix(id, codec.messageIndexes);
  const isAvro = schema.format === 'AVRO';
  const payloads = new Payloads(1, RECORD_BYTES);
  return {
    id,
    encode: (result) => {
      payloads.clear();
      const value = Object.fromEntries(
        columns.map(({ name, type, read }) => [name, plainValue(type, read(result), isAvro)]),
      );
      codec.encode(value, payloads);
      const bytes = new Uint8Array(prefix.length + (payloads.length[0] as number));
      bytes.set(prefix);
      bytes.set(payloads.bytes.subarray(0, payloads.length[0]), prefix.length);
      return bytes;
    },
  };
}

/** Value as the codecs of Avro and Protobuf take it. */
function plainValue(type: ColumnType, value: ColumnValue, isAvro: boolean): unknown {
  // A repeated field of Protobuf has no null.
  if (value === null) return type === 'top' && !isAvro ? [] : null;
  if (type === 'timestamp') return BigInt(value as number);
  if (type === 'top')
    return topItems(value as string).map((item) => ({ value: item.value, count: BigInt(item.count) }));
  if (type === 'decimal' && isAvro) return bytesOfInteger(unscaledOf(value as string));
  return type === 'u64' && isAvro ? bytesOfInteger(value as bigint) : value;
}

/** @param numbers doubles without texts: one that is no finite number is left out, as null is */
function jsonOf(
  columns: readonly ResultColumn[],
  result: WindowResult,
  numbers: ReadonlySet<string>,
): string {
  const members = columns.flatMap(({ name, type, read }) => {
    const value = read(result);
    if (value === null || (type === 'f64' && numbers.has(name) && !Number.isFinite(value))) return [];
    return [`${JSON.stringify(name)}:${jsonText(type, value)}`];
  });
  return `{${members.join()}}`;
}

/** Integers have all their digits. */
function jsonText(type: ColumnType, value: Exclude<ColumnValue, null>): string {
  if (typeof value === 'object') return JSON.stringify(Buffer.from(value).toString('base64'));
  if (type === 'f64') return doubleText(value as number);
  return type === 'string' || type === 'uuid' || type === 'decimal' ? JSON.stringify(value) : String(value);
}

/** JSON of a double; one that is no finite number is a text. */
function doubleText(value: number): string {
  if (Object.is(value, -0)) return '-0';
  return Number.isFinite(value) ? String(value) : JSON.stringify(String(value));
}

function decoderOf(schema: Schema, shape: ResultShape): (bytes: Uint8Array) => WindowResult {
  if (schema.format === 'JSON')
    return (bytes) => {
      const start = readMessage(readPrefixId(bytes), false).payloadStart;
      const node = readJson(Buffer.from(bytes.subarray(start)).toString('utf8'), {
        comments: false,
        repeatedKeys: false,
      });
      const members: ReadonlyMap<string, JsonMember> = node.kind === 'object' ? node.members : new Map();
      return resultOfValues(shape, ({ name, type }) => jsonValue(type, members.get(name)?.value));
    };
  const readers = new Map<string, Decode>();
  const isAvro = schema.format === 'AVRO';
  return (bytes) => {
    const { path, payloadStart } = readMessage(readPrefixId(bytes), !isAvro);
    let decode = readers.get(path.join());
    if (decode === undefined) {
      decode = readerUnjudged(schema, schema, path);
      readers.set(path.join(), decode);
    }
    const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    const value = decode(buffer, payloadStart, bytes.length) as Readonly<Record<string, unknown>>;
    return resultOfValues(shape, (column) => readValue(column, value[column.name], isAvro));
  };
}

function readValue({ type, scale = 0 }: ResultColumn, value: unknown, isAvro: boolean): ColumnValue {
  if (value === undefined || value === null) return null;
  if (type === 'timestamp') return Number(value);
  if (type === 'top') return topText(value as readonly TopItem[]);
  if (type === 'u64' && isAvro) return integerOfBytes(value as Uint8Array);
  if (type === 'decimal' && isAvro) return decimalText(integerOfBytes(value as Uint8Array), scale);
  return type === 'bytes' ? new Uint8Array(value as Uint8Array) : (value as ColumnValue);
}

function itemOf(node: JsonNode): { readonly value: unknown; readonly count: unknown } {
  const member = (name: string): JsonNode | undefined =>
    node.kind === 'object' ? node.members.get(name)?.value : undefined;
  const [value, count] = [member('value'), member('count')];
  return {
    value: value?.kind === 'string' ? value.value : '',
    count: count?.kind === 'number' ? count.digits : 0,
  };
}

function jsonValue(type: ColumnType, node: JsonNode | undefined): ColumnValue {
  if (type === 'top' && node?.kind === 'array') return topText(node.items.map(itemOf));
  if (node === undefined || node.kind === 'null') return null;
  if (node.kind === 'boolean') return node.value;
  if (node.kind === 'string') {
    if (type === 'f64') return NON_FINITE.has(node.value) ? Number(node.value) : null;
    return type === 'bytes' ? new Uint8Array(Buffer.from(node.value, 'base64')) : node.value;
  }
  if (node.kind !== 'number') return null;
  return type === 'u64' || type === 'i64' ? BigInt(node.digits) : Number(node.digits);
}
