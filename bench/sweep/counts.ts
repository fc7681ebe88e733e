/** Drop rate and error of the results of a cell, counted from the arrival order alone.
 *
 *  Why counts suffice: the accepted events of a window are a subset of all events of the window, so
 *  a result equals the true one exactly if it has the same bounds and the same count. The counts of
 *  bench/peers/oracle/late-tail.ts over all rows are equal (test/unit/bench/sweep.test.ts), and the
 *  digest is that of the rows which the engine wrote (live.ts). */
import { invariant } from '../../src/core/errors.ts';
import type { Arrivals } from './arrivals.ts';
import { type Cell, delayOf, SLIDES } from './cells.ts';
import { RowsDigest } from './digest.ts';

export interface Counts {
  readonly events: number;
  readonly dropped: number;
  /** Results of the true order. */
  readonly windows: number;
  /** Results that differ from the true order: another count, missing, or surplus. */
  readonly windowsDiffering: number;
  /** Results in either. */
  readonly windowsInEither: number;
  /** Sum of |count difference| over the results in either. */
  readonly countError: number;
  /** Sum of the counts of the true order. */
  readonly trueCount: number;
  /** Jaccard index of the time that the windows of a key cover; null if the windows are fixed. */
  readonly jaccardOfTime: number | null;
  /** Results of the arrival order, the sum of their counts, and the digest of both with keys. */
  readonly rows: number;
  readonly rowsCount: number;
  readonly digest: string;
}

/** Running totals of both orders. */
class Totals {
  windows = 0;
  differing = 0;
  surplus = 0;
  countError = 0;
  trueCount = 0;
  trueMs = 0;
  seenMs = 0;
  rowsCount = 0;
  readonly digest = new RowsDigest();

  /** A result of the arrival order. */
  row(account: number, startMs: number, endMs: number, count: number): void {
    this.rowsCount += count;
    this.digest.add(account, startMs, endMs, count);
  }
}

/** Counts a cell. @param marks the dropped events, as `arrivals.dropped` returns them */
export function countsOf(arrivals: Arrivals, cell: Cell, marks = arrivals.dropped(delayOf(cell))): Counts {
  const totals = new Totals();
  if (cell.kind === 'session') countSessions(arrivals, marks, cell.windowMs, totals);
  else countFixed(arrivals, marks, cell.windowMs, cell.kind === 'sliding' ? SLIDES : 1, totals);
  let dropped = 0;
  for (let at = 0; at < marks.length; at++) dropped += marks[at] as number;
  return {
    events: marks.length,
    dropped,
    windows: totals.windows,
    windowsDiffering: totals.differing,
    windowsInEither: totals.windows + totals.surplus,
    countError: totals.countError,
    trueCount: totals.trueCount,
    jaccardOfTime: cell.kind !== 'session' ? null : totals.trueMs === 0 ? 1 : totals.seenMs / totals.trueMs,
    rows: totals.digest.rows,
    rowsCount: totals.rowsCount,
    digest: totals.digest.text(),
  };
}

/** Windows that may get further slices, by the number of their first slice modulo `slides`. */
class OpenWindows {
  private readonly slides: number;
  private readonly slideMs: number;
  private readonly totals: Totals;
  private readonly counts: Float64Array;
  private readonly dropped: Float64Array;
  /** Newest slice of the account; NaN: none. */
  private newest = Number.NaN;

  constructor(slides: number, slideMs: number, totals: Totals) {
    this.slides = slides;
    this.slideMs = slideMs;
    this.totals = totals;
    this.counts = new Float64Array(slides);
    this.dropped = new Float64Array(slides);
  }

  /** Adds a slice after all earlier ones of the account. */
  add(account: number, slice: number, count: number, dropped: number): void {
    if (!Number.isNaN(this.newest)) this.close(account, slice - this.slides);
    this.newest = slice;
    for (let first = slice - this.slides + 1; first <= slice; first++) {
      const at = this.cellOf(first);
      this.counts[at] = (this.counts[at] as number) + count;
      this.dropped[at] = (this.dropped[at] as number) + dropped;
    }
  }

  /** Counts the windows of the account that begin at or before the slice. */
  private close(account: number, last: number): void {
    const { counts, dropped, totals, newest } = this;
    for (let first = newest - this.slides + 1; first <= Math.min(last, newest); first++) {
      const at = this.cellOf(first);
      const [all, lost] = [counts[at] as number, dropped[at] as number];
      counts[at] = 0;
      dropped[at] = 0;
      if (all === 0) continue;
      totals.windows++;
      totals.trueCount += all;
      totals.countError += lost;
      if (lost > 0) totals.differing++;
      if (lost === all) continue;
      const startMs = first * this.slideMs;
      totals.row(account, startMs, startMs + this.slides * this.slideMs, all - lost);
    }
  }

