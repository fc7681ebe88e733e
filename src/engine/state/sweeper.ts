/** Sweeps of the sessions on disk, one after the other, beside the loop; and what ended of one as a
 *  firing. */

import type { WindowKernels } from '../../addon/window-surface.ts';
import { invariant } from '../../core/errors.ts';
import { floorTo } from '../../core/time.ts';
import type { PieceStore, PieceWriter, SpilledRun } from '../durability/spill/pieces.ts';
import { ROW_BYTES, type WindowResult } from '../window/accumulator.ts';
import type { FiredBounds } from '../window/firing.ts';
import { EndOrderSorter } from './end-order-sorter.ts';
import type { StateFiring } from './port.ts';
import type { ReachedTimes } from './reached.ts';
import { pageRowsOf, type RowStream } from './rows.ts';
import type { SessionPart } from './session-parts.ts';
import { type RowsTaker, sweep } from './sweep.ts';

export interface SweeperParts {
  readonly kernels: Pick<WindowKernels, 'mergeSessions'>;
  readonly gapMs: number;
  readonly pieces: PieceStore;
}

export interface SweepOrder {
  /** What is swept; asked for once the sweep before is done. Whoever gives them holds them until
   *  the end. */
  readonly inputs: () => readonly SessionPart[];
  /** What may go on in there, while nothing in there ends by the frontier. */
  readonly standing: readonly SessionPart[];
  readonly frontier: number;
  /** First of the LEFT_PIECES_MAX ids under which the rest is written; undefined where there is
   *  none. */
  readonly ids: number | undefined;
  /** What is left is durable; called before what ended can be read. */
  readonly onDone: (left: readonly LeftPiece[]) => void;
}

export interface LeftPiece {
  readonly piece: SpilledRun;
  /** No session that has a part in it ends before. */
  readonly leastEnd: number;
}

/** What is left is cut by the ends, so that a sweep need not read and write what ends much later:
 *  at these steps of a part of a gap, about as long as sessions are open, and coarser behind them.
 */
const WAYS_A_GAP = 4;
const WAYS = [1, 2, 3, 4, 8];
/** What goes one way: a page that is gathered, one that is written and its copy with keys. */
const LEAVING_BYTES = 3 * 256 * 1024;
export const LEFT_PIECES_MAX = WAYS.length + 1;

function waysOf(frontier: number, gapMs: number): readonly number[] {
  const step = Math.max(1, Math.floor(gapMs / WAYS_A_GAP));
  const from = floorTo(frontier, step);
  return WAYS.map((steps) => from + steps * step);
}

/** A piece that is written when there is something for it. */
class Left implements RowsTaker {
  private readonly pieces: PieceStore;
  private readonly id: number;
  private writer: PieceWriter | undefined;

  constructor(pieces: PieceStore, id: number) {
    this.pieces = pieces;
    this.id = id;
  }

  append(rows: Uint8Array): Promise<void> {
    this.writer ??= this.pieces.writer(this.id, 0);
    return this.writer.append(rows);
  }

  async finish(): Promise<SpilledRun | undefined> {
    return this.writer?.finish();
  }

  close(): void {
    this.writer?.close();
  }
}

export class Sweeper {
  private readonly parts: SweeperParts;
  private readonly stop = new AbortController();
  private readonly ended = new Set<EndOrderSorter>();
  private pageBytes = 0;
  private last: Promise<unknown> = Promise.resolve();

  constructor(parts: SweeperParts) {
    this.parts = parts;
  }

  /** Memory of a sweep under way, and of what ended and is not let go. */
  get bytes(): number {
    let bytes = this.pageBytes;
    for (const one of this.ended) bytes += one.bytes;
    return bytes;
  }

  /** Begins a sweep, behind those that have begun; what ended of it, once it is done. Whoever takes
   *  it closes it. */
  begin(order: SweepOrder): Promise<EndOrderSorter> {
    const done = this.last.then(() => this.run(order));
    // A failure is met by whoever reads the firing.
    this.last = done.catch(() => {});
    return done;
  }

