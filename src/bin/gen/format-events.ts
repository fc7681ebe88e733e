/** Events of the generator in the formats that users have: framed Avro and Protobuf, and JSON. The
 *  events are those of the fixed layout. The record key is the account_id: 8 bytes big-endian, or
 *  16 hexadecimal digits as a text. */
import { framePrefix } from '../../addon/reference/frame.ts';
import { EventBatch } from '../../core/layout/event-batch.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { Payloads } from '../../formats/payloads.ts';
import { parseSchema } from '../../formats/schema.ts';
import { viewOf } from '../../formats/sink.ts';
import { type EventGenerator, noiseOf } from '../../gen/events.ts';
import type { BatchSource } from '../../gen/pump.ts';
import { EVENT_AVRO, EVENT_PROTO, TEXT_EVENT_AVRO, TEXT_EVENT_PROTO } from '../../gen/schemas/events.ts';
import type { RegistryClient } from '../../serde/client.ts';
import { type WriterCodec, writerCodec } from '../../serde/codec.ts';
import { WrittenRecords, writeHex64, writeWord64 } from './written-records.ts';

/** Bytes of an event in any of the formats, with its key. */
export const FORMAT_EVENT_BYTES = 512;
/** Characters of the filler: an Avro event then has about 120 bytes. */
const PAD_CHARS = 96;
/** Distance of the fillers of two events in the text of the seed. */
const PAD_STEP = 61;
const KEY_CHARS = 16;
const TWO_32 = 4_294_967_296;

interface Event {
  readonly accountId: bigint;
  readonly value: bigint;
  readonly eventTs: bigint;
  readonly seq: bigint;
  readonly pad: string;
}
/** Appends the event of a row. The batch has room for it. */
type Append = (events: Events, row: number, into: RecordBatch) => void;
/** Encodes the event of a row. */
type Encode = (events: Events, row: number) => Uint8Array;

const SCHEMAS = {
  u64: { avro: ['AVRO', EVENT_AVRO], protobuf: ['PROTOBUF', EVENT_PROTO] },
  string: { avro: ['AVRO', TEXT_EVENT_AVRO], protobuf: ['PROTOBUF', TEXT_EVENT_PROTO] },
} as const;
/** Type of the account_id. */
export type AccountType = keyof typeof SCHEMAS;

/** An account_id as a text of 16 bytes. */
const textOf = (accountId: bigint): string => accountId.toString(16).padStart(16, '0');

const wordsOf = ({ buffer, byteOffset, length }: BigInt64Array | BigUint64Array): Int32Array =>
  new Int32Array(buffer, byteOffset, length * 2);

/** A batch of generated events with the words of its columns, which are read without a bigint, and
 *  the fillers. */
class Events {
  readonly batch: EventBatch;
  readonly accounts: Int32Array;
  readonly values: Int32Array;
  readonly times: Int32Array;
  readonly seqs: Int32Array;
  /** Text of the seed, of which each filler is a part. */
  readonly noise: Buffer;
  /** The same bytes. */
  readonly noiseView: DataView;

  constructor(rows: number, noise: Buffer) {
    this.batch = EventBatch.create(rows);
    const { accountId, value, eventTs, seq } = this.batch.columns;
    this.accounts = wordsOf(accountId);
    this.values = wordsOf(value);
    this.times = wordsOf(eventTs);
    this.seqs = wordsOf(seq);
    this.noise = noise;
    this.noiseView = viewOf(noise);
  }

  eventOf(row: number): Event {
    const { accountId, value, eventTs, seq } = this.batch.columns;
    const at = this.fillerOf(row);
    return {
      accountId: accountId[row] as bigint,
      value: value[row] as bigint,
      eventTs: eventTs[row] as bigint,
      seq: seq[row] as bigint,
      pad: this.noise.toString('latin1', at, at + PAD_CHARS),
    };
  }

  /** Place of the filler of a row in `noise`. */
  fillerOf(row: number): number {
    const { seqs } = this;
    const places = this.noise.length - PAD_CHARS;
    const low = (seqs[2 * row] as number) >>> 0;
    const high = seqs[2 * row + 1] as number;
    // A remainder of words of 32 bits is several times faster than one of doubles, and the product
    // behind it is exact.
    const rest = high === 0 ? low % places : (high * TWO_32 + low) % places;
    return ((rest * PAD_STEP) | 0) % places;
  }
}

/** Registers the schema of a format and makes the writer of framed events.
 *  @throws any error of the registry */
