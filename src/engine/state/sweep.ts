/** A sweep over sessions that lie in parts in several streams: what ended by a frontier leaves, the
 *  rest goes on in streams of those that end about together.
 *
 *  Nothing that is accepted at a frontier can join a session that ended by it, so it does not
 *  matter how long after its end a session is swept. Streams in which nothing ends by the frontier
 *  are only asked what goes on in them.
 */
import type { WindowKernels } from '../../addon/window-surface.ts';
import { ROW_BYTES } from '../window/accumulator.ts';
import { Elsewhere, endAt, type StandingParts } from './elsewhere.ts';
import { pageRowsOf, type RowStream } from './rows.ts';
import { mergedSessions } from './session-rows.ts';

const ROW_WORDS = ROW_BYTES / 4;
/** Rows between two turns of the event loop. */
const PAGE_ROWS = 4096;

/** Takes whole rows, which it borrows until it settles. */
export interface RowsTaker {
  append(rows: Uint8Array): Promise<void>;
}

export interface SweepParts {
  readonly kernels: Pick<WindowKernels, 'mergeSessions'>;
  readonly gapMs: number;
  /** Each ascending by account_id (unsigned) and start. */
  readonly inputs: readonly RowStream[];
  /** What stays where it is; it has no part of a session that ended by the frontier. */
  readonly standing: readonly StandingParts[];
  /** Whole ms, or Infinity. */
  readonly frontier: number;
  /** Sessions that ended by the frontier, ascending by account_id and start. */
  readonly ended: RowsTaker;
  /** The others, in the same order, by their ends: `ways` has the greatest end of each but the
   *  last. */
  readonly rest: readonly RowsTaker[];
  readonly ways: readonly number[];
  /** The sweep is given up when it is. */
  readonly signal: AbortSignal;
}

export interface Swept {
  readonly endedRows: number;
  readonly rest: readonly Rest[];
}

/** What went one way. */
export interface Rest {
  readonly rows: number;
  /** No session that has a part there ends before, and none by the frontier; Infinity when there is
   *  none. */
  readonly leastEnd: number;
}

/** Reads the inputs to their ends, and closes all streams. @throws what a stream or a taker threw,
 *  the reason of the signal */
export async function sweep(parts: SweepParts): Promise<Swept> {
  const { kernels, gapMs, inputs, standing, frontier, ended, rest, ways, signal } = parts;
  const sessions = mergedSessions(kernels, gapMs, inputs);
  const pageRows = pageRowsOf(inputs.length + standing.length);
  const elsewhere = standing.map((one) => new Elsewhere(one, pageRows));
  const page = new Uint8Array(PAGE_ROWS * ROW_BYTES);
  const words = new Int32Array(page.buffer);
  const ends = new Float64Array(PAGE_ROWS);
  // One behind the other as the ends are.
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

/** What goes one way of a page of sessions. */
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
