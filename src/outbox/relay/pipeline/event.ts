/** Encodes an outbox row as a broker record: the key is the aggregate_id, the value is JSON, and
 *  the CloudEvents attributes are headers.
 *
 *    value    {"msg_id":"…","event_type":"…","payload":<the row's payload, unchanged>}
 *    headers  ce_specversion content-type ce_source relay_mode relay_epoch ce_type ce_id ce_subject
 *             ce_partitionkey ce_time traceparent ce_sequence
 *
 *  A row may choose another key, further headers, and its payload alone as the value, with a
 *  content type (RecordFields). Its headers replace those above of the same name.
 *
 *  Every publication of a row has the same bytes, except for relay_mode and relay_epoch, and for
 *  traceparent and tracestate of a row whose trace is recorded. `toRecord` is the reference
 *  implementation. EventEncoder writes the same bytes into a batch, without an object for each
 *  field; rows with choices go through `toRecord`.
 *  Source: CloudEvents 1.0.2, Kafka protocol binding, binary content mode; W3C Trace Context, 3.2.
 *  Budget: 3 µs a row (npm run bench -- relay).
 */
import { RECORD_FLAG, RECORD_HEADER, SPAN, TIMESTAMP_TYPE } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch, RecordInput } from '../../../core/layout/record-batch.ts';
import { JSON_TYPE, parseHeaders, type RecordFields, withHeader } from '../../append/record-columns.ts';
import { isTraceparent } from '../../given-values.ts';
import type { TraceContext } from '../../tracing.ts';
import type { OutboxRow } from '../store.ts';

export const ORDER_EVENTS_TOPIC = 'order.events';
export const EVENT_SOURCE = '/orders';

export const RELAY_MODES = ['poll', 'wal'] as const;
export type RelayMode = (typeof RELAY_MODES)[number];

/** Limit of the cached templates, by event type and, within a type, by epoch; a table has few of
 *  either. */
const TYPES_MAX = 256;
const UUID_CHARS = 36;
const NO_OFFSET = BigInt(SPAN.NO_OFFSET);

const YEAR_0_MS = -62_167_219_200_000;
const YEAR_9999_MS = 253_402_300_799_999;

const utf8 = new TextEncoder();

/** Formats a time as RFC 3339 in UTC; times outside of its range (infinity, other years) become the
 *  nearest time within it. */
const timeText = (ms: number): string =>
  new Date(Number.isNaN(ms) ? 0 : Math.min(YEAR_9999_MS, Math.max(YEAR_0_MS, ms))).toISOString();

/** Trace context of the row; else one derived from msg_id, so that every publication of the row has
 *  the same. */
export function traceparentOf(row: Pick<OutboxRow, 'msgId' | 'traceparent'>): string {
  const given = row.traceparent;
  if (isTraceparent(given)) return given;
  const hex = row.msgId.replaceAll('-', '');
  // Trace ids and parent ids of zeros only are invalid.
  const parent = hex.endsWith('0000000000000000') ? '0000000000000001' : hex.slice(16);
  return `00-${/[1-9a-f]/.test(hex) ? hex : '00000000000000000000000000000001'}-${parent}-00`;
}

const NO_CHOICES: RecordFields = {
  aggregateKey: null,
  partitionKey: null,
  topic: null,
  headers: null,
  contentType: null,
};

/** Trace state of the row: the header tracestate that `append` has stored. */
export function tracestateOf({ record }: Pick<OutboxRow, 'record'>): string | undefined {
  // Most rows have none; a test of the text is cheaper than parsing it.
  if (typeof record?.headers !== 'string' || !record.headers.includes('"tracestate"')) return undefined;
  const bytes = parseHeaders(record.headers)?.get('tracestate');
  return bytes === undefined ? undefined : Buffer.from(bytes).toString();
}

/** The row as it is published within a span: with the context of the span. */
export function inTrace(row: OutboxRow, { traceparent, tracestate }: TraceContext): OutboxRow {
  const sent = { ...row, traceparent };
  if (tracestate === undefined || tracestate === tracestateOf(row)) return sent;
  const record = row.record ?? NO_CHOICES;
  return { ...sent, record: { ...record, headers: withHeader(record.headers, 'tracestate', tracestate) } };
}

const valueHead = (msgId: string, eventType: string): string =>
  `{"msg_id":"${msgId}","event_type":${JSON.stringify(eventType)},"payload":`;

function recordValue(row: OutboxRow): Uint8Array {
  if (typeof row.record?.contentType === 'string') return row.payload;
  const head = utf8.encode(valueHead(row.msgId, row.eventType));
  const value = new Uint8Array(head.length + row.payload.length + 1);
  value.set(head, 0);
  value.set(row.payload, head.length);
  value[value.length - 1] = 0x7d;
  return value;
}

