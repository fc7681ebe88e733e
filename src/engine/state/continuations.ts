/** Merge join that finds sessions which continue in the parts that a sweep does not rewrite. The
 *  swept sessions and the parts ascend by account_id, so both are read once, side by side. */
import { ACCUMULATOR } from '../../core/layout/layouts.gen.ts';
import { fromWords } from '../../core/time.ts';
import type { RowStream } from './rows.ts';

const KEY = ACCUMULATOR.ACCOUNT_ID / 4;
const LAST = ACCUMULATOR.LAST_UPDATE_TS / 4;
/** Column of a session's first event. */
const FIRST = ACCUMULATOR.SPARE / 4;

/** Rows as words. */
export interface WordRows {
  readonly words: Int32Array;
  readonly rowWords: number;
}

const timeAt = ({ words, rowWords }: WordRows, row: number, cell: number): number => {
  const at = row * rowWords + cell;
  return fromWords(words[at] as number, words[at + 1] as number);
};

/** End of the session in a row. */
export const endAt = (rows: WordRows, row: number, gapMs: number): number => timeAt(rows, row, LAST) + gapMs;

/** Compares the accounts of two rows as unsigned numbers; the sign of the result is their order. */
function byAccount({ words: a, rowWords }: WordRows, x: number, { words: b }: WordRows, y: number): number {
  const [at, to] = [x * rowWords + KEY, y * rowWords + KEY];
  const high = ((a[at + 1] as number) >>> 0) - ((b[to + 1] as number) >>> 0);
  return high !== 0 ? high : ((a[at] as number) >>> 0) - ((b[to] as number) >>> 0);
}

/** Rows of a part that is not rewritten, ascending by account_id (unsigned) and start. */
export interface UnsweptRows {
  readonly rows: RowStream;
  /** Least end of a session with a row in the part; it is after the frontier of the sweep. */
  readonly leastEnd: number;
}

export class ContinuationScan {
  private readonly parts: UnsweptRows;
  private readonly page: Uint8Array;
  private readonly own: WordRows;
  private at = 0;
  private count = 0;
  private isOver = false;

  constructor(parts: UnsweptRows, pageRows: number, rowBytes: number) {
    this.parts = parts;
    this.page = new Uint8Array(pageRows * rowBytes);
    this.own = { words: new Int32Array(this.page.buffer), rowWords: rowBytes / 4 };
  }

  /** Raises the ends of the sessions that end by the frontier and continue in the part. Sessions
   *  must ascend by account_id and start, over all calls. */
  async raiseEnds(
    sessions: WordRows,
    ends: Float64Array,
    count: number,
    frontier: number,
    gapMs: number,
  ): Promise<void> {
    const { leastEnd } = this.parts;
    for (let row = 0; row < count; row++) {
      if (endAt(sessions, row, gapMs) > frontier) continue;
      while (!this.seek(sessions, row)) {
        if (this.isOver) return;
        await this.loadPage();
      }
      // The first row of the account in the part starts earliest, and all its rows end after the
      // frontier. The session continues there if that row starts before the session's end.
      const isSameAccount = byAccount(this.own, this.at, sessions, row) === 0;
      if (isSameAccount && timeAt(this.own, this.at, FIRST) < endAt(sessions, row, gapMs))
        ends[row] = Math.max(ends[row] as number, leastEnd);
    }
  }

  /** Advances to the first row whose account is not before that of the session. Returns false if
   *  the page has no such row. */
  private seek(sessions: WordRows, row: number): boolean {
    const { own, count } = this;
    if (count === 0 || byAccount(own, count - 1, sessions, row) < 0) return false;
    // Galloping search: the row is near in most cases, and far if few sessions ended.
    let high = this.at;
    for (let step = 1; byAccount(own, high, sessions, row) < 0; step *= 2) {
      this.at = high + 1;
      high = Math.min(high + step, count - 1);
    }
    while (this.at < high) {
      const middle = (this.at + high) >> 1;
      if (byAccount(own, middle, sessions, row) < 0) this.at = middle + 1;
      else high = middle;
    }
    return true;
  }

  private async loadPage(): Promise<void> {
    this.count = await this.parts.rows.next(this.page);
    this.at = 0;
    this.isOver = this.count === 0;
  }
}
