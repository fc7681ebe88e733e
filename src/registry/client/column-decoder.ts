/** Decoder of framed records into columns: records of several writer schemas become one batch of
 *  the reader's columns. */
import { chooseColumnKernels, type NativeSetting } from '../../addon/codec.ts';
import { framePrefix } from '../../addon/reference/frame.ts';
import { ColumnBatch } from '../../core/columns/batch.ts';
import {
  type ColumnKernels,
  decodeColumns,
  type ColumnDecoder as KernelDecoder,
  type PayloadSpans,
} from '../../core/columns/kernel.ts';
import { ColumnSchema } from '../../core/columns/schema.ts';
import { findMillraceError, type MillraceError } from '../../core/errors.ts';
import { AVRO_OP, COLUMN_STATUS, FRAME } from '../../core/layout/layouts.gen.ts';
import { avroColumnDecoder, avroColumns } from '../../formats/avro/columns/decoder.ts';
import type { Decode } from '../../formats/decode.ts';
import { formatError } from '../../formats/errors.ts';
import { writtenMessage } from '../../formats/protobuf/codec/record-codec.ts';
import { protoColumnDecoder, protoColumns } from '../../formats/protobuf/columns/decoder.ts';
import type { Schema } from '../../formats/schema.ts';
import type { RegistryClient } from '../../serde/client.ts';
import { readerUnjudged, unreadable } from '../../serde/codec.ts';
import { type RecordId, type RecordMessage, readMessage } from '../../serde/frame.ts';
import { isCompatible } from '../compatibility/finding.ts';
import { checkPair } from '../compatibility/modes.ts';
import { registryError } from '../errors.ts';
import { readerCodec } from '../proof/reader.ts';
import { type BatchRows, ColumnRecords } from './column-records.ts';
import { placeOf } from './deserializer.ts';
import { COLUMN_FORMATS } from './options.ts';
import {
  type Framed,
  type FramedRecord,
  framed,
  notCached,
  type ReaderOptions,
  RecordSchemas,
} from './record-schemas.ts';
import type { SerdeTimes } from './serde-metrics.ts';

export interface ColumnDecoderOptions extends ReaderOptions {
  /** Paths of the fields that become columns, such as `customer.city`. Default: all fields. Other
   *  fields are checked and dropped. */
  readonly fields?: readonly string[];
  /** Full name of the Protobuf message of the records; default: the first of the reader's file. */
  readonly message?: string;
  /** Use of the addon: `on` demands it, `off` runs the TypeScript reference implementation. Default
   *  auto: the addon where it is built. */
  readonly native?: NativeSetting;
}

/** Records that a column decoder reads: each as for `Deserializer.deserializeBatch`. */
export type ColumnInput = readonly (Uint8Array | null | undefined | FramedRecord)[];

/** Records of one writer schema, from records of several. */
export interface WriterRecords<T = unknown> {
  /** Id of the schema, or its guid where a header has it; undefined where no record has a schema.
   */
  readonly schemaId: number | string | undefined;
  /** Position of each row among all records, ascending. */
  readonly positions: readonly number[];
  readonly records: ColumnRecords<T>;
}

interface WriterGroup {
  readonly id: number | string | undefined;
  readonly writer: Schema | undefined;
  readonly positions: number[];
}

/** Rows of one writer schema. */
interface Source {
  readonly id: number | string;
  readonly writer: Schema;
  readonly path: readonly number[];
  readonly hasLazy: boolean;
  /** Bytes before the payload of a record with a prefix. */
  readonly payloadStart: number;
  /** True where a record has the same prefix: id, and first message of the file. */
  isNext(bytes: Uint8Array): boolean;
  decode(payloads: PayloadSpans, from: number, to: number, into: ColumnBatch): number;
  /** Makes readers of rows; each shows one batch at a time. */
  rows(): Rows;
  /** Refuses records that the reader would misread; undefined where the rules find none. */
  readonly judge: Decode | undefined;
  /** Error of a payload that no row could be made of. */
  explain(payload: Buffer): MillraceError | undefined;
  close(): void;
}

type Rows = BatchRows & { attach(batch: ColumnBatch): void };

/** Records before they are decoded, by row: source and payload, or the reason why a record has
 *  none. A row with neither is a tombstone. */
