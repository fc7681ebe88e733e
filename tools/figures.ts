/** The tables of figures: the rows of results that answer what a reader asks first, those of the
 *  README among them. Their values come from the JSON files of docs/results, so a repeated
 *  benchmark changes them by `npm run generate`. */
import type { BenchReport, BenchResult } from '../bench/harness.ts';

/** A row: the report, the beginning of its metric, and of what it stands beside where several
 *  rows have that metric; the row with a goal is taken first. */
type Choice = readonly [report: string, metric: string, against?: string];

const AREAS: Readonly<Record<string, readonly Choice[]>> = {
  'Broker and buffers': [
    ['broker', 'consume 256 B none', 'raw'],
    ['broker', 'consume 256 B none', 'node-rdkafka'],
    ['broker', 'consume 256 B lz4', 'raw'],
    ['broker', 'consume 256 B lz4', 'node-rdkafka'],
    ['broker', 'consume 512 B none', 'raw'],
    ['broker', 'consume 512 B lz4', 'raw'],
    ['broker', 'produce 256 B none', 'raw'],
    ['broker', 'produce 256 B lz4', 'raw'],
    ['broker', 'produce 512 B lz4', 'raw'],
    ['fetch', 'direct client, 9000000 events of 256 B, lz4: CPU'],
    ['fetch', 'direct client, 9000000 events of 256 B, lz4: rate'],
    ['fetch', 'engine with -broker-client=direct, 9000000 events of 256 B, lz4: rate', 'engine'],
    ['frame', 'frame scan, Avro'],
    ['frame', 'frame write, Avro'],
    ['frame', 'frame scan, Protobuf [2,1]'],
    ['hash', 'shard hash, 8 shards'],
    ['decode', 'event decode, aligned'],
    ['gen', 'events, true order'],
    ['gen', 'events, delayed order'],
  ],
  Contracts: [
    ['compatibility', 'Avro: pairs, verdict and live decode disagree'],
    ['compatibility', 'Protobuf: pairs, verdict and live decode disagree'],
    ['hostile', '/health under hostile schemas'],
    ['registry', 'lookups by id, 64 connections'],
    ['registry', 'lookups by id at 10000/s, p99'],
    ['registry', 'registrations, durable, one after the other'],
    ['registry', 'registrations, durable, 16 at once'],
    ['registry', 'lookup by a cold client beside 200 registrations/s, p99'],
    ['registry', 'start until writable, empty file store'],
    ['registry', 'start until writable, 1000 schemas'],
    ['registry', 'memory after registering 1000 schemas'],
    ['registry', 'memory after registering 100000 schemas'],
    ['registry', 'compatibility checks of distinct pairs, 16 at once'],
    ['serde', 'Avro, S: batch to columns, all fields', 'arrow-avro'],
    ['serde', 'Avro, S: batch to columns, two fields'],
    ['serde', 'Protobuf, S: batch to columns, two fields'],
    ['serde', 'Protobuf, L: batch encode from columns'],
    ['serde', 'Avro, S: serialize(value), numbers', 'avsc'],
    ['serde', 'Protobuf, S: serialize(value), numbers', 'protobufjs'],
    ['serde', 'Protobuf, L: serialize(value), numbers', 'protobufjs'],
    ['contracts', 'avro: events end to end, slowest group'],
    ['contracts', 'avro: records acknowledged and not written, or written twice'],
    ['contracts', 'avro: live rollout: rate'],
    ['contracts', 'avro: live rollout: records unreadable'],
    ['replay', 'records decoded with the newest version'],
    ['replay', 'records not decoded'],
    ['rollout', 'safe by the plan, but with unreadable records'],
  ],
  Effects: [
    ['orders', 'POST /orders at 5000/s, alone, p99'],
    ['orders', 'POST /orders at 5000/s, with relay and payments, 1 broker, p99'],
    ['orders', 'POST /orders at 5000/s, with relay and payments, 1 broker, commit to effect, p99'],
    ['orders', 'POST /orders at 5000/s, alone, CPU of orders a request'],
    ['orders', 'POST /orders, closed model, 256 connections'],
    ['orders', 'highest rate held for 60 s without a growing queue'],
    ['orders-50m', 'POST /orders at 5000/s on 50000000 keys, alone, p99'],
    ['orders-load', 'load at 5000/s, relay=poll, 5% duplicates, 3 brokers, rate reached'],
    ['orders-load', 'load at 5000/s, relay=poll, 5% duplicates, 3 brokers, deltas'],
    [
      'orders-load',
      'load at 5000/s, relay=poll, 5% duplicates, 3 brokers, p99 of POST outside the 15 s after a kill',
    ],
    [
      'orders-load',
      'load at 5000/s, relay=poll, 5% duplicates, 3 brokers, commit to effect outside the 15 s after a kill, p99',
    ],
    ['orders-load', 'load at 5000/s, relay=poll, 5% duplicates, 3 brokers, CPU of all a request'],
    ['orders-soak-1', 'POST /orders at 5000/s, with relay and payments, 1 broker, p99'],
    ['orders-soak-1', 'POST /orders at 5000/s, with relay and payments, 1 broker, commit to effect, p99'],
    ['orders-soak-3', 'POST /orders at 5000/s, with relay and payments, 3 brokers, p99'],
    ['orders-soak-3', 'POST /orders at 5000/s, with relay and payments, 3 brokers, commit to effect, p99'],
    ['orders-grpc', 'Orders.Create over gRPC at 2000/s, p99'],
    ['inbox', 'payments on a backlog of 1000000 messages'],
    ['inbox-keys', 'inbox of 100000000 keys, insert of unseen ids'],
    ['inbox-keys', 'inbox of 100000000 keys, check of seen ids in their order'],
    ['inbox-keys', 'inbox of 100000000 keys, check of seen ids from everywhere'],
    ['inbox-keys', 'expiry of 10000000 keys'],
    ['relay-latency', 'millrace relay -relay=poll at 1000/s, commit to consumer, p99'],
    ['relay-latency', 'millrace relay -relay=wal at 1000/s, commit to consumer, p99'],
    ['relay-latency', 'millrace relay -relay=poll at 5000/s, commit to consumer, p99'],
    ['relay-latency', 'millrace relay -relay=wal at 5000/s, commit to consumer, p99'],
    ['relay-latency-peers', 'millrace relay -relay=poll at 1000/s, commit to consumer, p99', 'Debezium'],
    ['relay-latency-peers', 'millrace relay -relay=wal at 1000/s, commit to consumer, p99', 'Debezium'],
    ['relay-drain', 'millrace relay -relay=poll, drain of 1000000 rows'],
    ['relay-drain', 'millrace relay -relay=wal, drain of 1000000 rows'],
    ['relay-drain', 'millrace relay -relay=poll, drain, CPU of relay a million rows', 'Debezium'],
    ['relay-drain', 'millrace relay -relay=wal, drain, CPU of relay a million rows', 'Debezium'],
    ['reconcile', 'complete comparison of 10000000 orders in one database'],
    ['reconcile', 'complete comparison of 10000000 orders in two connections'],
    ['chaos', 'runs under faults'],
    ['chaos', 'deltas'],
  ],
  Windows: [
    ['engine', '9000000 events of 256 B, lz4, from Kafka: rate'],
    ['engine', '9000000 events of 256 B, lz4, from Kafka: CPU'],
    ['engine', 'Avro events of 120 B: rate'],
    ['engine', 'Avro events of 120 B: CPU'],
    ['engine', 'JSON events of 190 B: rate'],
    ['engine', 'Avro events with string keys of 16 B: rate beside u64 keys'],
    ['engine', '-aggregate=count,sum(value),min(value),max(value),avg(value): CPU'],
    ['engine', '-aggregate=count,p99(value): CPU'],
    ['engine', 'sliding 5m by 1m, firing apart: CPU'],
    ['engine', 'disk state, a budget of'],
    ['engine', 'sliding 30s by 15s, fired, disk state'],
    ['engine', 'sessions with a gap of 30s, fired, disk state'],
    ['engine', 'largest resident size, 10M open keys, sliding 5m by 1m, disk state'],
    ['engine', 'an event to its accumulator, at 80% of the ceiling, p99'],
    ['engine', 'a firing of 100000 windows to durable in the sink, p99'],
    ['engine', 'a firing of 2200000 windows in memory'],
    ['engine', 'a firing of 2200000 windows on disk'],
    ['engine', 'an event to its accumulator beside firings of 2200000 windows in memory, p99'],
    ['engine', 'an event to its accumulator beside firings of 2200000 windows on disk, p99'],
    ['engine', 'the largest firing that is durable in the sink within 1 s'],
    ['engine', 'results into PostgreSQL, new rows'],
    ['results', 'a large window, durable'],
    ['engine-checkpoint', 'work between two batches, 10M keys, longest'],
    ['engine-checkpoint', 'restore, 10M keys'],
    ['engine-kernel', 'admit and accumulate, 1M accounts, Zipf 1.1'],
    ['engine-kernel', 'admit and accumulate, 1M accounts, Zipf 1.1: the next window'],
    ['engine-kernel', 'admit and accumulate, 10M distinct accounts'],
    ['engine-kernel', 'admit and accumulate, 10M distinct accounts: the next window'],
    ['engine-shards', 'loop from memory, 1M accounts, Zipf 1.1: two shards'],
    ['engine-shards', 'engine beside its broker, 9000000 events of 256 B, two shards: CPU'],
    ['window', 'window step with firing, 1000000 accounts'],
    ['sweep', 'cells run live, each killed once'],
    ['sweep', 'live cells whose results or drops differ from the count'],
  ],
  'Windows, firings on a slower machine': [
    ['engine-firing-sizes', 'a firing of 2200000 windows in memory'],
    ['engine-firing-sizes', 'a firing of 2200000 windows on disk'],
    ['engine-firing-sizes', 'an event to its accumulator beside firings of 2200000 windows in memory, p99'],
    ['engine-firing-sizes', 'an event to its accumulator beside firings of 2200000 windows on disk, p99'],
    ['engine-firing-sizes', 'the largest firing that is durable in the sink within 1 s'],
  ],
  'Windows, a billion events of the fixed layout': [
    ['engine-soak', 'events sent'],
    ['engine-soak', 'rate taken by the engine'],
    ['engine-soak', 'windows of'],
    ['engine-soak', 'resident size of the engine, largest, whole'],
    ['engine-soak', 'an event to its accumulator, p99 at most, whole'],
    ['engine-soak', 'a firing to durable in the sink, p99 at most, whole'],
  ],
  'Windows, a billion Avro events with text keys': [
    ['engine-soak-avro', 'events sent'],
    ['engine-soak-avro', 'rate taken by the engine'],
    ['engine-soak-avro', 'windows of'],
    ['engine-soak-avro', 'resident size of the engine, largest, whole'],
    ['engine-soak-avro', 'an event to its accumulator, p99 at most, whole'],
    ['engine-soak-avro', 'a firing to durable in the sink, p99 at most, whole'],
  ],
  'Windows, beside other engines': [
    ['engine-peers', 'Millrace, librdkafka: CPU', 'Apache Flink 2.2.1, heap'],
    ['engine-peers', 'Millrace, librdkafka: CPU', 'Apache Flink 2.2.1, RocksDB'],
    ['engine-peers', 'Millrace, librdkafka: CPU', 'Kafka Streams'],
    ['engine-peers', 'Millrace, direct client: CPU', 'Apache Flink 2.2.1, heap'],
    ['engine-peers', 'Millrace, direct client: CPU', 'Apache Flink 2.2.1, RocksDB'],
    ['engine-peers', 'Millrace, direct client: CPU', 'Kafka Streams'],
    ['engine-peers', 'Millrace, librdkafka: recovery after SIGKILL', 'Apache Flink 2.2.1, heap'],
    ['engine-peers', 'Millrace, direct client: recovery after SIGKILL', 'Apache Flink 2.2.1, heap'],
  ],
};

