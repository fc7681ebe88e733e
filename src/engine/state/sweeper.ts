/** Sweeps of the sessions on disk, one after the other, beside the loop; the ended sessions of a
 *  sweep become a firing. */

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
  /** Returns the parts to rewrite; called when the sweep before has ended. The caller holds them
   *  until the end. */
  readonly inputs: () => readonly SessionPart[];
  /** Parts in which swept sessions may continue; none of their sessions ends by the watermark. */
  readonly standing: readonly SessionPart[];
  readonly frontier: number;
  /** First of the LEFT_PIECES_MAX ids of the pieces to write; undefined when no rows remain. */
  readonly ids: number | undefined;
  /** Called when the remaining rows are durable, before the ended ones can be read. */
  readonly onDone: (left: readonly LeftPiece[]) => void;
}

export interface LeftPiece {
  readonly piece: SpilledRun;
  /** Least end of a session with a row in the piece. */
  readonly leastEnd: number;
}

/** Remaining sessions are divided by their ends, so that a sweep need not rewrite those that end
 *  much later: at these multiples of a fraction of a gap, about as long as sessions are open, in
 *  growing steps. */
const WAYS_A_GAP = 4;
const WAYS = [1, 2, 3, 4, 8];
/** Bytes of one receiver: a page being filled, and a page being written with its copy with keys. */
const LEAVING_BYTES = 3 * 256 * 1024;
export const LEFT_PIECES_MAX = WAYS.length + 1;

function waysOf(frontier: number, gapMs: number): readonly number[] {
  const step = Math.max(1, Math.floor(gapMs / WAYS_A_GAP));
  const from = floorTo(frontier, step);
  return WAYS.map((steps) => from + steps * step);
}

/** Piece that is created with its first row. */
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

  /** Memory of a sweep in progress, and of ended sessions that are not released. */
  get bytes(): number {
    let bytes = this.pageBytes;
    for (const one of this.ended) bytes += one.bytes;
    return bytes;
  }

  /** Starts a sweep after those that have started. Returns its ended sessions when it is complete;
   *  the caller closes them. */
  begin(order: SweepOrder): Promise<EndOrderSorter> {
    const done = this.last.then(() => this.run(order));
    // The reader of the firing reports a failure.
    this.last = done.catch(() => {});
    return done;
  }

  /** Aborts the sweep in progress. */
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
      if (!isDone) this.release(ended);
    }
  }

  release(ended: EndOrderSorter): void {
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
  /** Called once; without rows where the sweep failed. */
  readonly release: (ended: EndOrderSorter | undefined) => void;
  readonly find: (accountId: bigint) => Promise<readonly WindowResult[]>;
}

/** Firing of the sessions that a sweep took out, ascending by end. It may have no rows. */
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
    invariant(!this.isClosed, 'a closed firing is not read');
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
    this.parts.ended.then(this.parts.release, () => this.parts.release(undefined));
  }
}