class ParsedRecords {
  readonly sources: (Source | undefined)[] = [];
  /** Bytes of each record with a source. */
  readonly bytes: Uint8Array[] = [];
  /** Start of each payload in `bytes`. */
  readonly start: Uint32Array;
  readonly errors = new Map<number, MillraceError>();

  constructor(rows: number) {
    this.start = new Uint32Array(rows);
  }

  get length(): number {
    return this.start.length;
  }

  push(source: Source | undefined, bytes: Uint8Array, start: number): void {
    this.start[this.sources.length] = start;
    this.sources.push(source);
    this.bytes.push(bytes);
  }

  pushError(error: MillraceError): void {
    this.errors.set(this.sources.length, error);
    this.push(undefined, NOTHING, 0);
  }

  payloadOf(row: number): Buffer {
    const { buffer, byteOffset, length } = this.bytes[row] as Uint8Array;
    const start = this.start[row] as number;
    return Buffer.from(buffer, byteOffset + start, length - start);
  }
}

const NOTHING = new Uint8Array(0);
const NONE_FAILED: ReadonlyMap<number | string, MillraceError> = new Map();

/** Reader's side of all sources of a batch. */
interface Target {
  readonly reader: Schema;
  readonly schema: ColumnSchema;
  readonly sources: Map<string, Source | MillraceError>;
}

/** Greatest number of sources of one decoder; hostile input has no more message paths. */
const SOURCES_MAX = 4096;

/** Decoder of framed records into columns; made by `SchemaRegistry.columnDecoder`. */
export class RecordColumnDecoder<T = unknown> {
  private readonly options: ColumnDecoderOptions;
  private readonly schemas: RecordSchemas;
  private readonly times: SerdeTimes;
  private readonly kernels: ColumnKernels;
  /** By the identity of the reader schema. */
  private readonly targets = new Map<string, Target>();
  /** Batch that was decoded last: the next one is likely to be similar. */
  private latest: WeakRef<ColumnBatch> | undefined;
  /** Readers of the rows of each batch: views of a row stay those of their batch. */
  private readonly rows = new WeakMap<ColumnBatch, Map<Source, Rows>>();

  /** @throws bad_option, addon_missing, addon_mismatch */
  constructor(client: RegistryClient, options: ColumnDecoderOptions, times: SerdeTimes) {
    this.options = options;
    this.times = times;
    this.schemas = new RecordSchemas(client, options, 'column decoder', COLUMN_FORMATS);
    this.kernels = chooseColumnKernels(options.native);
  }

  /** Loads the reader schema, and the writer schemas of these ids.
   *  @returns this decoder
   *  @throws invalid_schema, unknown_field, subject_not_found, version_not_found, schema_not_found,
   *    registry_unavailable, registry_protocol, unauthenticated, forbidden
   */
  async prefetch(ids: readonly number[] = []): Promise<this> {
    await this.schemas.loadReader();
    if (this.schemas.reader !== undefined) this.targetOf(this.schemas.reader.schema);
    await Promise.all(ids.map((id) => this.schemas.loadWriter(id)));
    return this;
  }

  /** Decodes records into a batch with a row for each. A record that cannot be read costs its own
   *  row only. Without a reader schema all records must have one writer schema; see
   *  `decodeByWriter` for several.
   *  @param into batch of this decoder whose memory is used again: its rows and views end
   *  @throws bad_option for records of several writer schemas without a reader schema;
   *    out_of_range for records whose columns exceed 1 GiB; registry_unavailable,
   *    registry_protocol, unauthenticated, forbidden: retry the batch
   *  @example
   *  const records = await decoder.decode(messages.map(({ value }) => value));
   *  const { values } = records.column('amount_cents');
   */
  async decode(records: ColumnInput, into?: ColumnRecords<T>): Promise<ColumnRecords<T>> {
    await this.schemas.loadReader();
    const plain = records.map(framed);
    const failed = await this.schemas.loadWriters(plain);
    return this.decodeLoaded(plain, this.readerOf(plain, failed), failed, into);
  }

