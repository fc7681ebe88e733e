/** Writer schemas of the records that one reader meets, with a compiled decoder of each. */
import type { MillraceError } from '../../core/errors.ts';
import type { RecordHeader } from '../../core/layout/record-batch.ts';
import type { AvroJsonOptions } from '../../formats/avro/json/print.ts';
import type { Decode } from '../../formats/decode.ts';
import type { Schema } from '../../formats/schema.ts';
import type { RegistryClient } from '../../serde/client.ts';
import type { RecordCodecs } from '../../serde/codec.ts';
import { type RecordId, readHeaderId, readMessage, readPrefixId } from '../../serde/frame.ts';
import { registryError } from '../errors.ts';
import { type ValueForm, valueForm } from './form.ts';
import { JSON_FORM, jsonText } from './json-text.ts';

/** Most message paths cached for one schema; further paths, which only hostile input has, are
 *  compiled for each record. */
const PATHS_MAX = 1024;
/** Greatest number of schemas whose compiled decoders are kept. */
const SCHEMAS_MAX = 10_000;
/** Smallest number of bytes of a framed value. */
const PREFIX_BYTES = 5;

export interface DecodedValue {
  readonly value: unknown;
  readonly form: ValueForm;
}

interface Reading {
  readonly decode: Decode;
  readonly form: ValueForm;
}

interface Writer {
  readonly schema: Schema;
  readonly byPath: Map<string, Reading>;
}

/** Number of records of a batch by schema id or guid. */
export type WantedSchemas = Map<number | string, number>;

/** Adds a record to the schemas that a batch needs. */
export function want(wanted: WantedSchemas, id: number | string): void {
  wanted.set(id, (wanted.get(id) ?? 0) + 1);
}

/** Schema id of a value: of the id header if it has one, else of its prefix. Undefined for a value
 *  without a frame. @throws bad_magic, truncated_frame */
export function idOfValue(
  bytes: Uint8Array,
  headers: readonly RecordHeader[],
  idHeader: string,
): RecordId | undefined {
  const header = headers.findLast(([name]) => name === idHeader)?.[1];
  if (header !== undefined && header !== null) return readHeaderId(header);
  return bytes[0] === 0 ? readPrefixId(bytes) : undefined;
}

/** True for bytes that begin as a frame with an id that a registry may assign. */
export const looksFramed = (bytes: Uint8Array): boolean =>
  bytes.length >= PREFIX_BYTES && bytes[0] === 0 && idOf(bytes) > 0;

const idOf = (bytes: Uint8Array): number =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(1, false);

export class WriterSchemas {
  private readonly client: RegistryClient;
  private readonly codecs: RecordCodecs;
  private readonly print: AvroJsonOptions;
  private readonly context: string;
  private readonly writers = new Map<number | string, Writer>();
  /** Errors of schemas for the current batch. The client's negative cache decides when to request
   *  an unknown id again. */
  private readonly failed = new Map<number | string, MillraceError>();

  /** @param context of the ids; empty: that of the registry's address */
  constructor(client: RegistryClient, codecs: RecordCodecs, print: AvroJsonOptions, context = '') {
    this.client = client;
    this.codecs = codecs;
    this.print = print;
    this.context = context;
  }

  /** Loads the schemas that are missing.
   *  @throws registry_unavailable, registry_protocol, unauthenticated, forbidden: call again */
  async load(wanted: WantedSchemas): Promise<void> {
    this.failed.clear();
    const missing: WantedSchemas = new Map();
    let hits = 0;
    for (const [id, count] of wanted)
      if (this.writers.has(id)) hits += count;
      else missing.set(id, count);
    this.client.countHits(hits);
    if (missing.size === 0) return;
    for (const [id, found] of await this.client.schemasOf(missing, this.context))
      if (found instanceof Error) this.failed.set(id, factOf(found));
      else this.keep(id, found);
  }

  private keep(id: number | string, schema: Schema): void {
    if (this.writers.size >= SCHEMAS_MAX) this.writers.clear();
    this.writers.set(id, { schema, byPath: new Map() });
  }

  /** Returns a schema that was loaded for the batch. @throws its error, which has a reason */
  schemaOf(id: number | string): Schema {
    return this.writerOf(id).schema;
  }

  private writerOf(id: number | string): Writer {
    const writer = this.writers.get(id);
    if (writer !== undefined) return writer;
    throw this.failed.get(id) ?? registryError('unknown_schema_id', `no schema has id ${id}`);
  }

  /** Decodes a framed value whose schema was loaded for the batch.
   *  @throws the error of the schema or of the value, which has a reason */
  decode(bytes: Uint8Array, recordId: RecordId): DecodedValue {
    const writer = this.writerOf(recordId.id);
    const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const { format } = writer.schema;
    const { path, payloadStart } = readMessage(recordId, format === 'PROTOBUF');
    if (format === 'JSON') return { value: jsonText(buffer.subarray(payloadStart)), form: JSON_FORM };
    const { decode, form } = this.readingOf(writer, path);
    return { value: decode(buffer, payloadStart, buffer.length), form };
  }

  private readingOf({ schema, byPath }: Writer, path: readonly number[]): Reading {
    const key = path.join();
    const known = byPath.get(key);
    if (known !== undefined) return known;
    const decode = this.codecs.reader(schema, schema, path);
    const made = { decode, form: valueForm(schema, path, this.print) };
    if (byPath.size < PATHS_MAX) byPath.set(key, made);
    return made;
  }
}

/** Error of a schema as a fact about the records that name it. */
function factOf(error: MillraceError): MillraceError {
  return error.row.reason === undefined
    ? registryError('unknown_schema_id', error.message, { cause: error })
    : error;
}
