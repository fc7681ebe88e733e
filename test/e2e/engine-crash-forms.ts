/** Forms of the events of a crash loop beyond the fixed layout, read by decoders of their own:
 *  registered Avro with texts as keys and several aggregates, and JSON with bytes as keys. */
import avsc from 'avsc';
import type { LogEntry, OracleRow } from '../../bench/peers/oracle/rules.ts';
import { TEXT_EVENT_AVRO } from '../../src/gen/schemas/events.ts';
import { percentileOf } from '../property/percentile-kit.ts';

/** Event that the oracle accepted. */
export interface AcceptedEvent {
  readonly accountId: bigint;
  readonly value: bigint;
  readonly eventTs: bigint;
}

export interface EventForm {
  /** Flags of the generator and of the engine. */
  readonly gen: readonly string[];
  readonly engine: readonly string[];
  readonly entryOf: (partition: number, value: Uint8Array | null) => LogEntry;
  /** Key of an account as an export and the path of GET /windows have it. */
  readonly keyOf: (accountId: bigint) => string;
  /** The reverse of keyOf. */
  readonly accountOf: (key: string) => bigint;
  /** Cells of the aggregates behind count, sum, min and max, from the events of a window in the
   *  order of their times, partitions and offsets. Absent: there are none. */
  readonly moreOf?: (events: readonly AcceptedEvent[]) => readonly string[];
}

interface TextEvent {
  readonly account_id: string;
  readonly value: number;
  readonly event_ts: number;
}

const FRAME_BYTES = 5;
const ID_DIGITS = 16;

const digitsOf = (accountId: bigint): string => accountId.toString(16).padStart(ID_DIGITS, '0');

function entryFrom(partition: number, decode: () => TextEvent): LogEntry {
  try {
    const { account_id: id, value, event_ts: ts } = decode();
    return {
      ...{ kind: 'event', partition, accountId: BigInt(`0x${id}`) },
      ...{ value: BigInt(value), eventTs: BigInt(ts) },
    };
  } catch {
    return { kind: 'broken', partition };
  }
}

const type = avsc.Type.forSchema(JSON.parse(TEXT_EVENT_AVRO));

export const avroTexts = (registry: string): EventForm => ({
  gen: ['-format=avro', '-key-type=string', `-registry=${registry}`],
  engine: [
    ...['-format=avro', '-key=account_id', `-registry=${registry}`],
    '-aggregate=count,sum(value),min(value),max(value),last(value),distinct(value:long),p99(value)',
  ],
  entryOf: (partition, value) =>
    entryFrom(partition, () => type.fromBuffer(Buffer.from(value ?? []).subarray(FRAME_BYTES)) as TextEvent),
  keyOf: digitsOf,
  accountOf: (key) => BigInt(`0x${key}`),
  moreOf: (events) => {
    const values = events.map(({ value }) => Number(value)).sort((a, b) => a - b);
    const distinct = new Set(values).size;
    return [String(events.at(-1)?.value), String(distinct), '0', ...percentileOf(values, '99').map(String)];
  },
});

/** The digits of an account are also the base64 of twelve bytes. */
export const jsonBytes: EventForm = {
  gen: ['-format=json', '-key-type=string'],
  engine: ['-format=json', '-key=account_id:bytes', '-time=event_ts:ms', '-value=value'],
  entryOf: (partition, value) =>
    entryFrom(partition, () => JSON.parse(Buffer.from(value ?? []).toString()) as TextEvent),
  keyOf: (accountId) => Buffer.from(digitsOf(accountId), 'base64').toString('hex'),
  accountOf: (key) => BigInt(`0x${Buffer.from(key, 'hex').toString('base64')}`),
};

/** Cells of each row in an export or an answer, which begin with the key.
 *  @param accepted events in the order of their partitions and offsets */
export function linesOf(
  rows: Iterable<OracleRow>,
  form: EventForm | undefined,
  accepted: readonly AcceptedEvent[],
): ReadonlyMap<OracleRow, string> {
  const byAccount = new Map<bigint, AcceptedEvent[]>();
  for (const event of form?.moreOf === undefined ? [] : accepted) {
    const events = byAccount.get(event.accountId);
    if (events === undefined) byAccount.set(event.accountId, [event]);
    else events.push(event);
  }
  // The sort is stable, so events of one time keep their order in the log.
  for (const events of byAccount.values()) events.sort((a, b) => Number(a.eventTs - b.eventTs));
  const lines = new Map<OracleRow, string>();
  for (const row of rows) {
    const { accountId, windowStart, windowEnd, count, sum, min, max, lastUpdateTs, overflow } = row;
    const within = (byAccount.get(accountId) ?? []).filter(
      ({ eventTs }) => eventTs >= windowStart && eventTs < windowEnd,
    );
    const cells = [form?.keyOf(accountId) ?? accountId, windowStart, windowEnd, count, sum, min, max];
    lines.set(row, [...cells, ...(form?.moreOf?.(within) ?? []), lastUpdateTs, overflow].join());
  }
  return lines;
}

/** The first line of an export that the oracle has not, or the reverse; empty if they are equal. */
export function linesText(expected: Iterable<string>, found: Iterable<string>): string {
  const [wanted, present] = [new Set(expected), new Set(found)];
  for (const line of wanted) if (!present.has(line)) return `the sink lacks the line ${line}`;
  for (const line of present) if (!wanted.has(line)) return `the sink has the line ${line}`;
  return '';
}
