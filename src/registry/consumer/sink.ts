/** Destinations of decoded records as JSON lines: a port with two drivers, a file and a topic.
 *  A line is `{"partition":0,"offset":"17","schema_id":3,"value":{…}}`; 64-bit integers are decimal
 *  texts, bytes are base64. */
import { type FileHandle, open } from 'node:fs/promises';
import { coreError } from '../../core/errors.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import type { BatchProducer } from '../../io/kafka/port.ts';
import type { DecodedRow } from './decoder.ts';
import { batchOf, deliver } from './deliver.ts';

export interface DecodedSink {
  /** Display name of the destination. */
  readonly target: string;
  /** Resolves when the rows survive a crash of this process; offsets are committed only after.
   *  @returns the rows whose line the target refuses as too large */
  write(records: RecordBatch, rows: readonly DecodedRow[]): Promise<readonly DecodedRow[]>;
  close(): Promise<void>;
}

function plain(_name: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString();
  // `Buffer.toJSON` ran before this replacer.
  const bytes = value as { type?: unknown; data?: unknown } | null;
  if (typeof value === 'object' && bytes?.type === 'Buffer' && Array.isArray(bytes.data)) {
    return Buffer.from(bytes.data as number[]).toString('base64');
  }
  return value;
}

function decodedLine(records: RecordBatch, decoded: DecodedRow): string {
  const { partition, offset } = records.columns;
  const at = `{"partition":${partition[decoded.row]},"offset":"${offset[decoded.row]}","schema_id":${decoded.schemaId}`;
  return `${at},"value":${JSON.stringify(decoded.value, plain)}}`;
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

/** Appends to a file that several consumer instances of one process share. */
export class FileSink implements DecodedSink {
  readonly target: string;
  private readonly file: FileHandle;
  private writes: Promise<void> = Promise.resolve();

  private constructor(path: string, file: FileHandle) {
    this.target = path;
    this.file = file;
  }

  /** Opens a file for appending after its last whole line. A line that a killed process left
   *  unfinished is removed: its record was not committed and is redelivered.
   *  @throws not_writable */
  static async open(path: string): Promise<FileSink> {
    try {
      const file = await open(path, 'a+');
      if ((await file.stat()).isFile()) await file.truncate(await wholeLines(file));
      return new FileSink(path, file);
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

  write(records: RecordBatch, rows: readonly DecodedRow[]): Promise<readonly DecodedRow[]> {
    let text = '';
    for (const row of rows) text += `${decodedLine(records, row)}\n`;
    const result = this.writes.then(async () => {
      await this.file.appendFile(text);
      return [];
    });
    this.writes = result.then(
      () => {},
      () => {},
    );
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

  constructor(producer: BatchProducer, topic: string) {
    this.producer = producer;
    this.target = topic;
  }

  async write(records: RecordBatch, rows: readonly DecodedRow[]): Promise<readonly DecodedRow[]> {
    if (rows.length === 0) return [];
    const batch = batchOf(
      rows.map((row) => ({
        key: records.key(row.row),
        value: Buffer.from(decodedLine(records, row), 'utf8'),
      })),
    );
    const refused = await deliver(this.producer, batch, this.target);
    return refused.map((row) => rows[row] as DecodedRow);
  }

  async close(): Promise<void> {}
}