  /** Decodes records whose schemas this object or `SchemaRegistry.prefetch` has loaded.
   *  @throws schema_not_cached for a schema that is not; as decode otherwise */
  decodeSync(records: ColumnInput, into?: ColumnRecords<T>): ColumnRecords<T> {
    this.schemas.demandReader();
    const plain = records.map(framed);
    return this.decodeLoaded(plain, this.readerOf(plain, NONE_FAILED), NONE_FAILED, into);
  }

  /** Decodes records into one batch for each writer schema, with the columns of that schema, in the
   *  order of the first record of each. A record without a readable schema, such as a tombstone, is
   *  a row of the batch of the record before it.
   *  @throws bad_option for a decoder with a reader schema; unknown_field for `fields` that a
   *    writer schema lacks; as decode otherwise
   *  @example
   *  for (const { schemaId, positions, records } of await decoder.decodeByWriter(values))
   *    console.log(schemaId, positions.length, records.names);
   */
  async decodeByWriter(records: ColumnInput): Promise<readonly WriterRecords<T>[]> {
    const plain = records.map(framed);
    this.demandNoReader();
    return this.decodeGroups(plain, await this.schemas.loadWriters(plain));
  }

  /** As `decodeByWriter`, with the schemas that are loaded. @throws schema_not_cached for a schema
   *  that is not; as decodeByWriter otherwise */
  decodeByWriterSync(records: ColumnInput): readonly WriterRecords<T>[] {
    this.demandNoReader();
    return this.decodeGroups(records.map(framed), NONE_FAILED);
  }

  /** Frees the programs of the kernels; batches stay. The decoder cannot be used any more. */
  close(): void {
    for (const { sources } of this.targets.values())
      for (const source of sources.values()) if (!(source instanceof Error)) source.close();
    this.targets.clear();
  }

  private demandNoReader(): void {
    if (this.schemas.hasReader)
      throw registryError('bad_option', 'with a reader schema all records have the same columns', {
        next: 'call decode, or leave readerSchema and readerVersion out',
      });
  }

  private decodeGroups(
    records: readonly Framed[],
    failed: ReadonlyMap<number | string, MillraceError>,
  ): readonly WriterRecords<T>[] {
    return this.groupsOf(records, failed).map(({ id, writer, positions }) => {
      const own = positions.map((position) => records[position] as Framed);
      return { schemaId: id, positions, records: this.decodeLoaded(own, writer, failed, undefined) };
    });
  }

  /** Groups of the writer schemas, in the order of their first records. A record without one joins
   *  the group of the record before it, the first records that of the first schema. */
  private groupsOf(
    records: readonly Framed[],
    failed: ReadonlyMap<number | string, MillraceError>,
  ): readonly WriterGroup[] {
    const groups = new Map<string, WriterGroup>();
    let current: WriterGroup = { id: undefined, writer: undefined, positions: [] };
    records.forEach((record, position) => {
      const id = record.bytes === null ? undefined : this.idOf(record);
      if (id !== undefined && id !== current.id && !failed.has(id)) {
        const writer = this.schemas.writerOf(id);
        const positions = groups.size === 0 ? current.positions : [];
        current = groups.get(writer.identity) ?? { id, writer, positions };
        groups.set(writer.identity, current);
      }
      current.positions.push(position);
    });
    return groups.size > 0 || records.length === 0 ? [...groups.values()] : [current];
  }

  /** Schema of the columns; undefined where no record has one. @throws bad_option */
  private readerOf(
    records: readonly Framed[],
    failed: ReadonlyMap<number | string, MillraceError>,
  ): Schema | undefined {
    return this.schemas.reader?.schema ?? this.onlyWriter(records, failed);
  }

  private decodeLoaded(
    records: readonly Framed[],
    reader: Schema | undefined,
    failed: ReadonlyMap<number | string, MillraceError>,
    into: ColumnRecords<T> | undefined,
  ): ColumnRecords<T> {
    const startMs = this.times.nowMs();
    const target = reader === undefined ? undefined : this.targetOf(reader);
    const parsed = this.parse(records, target, failed);
    const schema = target?.schema ?? NO_COLUMNS;
    const batch = this.batchOf(schema, records.length, into);
    this.fill(batch, parsed);
    if (this.latest?.deref() !== batch) this.latest = new WeakRef(batch);
    this.times.decodedColumns(startMs);
    const facts = this.factsOf(batch, parsed, reader);
    if (into?.batch !== batch) return new ColumnRecords<T>(batch, facts);
    into.show(facts);
    return into;
  }