export function toRecord(row: OutboxRow, mode: RelayMode, source = EVENT_SOURCE, epoch = 0n): RecordInput {
  const { record } = row;
  const aggregate = record?.aggregateKey ?? row.aggregateId;
  const key = record?.partitionKey ?? aggregate;
  const headers = new Map<string, Uint8Array>();
  for (const [name, text] of [
    ['ce_specversion', '1.0'],
    ['content-type', record?.contentType ?? JSON_TYPE],
    ['ce_source', source],
    ['relay_mode', mode],
    ['relay_epoch', epoch.toString()],
    ['ce_type', row.eventType],
    ['ce_id', row.msgId],
    ['ce_subject', aggregate],
    ['ce_partitionkey', key],
    ['ce_time', timeText(row.createdAt.getTime())],
    ['traceparent', traceparentOf(row)],
    ['ce_sequence', row.id.toString()],
  ] as const)
    headers.set(name, utf8.encode(text));
  for (const [name, value] of headersOf(row) ?? []) headers.set(name, value);
  return { key: utf8.encode(key), value: recordValue(row), partition: -1, headers: [...headers] };
}

/** Headers that a row sets itself; undefined: they have another form than `append` writes. */
export function headersOf({ record }: OutboxRow): ReadonlyMap<string, Uint8Array> | undefined {
  return typeof record?.headers === 'string' ? parseHeaders(record.headers) : new Map();
}

/** Header of a batch record without its value: lengths and name. @param valueLength bytes of the
 *  value that follows */
function headerStart(name: string, valueLength: number): Buffer {
  const bytes = Buffer.alloc(RECORD_HEADER.BYTES + name.length);
  bytes.writeUInt32LE(name.length, RECORD_HEADER.NAME_LENGTH);
  bytes.writeInt32LE(valueLength, RECORD_HEADER.VALUE_LENGTH);
  bytes.write(name, RECORD_HEADER.BYTES, 'latin1');
  return bytes;
}

const header = (name: string, text: string): Buffer => {
  const value = Buffer.from(text, 'utf8');
  return Buffer.concat([headerStart(name, value.length), value]);
};

/** Method of Buffer that writes latin1 without the choice of an encoding in each call. */
interface Latin1 {
  latin1Write(text: string, at: number, length: number): number;
}

const MSG_ID_OPEN = Buffer.from('{"msg_id":"', 'latin1');
const SEQUENCE = 'ce_sequence';
const TIME_CHARS = 24;
const TRACE_CHARS = 55;
const TRACE_ID_AT = 3;
const PARENT_ID_AT = 36;
const PARENT_ZERO = '0000-000000000000';

/** Bytes that all rows of one event type and epoch have in common, with gaps for the fields that
 *  differ. */
interface Template {
  /** Text `","event_type":"…","payload":`. */
  readonly inValue: Buffer;
  /** All headers but the last one, whose value has a variable length. */
  readonly headers: Buffer;
  readonly idAt: number;
  readonly subjectAt: number;
  readonly partitionKeyAt: number;
  readonly timeAt: number;
  readonly traceAt: number;
}

export class EventEncoder {
  private readonly constant: Buffer;
  private readonly mode: RelayMode;
  private readonly source: string;
  private readonly templates = new Map<string, Map<bigint, Template>>();
  private lastType = '';
  private lastEpoch = -1n;
  private last: Template | undefined;
  private lastMs = Number.NaN;
  private lastTime = '';
  /** Batch of the last call. */
  private batch: RecordBatch | undefined;
  private arena: Buffer & Latin1 = Buffer.alloc(0) as unknown as Buffer & Latin1;

  constructor(mode: RelayMode, source: string) {
    this.mode = mode;
    this.source = source;
    this.constant = Buffer.concat([
      header('ce_specversion', '1.0'),
      header('content-type', 'application/json'),
      header('ce_source', source),
      header('relay_mode', mode),
    ]);
  }

