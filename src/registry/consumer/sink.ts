/** Destinations of decoded records as JSON lines (line.ts): a port with three drivers, a file, a
 *  topic and a text stream. */
import { type FileHandle, open } from 'node:fs/promises';
import { coreError } from '../../core/errors.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import type { BatchProducer } from '../../io/kafka/port.ts';
import type { DecodedRow } from './decoder.ts';
import { batchOf, deliver } from './deliver.ts';
import { type LineOptions, recordLine } from './line.ts';

export interface DecodedSink {
  /** Display name of the destination. */
  readonly target: string;
  /** Resolves when the rows survive a crash of this process; offsets are committed only after.
   *  @returns the rows whose line the target refuses as too large */
  write(records: RecordBatch, rows: readonly DecodedRow[]): Promise<readonly DecodedRow[]>;
  close(): Promise<void>;
}

function linesOf(records: RecordBatch, rows: readonly DecodedRow[], options: LineOptions): string {
  let text = '';
  for (const row of rows) text += `${recordLine(records, row, options)}\n`;
  return text;
}

/** Passes lines to a function that writes them, such as the writer of stdout. */
export class TextSink implements DecodedSink {
  readonly target: string;
  private readonly line: LineOptions;
  private readonly writeText: (text: string) => Promise<void>;

  /** @param writeText resolves when the text was written; calls may overlap */
  constructor(target: string, line: LineOptions, writeText: (text: string) => Promise<void>) {
    this.target = target;
    this.line = line;
    this.writeText = writeText;
  }

  async write(records: RecordBatch, rows: readonly DecodedRow[]): Promise<readonly DecodedRow[]> {
    if (rows.length > 0) await this.writeText(linesOf(records, rows, this.line));
    return [];
  }

  async close(): Promise<void> {}
}

const TAIL_BYTES = 64 * 1024;

/** Number of bytes of a file up to its last line end. */
async function wholeLines(file: FileHandle): Promise<number> {
  const tail = Buffer.alloc(TAIL_BYTES);
  for (let end = (await file.stat()).size; end > 0; ) {
    const from = Math.max(0, end - TAIL_BYTES);
    const { bytesRead } = await file.read(tail, 0, end - from, from);
    const at = tail.subarray(0, bytesRead).lastIndexOf(0x0a);
    if (at >= 0) return from + at + 1;
    end = from;
  }
  return 0;
}

/** File of whole lines, to which several readers of one process append. */
export class LineFile {
  private readonly file: FileHandle;
  private writes: Promise<void> = Promise.resolve();

  private constructor(file: FileHandle) {
    this.file = file;
  }

  /** Opens a file for appending after its last whole line. A line that a killed process left
   *  unfinished is removed: its record was not committed and is redelivered.
   *  @throws not_writable */
  static async open(path: string): Promise<LineFile> {
    try {
      const file = await open(path, 'a+');
      if ((await file.stat()).isFile()) await file.truncate(await wholeLines(file));
      return new LineFile(file);
    } catch (cause) {
      throw coreError(
        'not_writable',
        `cannot write to ${path}: ${(cause as NodeJS.ErrnoException).code ?? cause}`,
        {
          next: 'give -out=file:PATH in a folder that this user may write',
          cause,
        },
      );
    }
  }

  append(text: string): Promise<void> {
    const result = this.writes.then(() => this.file.appendFile(text));
    this.writes = result.catch(() => {});
    return result;
  }

  async close(): Promise<void> {
    await this.writes;
    await this.file.close();
  }
}

/** Sends each line to a topic under the key of its record. */
export class TopicSink implements DecodedSink {
  /** Name of the topic. */
  readonly target: string;
  private readonly producer: BatchProducer;
  private readonly line: LineOptions;

  constructor(producer: BatchProducer, topic: string, line: LineOptions) {
    this.producer = producer;
    this.target = topic;
    this.line = line;
  }

  async write(records: RecordBatch, rows: readonly DecodedRow[]): Promise<readonly DecodedRow[]> {
    if (rows.length === 0) return [];
    const batch = batchOf(
      rows.map((row) => ({
        key: records.key(row.row),
        value: Buffer.from(recordLine(records, row, this.line), 'utf8'),
      })),
    );
    const refused = await deliver(this.producer, batch, this.target);
    return refused.map((row) => rows[row] as DecodedRow);
  }

  async close(): Promise<void> {}
}
