/** Events of the generator in the formats that users have: framed Avro and Protobuf, and JSON. The
 *  events are those of the fixed layout; the record key is the account_id, 8 bytes big-endian. */
import { framePrefix } from '../../addon/reference/frame.ts';
import { EventBatch } from '../../core/layout/event-batch.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { Payloads } from '../../formats/payloads.ts';
import { parseSchema } from '../../formats/schema.ts';
import { type EventGenerator, noiseOf } from '../../gen/events.ts';
import type { BatchSource } from '../../gen/pump.ts';
import { EVENT_AVRO, EVENT_PROTO } from '../../gen/schemas/events.ts';
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

const SCHEMAS = { avro: ['AVRO', EVENT_AVRO], protobuf: ['PROTOBUF', EVENT_PROTO] } as const;

/** Registers the schema of a format and makes the encoder of framed events.
 *  @throws any error of the registry */
export async function framedEvents(
  client: RegistryClient,
  subject: string,
  format: 'avro' | 'protobuf',
): Promise<Encode> {
  const [name, text] = SCHEMAS[format];
  const id = await client.register(subject, name, text);
  const codec = writerCodec(parseSchema(name, text));
  const prefix = framePrefix(id, codec.messageIndexes);
  const payloads = new Payloads(1, FORMAT_EVENT_BYTES);
  return ({ accountId, value, eventTs, seq, pad }) => {
    payloads.clear();
    const time = format === 'avro' ? eventTs : timestampOf(eventTs);
    const key = format === 'avro' ? BigInt.asIntN(64, accountId) : accountId;
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
  (end: string): Encode =>
  ({ accountId, value, eventTs, seq, pad }) =>
    Buffer.from(
      `{"account_id":${accountId},"value":${value},"event_ts":${eventTs},"seq":${seq},"pad":"${pad}"}${end}`,
    );

/** Source of a generator's events in a format. @param hasKeys false for a file, which has the
 *  values alone */
export function formatEvents(generator: EventGenerator, encode: Encode, hasKeys: boolean): BatchSource {
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
        const key = hasKeys ? Buffer.alloc(8) : null;
        key?.writeBigUInt64BE(accountId[row] as bigint);
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