  private batchOf(schema: ColumnSchema, rows: number, into: ColumnRecords<T> | undefined): ColumnBatch {
    const old = into?.batch;
    if (old === undefined || old.schema !== schema || old.rowCapacity < rows) {
      const capacity = Math.max(1, rows);
      const latest = this.latest?.deref();
      return latest?.schema === schema
        ? ColumnBatch.like(latest, capacity)
        : ColumnBatch.create(schema, capacity);
    }
    old.clear();
    return old;
  }

  /** Writer schema of all records; undefined where no record has one. @throws bad_option */
  private onlyWriter(
    records: readonly Framed[],
    failed: ReadonlyMap<number | string, MillraceError>,
  ): Schema | undefined {
    let found: { readonly id: number | string; readonly schema: Schema } | undefined;
    for (const record of records) {
      const id = record.bytes === null ? undefined : this.idOf(record);
      if (id === undefined || id === found?.id || failed.has(id)) continue;
      const schema = this.schemas.writerOf(id);
      if (found !== undefined && found.schema.identity !== schema.identity)
        throw registryError('bad_option', `the records have the writer schemas ${found.id} and ${id}`, {
          next: 'give readerSchema or readerVersion, so that all of them have the same columns, or call decodeByWriter',
        });
      found ??= { id, schema };
    }
    return found?.schema;
  }

  private idOf({ bytes, headers }: Framed): number | string | undefined {
    try {
      return this.schemas.recordId(bytes as Uint8Array, headers).id;
    } catch (thrown) {
      if (findMillraceError(thrown) === undefined) throw thrown;
      return undefined;
    }
  }

  /** @throws invalid_schema, unknown_field */
  private targetOf(reader: Schema): Target {
    const known = this.targets.get(reader.identity);
    if (known !== undefined) return known;
    const made = { reader, schema: this.columnsOf(reader), sources: new Map() };
    this.targets.set(reader.identity, made);
    return made;
  }

  private columnsOf(reader: Schema): ColumnSchema {
    const { fields, message } = this.options;
    switch (reader.format) {
      case 'AVRO':
        return avroColumns(reader, fields);
      case 'PROTOBUF':
        return protoColumns(writtenMessage(reader, message), fields);
      case 'JSON':
        throw unreadable();
    }
  }

  private parse(
    records: readonly Framed[],
    target: Target | undefined,
    failed: ReadonlyMap<number | string, MillraceError>,
  ): ParsedRecords {
    const parsed = new ParsedRecords(records.length);
    let last: Source | undefined;
    for (const record of records) {
      const { bytes, headers } = record;
      if (bytes === null) {
        parsed.push(undefined, NOTHING, 0);
      } else if (last !== undefined && headers === undefined && last.isNext(bytes)) {
        parsed.push(last, bytes, last.payloadStart);
      } else {
        const source = this.parseOne(parsed, bytes, headers, target, failed);
        // A record that is judged, or whose id is in its headers, has no fast path.
        last = source?.judge === undefined && typeof source?.id === 'number' ? source : undefined;
      }
    }
    return parsed;
  }

