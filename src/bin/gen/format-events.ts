/** Events of the generator in the formats that users have: framed Avro and Protobuf, and JSON. The
 *  events are those of the fixed layout. The record key is the account_id: 8 bytes big-endian, or
 *  16 hexadecimal digits as a text. */
import { framePrefix } from '../../addon/reference/frame.ts';
import { EventBatch } from '../../core/layout/event-batch.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { Payloads } from '../../formats/payloads.ts';
import { parseSchema } from '../../formats/schema.ts';
import { type EventGenerator, noiseOf } from '../../gen/events.ts';
import type { BatchSource } from '../../gen/pump.ts';
import { EVENT_AVRO, EVENT_PROTO, TEXT_EVENT_AVRO, TEXT_EVENT_PROTO } from '../../gen/schemas/events.ts';
import type { RegistryClient } from '../../serde/client.ts';
import { writerCodec } from '../../serde/codec.ts';

/** Bytes of an event in any of the formats, with its key. */
export const FORMAT_EVENT_BYTES = 512;
/** Characters of the filler: an Avro event then has about 120 bytes. */
const PAD_CHARS = 96;
/** Distance of the fillers of two events in the text of the seed. */
const PAD_STEP = 61;

interface Event {
  readonly accountId: bigint;
  readonly value: bigint;
  readonly eventTs: bigint;
  readonly seq: bigint;
  readonly pad: string;
}
type Encode = (event: Event) => Uint8Array;

const SCHEMAS = {
  u64: { avro: ['AVRO', EVENT_AVRO], protobuf: ['PROTOBUF', EVENT_PROTO] },
  string: { avro: ['AVRO', TEXT_EVENT_AVRO], protobuf: ['PROTOBUF', TEXT_EVENT_PROTO] },
} as const;
/** Type of the account_id. */
export type AccountType = keyof typeof SCHEMAS;

/** An account_id as a text of 16 bytes. */
const textOf = (accountId: bigint): string => accountId.toString(16).padStart(16, '0');

/** Registers the schema of a format and makes the encoder of framed events.
 *  @throws any error of the registry */
export async function framedEvents(
  client: RegistryClient,
  subject: string,
  format: 'avro' | 'protobuf',
  type: AccountType,
): Promise<Encode> {
  const [name, text] = SCHEMAS[type][format];
  const id = await client.register(subject, name, text);
  const codec = writerCodec(parseSchema(name, text));
  const prefix = framePrefix(id, codec.messageIndexes);
  const payloads = new Payloads(1, FORMAT_EVENT_BYTES);
  return ({ accountId, value, eventTs, seq, pad }) => {
    payloads.clear();
    const time = format === 'avro' ? eventTs : timestampOf(eventTs);
    const number = format === 'avro' ? BigInt.asIntN(64, accountId) : accountId;
    const key = type === 'string' ? textOf(accountId) : number;
    codec.encode({ account_id: key, value, event_ts: time, seq, pad }, payloads);
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
  ({ accountId, value, eventTs, seq, pad }) =>
    Buffer.from(
      `{"account_id":${type === 'string' ? `"${textOf(accountId)}"` : accountId},"value":${value},"event_ts":${eventTs},"seq":${seq},"pad":"${pad}"}${end}`,
    );

/** Source of a generator's events in a format. @param keys type of the record keys; undefined for a
 *  file, which has the values alone */
export function formatEvents(
  generator: EventGenerator,
  encode: Encode,
  keys: AccountType | undefined,
): BatchSource {
  const text = Buffer.from(noiseOf(generator.options.seed)).toString('base64');
  const places = BigInt(text.length - PAD_CHARS);
  let events: EventBatch | undefined;
  return {
    fill(into: RecordBatch, most: number): number {
      into.clear();
      if (events === undefined || events.rowCapacity < into.rowCapacity)
        events = EventBatch.create(into.rowCapacity);
      const rows = Math.min(into.rowCapacity, Math.floor(into.arenaCapacity / FORMAT_EVENT_BYTES), most);
      const count = generator.fillEvents(events, rows);
      const { accountId, value, eventTs, seq } = events.columns;
      for (let row = 0; row < count; row++) {
        const number = seq[row] as bigint;
        const at = Number((number * BigInt(PAD_STEP)) % places);
        const key = keys === undefined ? null : keyOf(accountId[row] as bigint, keys);
        const event = {
          accountId: accountId[row] as bigint,
          value: value[row] as bigint,
          eventTs: eventTs[row] as bigint,
          seq: number,
          pad: text.slice(at, at + PAD_CHARS),
        };
        into.append({ key, value: encode(event) });
      }
      return count;
    },
  };
}

function keyOf(accountId: bigint, type: AccountType): Buffer {
  if (type === 'string') return Buffer.from(textOf(accountId));
  const key = Buffer.alloc(8);
  key.writeBigUInt64BE(accountId);
  return key;
}
