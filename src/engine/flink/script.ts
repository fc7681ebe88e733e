/** A job as statements of Flink SQL, for its SQL gateway.
 *
 *  The rules of the engine are kept by these rewrites. F is the watermark by which the engine
 *  drops: the greatest time of a partition, less -allowed-skew and -allowed-lateness.
 *  (1) Flink SQL fires a window when its watermark W is at least the end less 1 ms, so W is F - 1
 *      ms.
 *  (2) The engine drops an event before F whether or not its window is open: a view keeps the rows
 *      above CURRENT_WATERMARK. It is the least watermark of the partitions that a subtask reads,
 *      so the rule is exact where each subtask reads one partition, and weaker else.
 *  (3) Flink merges sessions that touch. A gap that is 1 ms shorter merges exactly those at less
 *      than the gap; the end is corrected, and W is a further ms lower, or such a session fired
 *      early. */
import { quotedName, quotedText, type TableOptions, tableText } from '../../formats/flink/sql.ts';
import type { AvroSchema } from '../../formats/schema.ts';
import type { Job } from '../job.ts';
import { resultShape } from '../output/columns.ts';
import { fieldsOf, type InputDefinition } from '../source/input/definition.ts';
import { flinkAggregates } from './aggregates.ts';
import { avroFields, type FlinkFields, jsonFields } from './fields.ts';
import { filterSql } from './filter.ts';
import { FLINK_JARS, type FlinkJar } from './jars.ts';
import { flinkKey, flinkTime, RECORD_KEY, TIME } from './keys.ts';
import { type PostgresTarget, postgresSink } from './sink.ts';

export interface FlinkJob {
  /** Its input is decided. */
  readonly job: Job & { readonly input: InputDefinition };
  /** Name of the job in Flink. */
  readonly name: string;
  readonly brokers: string;
  /** Properties of the Kafka client by their names in Java. */
  readonly properties: Readonly<Record<string, string>>;
  /** Absent for JSON. */
  readonly registry?: {
    readonly url: string;
    /** Options of the format, such as those of the credentials. */
    readonly options: TableOptions;
    readonly schema: AvroSchema;
  };
  readonly startup: TableOptions;
  readonly isBounded: boolean;
  readonly idleTimeoutMs: number;
  readonly checkpointMs: number;
  readonly parallelism: number | undefined;
  /** Savepoint of Flink that the job begins with. */
  readonly from: string | undefined;
  /** Further settings of Flink. */
  readonly settings: Readonly<Record<string, string>>;
  readonly sink: PostgresTarget & { readonly user: string; readonly password: string };
}

export interface FlinkScript {
  /** Statements, the last of which starts the job. */
  readonly statements: readonly string[];
  readonly jars: readonly FlinkJar[];
  /** Rewrites and conditions of equal results, one sentence each. */
  readonly notes: readonly string[];
}

const EVENTS = 'millrace_events';
const ON_TIME = 'millrace_on_time';
const RESULTS = 'millrace_results';
/** The time without its role as an attribute, which an aggregate may read. */
const EVENT_TIME = 'millrace_event_time';
const ONE_MS = "INTERVAL '0.001' SECOND(1, 3)";

