/** The oracle as a program: reads events its own way, prints what the window engine must have written.
 *
 *    node main.js arrival -brokers=H:P -topic=T -size=MS -skew=MS -lateness=MS   the topic, by the rules of lateness
 *    node main.js batch -size=MS                                                 events on stdin, none is late
 *
 *  stdout: one line a result, `account_id,window_start,window_end,count,sum,min,max,last_update_ts,overflow`, ascending
 *  by (window_end, account_id); then one line of JSON with the counts. `-rows=false` leaves the results out.
 */
import { once } from 'node:events';
import { TopicReader } from './kafka.ts';
import { Oracle } from './windows.ts';

const EVENT_BYTES = 256;
const LINES_AT_ONCE = 10_000;

const flags = new Map(
  process.argv.slice(3).map((flag) => flag.replace(/^--?/, '').split(/=(.*)/s) as [string, string]),
);

function flag(name: string): string {
  const value = flags.get(name);
  if (value === undefined) throw new Error(`-${name}=… is missing`);
  return value;
}

async function readTopic(): Promise<Oracle> {
  const reader = await TopicReader.open(flag('brokers'), flag('topic'));
  const rules = {
    sizeMs: BigInt(flag('size')),
    skewMs: BigInt(flag('skew')),
    latenessMs: BigInt(flag('lateness')),
  };
  const oracle = new Oracle(rules, reader.partitions.length);
  for (const partition of reader.partitions) {
    await reader.read(partition, (record) => oracle.value(partition, record.value));
  }
  reader.close();
  return oracle;
}

async function readStdin(): Promise<Oracle> {
  const oracle = new Oracle({ sizeMs: BigInt(flag('size')), skewMs: 0n, latenessMs: 0n }, 1, false);
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
    const { accountId, windowStart, windowEnd, count, sum, min, max, lastUpdateTs, overflow } = row;
    lines.push(
      `${accountId},${windowStart},${windowEnd},${count},${sum},${min},${max},${lastUpdateTs},${overflow}`,
    );
    if (lines.length >= LINES_AT_ONCE) await flush();
  }
  await flush();
  const texts = (numbers: readonly bigint[]): string[] => numbers.map(String);
  const counts = {
    consumed: texts(oracle.consumed),
    dropped_late: texts(oracle.droppedLate),
    invalid: texts(oracle.invalid),
  };
  process.stdout.write(`${JSON.stringify({ rows, ...counts })}\n`);
}

const mode = process.argv[2];
if (mode !== 'arrival' && mode !== 'batch') throw new Error('give arrival or batch');
await print(mode === 'arrival' ? await readTopic() : await readStdin());
