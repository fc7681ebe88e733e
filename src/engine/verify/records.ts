/** Reads records of a topic as events, for the oracle of `engine verify`: by the generic codecs,
 *  one object a record. */
import type { Filter } from '../../core/filter/compile.ts';
import { FRAME } from '../../core/layout/layouts.gen.ts';
import type { Decode } from '../../formats/decode.ts';
import type { JsonNode } from '../../formats/json/text.ts';
import type { Schema } from '../../formats/schema.ts';
import { COMPILED_CODECS } from '../../serde/codec.ts';
import { readMessage, readPrefixId } from '../../serde/frame.ts';
import type { KeyKind } from '../keys/type.ts';
import {
  fieldsOf,
  type InputDefinition,
  type InputFields,
  type RecordKeyForm,
} from '../source/input/definition.ts';
import {
  avroField,
  decimalOf,
  doubleOf,
  elementsOf,
  type FieldValue,
  filterDecimal,
  filterValue,
  identifierOf,
  integerOf,
  isDecimalMessage,
  isoTime,
  jsonAt,
  jsonOf,
  unitTime,
  valueAt,
} from './values.ts';

const KEY_BYTES_MAX = 1024;
const ID_BYTES_MAX = 1024;
/** Bytes of the longest value of topk. */
const LISTED_BYTES_MAX = 254;
const EVENT_BYTES = 256;
/** Elements of a list; a record with more is no event. */
const ELEMENTS_MAX = 16_384;
const TS_LIMIT = 1n << 52n;

export interface VerifiedRecord {
  readonly partition: number;
  readonly offset: bigint;
  /** Undefined: unknown. */
  readonly timestampMs: bigint | undefined;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
}

/** Values of the fields of the job's aggregates, by their place in `fields`: null is no value. A
 *  decimal is a whole number of 10^-scale. */
export type FieldCell = bigint | number | string | null;

export interface OracleEvent {
  readonly timeMs: bigint;
  /** The event is in no window: it only moves the watermark. */
  readonly isFiltered: boolean;
  /** Texts of the key's parts. */
  readonly key: readonly string[];
  readonly value: bigint;
  /** Identifier of -dedup; undefined: the job has none. */
  readonly id: string | undefined;
  readonly cells: readonly FieldCell[];
}

/** Reads fields of one event: of a record, or of an element of its list and of the record. */
type Get = (path: readonly string[]) => FieldValue;

/** Steps behind a list, of which a path means the elements. */
interface ListPath {
  readonly list: readonly string[];
  readonly inner: readonly string[];
}

/** Splits a path behind the name of a list; undefined: it means a field of the record. */
function listPath(path: readonly string[]): ListPath | undefined {
  const at = path.findIndex((name) => name.endsWith('[]'));
  if (at < 0) return undefined;
  const list = [...path.slice(0, at), (path[at] as string).slice(0, -2)];
  return { list, inner: path.slice(at + 1) };
}
interface Opened {
  readonly get: Get;
  /** Unit of an integer at the path of the time, where the schema has it. */
  readonly timeUnit: 'ms' | 'us' | 'ns' | undefined;
  /** Decimal places of a field whose type is a decimal; undefined for other types. */
  readonly placesOf: (path: readonly string[]) => number | undefined;
}

/** Reads the schema of an id; undefined: the registry has none. */
export type SchemaOf = (id: number) => Promise<Schema | undefined>;

const isInRange = (value: bigint, isSigned: boolean): boolean =>
  value === (isSigned ? BigInt.asIntN(64, value) : BigInt.asUintN(64, value));

export class RecordReader {
  private readonly fields: InputFields;
  private readonly format: InputDefinition['format'];
  private readonly schemaOf: SchemaOf;
  private readonly reader: Schema | undefined;
  private readonly schemas = new Map<number, Schema | undefined>();
  private readonly decoders = new Map<string, Decode>();
  private readonly paths: readonly (readonly string[])[];