/** @throws flink_unsupported */
export function flinkScript(plan: FlinkJob): FlinkScript {
  const { job, registry } = plan;
  const fields = fieldsOf(job.input);
  const source = registry === undefined ? jsonFields(fields) : avroFields(fields, registry.schema);
  const aggregates = flinkAggregates(fields, source);
  const shape = resultShape(job);
  const sink = postgresSink(shape, plan.sink);
  const names = sink.names.filter((_, at) => shape.columns[at]?.role === 'key');
  const key = flinkKey(fields, source, names);
  const time = flinkTime(fields, source);
  const columns = [...key.parts, ...aggregates.values];
  const where = [
    lateRule(job),
    ...new Set([...time.required, ...key.required, ...aggregates.required]),
    ...(fields.where === undefined ? [] : [filterSql(fields.where, source)]),
  ];
  const view = [
    `CREATE TEMPORARY VIEW ${quotedName(ON_TIME)} AS SELECT`,
    [
      ...columns.map(({ name, sql }) => `  ${sql} AS ${quotedName(name)}`),
      `  ${quotedName(TIME)}`,
      `  CAST(${quotedName(TIME)} AS TIMESTAMP(3)) AS ${quotedName(EVENT_TIME)}`,
    ].join(',\n'),
    `FROM ${quotedName(EVENTS)}`,
    `WHERE ${where.join('\n  AND ')}`,
  ].join('\n');
  const cells = shape.columns.map((column, at) => {
    const name = sink.names[at] as string;
    const sql = column.role === 'key' ? quotedName(name) : resultSql(job, column.name, aggregates.results);
    return `  ${sink.cell(column, sql)}`;
  });
  const insert = [
    `INSERT INTO ${quotedName(RESULTS)} SELECT`,
    cells.join(',\n'),
    `FROM ${windowSql(job, names)}`,
    `GROUP BY ${[...names.map(quotedName), 'window_start', 'window_end'].join(', ')}`,
  ].join('\n');
  return {
    statements: [
      ...settingsOf(plan),
      eventsTable(plan, source, key.column, time.sql),
      view,
      tableText(
        RESULTS,
        sink.lines,
        { ...sink.options, username: plan.sink.user, password: plan.sink.password },
        true,
      ),
      insert,
    ],
    jars: jarsOf(registry !== undefined),
    notes: notesOf(plan, aggregates.notes),
  };
}

/** An interval as `1 00:00:15.001` in days, hours, minutes and seconds: the first part of an
 *  interval has at most three digits in Flink SQL. */
function duration(ms: number): string {
  const two = (value: number): string => String(Math.floor(value)).padStart(2, '0');
  const clock = [ms / 3_600_000, ms / 60_000, ms / 1000].map((value, at) =>
    two(value % (at === 0 ? 24 : 60)),
  );
  const days = Math.floor(ms / 86_400_000);
  return `INTERVAL '${days} ${clock.join(':')}.${String(ms % 1000).padStart(3, '0')}' DAY(3) TO SECOND(3)`;
}

/** Delay of Flink's watermark behind the greatest time. */
const delayOf = ({ skewMs, latenessMs, window }: Job): number =>
  skewMs + latenessMs + (window === 'session' ? 2 : 1);

function lateRule({ window }: Job): string {
  const time = quotedName(TIME);
  const compared = window === 'session' ? `${time} - ${ONE_MS}` : time;
  return `(CURRENT_WATERMARK(${time}) IS NULL OR ${compared} > CURRENT_WATERMARK(${time}))`;
}

function settingsOf({ name, checkpointMs, parallelism, from, settings }: FlinkJob): readonly string[] {
  const all: Readonly<Record<string, string | undefined>> = {
    'pipeline.name': name,
    'execution.runtime-mode': 'streaming',
    // Bounds of windows are texts of UTC in the results.
    'table.local-time-zone': 'UTC',
    'execution.checkpointing.interval': `${checkpointMs} ms`,
    'parallelism.default': parallelism === undefined ? undefined : String(parallelism),
    'execution.state-recovery.path': from,
    ...settings,
  };
  return Object.entries(all).flatMap(([option, value]) =>
    value === undefined ? [] : [`SET ${quotedText(option)} = ${quotedText(value)}`],
  );
}