  /** Parses a record of any kind. @returns its source, where it has one */
  private parseOne(
    parsed: ParsedRecords,
    bytes: Uint8Array,
    headers: Framed['headers'],
    target: Target | undefined,
    failed: ReadonlyMap<number | string, MillraceError>,
  ): Source | undefined {
    let id: RecordId | undefined;
    let message: RecordMessage | undefined;
    try {
      id = this.schemas.recordId(bytes, headers);
      const missing = failed.get(id.id);
      if (missing !== undefined) throw missing;
      const writer = this.schemas.writerOf(id.id);
      message = readMessage(id, writer.format === 'PROTOBUF');
      // Without a target no record has a schema, so this one has failed before.
      if (target === undefined) throw notCached(`the schema ${id.id}`);
      const source = this.sourceOf(target, id.id, writer, message);
      const start = message.payloadStart;
      source.judge?.(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length), start, bytes.length);
      parsed.push(source, bytes, start);
      return source;
    } catch (thrown) {
      parsed.pushError(this.factOf(thrown, id, message));
      return undefined;
    }
  }

  /** Error that is a fact about a record. @throws any other error */
  private factOf(
    thrown: unknown,
    id: RecordId | undefined,
    message: RecordMessage | undefined,
  ): MillraceError {
    const writer = id === undefined || message === undefined ? undefined : this.schemas.writerOf(id.id);
    const place = writer === undefined || id === undefined ? {} : placeOf(thrown, writer, id, message);
    const more = id === undefined ? {} : { schemaId: id.id, ...place };
    const error = findMillraceError(this.schemas.described(thrown, more));
    if (error?.row.reason === undefined) throw thrown;
    return error;
  }

  /** @throws incompatible_schema for a record of another message, bad_message_index */
  private sourceOf(target: Target, id: number | string, writer: Schema, message: RecordMessage): Source {
    const key = `${id} ${message.index >= 0 ? message.index : message.path.join()}`;
    let known = target.sources.get(key);
    if (known === undefined) {
      try {
        known = this.makeSource(target, id, writer, message.path);
      } catch (thrown) {
        known = findMillraceError(thrown);
        if (known?.row.reason === undefined) throw thrown;
      }
      if (target.sources.size < SOURCES_MAX) target.sources.set(key, known);
    }
    if (known instanceof Error) throw known;
    return known as Source;
  }

  private makeSource(
    { reader, schema }: Target,
    id: number | string,
    writer: Schema,
    path: readonly number[],
  ): Source {
    if (reader.format === 'AVRO' && writer.format === 'AVRO') {
      const decoder = avroColumnDecoder(this.kernels, reader, writer, this.options.fields, schema);
      return {
        ...sourceParts(decoder, id, writer, path),
        hasLazy: decoder.hasLazy,
        judge: undefined,
        explain: (payload) => decoder.explain(spanOf(payload), 0),
      };
    }
    const decode = readerUnjudged(reader, writer, path);
    if (reader.format !== 'PROTOBUF') throw unreadable();
    const message = writtenMessage(reader, this.options.message);
    const written = writer.format === 'PROTOBUF' ? writer.tree.messages : [];
    const name = written.find((one) => one.path.join() === path.join())?.name;
    if (name !== message.name)
      throw formatError(
        'incompatible_schema',
        `the record is a message ${name}, and the columns are those of ${message.name}`,
        { next: `give message: '${name}' to read such records` },
      );
    const decoder = protoColumnDecoder(this.kernels, message, this.options.fields, schema);
    const isJudged = !isCompatible(checkPair(reader, writer));
    return {
      ...sourceParts(decoder, id, writer, path),
      hasLazy: false,
      judge: isJudged ? readerCodec(reader, writer, path) : undefined,
      explain: (payload) => thrownBy(() => decode(payload, 0, payload.length)),
    };
  }

  /** Decodes runs of records that have one source. */
  private fill(batch: ColumnBatch, parsed: ParsedRecords): void {
    const payloads = spansOf(parsed);
    const { sources, errors, length } = parsed;
    // A program for rows without a value, in columns of either format.
    let rowless: KernelDecoder | undefined;
    const code = Int32Array.of(AVRO_OP.END);
    try {
      for (let from = 0; from < length; ) {
        const source = sources[from];
        let to = from + 1;
        while (to < length && sources[to] === source) to++;
        if (source === undefined)
          rowless ??= this.kernels.openAvro({ schema: batch.schema, code, pool: NOTHING });
        const done =
          source === undefined
            ? decodeColumns(rowless as KernelDecoder, payloads, from, to, batch)
            : source.decode(payloads, from, to, batch);
        if (done < to - from)
          throw registryError('bad_option', `${length} records need more than ${batch.bytesMax} bytes`, {
            next: 'decode fewer records at a time',
          });
        from = to;
      }
    } finally {
      rowless?.close();
    }
    const { status } = batch;
    for (const [row, { code: reason }] of errors)
      status[row] = reason === 'incompatible_schema' ? COLUMN_STATUS.INCOMPATIBLE : COLUMN_STATUS.MALFORMED;
  }

  private factsOf(
    batch: ColumnBatch,
    parsed: ParsedRecords,
    reader: Schema | undefined,
  ): ConstructorParameters<typeof ColumnRecords>[1] {
    const sources = new Set(parsed.sources.filter((source) => source !== undefined));
    return {
      sourceOf: (row) => this.rowsOf(batch, parsed.sources[row] as Source),
      errorOf: (row) => this.errorOf(batch, parsed, row),
      isRecord: reader?.format !== 'AVRO' || reader.tree.kind === 'record',
      lazyWriters: new Set([...sources].flatMap(({ hasLazy, writer }) => (hasLazy ? [writer.identity] : []))),
    };
  }

  private rowsOf(batch: ColumnBatch, source: Source): Rows {
    const known = this.rows.get(batch) ?? new Map<Source, Rows>();
    this.rows.set(batch, known);
    const rows = known.get(source) ?? source.rows();
    known.set(source, rows);
    rows.attach(batch);
    return rows;
  }

  private errorOf(batch: ColumnBatch, parsed: ParsedRecords, row: number): MillraceError {
    const source = parsed.sources[row];
    if (source === undefined) return parsed.errors.get(row) as MillraceError;
    const found =
      source.explain(parsed.payloadOf(row)) ??
      formatError('malformed_payload', 'the columns of the record exceed the byte limit of a batch', {
        details: { at: batch.errorAt[row] },
      });
    const { id, writer } = source;
    const bytes = parsed.bytes[row] as Uint8Array;
    const frame = { id, bytes, end: typeof id === 'number' ? FRAME.HEADER_BYTES : 0 };
    const message = { index: 0, path: source.path, payloadStart: parsed.start[row] as number };
    const more = { schemaId: id, ...placeOf(found, writer, frame, message) };
    return this.schemas.described(found, more) as MillraceError;
  }
}