export async function framedEvents(
  client: RegistryClient,
  subject: string,
  format: 'avro' | 'protobuf',
  type: AccountType,
): Promise<Append> {
  const [name, text] = SCHEMAS[type][format];
  const id = await client.register(subject, name, text);
  const codec = writerCodec(parseSchema(name, text));
  const prefix = framePrefix(id, codec.messageIndexes);
  return format === 'avro'
    ? avroEvents(prefix, type)
    : encodedEvents(protobufEvents(prefix, codec, type), type);
}

/** Writer of Avro events from their columns straight into the arena, so that the source is not
 *  slower than what reads it. The bytes are those of the codec. */
function avroEvents(prefix: Uint8Array, type: AccountType): Append {
  const records = new WrittenRecords();
  const frame = viewOf(prefix);
  const { sink } = records;
  const long = (words: Int32Array, row: number): void =>
    sink.zigzagWords(words[2 * row] as number, words[2 * row + 1] as number);
  return (events, row, into) => {
    const high = events.accounts[2 * row + 1] as number;
    const low = events.accounts[2 * row] as number;
    records.begin(into);
    if (type === 'u64') records.word64(high, low);
    else records.hex64(high, low);
    records.endKey();
    records.copy(frame, 0, prefix.length);
    if (type === 'u64') long(events.accounts, row);
    else {
      sink.zigzag(KEY_CHARS);
      records.hex64(high, low);
    }
    long(events.values, row);
    long(events.times, row);
    long(events.seqs, row);
    sink.zigzag(PAD_CHARS);
    records.copy(events.noiseView, events.fillerOf(row), PAD_CHARS);
    sink.close();
  };
}

function protobufEvents(prefix: Uint8Array, codec: WriterCodec, type: AccountType): Encode {
  const payloads = new Payloads(1, FORMAT_EVENT_BYTES);
  return (events, row) => {
    const { accountId, value, eventTs, seq, pad } = events.eventOf(row);
    payloads.clear();
    const account = type === 'string' ? textOf(accountId) : accountId;
    codec.encode({ account_id: account, value, event_ts: timestampOf(eventTs), seq, pad }, payloads);
    return Buffer.concat([prefix, payloads.bytes.subarray(0, payloads.used)]);
  };
}

function timestampOf(ms: bigint): { readonly seconds: bigint; readonly nanos: number } {
  const part = ((ms % 1000n) + 1000n) % 1000n;
  return { seconds: (ms - part) / 1000n, nanos: Number(part) * 1_000_000 };
}

/** Makes the encoder of JSON events. @param end text behind each event: a newline in files */
export const jsonEvents =
  (end: string, type: AccountType): Encode =>
  (events, row) => {
    const { accountId, value, eventTs, seq, pad } = events.eventOf(row);
    return Buffer.from(
      `{"account_id":${type === 'string' ? `"${textOf(accountId)}"` : accountId},"value":${value},"event_ts":${eventTs},"seq":${seq},"pad":"${pad}"}${end}`,
    );
  };

/** Writer of encoded events. @param keys type of the record keys; undefined for a file, which has
 *  the values alone */
export function encodedEvents(encode: Encode, keys: AccountType | undefined): Append {
  const key = Buffer.alloc(keys === 'string' ? KEY_CHARS : 8);
  const view = viewOf(key);
  const keyOf = ({ accounts }: Events, row: number): Buffer | null => {
    const high = accounts[2 * row + 1] as number;
    const low = accounts[2 * row] as number;
    if (keys === undefined) return null;
    if (keys === 'string') writeHex64(view, 0, high, low);
    else writeWord64(view, 0, high, low);
    return key;
  };
  return (events, row, into) => void into.append({ key: keyOf(events, row), value: encode(events, row) });
}

/** Source of a generator's events in a format. */
export function formatEvents(generator: EventGenerator, append: Append): BatchSource {
  const noise = Buffer.from(Buffer.from(noiseOf(generator.options.seed)).toString('base64'));
  let events: Events | undefined;
  return {
    fill(into: RecordBatch, most: number): number {
      into.clear();
      if (events === undefined || events.batch.rowCapacity < into.rowCapacity)
        events = new Events(into.rowCapacity, noise);
      const rows = Math.min(into.rowCapacity, Math.floor(into.arenaCapacity / FORMAT_EVENT_BYTES), most);
      const count = generator.fillEvents(events.batch, rows);
      for (let row = 0; row < count; row++) append(events, row, into);
      return count;
    },
  };
}