function eventsTable(
  plan: FlinkJob,
  source: FlinkFields,
  keyColumn: string | undefined,
  timeSql: string | undefined,
): string {
  const { job, brokers, properties, registry, startup, isBounded, idleTimeoutMs } = plan;
  const time = quotedName(TIME);
  const format = registry === undefined ? 'json' : 'avro-confluent';
  const own: TableOptions =
    registry === undefined
      ? { 'value.json.ignore-parse-errors': 'true' }
      : {
          'value.avro-confluent.url': registry.url,
          'value.avro-confluent.schema': source.reader,
          ...registry.options,
        };
  const lines = [
    ...(keyColumn === undefined ? [] : [`${quotedName(RECORD_KEY)} ${keyColumn}`]),
    ...source.columns,
    timeSql === undefined ? `${time} TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'` : `${time} AS ${timeSql}`,
    `WATERMARK FOR ${time} AS ${time} - ${duration(delayOf(job))}`,
  ];
  const keyOptions: TableOptions =
    keyColumn === undefined
      ? {}
      : { 'key.format': 'raw', 'key.fields': RECORD_KEY, 'value.fields-include': 'EXCEPT_KEY' };
  return tableText(
    EVENTS,
    lines,
    {
      connector: 'kafka',
      topic: job.topic,
      'properties.bootstrap.servers': brokers,
      ...Object.fromEntries(Object.entries(properties).map(([name, value]) => [`properties.${name}`, value])),
      ...startup,
      'scan.bounded.mode': isBounded ? 'latest-offset' : undefined,
      // The rule for late events judges each event by those before it.
      'scan.watermark.emit.strategy': 'on-event',
      'scan.watermark.idle-timeout': idleTimeoutMs === 0 ? undefined : `${idleTimeoutMs} ms`,
      ...keyOptions,
      'value.format': format,
      ...own,
    },
    true,
  );
}

function windowSql(job: Job, keys: readonly string[]): string {
  const time = `DESCRIPTOR(${quotedName(TIME)})`;
  const table = `TABLE ${quotedName(ON_TIME)}`;
  switch (job.window) {
    case 'tumbling':
      return `TABLE(TUMBLE(${table}, ${time}, ${duration(job.sizeMs)}))`;
    case 'sliding':
      return `TABLE(HOP(${table}, ${time}, ${duration(job.slideMs)}, ${duration(job.sizeMs)}))`;
    case 'session':
      return `TABLE(SESSION(${table} PARTITION BY (${keys.map(quotedName).join(', ')}), ${time}, ${duration(job.gapMs - 1)}))`;
  }
}

function resultSql(job: Job, name: string, aggregates: ReadonlyMap<string, string>): string {
  switch (name) {
    case 'window_start':
      return name;
    case 'window_end':
      return job.window === 'session' ? `(${name} + ${ONE_MS})` : name;
    case 'last_update_ts':
      return `MAX(${quotedName(EVENT_TIME)})`;
    default:
      return aggregates.get(name) as string;
  }
}

const jarsOf = (isAvro: boolean): readonly FlinkJar[] => [
  FLINK_JARS.kafka,
  ...(isAvro ? [FLINK_JARS.avro] : []),
  FLINK_JARS.jdbc,
  FLINK_JARS.jdbcPostgres,
  FLINK_JARS.postgres,
];

function notesOf({ job, parallelism, registry }: FlinkJob, own: readonly string[]): readonly string[] {
  const delay = delayOf(job);
  const { skewMs, latenessMs } = job;
  return [
    `-allowed-skew and -allowed-lateness are one delay of the watermark: ${skewMs} ms + ${latenessMs} ms, and ${delay - skewMs - latenessMs} ms, because Flink SQL fires 1 ms earlier${job.window === 'session' ? ' and the gap is 1 ms shorter' : ''}`,
    `an event behind the watermark is dropped although its window is open; Flink compares it with the least watermark of the partitions that its subtask reads, so it may keep events that are late here (${parallelism === undefined ? 'give -flink-parallelism of the number of partitions' : `parallelism ${parallelism}: exact if the topic has as many partitions`})`,
    ...(job.window === 'session'
      ? [`sessions that touch stay apart: the gap is ${job.gapMs - 1} ms, and window_end is 1 ms later`]
      : []),
    registry === undefined
      ? 'a record that is not valid JSON, or lacks the key or a time of the years 1 to 9999, is skipped; no record is quarantined; windows that end before 1970 are missing'
      : 'a record that lacks the key or a time of the years 1 to 9999 is skipped, and one that its schema does not describe stops the job; no record is quarantined; windows that end before 1970 are missing',
    ...own,
  ];
}