  /** @param definition decided definition of the input
   *  @param reader latest schema of the topic's subject, for fields that a writer's schema lacks */
  constructor(definition: InputDefinition, schemaOf: SchemaOf, reader: Schema | undefined) {
    this.format = definition.format;
    this.fields = fieldsOf(definition);
    this.schemaOf = schemaOf;
    this.reader = reader;
    const { key, time, value, dedup, aggregates } = this.fields;
    this.paths = [
      ...(time.from === 'field' ? [time.path] : []),
      ...(key.from === 'fields' ? key.fields.map(({ path }) => path) : []),
      ...(value === undefined ? [] : [value]),
      ...(dedup === undefined ? [] : [dedup]),
      ...(aggregates?.fields ?? []).map(({ path }) => path),
    ];
  }

  /** Events of a record: itself, or the elements of its list. Undefined: the record is invalid. */
  async events(record: VerifiedRecord): Promise<readonly OracleEvent[] | undefined> {
    const { value } = record;
    if (value === null) return undefined;
    if (this.format === 'binary256') return oneOf(fixedEvent(value));
    const opened = await this.open(value);
    if (opened === undefined) return undefined;
    const { list } = this.fields;
    if (list === undefined) return oneOf(this.event(record, opened));
    const found = opened.get((listPath(list) as ListPath).list);
    if (found === null || found === undefined) return [];
    const elements = elementsOf(found);
    if (elements === undefined || elements.length > ELEMENTS_MAX) return undefined;
    const events = elements.flatMap((element, number): OracleEvent[] => {
      const event = this.event(record, { ...opened, get: this.getOf(opened.get, element) });
      if (event === undefined) return [];
      // An identifier of the record is one for each of its elements.
      const { dedup } = this.fields;
      const isOfRecord = event.id !== undefined && dedup !== undefined && listPath(dedup) === undefined;
      return [isOfRecord ? { ...event, id: `${event.id}#${number}` } : event];
    });
    return events.length === elements.length ? events : undefined;
  }

  /** Reads fields of an element, and of its record. */
  private getOf(ofRecord: Get, element: unknown): Get {
    return (path) => {
      const inner = listPath(path)?.inner;
      if (inner === undefined) return ofRecord(path);
      return this.format === 'json' ? jsonAt(element as JsonNode, inner) : valueAt(element, inner);
    };
  }

  /** Undefined: the event is invalid. */
  private event(record: VerifiedRecord, opened: Opened): OracleEvent | undefined {
    const { get } = opened;
    const timeMs = this.time(record, opened);
    if (timeMs === undefined || timeMs < -TS_LIMIT || timeMs >= TS_LIMIT) return undefined;
    const { where, value: valuePath, dedup } = this.fields;
    const none = { timeMs, key: [], value: 0n, id: undefined, cells: [] };
    if (where !== undefined && !matches(where, opened)) return { ...none, isFiltered: true };
    const key = this.key(record, get);
    const number = valuePath === undefined ? 0n : integerOf(get(valuePath));
    const id = dedup === undefined ? undefined : identifierOf(get(dedup));
    const cells = this.cells(opened);
    if (key === undefined || number === undefined || !isInRange(number, true) || cells === undefined)
      return undefined;
    if (dedup !== undefined && (id === undefined || Buffer.byteLength(id) - 1 > ID_BYTES_MAX))
      return undefined;
    return { ...none, isFiltered: false, key, value: number, id, cells };
  }

  private async open(value: Uint8Array): Promise<Opened | undefined> {
    if (this.format === 'json') {
      const from = value[0] === FRAME.MAGIC ? FRAME.HEADER_BYTES : 0;
      const root = from > value.length ? undefined : jsonOf(value.subarray(from));
      return root?.kind === 'object'
        ? { get: (path) => jsonAt(root, path), timeUnit: undefined, placesOf: () => undefined }
        : undefined;
    }
    try {
      return await this.framed(value);
    } catch {
      // A payload that the schema does not describe.
      return undefined;
    }
  }