/** Lines around the generated part of the page. */
export const FIGURES_BEGIN = '<!-- figures: generated from the JSON files of this folder -->';
export const FIGURES_END = '<!-- /figures -->';

/** @throws Error if no row of the report has the metric */
function rowOf(
  reports: ReadonlyMap<string, BenchReport>,
  [report, metric, against = '']: Choice,
): BenchResult {
  const rows = (reports.get(report)?.results ?? []).filter(
    (row) => row.metric.startsWith(metric) && (row.against ?? '').startsWith(against),
  );
  const exact = rows.filter((row) => row.metric === metric);
  const found = exact.length > 0 ? exact : rows;
  const row = found.find(({ goal }) => goal !== null) ?? found[0];
  if (row === undefined) throw new Error(`tools/figures.ts: ${report}.json has no row ${metric} ${against}`);
  return row;
}

/** The table of every area. `line` renders a row as cells. */
function tables(reports: ReadonlyMap<string, BenchReport>, line: (row: BenchResult) => string): string[] {
  return Object.entries(AREAS).flatMap(([area, choices]) => [
    '',
    `## ${area}`,
    '',
    '| what | value | spread | beside | its value | ratio | goal | | run |',
    '| --- | --- | --- | --- | --- | --- | --- | --- | --- |',
    ...choices.map((choice) => `${line(rowOf(reports, choice))} [${choice[0]}](README.md#${choice[0]}) |`),
  ]);
}