  /** Gives up what is under way. */
  close(): void {
    this.stop.abort(new Error('the state was closed'));
  }

  private async run({
    inputs: inputsOf,
    standing,
    frontier,
    ids,
    onDone,
  }: SweepOrder): Promise<EndOrderSorter> {
    const { kernels, gapMs, pieces } = this.parts;
    const { signal } = this.stop;
    signal.throwIfAborted();
    const inputs = inputsOf();
    const ended = new EndOrderSorter({ spill: () => pieces.endedWriter(), chunksInMemory: 1 });
    this.ended.add(ended);
    const ways = ids === undefined ? [] : waysOf(frontier, gapMs);
    const rest = ids === undefined ? [] : [...ways, 0].map((_, i) => new Left(pieces, ids + i));
    let isDone = false;
    const readRows =
      inputs.length * pageRowsOf(inputs.length) +
      standing.length * pageRowsOf(inputs.length + standing.length);
    this.pageBytes = readRows * ROW_BYTES + (1 + rest.length) * LEAVING_BYTES;
    const streams: RowStream[] = [];
    try {
      for (const part of [...inputs, ...standing]) streams.push(await part.rows());
      const swept = await sweep({
        ...{ kernels, gapMs, frontier, ended, rest, ways, signal },
        inputs: streams.slice(0, inputs.length),
        standing: standing.map(({ leastEnd }, i) => ({
          rows: streams[inputs.length + i] as RowStream,
          leastEnd,
        })),
      });
      const left: LeftPiece[] = [];
      for (const [i, { leastEnd }] of swept.rest.entries()) {
        const piece = await rest[i]?.finish();
        if (piece !== undefined) left.push({ piece, leastEnd });
      }
      signal.throwIfAborted();
      onDone(left);
      isDone = true;
      return ended;
    } finally {
      for (const stream of streams) stream.close();
      for (const one of rest) one.close();
      this.pageBytes = 0;
      if (!isDone) this.letGo(ended);
    }
  }

  letGo(ended: EndOrderSorter): void {
    this.ended.delete(ended);
    ended.close();
  }
}

interface SweptParts {
  readonly bounds: FiredBounds;
  readonly rowsMax: number;
  readonly firedAtMs: number;
  readonly reached: ReachedTimes;
  readonly ended: Promise<EndOrderSorter>;
  /** Once; without rows where the sweep failed. */
  readonly letGo: (ended: EndOrderSorter | undefined) => void;
  readonly find: (accountId: bigint) => Promise<readonly WindowResult[]>;
}

/** Sessions that a sweep took out, ascending by end. It may turn out to have no rows. */
export class SweptFiring implements StateFiring {
  readonly bounds: FiredBounds;
  readonly rowsMax: number;
  readonly firedAtMs: number;
  readonly reached: ReachedTimes;
  isClosed = false;
  private readonly parts: SweptParts;
  private rows: Promise<RowStream> | undefined;

  constructor(parts: SweptParts) {
    this.parts = parts;
    this.bounds = parts.bounds;
    this.rowsMax = parts.rowsMax;
    this.firedAtMs = parts.firedAtMs;
    this.reached = parts.reached;
    parts.ended.catch(() => {});
  }

  async read(into: Uint8Array): Promise<number> {
    invariant(!this.isClosed, 'a firing that was let go is not read');
    this.rows ??= this.parts.ended.then((ended) => ended.rows());
    return (await this.rows).next(into);
  }

  async find(accountId: bigint): Promise<readonly WindowResult[]> {
    if (this.isClosed) return [];
    const found = await this.parts.find(accountId);
    return this.isClosed ? [] : found;
  }

  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    const nothing = (): void => {};
    this.rows?.then((rows) => rows.close(), nothing);
    this.parts.ended.then(this.parts.letGo, () => this.parts.letGo(undefined));
  }
}