  private async framed(value: Uint8Array): Promise<Opened | undefined> {
    const record = readPrefixId(value);
    const id = record.id as number;
    if (!this.schemas.has(id)) this.schemas.set(id, await this.schemaOf(id));
    const writer = this.schemas.get(id);
    if (writer === undefined || writer.format !== this.format.toUpperCase()) return undefined;
    const { path, payloadStart } = readMessage(record, writer.format === 'PROTOBUF');
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.length);
    let read = this.decoder(id, writer, writer, path)(bytes, payloadStart, bytes.length);
    const lacks = this.paths.some((one) => isAbsent(read, one));
    if (lacks && this.reader?.format === writer.format)
      read = this.decoder(id, this.reader, writer, path)(bytes, payloadStart, bytes.length);
    const schema = lacks ? (this.reader ?? writer) : writer;
    return {
      get: (at) => valueAt(read, at),
      timeUnit: this.timeUnit(schema),
      placesOf: (at) => {
        const logical = schema.format === 'AVRO' ? avroField(schema.tree, at)?.logical : undefined;
        return logical?.logicalType === 'decimal' ? logical.scale : undefined;
      },
    };
  }

  private decoder(id: number, reader: Schema, writer: Schema, path: readonly number[]): Decode {
    const name = `${id} ${reader === writer} ${path.join()}`;
    let decode = this.decoders.get(name);
    if (decode === undefined) {
      decode = COMPILED_CODECS.reader(reader, writer, path);
      this.decoders.set(name, decode);
    }
    return decode;
  }

  private timeUnit(schema: Schema): Opened['timeUnit'] {
    const { time } = this.fields;
    if (schema.format !== 'AVRO' || time.from !== 'field') return undefined;
    const name = avroField(schema.tree, time.path)?.logical?.logicalType;
    if (name === 'timestamp-millis') return 'ms';
    if (name === 'timestamp-micros') return 'us';
    return name === 'timestamp-nanos' ? 'ns' : undefined;
  }

  private time({ timestampMs }: VerifiedRecord, { get, timeUnit }: Opened): bigint | undefined {
    const { time } = this.fields;
    if (time.from === 'record') return timestampMs;
    const value = get(time.path);
    const unit = time.unit ?? timeUnit;
    if (unit === 'iso' || (unit === undefined && typeof value === 'string'))
      return typeof value === 'string' ? isoTime(value) : undefined;
    if (typeof value === 'object' && value !== null && 'seconds' in value) {
      const { seconds, nanos } = value as { readonly seconds: bigint; readonly nanos: number };
      if (!(nanos >= 0 && nanos < 1e9)) return undefined;
      return seconds * 1000n + BigInt(Math.floor(nanos / 1_000_000));
    }
    const integer = integerOf(value);
    if (integer === undefined || !isInRange(integer, true) || unit === undefined) return undefined;
    return unitTime(integer, unit);
  }

  private key({ key }: VerifiedRecord, get: Get): readonly string[] | undefined {
    const spec = this.fields.key;
    if (spec.from === 'record') {
      const text = key === null ? undefined : recordKey(key, spec.form);
      return text === undefined ? undefined : [text];
    }
    const parts = spec.fields.map(({ path, kind = 'i64' }) =>
      keyPart(get(path), kind, this.format === 'json'),
    );
    if (parts.some((part) => part === undefined)) return undefined;
    const texts = parts as readonly { readonly text: string; readonly bytes: number }[];
    const bytes = texts.reduce((sum, one) => sum + one.bytes, 0);
    return bytes > KEY_BYTES_MAX ? undefined : texts.map(({ text }) => text);
  }

  private cells({ get, placesOf }: Opened): readonly FieldCell[] | undefined {
    const cells: FieldCell[] = [];
    for (const { path, kind, scale = 0 } of this.fields.aggregates?.fields ?? []) {
      const value = get(path);
      if (value === null || value === undefined) {
        if (this.fields.needsValues) return undefined;
        cells.push(null);
        continue;
      }
      const isId = kind === 'id' || kind === 'text';
      const cell = isId
        ? identifierOf(value)
        : kind === 'decimal'
          ? decimalOf(value, scale, placesOf(path))
          : kind === 'double'
            ? doubleOf(value)
            : longOf(value);
      if (cell === undefined) return undefined;
      if (isId && idBytes(value, cell as string) > (kind === 'id' ? ID_BYTES_MAX : LISTED_BYTES_MAX))
        return undefined;
      cells.push(cell);
    }
    return cells;
  }
}

const oneOf = (event: OracleEvent | undefined): readonly OracleEvent[] | undefined => event && [event];

