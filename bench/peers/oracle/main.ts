/** The oracle as a program: reads events with its own client and prints the results that the window
 *  engine must have written.
 *
 *      node main.js arrival -brokers=H:P -topic=T -size=MS -skew=MS -lateness=MS
 *          the topic, by the rules of lateness
 *          -registry=URL -subject=S -key=F -time=F -value=F: framed Avro records instead of the
 *          fixed layout (framed.ts)
 *      node main.js batch -size=MS
 *          events on stdin; no event is late
 *
 *  Windows: -size=MS; -window=sliding -size=MS -slide=MS; -window=session -gap=MS. -max-future=MS
 *  limits how far a timestamp moves the watermark. -watermark=global on several partitions, and
 *  idle partitions, need -order=FILE: the order in which the engine read the records
 *  (arrival-order.ts). stdout: one line for each result,
 *  `account_id,window_start,window_end,count,sum,min,max,last_update_ts,overflow`, ascending by
 *  (window_end, account_id); then one line of JSON with the counters. `-rows=false` omits the
 *  results. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { parseArrivalOrder, replay } from './arrival-order.ts';
import { rowText } from './difference.ts';
import { framedEvents } from './framed.ts';
import { TopicReader } from './kafka.ts';
import type { LogEntry, OracleRules } from './rules.ts';
import { entryOf, Oracle } from './windows.ts';

const EVENT_BYTES = 256;
const LINES_PER_WRITE = 10_000;

const flags = new Map(
  process.argv.slice(3).map((flag) => flag.replace(/^--?/, '').split(/=(.*)/s) as [string, string]),
);

function flag(name: string): string {
  const value = flags.get(name);
  if (value === undefined) throw new Error(`-${name}=… is missing`);
  return value;
}

const ms = (name: string): bigint => BigInt(flag(name));

function rulesOf(skewMs: bigint, latenessMs: bigint): OracleRules {
  const watermark = flags.get('watermark') ?? 'partition';
  if (watermark !== 'partition' && watermark !== 'global') throw new Error(`unknown -watermark=${watermark}`);
  const maxFutureMs = flags.has('max-future') ? ms('max-future') : undefined;
  const shared = { skewMs, latenessMs, watermark, maxFutureMs } as const;
  const window = flags.get('window') ?? 'tumbling';
  if (window === 'tumbling') return { ...shared, window, sizeMs: ms('size') };
  if (window === 'sliding') return { ...shared, window, sizeMs: ms('size'), slideMs: ms('slide') };
  if (window === 'session') return { ...shared, window, gapMs: ms('gap') };
  throw new Error(`unknown -window=${window}`);
}

/** Number of events by the schema id of their writer, for framed records. */
const writers = new Map<number, number>();

type ToEntry = (partition: number, value: Uint8Array | null, appendTs: bigint | undefined) => LogEntry;

/** Makes entries of the records in the format that the flags name. */
async function entries(): Promise<ToEntry> {
  if (!flags.has('registry')) return entryOf;
  const fields = { key: flag('key'), time: flag('time'), value: flag('value') };
  const read = await framedEvents(flag('registry'), flag('subject'), fields);
  return (partition, value, appendTs) => {
    const event = read(value);
    if (event === undefined) return { kind: 'broken', partition };
    const { schemaId, key, timeMs } = event;
    writers.set(schemaId, (writers.get(schemaId) ?? 0) + 1);
    const accountId = BigInt.asUintN(64, key);
    return { kind: 'event', partition, accountId, value: event.value, eventTs: timeMs, appendTs };
  };
}

async function readTopic(): Promise<Oracle> {
  const toEntry = await entries();
  const reader = await TopicReader.open(flag('brokers'), flag('topic'));
  const rules = rulesOf(ms('skew'), ms('lateness'));
  const { partitions } = reader;
  const orderPath = flags.get('order');
  if (orderPath === undefined && rules.watermark === 'global' && partitions.length > 1)
    throw new Error(
      `-watermark=global on ${partitions.length} partitions depends on the order: give -order=FILE`,
    );
  if (orderPath === undefined) {
    const oracle = new Oracle(rules, partitions.length);
    for (const partition of partitions) {
      await reader.read(partition, ({ value, timestamp }) =>
        oracle.apply(toEntry(partition, value, timestamp)),
      );
    }
    reader.close();
    return oracle;
  }
  const order = parseArrivalOrder(readFileSync(orderPath, 'utf8'));
  const records: LogEntry[][] = partitions.map(() => []);
  for (const partition of partitions) {
    const into = records[partition] as LogEntry[];
    await reader.read(partition, ({ value, timestamp }) => into.push(toEntry(partition, value, timestamp)));
  }
  reader.close();
  const added = order.filter((entry) => entry.kind === 'added').length;
  const oracle = new Oracle(rules, partitions.length - added);
  for (const entry of replay(order, records)) oracle.apply(entry);
  return oracle;
}

async function readStdin(): Promise<Oracle> {
  const oracle = new Oracle(rulesOf(0n, 0n), 1, false);
  let rest: Buffer = Buffer.alloc(0);
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    let at = 0;
    for (; at + EVENT_BYTES <= bytes.length; at += EVENT_BYTES)
      oracle.value(0, bytes.subarray(at, at + EVENT_BYTES));
    rest = bytes.subarray(at);
  }
  if (rest.length > 0) throw new Error(`stdin ends inside an event: ${rest.length} bytes too many`);
  return oracle;
}

async function print(oracle: Oracle): Promise<void> {
  let rows = 0;
  let lines: string[] = [];
  const flush = async (): Promise<void> => {
    if (lines.length > 0 && !process.stdout.write(`${lines.join('\n')}\n`))
      await once(process.stdout, 'drain');
    lines = [];
  };
  for (const row of oracle.rows()) {
    rows++;
    if (flags.get('rows') === 'false') continue;
    lines.push(rowText(row));
    if (lines.length >= LINES_PER_WRITE) await flush();
  }
  await flush();
  const { counters } = oracle;
  const countsOf = (name: keyof (typeof counters)[number]): string[] =>
    counters.map((one) => String(one[name]));
  const counts = {
    consumed: countsOf('consumed'),
    accepted: countsOf('accepted'),
    dropped_late: countsOf('droppedLate'),
    dropped_after_idle: countsOf('droppedAfterIdle'),
    invalid: countsOf('invalid'),
    future_clamped: countsOf('futureClamped'),
    ...(flags.has('registry') ? { writers: Object.fromEntries(writers) } : {}),
  };
  process.stdout.write(`${JSON.stringify({ rows, ...counts })}\n`);
}

const mode = process.argv[2];
if (mode !== 'arrival' && mode !== 'batch') throw new Error('the first argument must be arrival or batch');
await print(mode === 'arrival' ? await readTopic() : await readStdin());