/** The page with its generated part.
 *  @param page the page as it stands
 *  @param reports by the names of their files
 *  @throws Error for a page without the lines around that part, and for a row that no report has */
export function withFigures(
  page: string,
  reports: ReadonlyMap<string, BenchReport>,
  line: (row: BenchResult) => string,
): string {
  const [begin, end] = [page.indexOf(FIGURES_BEGIN), page.indexOf(FIGURES_END)];
  if (begin < 0 || end < begin)
    throw new Error('docs/results/figures.md lacks the lines of its generated part');
  const part = tables(reports, line).join('\n');
  return `${page.slice(0, begin + FIGURES_BEGIN.length)}\n${part}\n\n${page.slice(end)}`;
}

/** Row of the README. */
interface ReadmeRow {
  /** Text of the row. `{}` is the sum of the values of `count`. */
  readonly what: string;
  readonly count?: readonly Choice[];
  /** Rows whose values are added. */
  readonly of: readonly Choice[];
  /** Text behind the value. */
  readonly unit?: string;
  readonly beside?: string;
}

const CONSUME = 'consume 256 B none';
const COMMIT_TO_CONSUMER = 'millrace relay -relay=wal at 1000/s, commit to consumer, p99';
const DRAIN = 'millrace relay -relay=wal, drain of 1000000 rows';