/** True if a record lacks the field of a path: its schema does. */
function isAbsent(read: unknown, path: readonly string[]): boolean {
  const { list, inner } = listPath(path) ?? { list: path, inner: [] };
  const found = valueAt(read, list);
  if (found === undefined || inner.length === 0) return found === undefined;
  return (elementsOf(found) ?? []).some((element) => valueAt(element, inner) === undefined);
}

/** Bytes of an identifier without its letter. */
const idBytes = (value: FieldValue, id: string): number =>
  value instanceof Uint8Array ? value.length : Buffer.byteLength(id) - 1;

function longOf(value: FieldValue): bigint | undefined {
  const integer = integerOf(value);
  return integer !== undefined && isInRange(integer, true) ? integer : undefined;
}

const matches = (where: Filter, { get, placesOf }: Opened): boolean =>
  where.matches((field) => {
    const { steps = [], isDecimal = false } = where.fields[field] ?? {};
    const path = steps as readonly string[];
    const [value, places] = [get(path), placesOf(path)];
    return isDecimal || places !== undefined || isDecimalMessage(value)
      ? filterDecimal(value, places)
      : filterValue(value);
  });

function fixedEvent(value: Uint8Array): OracleEvent | undefined {
  if (value.length !== EVENT_BYTES) return undefined;
  const view = new DataView(value.buffer, value.byteOffset, EVENT_BYTES);
  const timeMs = view.getBigInt64(16, true);
  if (timeMs < -TS_LIMIT || timeMs >= TS_LIMIT) return undefined;
  const key = [String(view.getBigUint64(0, true))];
  return { timeMs, key, value: view.getBigInt64(8, true), isFiltered: false, id: undefined, cells: [] };
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const UUID_BYTES = 16;

function uuidOf(bytes: Uint8Array): string {
  const hex = Buffer.from(bytes).toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

type Part = { readonly text: string; readonly bytes: number };

function keyPart(value: FieldValue, kind: KeyKind, isJson: boolean): Part | undefined {
  if (kind === 'i64' || kind === 'u64') {
    const integer = integerOf(value);
    const isKey = integer !== undefined && isInRange(integer, kind === 'i64');
    return isKey ? { text: String(integer), bytes: 8 } : undefined;
  }
  if (kind === 'uuid') {
    if (value instanceof Uint8Array)
      return value.length === UUID_BYTES ? { text: uuidOf(value), bytes: UUID_BYTES } : undefined;
    const isText = typeof value === 'string' && UUID.test(value);
    return isText ? { text: value.toLowerCase(), bytes: UUID_BYTES } : undefined;
  }
  if (kind === 'string') {
    const isText = typeof value === 'string' && !value.includes('\0') && !/\p{Surrogate}/u.test(value);
    return isText ? { text: value, bytes: Buffer.byteLength(value) } : undefined;
  }
  const bytes = isJson && typeof value === 'string' ? base64Of(value) : value;
  if (!(bytes instanceof Uint8Array)) return undefined;
  return { text: Buffer.from(bytes).toString('hex'), bytes: bytes.length };
}

function base64Of(text: string): Uint8Array | undefined {
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64') === text ? bytes : undefined;
}

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function recordKey(key: Uint8Array, form: RecordKeyForm | undefined): string | undefined {
  const bytes = Buffer.from(key);
  switch (form) {
    case 'long':
      return key.length === 8 ? String(bytes.readBigInt64BE(0)) : undefined;
    case 'int':
      return key.length === 4 ? String(bytes.readInt32BE(0)) : undefined;
    case 'text': {
      const text = bytes.toString('latin1');
      if (!/^(?:0|-?[1-9]\d{0,19})$/.test(text)) return undefined;
      return isInRange(BigInt(text), true) ? text : undefined;
    }
    case 'bytes':
      return key.length <= KEY_BYTES_MAX ? bytes.toString('hex') : undefined;
    case 'uuid':
    case 'string': {
      try {
        const text = UTF8.decode(key);
        if (form === 'uuid') return UUID.test(text) ? text.toLowerCase() : undefined;
        return key.length <= KEY_BYTES_MAX && !text.includes('\0') ? text : undefined;
      } catch {
        return undefined;
      }
    }
    default:
      return undefined;
  }
}
