/** Report of `millrace consumer -replay`, as a table and as a document. */
import type { TallyData } from '../../registry/replay/tally.ts';

export interface ReplayReport {
  readonly topic: string;
  readonly subject: string;
  readonly readerVersion: number;
  readonly quarantineTopic: string | undefined;
  readonly tally: TallyData;
  readonly failures: number;
  /** False: the run was stopped before its end. */
  readonly isWhole: boolean;
  readonly threads: number;
  readonly seconds: number;
  /** CPU time of the process, all threads and the broker client included. */
  readonly cpuSeconds: number;
  /** Elapsed time of decoding, over all threads; on a busy machine it exceeds the CPU time. */
  readonly decodeSeconds: number;
  /** Versions of the subject by schema id. */
  readonly versions: ReadonlyMap<number | string, number>;
}

const perSecond = ({ tally, seconds }: ReplayReport): number =>
  Math.round(tally.records / Math.max(seconds, 0.001));

const microsEach = (seconds: number, records: number): number =>
  records === 0 ? 0 : Number(((seconds * 1e6) / records).toFixed(3));

export function replayDocument(report: ReplayReport): Readonly<Record<string, unknown>> {
  const { tally, seconds, cpuSeconds, decodeSeconds } = report;
  return {
    topic: report.topic,
    subject: report.subject,
    readerVersion: report.readerVersion,
    complete: report.isWhole,
    records: tally.records,
    decoded: tally.records - report.failures,
    tombstones: tally.tombstones,
    failed: report.failures,
    schemas: schemaRows(report).map(([schemaId, version = null, records]) => ({
      schemaId,
      version,
      records,
    })),
    reasons: [...tally.byReason].map(([reason, { count, first }]) => ({ reason, records: count, first })),
    quarantineTopic: report.quarantineTopic ?? null,
    threads: report.threads,
    seconds,
    perSecond: perSecond(report),
    cpuSeconds,
    cpuMicrosPerRecord: microsEach(cpuSeconds, tally.records),
    decodeMicrosPerRecord: microsEach(decodeSeconds, tally.records),
  };
}

type SchemaRow = readonly [schemaId: number | string, version: number | undefined, records: number];

/** Decoded records by writer schema: the versions of the subject in order, then other schemas. */
function schemaRows({ tally, versions }: ReplayReport): readonly SchemaRow[] {
  const last = Number.MAX_SAFE_INTEGER;
  return [...tally.bySchema]
    .filter(([, records]) => records > 0)
    .map(([id, records]): SchemaRow => [id, versions.get(id), records])
    .sort(
      ([id, version = last], [other, than = last]) =>
        version - than || String(id).localeCompare(String(other), 'en', { numeric: true }),
    );
}

/** Lines of a table whose columns are aligned. */
function aligned(rows: readonly (readonly string[])[]): readonly string[] {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => (row[column] as string).length)),
  );
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] as number))
      .join('  ')
      .trimEnd(),
  );
}

export function replayTable(report: ReplayReport): readonly string[] {
  const { tally, failures, cpuSeconds, decodeSeconds } = report;
  const schemas = schemaRows(report).map((row) => row.map((cell = '-') => String(cell)));
  const failed = [...tally.byReason].flatMap(([reason, { count, first }]) => [
    `${reason}: ${count} records`,
    ...first.map(
      ({ partition, offset, schemaId, error }) =>
        `  partition ${partition} offset ${offset}${schemaId === 0 ? '' : ` schema ${schemaId}`}: ${error}`,
    ),
    ...(count > first.length ? [`  and ${count - first.length} more`] : []),
  ]);
  const stopped = report.isWhole ? '' : 'stopped before the end: ';
  const tombstones = tally.tombstones === 0 ? '' : ` (${tally.tombstones} of them tombstones)`;
  const to = report.quarantineTopic === undefined ? '' : ` to ${report.quarantineTopic}`;
  return [
    `replay of ${report.topic} as version ${report.readerVersion} of ${report.subject}`,
    ...aligned([['schema id', 'version', 'decoded'], ...schemas]),
    ...failed,
    `${stopped}${tally.records} records in ${report.seconds.toFixed(1)} s (${perSecond(report)} a second, ${report.threads} threads): ${tally.records - failures} decoded${tombstones}, ${failures} not decoded${failures === 0 ? '' : to}`,
    `CPU: ${microsEach(cpuSeconds, tally.records)} µs an event; decoding: ${microsEach(decodeSeconds, tally.records)} µs of a thread's time an event`,
  ];
}
