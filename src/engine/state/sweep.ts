/** Sweep of sessions that are divided among several streams: sessions that ended by a watermark
 *  leave, the others are written to streams by their ends.
 *
 *  No event that is accepted at a watermark can join a session that ended by it, so a session may
 *  be swept at any time after its end. Streams in which no session ends by the watermark are only
 *  searched for continuations. */
import type { WindowKernels } from '../../addon/window-surface.ts';
import { ROW_BYTES } from '../window/accumulator.ts';
import { Elsewhere, endAt, type StandingParts } from './elsewhere.ts';
import { pageRowsOf, type RowStream } from './rows.ts';
import { mergedSessions } from './session-rows.ts';

const ROW_WORDS = ROW_BYTES / 4;
/** Rows between two turns of the event loop. */
const PAGE_ROWS = 4096;

/** Receiver of whole rows, which it borrows until it settles. */
export interface RowsTaker {
  append(rows: Uint8Array): Promise<void>;
}

export interface SweepParts {
  readonly kernels: Pick<WindowKernels, 'mergeSessions'>;
  readonly gapMs: number;
  /** Streams, each ascending by account_id (unsigned) and start. */
  readonly inputs: readonly RowStream[];
  /** Parts that are not rewritten; they have no part of a session that ended by the watermark. */
  readonly standing: readonly StandingParts[];
  /** Whole ms, or Infinity. */
  readonly frontier: number;
  /** Sessions that ended by the watermark, ascending by account_id and start. */
  readonly ended: RowsTaker;
  /** The other sessions, in the same order, divided by their ends: `ways` has the greatest end of
   *  each receiver but the last. */
  readonly rest: readonly RowsTaker[];
  readonly ways: readonly number[];
  /** Aborts the sweep. */
  readonly signal: AbortSignal;
}

export interface Swept {
  readonly endedRows: number;
  readonly rest: readonly Rest[];
}

/** Rows of one receiver. */
export interface Rest {
  readonly rows: number;
  /** Least end of a session with a row there, after the watermark; Infinity without rows. */
  readonly leastEnd: number;
}

/** Reads the inputs to their ends and closes all streams. @throws errors of a stream or a receiver,
 *  the reason of the signal */
export async function sweep(parts: SweepParts): Promise<Swept> {
  const { kernels, gapMs, inputs, standing, frontier, ended, rest, ways, signal } = parts;
  const sessions = mergedSessions(kernels, gapMs, inputs);
  const pageRows = pageRowsOf(inputs.length + standing.length);
  const elsewhere = standing.map((one) => new Elsewhere(one, pageRows));
  const page = new Uint8Array(PAGE_ROWS * ROW_BYTES);
  const words = new Int32Array(page.buffer);
  const ends = new Float64Array(PAGE_ROWS);
  // Receivers in the order of the ends.
  const out = [ended, ...rest].map((taker) => new Page(taker));
  const upTo = [frontier, ...ways, Number.POSITIVE_INFINITY];
  try {
    for (let rows = await sessions.next(page); rows > 0; rows = await sessions.next(page)) {
      signal.throwIfAborted();
      for (let row = 0; row < rows; row++) ends[row] = endAt(words, row, gapMs);
      await Promise.all(elsewhere.map((one) => one.raise(words, ends, rows, frontier, gapMs)));
      for (let row = 0; row < rows; row++) {
        const end = ends[row] as number;
        let way = 0;
        while (end > (upTo[way] as number)) way++;
        (out[way] as Page).put(words, row, end);
      }
      await Promise.all(out.map((one) => one.flush()));
      await new Promise((resolve) => setImmediate(resolve));
    }
  } finally {
    sessions.close();
    for (const { rows } of standing) rows.close();
  }
  const [gone, ...left] = out as [Page, ...Page[]];
  return {
    endedRows: gone.rowCount,
    rest: left.map(({ rowCount, leastEnd }) => ({ rows: rowCount, leastEnd })),
  };
}

/** Rows of a page of sessions for one receiver. */
class Page {
  rowCount = 0;
  leastEnd = Number.POSITIVE_INFINITY;
  private readonly taker: RowsTaker;
  private readonly words = new Int32Array(PAGE_ROWS * ROW_WORDS);
  private used = 0;

  constructor(taker: RowsTaker) {
    this.taker = taker;
  }

  put(from: Int32Array, row: number, end: number): void {
    const { words, used } = this;
    const at = row * ROW_WORDS;
    for (let word = 0; word < ROW_WORDS; word++) words[used + word] = from[at + word] as number;
    this.used += ROW_WORDS;
    if (end < this.leastEnd) this.leastEnd = end;
  }

  async flush(): Promise<void> {
    if (this.used === 0) return;
    await this.taker.append(new Uint8Array(this.words.buffer, 0, this.used * 4));
    this.rowCount += this.used / ROW_WORDS;
    this.used = 0;
  }
}
