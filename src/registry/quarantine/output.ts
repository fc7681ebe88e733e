/** Output of a redrive: a port with two drivers, and the records that they write.
 *
 *  A topic (topic-output.ts) gets each record exactly once. A file or stdout gets each record at
 *  least once, with its id. A file is its own progress: the ids of its lines are read at the start.
 */
import type { RecordBatch, RecordInput } from '../../core/layout/record-batch.ts';
import type { DecodedRow } from '../consumer/decoder.ts';
import { type LineOptions, recordLine } from '../consumer/line.ts';
import { RecordIds } from './progress.ts';
import { type Quarantined, RECORD_ID_HEADER, recordIdOf, redrivenHeaders } from './record.ts';

/** Record that can be read again. */
export interface RedriveRow {
  readonly one: Quarantined;
  /** Batch of the restored records, with the row of `decoded`. */
  readonly records: RecordBatch;
  readonly decoded: DecodedRow;
}

export interface RedriveOutput {
  /** True for a record that this output has. */
  has(id: string): boolean;
  /** Resolves when the rows survive a crash of this process.
   *  @returns the rows that the output refuses for good
   *  @throws redrive_fenced, not_delivered, not_writable */
  write(rows: readonly RedriveRow[]): Promise<readonly RefusedRow[]>;
}

export interface RefusedRow {
  readonly row: RedriveRow;
  readonly why: string;
}

/** Number of partitions of the source topic. */
type PartitionCount = number;

/** Record as it was in the source topic, with its id. A partition that the topic no longer has is
 *  chosen again from the key. */
export const sourceRecord =
  (partitions: PartitionCount) =>
  ({ one, records, decoded: { row } }: RedriveRow): RecordInput => ({
    topicIndex: 0,
    partition: one.source.partition < partitions ? one.source.partition : -1,
    timestamp: records.columns.timestamp[row] as bigint,
    key: records.key(row),
    value: records.value(row),
    headers: redrivenHeaders(one),
  });

/** Line of the record under its key, with the id in a header. */
export const lineRecord =
  (line: LineOptions) =>
  ({ one, records, decoded }: RedriveRow): RecordInput => ({
    topicIndex: 0,
    key: records.key(decoded.row),
    value: Buffer.from(recordLine(records, decoded, line), 'utf8'),
    headers: [[RECORD_ID_HEADER, Buffer.from(recordIdOf(one), 'utf8')]],
  });

const LINE_START = '{"recordId":"';

/** JSON line of a record that begins with its id. */
const redrivenLine = ({ one, records, decoded }: RedriveRow, line: LineOptions): string =>
  `${LINE_START}${one.id}",${recordLine(records, decoded, line).slice(1)}\n`;

/** Id of a line that `redrivenLine` made; undefined for another line. */
function idOfLine(line: string): string | undefined {
  if (!line.startsWith(LINE_START)) return undefined;
  const end = line.indexOf('"', LINE_START.length);
  return end < 0 ? undefined : line.slice(LINE_START.length, end);
}

/** Output of lines into a file or stdout. */
export class LinesOutput implements RedriveOutput {
  private readonly line: LineOptions;
  private readonly append: ((text: string) => Promise<void>) | undefined;
  private readonly done = new RecordIds();

  /** @param line of the form `record`
   *  @param append resolves when the text is written; undefined: a dry run */
  constructor(line: LineOptions, append: ((text: string) => Promise<void>) | undefined) {
    this.line = line;
    this.append = append;
  }

  /** Notes a line that the output has. */
  note(line: string): void {
    const id = idOfLine(line);
    if (id !== undefined) this.done.add(id);
  }

  has(id: string): boolean {
    return this.done.has(id);
  }

  async write(rows: readonly RedriveRow[]): Promise<readonly RefusedRow[]> {
    if (this.append !== undefined && rows.length > 0)
      await this.append(rows.map((row) => redrivenLine(row, this.line)).join(''));
    for (const { one } of rows) this.done.add(one.id);
    return [];
  }
}
