/** Sweep of sessions that are divided among several streams. Sessions that ended by the frontier go
 *  to one receiver; the others go to receivers by their ends.
 *
 *  No event that is accepted at a frontier can join a session that ended by it. So a session may be
 *  swept at any time after its end. Streams in which no session ends by the frontier are not
 *  rewritten, but searched for continuations.
 */
import type { WindowKernels } from '../../addon/window-surface.ts';
import { portionRows } from '../../core/layout/row-form.ts';
import { turn } from '../turn.ts';
import { ContinuationScan, endAt, type UnsweptRows, type WordRows } from './continuations.ts';
import { pageRowsOf, type RowStream } from './rows.ts';
import { mergedSessions } from './session-rows.ts';

/** Rows that are processed in one turn of the event loop. */
const PAGE_ROWS = 4096;

/** Receiver of rows. */
export interface RowSink {
  append(rows: Uint8Array): Promise<void>;
}

export interface SweepParts {
  readonly kernels: Pick<WindowKernels, 'mergeSessions' | 'form'>;
  readonly gapMs: number;
  /** Streams, each ascending by account_id (unsigned) and start. */
  readonly inputs: readonly RowStream[];
  /** Parts that are not rewritten: all their sessions end after the frontier. */
  readonly unswept: readonly UnsweptRows[];
  /** Whole ms, or Infinity. */
  readonly frontier: number;
  /** Receiver of the sessions that ended by the frontier, ascending by account_id and start. */
  readonly ended: RowSink;
  /** Receivers of the other sessions, in the same order, by end: `endBounds` has the greatest end
   *  of each receiver except the last. */
  readonly remaining: readonly RowSink[];
  readonly endBounds: readonly number[];
  /** Aborts the sweep. */
  readonly signal: AbortSignal;
}

export interface Swept {
  readonly endedRows: number;
  readonly remaining: readonly Remainder[];
}

/** Result of one receiver of remaining sessions. */
export interface Remainder {
  readonly rows: number;
  /** Least end of a session with a row there, which is after the frontier; Infinity without rows.
   */
  readonly leastEnd: number;
}

/** Reads the inputs to their ends and closes all streams. @throws the error of a stream or a
 *  receiver, or the reason of the signal */
export async function sweep(parts: SweepParts): Promise<Swept> {
  const { kernels, gapMs, inputs, unswept, frontier, ended, remaining, endBounds, signal } = parts;
  const sessions = mergedSessions(kernels, gapMs, inputs);
  const { bytes: rowBytes } = kernels.form;
  const pageRows = pageRowsOf(inputs.length + unswept.length, rowBytes);
  const scans = unswept.map((part) => new ContinuationScan(part, pageRows, rowBytes));
  const page = new Uint8Array(portionRows(PAGE_ROWS, rowBytes) * rowBytes);
  const read: WordRows = { words: new Int32Array(page.buffer), rowWords: rowBytes / 4 };
  const ends = new Float64Array(PAGE_ROWS);
  // In the order of the ends.
  const outputs = [ended, ...remaining].map((sink) => new SinkBuffer(sink, rowBytes / 4));
  const upTo = [frontier, ...endBounds, Number.POSITIVE_INFINITY];
  try {
    for (let rows = await sessions.next(page); rows > 0; rows = await sessions.next(page)) {
      signal.throwIfAborted();
      for (let row = 0; row < rows; row++) ends[row] = endAt(read, row, gapMs);
      await Promise.all(scans.map((scan) => scan.raiseEnds(read, ends, rows, frontier, gapMs)));
      for (let row = 0; row < rows; row++) {
        const end = ends[row] as number;
        let output = 0;
        while (end > (upTo[output] as number)) output++;
        (outputs[output] as SinkBuffer).put(read.words, row, end);
      }
      await Promise.all(outputs.map((buffer) => buffer.flush()));
      await turn();
    }
  } finally {
    sessions.close();
    for (const { rows } of unswept) rows.close();
  }
  const [endedOut, ...left] = outputs as [SinkBuffer, ...SinkBuffer[]];
  return {
    endedRows: endedOut.rowCount,
    remaining: left.map(({ rowCount, leastEnd }) => ({ rows: rowCount, leastEnd })),
  };
}

/** Buffer of one receiver, for the rows of a page. */
class SinkBuffer {
  rowCount = 0;
  leastEnd = Number.POSITIVE_INFINITY;
  private readonly sink: RowSink;
  private readonly rowWords: number;
  private readonly words: Int32Array;
  private used = 0;

  constructor(sink: RowSink, rowWords: number) {
    this.sink = sink;
    this.rowWords = rowWords;
    this.words = new Int32Array(portionRows(PAGE_ROWS, rowWords * 4) * rowWords);
  }

  put(from: Int32Array, row: number, end: number): void {
    const { words, used, rowWords } = this;
    const at = row * rowWords;
    for (let word = 0; word < rowWords; word++) words[used + word] = from[at + word] as number;
    this.used += rowWords;
    if (end < this.leastEnd) this.leastEnd = end;
  }

  async flush(): Promise<void> {
    if (this.used === 0) return;
    await this.sink.append(new Uint8Array(this.words.buffer, 0, this.used * 4));
    this.rowCount += this.used / this.rowWords;
    this.used = 0;
  }
}