  end(account: number): void {
    this.close(account, Number.POSITIVE_INFINITY);
    this.newest = Number.NaN;
  }

  private cellOf(first: number): number {
    const rest = first % this.slides;
    return rest < 0 ? rest + this.slides : rest;
  }
}

/** Windows of `slides` slices each; a tumbling window has one. */
function countFixed(
  { stream, accounts, times, byAccount }: Arrivals,
  marks: Uint8Array,
  sizeMs: number,
  slides: number,
  totals: Totals,
): void {
  const slideMs = sizeMs / slides;
  invariant(Number.isInteger(slideMs), 'a window must have whole slices');
  const first = Number(stream.accountBase);
  const open = new OpenWindows(slides, slideMs, totals);
  let [account, slice, count, dropped] = [-1, 0, 0, 0];
  for (let at = 0; at < byAccount.length; at++) {
    const event = byAccount[at] as number;
    const own = accounts[event] as number;
    const ownSlice = Math.floor((stream.baseMs + (times[event] as number)) / slideMs);
    if (own !== account || ownSlice !== slice) {
      if (count > 0) open.add(first + account, slice, count, dropped);
      if (own !== account && account >= 0) open.end(first + account);
      [account, slice, count, dropped] = [own, ownSlice, 0, 0];
    }
    count++;
    dropped += marks[event] as number;
  }
  if (count === 0) return;
  open.add(first + account, slice, count, dropped);
  open.end(first + account);
}

/** Session of one order, or one that has not begun. */
interface Session {
  count: number;
  startMs: number;
  lastMs: number;
}
const noSession = (): Session => ({ count: 0, startMs: 0, lastMs: 0 });

function begin(session: Session, timeMs: number): void {
  session.count = 1;
  session.startMs = timeMs;
  session.lastMs = timeMs;
}

/** One true session with the sessions into which the accepted events split it. They lie within it,
 *  because a subset of the events joins nothing that all events leave apart. */
class SplitSession {
  private readonly gapMs: number;
  private readonly totals: Totals;
  private readonly whole = noSession();
  private readonly part = noSession();
  private parts = 0;
  private accepted = 0;

  constructor(gapMs: number, totals: Totals) {
    this.gapMs = gapMs;
    this.totals = totals;
  }

  /** Adds an event of the account after all earlier ones. */
  add(account: number, timeMs: number, isDropped: boolean): void {
    const { whole, part, gapMs } = this;
    if (whole.count > 0 && timeMs - whole.lastMs >= gapMs) this.end(account);
    if (whole.count === 0) begin(whole, timeMs);
    else {
      whole.count++;
      whole.lastMs = timeMs;
    }
    if (isDropped) return;
    this.accepted++;
    if (part.count > 0 && timeMs - part.lastMs >= gapMs) this.endPart(account);
    if (part.count === 0) begin(part, timeMs);
    else {
      part.count++;
      part.lastMs = timeMs;
    }
  }

  private endPart(account: number): void {
    const { part, totals, gapMs } = this;
    this.parts++;
    totals.seenMs += part.lastMs + gapMs - part.startMs;
    totals.row(account, part.startMs, part.lastMs + gapMs, part.count);
    part.count = 0;
  }

  /** Counts the session and starts the next one. */
  end(account: number): void {
    const { whole, part, totals, gapMs } = this;
    if (whole.count === 0) return;
    const hasBounds =
      this.parts === 0 && part.count > 0 && part.startMs === whole.startMs && part.lastMs === whole.lastMs;
    if (part.count > 0) this.endPart(account);
    totals.windows++;
    totals.trueCount += whole.count;
    totals.trueMs += whole.lastMs + gapMs - whole.startMs;
    if (hasBounds) {
      const lost = whole.count - this.accepted;
      if (lost > 0) totals.differing++;
      totals.countError += lost;
    } else {
      // The true session is missing, and every part is surplus.
      totals.differing += 1 + this.parts;
      totals.surplus += this.parts;
      totals.countError += whole.count + this.accepted;
    }
    whole.count = 0;
    part.count = 0;
    this.parts = 0;
    this.accepted = 0;
  }
}

function countSessions(
  { stream, accounts, times, byAccount }: Arrivals,
  marks: Uint8Array,
  gapMs: number,
  totals: Totals,
): void {
  const first = Number(stream.accountBase);
  const session = new SplitSession(gapMs, totals);
  let account = -1;
  for (let at = 0; at < byAccount.length; at++) {
    const event = byAccount[at] as number;
    const own = accounts[event] as number;
    if (own !== account) {
      session.end(first + account);
      account = own;
    }
    session.add(first + own, stream.baseMs + (times[event] as number), marks[event] === 1);
  }
  session.end(first + account);
}