const README_ROWS: readonly ReadmeRow[] = [
  {
    what: 'consume 256 B messages',
    of: [['broker', CONSUME, 'raw']],
    unit: '/s',
    beside: 'raw C++ librdkafka loop',
  },
  { what: 'the same', of: [['broker', CONSUME, 'node-rdkafka']], unit: '/s', beside: 'node-rdkafka' },
  {
    what: 'engine from Kafka, 1,000,000 keys',
    of: [['engine', '9000000 events of 256 B, lz4, from Kafka: rate']],
    unit: ' events/s',
    beside: 'bare C++ loop over librdkafka',
  },
  {
    what: 'engine with a quarter of its state in memory',
    of: [['engine', 'disk state, a budget of']],
    unit: ' events/s',
    beside: 'all state in memory',
  },
  {
    what: '{} events with one SIGKILL: windows that differ from a recount',
    count: [['engine-soak', 'events sent']],
    of: [['engine-soak', 'windows of']],
  },
  {
    what: 'registry: look-ups by id',
    of: [['registry', 'lookups by id, 64 connections', 'empty handler']],
    unit: '/s',
    beside: 'empty HTTP handler',
  },
  {
    what: '{} random pairs of schemas: verdict differs from live decode',
    count: [
      ['compatibility', 'Avro: pairs, seeds'],
      ['compatibility', 'Protobuf: pairs, seeds'],
    ],
    of: [
      ['compatibility', 'Avro: pairs, verdict and live decode disagree'],
      ['compatibility', 'Protobuf: pairs, verdict and live decode disagree'],
    ],
  },
  {
    what: '`POST /orders`, 256 connections',
    of: [['orders', 'POST /orders, closed model, 256 connections', 'one transaction a request']],
    unit: '/s',
    beside: 'one transaction a request',
  },
  {
    what: 'commit to consumer, p99',
    of: [['relay-latency-peers', COMMIT_TO_CONSUMER, 'Debezium']],
    unit: ' ms',
    beside: 'Debezium outbox router',
  },
  {
    what: 'relay drains a backlog',
    of: [['relay-drain', DRAIN, 'Debezium']],
    unit: ' rows/s',
    beside: 'Debezium outbox router',
  },
];

const README_BEGIN = '<!-- ten-figures: generated from the JSON files of docs/results -->';
const README_END = '<!-- /ten-figures -->';

/** The README with its generated table.
 *  @param reports by the names of their files
 *  @param short renders a number
 *  @throws Error for a README without the lines around the table, and for a row that no report
 *  has */
export function withReadmeFigures(
  readme: string,
  reports: ReadonlyMap<string, BenchReport>,
  short: (value: number | null) => string,
): string {
  const [begin, end] = [readme.indexOf(README_BEGIN), readme.indexOf(README_END)];
  if (begin < 0 || end < begin) throw new Error('README.md lacks the lines of its table of figures');
  const sum = (choices: readonly Choice[]): number =>
    choices.reduce((total, choice) => total + rowOf(reports, choice).value, 0);
  const rows = README_ROWS.map(({ what, count, of, unit = '', beside }) => {
    const text = count === undefined ? what : what.replace('{}', sum(count).toLocaleString('en-US'));
    const ratio = beside === undefined ? '' : short(rowOf(reports, of[0] as Choice).ratio);
    return `| ${text} | ${short(sum(of))}${unit} | ${beside ?? ''} | ${ratio} |`;
  });
  const table = ['| what | value | compared with | ratio |', '| --- | --- | --- | --- |', ...rows].join('\n');
  return `${readme.slice(0, begin + README_BEGIN.length)}\n${table}\n${readme.slice(end)}`;
}
