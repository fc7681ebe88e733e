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
  /** Time of decoding, over all threads. */
  readonly decodeSeconds: number;
  /** Versions of the subject by schema id. */
  readonly versions: ReadonlyMap<number | string, number>;
}

const perSecond = ({ tally, seconds }: ReplayReport): number =>
  Math.round(tally.records / Math.max(seconds, 0.001));

const microsEach = (seconds: number, records: number): number =>
  records === 0 ? 0 : Number(((seconds * 1e6) / records).toFixed(3));

export function replayDocument(report: ReplayReport): Readonly<Record<string, unknown>> {
  const { tally, versions, seconds, cpuSeconds, decodeSeconds } = report;
  return {
    topic: report.topic,
    subject: report.subject,
    readerVersion: report.readerVersion,
    complete: report.isWhole,
    records: tally.records,
    decoded: tally.records - report.failures,
    tombstones: tally.tombstones,
    failed: report.failures,
    schemas: [...tally.bySchema].map(([schemaId, records]) => ({
      schemaId,
      version: versions.get(schemaId) ?? null,
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
  const { tally, versions, failures, cpuSeconds, decodeSeconds } = report;
  const schemas = [...tally.bySchema]
    .filter(([, records]) => records > 0)
    .map(([id, records]) => [String(id), String(versions.get(id) ?? '-'), String(records)]);
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
    `CPU: ${microsEach(cpuSeconds, tally.records)} µs an event, of which decoding took ${microsEach(decodeSeconds, tally.records)} µs`,
  ];
}