const NO_COLUMNS = new ColumnSchema([]);

function sourceParts(
  decoder: Pick<Source, 'decode' | 'close' | 'rows'>,
  id: number | string,
  writer: Schema,
  path: readonly number[],
): Omit<Source, 'hasLazy' | 'judge' | 'explain'> {
  const prefix = typeof id === 'number' ? prefixOf(id, writer, path) : NOTHING;
  const { length } = prefix;
  return {
    id,
    writer,
    path,
    payloadStart: length,
    isNext(bytes) {
      if (bytes.length < length) return false;
      for (let at = 0; at < length; at++) if (bytes[at] !== prefix[at]) return false;
      return true;
    },
    decode: (payloads, from, to, into) => decoder.decode(payloads, from, to, into),
    close: () => decoder.close(),
    rows: () => decoder.rows(),
  };
}

const prefixOf = (id: number, { format }: Schema, path: readonly number[]): Uint8Array =>
  framePrefix(id, format === 'PROTOBUF' ? Int32Array.from(path) : null);

function thrownBy(work: () => unknown): MillraceError | undefined {
  try {
    work();
    return undefined;
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    return error;
  }
}

const spanOf = (payload: Buffer): PayloadSpans => ({
  bytes: payload,
  start: Uint32Array.of(0),
  length: Int32Array.of(payload.length),
});

/** Payloads as spans of one buffer: where a Kafka client cut all records from one response, of that
 *  response; otherwise of a copy. */
function spansOf(parsed: ParsedRecords): PayloadSpans {
  const { sources, bytes, start, length: rows } = parsed;
  const buffer = bytes[sources.findIndex((source) => source !== undefined)]?.buffer ?? NOTHING.buffer;
  const isOne = bytes.every((one, row) => sources[row] === undefined || one.buffer === buffer);
  const into = isOne ? new Uint8Array(buffer) : Buffer.allocUnsafeSlow(sizeOf(parsed));
  const begins = new Uint32Array(rows);
  const length = new Int32Array(rows);
  let at = 0;
  for (let row = 0; row < rows; row++) {
    const one = bytes[row] as Uint8Array;
    const from = start[row] as number;
    if (sources[row] === undefined) {
      length[row] = -1;
      continue;
    }
    const size = one.length - from;
    length[row] = size;
    begins[row] = from + (isOne ? one.byteOffset : at);
    if (isOne) continue;
    // With the prefix: a view of the payload alone would cost more.
    into.set(one, at);
    at += one.length;
  }
  return { bytes: into, start: begins, length };
}

const sizeOf = ({ bytes }: ParsedRecords): number => bytes.reduce((sum, { length }) => sum + length, 0);