  /** Appends the row to the batch; false, with nothing written, when the row does not fit. */
  append(batch: RecordBatch, row: OutboxRow, epoch: bigint): boolean {
    if (row.record !== undefined) return batch.append(toRecord(row, this.mode, this.source, epoch));
    const index = batch.rowCount;
    const from = batch.arenaUsed;
    const template = this.templateOf(row.eventType, epoch);
    const sequence = row.id.toString();
    const { payload } = row;
    const valueLength = MSG_ID_OPEN.length + UUID_CHARS + template.inValue.length + payload.length + 1;
    const headersLength = template.headers.length + RECORD_HEADER.BYTES + SEQUENCE.length + sequence.length;
    if (index >= batch.rowCapacity || from + UUID_CHARS + valueLength + headersLength > batch.arenaCapacity)
      return false;
    if (this.batch !== batch) {
      this.batch = batch;
      this.arena = Buffer.from(
        batch.buffer as ArrayBuffer,
        batch.columns.arena.byteOffset,
        batch.arenaCapacity,
      ) as unknown as Buffer & Latin1;
    }
    const arena = this.arena;
    arena.latin1Write(row.aggregateId, from, UUID_CHARS);
    let at = from + UUID_CHARS;
    arena.set(MSG_ID_OPEN, at);
    at += MSG_ID_OPEN.length;
    const msgIdAt = at;
    arena.latin1Write(row.msgId, at, UUID_CHARS);
    at += UUID_CHARS;
    arena.set(template.inValue, at);
    at += template.inValue.length;
    arena.set(payload, at);
    at += payload.length;
    arena[at++] = 0x7d;
    const headersAt = at;
    arena.set(template.headers, at);
    arena.copyWithin(at + template.idAt, msgIdAt, msgIdAt + UUID_CHARS);
    arena.copyWithin(at + template.subjectAt, from, from + UUID_CHARS);
    arena.copyWithin(at + template.partitionKeyAt, from, from + UUID_CHARS);
    arena.latin1Write(this.timeOf(row.createdAt), at + template.timeAt, TIME_CHARS);
    this.writeTrace(row, msgIdAt, at + template.traceAt);
    at += template.headers.length;
    arena.writeUInt32LE(SEQUENCE.length, at + RECORD_HEADER.NAME_LENGTH);
    arena.writeInt32LE(sequence.length, at + RECORD_HEADER.VALUE_LENGTH);
    at += RECORD_HEADER.BYTES;
    at += arena.latin1Write(SEQUENCE, at, SEQUENCE.length);
    at += arena.latin1Write(sequence, at, sequence.length);
    const c = batch.columns;
    c.topicIndex[index] = 0;
    c.partition[index] = -1;
    c.offset[index] = NO_OFFSET;
    c.timestamp[index] = 0n;
    c.timestampType[index] = TIMESTAMP_TYPE.NONE;
    c.flags[index] = RECORD_FLAG.HAS_HEADERS;
    c.keyStart[index] = from;
    c.keyLength[index] = UUID_CHARS;
    c.valueStart[index] = from + UUID_CHARS;
    c.valueLength[index] = valueLength;
    c.headersStart[index] = headersAt;
    c.headersLength[index] = headersLength;
    batch.arenaUsed = at;
    batch.rowCount = index + 1;
    return true;
  }

  /** Writes the text of traceparentOf; a derived one is copied from the bytes of msg_id in the
   *  arena. */
  private writeTrace(row: OutboxRow, msgIdAt: number, at: number): void {
    const { arena } = this;
    const given = row.traceparent;
    if ((given !== undefined && given !== null) || row.msgId.endsWith(PARENT_ZERO)) {
      arena.latin1Write(traceparentOf(row), at, TRACE_CHARS);
      return;
    }
    // 00-<32 digits>-<the last 16 of them>-00; the template has the dashes and flags.
    let to = at + TRACE_ID_AT;
    for (let i = 0; i < UUID_CHARS; i++) {
      const byte = arena[msgIdAt + i] as number;
      if (byte !== 0x2d) arena[to++] = byte;
    }
    arena.copyWithin(at + PARENT_ID_AT, to - 16, to);
  }

  /** Formats a time, with a cache of the last one: rows of one transaction have the same time. */
  private timeOf(createdAt: Date): string {
    const ms = createdAt.getTime();
    if (ms !== this.lastMs) {
      this.lastTime = timeText(ms);
      this.lastMs = ms;
    }
    return this.lastTime;
  }

  private templateOf(eventType: string, epoch: bigint): Template {
    if (this.last !== undefined && eventType === this.lastType && epoch === this.lastEpoch) return this.last;
    let byEpoch = this.templates.get(eventType);
    if (byEpoch === undefined) {
      if (this.templates.size >= TYPES_MAX) this.templates.clear();
      byEpoch = new Map();
      this.templates.set(eventType, byEpoch);
    }
    let made = byEpoch.get(epoch);
    if (made === undefined) {
      if (byEpoch.size >= TYPES_MAX) byEpoch.clear();
      made = this.makeTemplate(eventType, epoch);
      byEpoch.set(epoch, made);
    }
    this.lastType = eventType;
    this.lastEpoch = epoch;
    this.last = made;
    return made;
  }

  private makeTemplate(eventType: string, epoch: bigint): Template {
    const parts: Buffer[] = [
      this.constant,
      header('relay_epoch', epoch.toString()),
      header('ce_type', eventType),
    ];
    let length = parts.reduce((sum, part) => sum + part.length, 0);
    /** Appends a header and returns the position of its value. */
    const gap = (name: string, value: string): number => {
      parts.push(header(name, value));
      length += RECORD_HEADER.BYTES + name.length + value.length;
      return length - value.length;
    };
    const uuid = ' '.repeat(UUID_CHARS);
    const idAt = gap('ce_id', uuid);
    const subjectAt = gap('ce_subject', uuid);
    const partitionKeyAt = gap('ce_partitionkey', uuid);
    const timeAt = gap('ce_time', ' '.repeat(TIME_CHARS));
    const traceAt = gap('traceparent', `00-${' '.repeat(32)}-${' '.repeat(16)}-00`);
    return {
      inValue: Buffer.from(`","event_type":${JSON.stringify(eventType)},"payload":`, 'utf8'),
      headers: Buffer.concat(parts),
      idAt,
      subjectAt,
      partitionKeyAt,
      timeAt,
      traceAt,
    };
  }
}
