/** Runs sweeps of the sessions on disk, one after the other, beside the loop. The ended sessions of
 *  a sweep become a firing. */

import type { WindowKernels } from '../../addon/window-surface.ts';
import { invariant } from '../../core/errors.ts';
import type { RowForm } from '../../core/layout/row-form.ts';
import { floorTo } from '../../core/time.ts';
import type { PieceStore, PieceWriter, SpilledRun } from '../durability/spill/pieces.ts';
import type { WindowResult } from '../window/accumulator.ts';
import type { FiredBounds } from '../window/firing.ts';
import { EndOrderSorter } from './end-order-sorter.ts';
import type { StateFiring } from './port.ts';
import type { ReachedTimes } from './reached.ts';
import { pageRowsOf, type RowStream } from './rows.ts';
import type { SessionPart } from './session-parts.ts';
import { type RowSink, sweep } from './sweep.ts';

export interface SweeperParts {
  readonly kernels: Pick<WindowKernels, 'mergeSessions' | 'form'>;
  readonly gapMs: number;
  readonly pieces: PieceStore;
}

export interface SweepRequest {
  /** Returns the parts to rewrite. Called after the previous sweep has ended. The caller holds the
   *  parts until the sweep ends. */
  readonly inputs: () => readonly SessionPart[];
  /** Parts in which swept sessions may continue; all their sessions end after the frontier. */
  readonly unswept: readonly SessionPart[];
  readonly frontier: number;
  /** First of REMAINING_PIECES_MAX ids of the pieces to write; undefined if no rows can remain. */
  readonly ids: number | undefined;
  /** Called when the remaining rows are durable, before the ended rows can be read. */
  readonly onDone: (left: readonly RemainingPiece[]) => void;
}

export interface RemainingPiece {
  readonly piece: SpilledRun;
  /** Least end of a session with a row in the piece. */
  readonly leastEnd: number;
}

/** Bounds of the ends of the pieces to write, so that a later sweep need not rewrite sessions that
 *  end much later. They are these multiples of a fraction of a gap. Most sessions stay open for
 *  about a gap; the last step is coarser. */
const STEPS_PER_GAP = 4;
const BOUND_STEPS = [1, 2, 3, 4, 8];
/** Bytes of one receiver: a page being filled, a page being written, and its copy with keys. */
const SINK_BYTES = 3 * 256 * 1024;
export const REMAINING_PIECES_MAX = BOUND_STEPS.length + 1;

function endBoundsAfter(frontier: number, gapMs: number): readonly number[] {
  const step = Math.max(1, Math.floor(gapMs / STEPS_PER_GAP));
  const from = floorTo(frontier, step);
  return BOUND_STEPS.map((steps) => from + steps * step);
}

/** Piece that is created by its first row. */
class LazyPiece implements RowSink {
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

  /** Bytes of a sweep in progress, and of ended sessions that are not released. */
  get bytes(): number {
    let bytes = this.pageBytes;
    for (const sorter of this.ended) bytes += sorter.bytes;
    return bytes;
  }

  /** Starts a sweep after all earlier sweeps. The result settles when the sweep is complete; the
   *  caller closes the ended sessions. */
  begin(request: SweepRequest): Promise<EndOrderSorter> {
    const done = this.last.then(() => this.run(request));
    // The reader of the firing receives a failure.
    this.last = done.catch(() => {});
    return done;
  }

  /** Aborts the sweep in progress. */
  close(): void {
    this.stop.abort(new Error('the state was closed'));
  }

  private async run({
    inputs: inputsOf,
    unswept,
    frontier,
    ids,
    onDone,
  }: SweepRequest): Promise<EndOrderSorter> {
    const { kernels, gapMs, pieces } = this.parts;
    const { form } = kernels;
    const { signal } = this.stop;
    signal.throwIfAborted();
    const inputs = inputsOf();
    const ended = new EndOrderSorter({
      spill: () => pieces.endedWriter(),
      chunksInMemory: 1,
      rowBytes: form.bytes,
    });
    this.ended.add(ended);
    const endBounds = ids === undefined ? [] : endBoundsAfter(frontier, gapMs);
    const remaining =
      ids === undefined ? [] : [...endBounds, 0].map((_, i) => new LazyPiece(pieces, ids + i));
    let isDone = false;
    const readRows =
      inputs.length * pageRowsOf(inputs.length, form.bytes) +
      unswept.length * pageRowsOf(inputs.length + unswept.length, form.bytes);
    this.pageBytes = readRows * form.bytes + (1 + remaining.length) * SINK_BYTES;
    const streams: RowStream[] = [];
    try {
      for (const part of [...inputs, ...unswept]) streams.push(await part.rows());
      const swept = await sweep({
        ...{ kernels, gapMs, frontier, ended, remaining, endBounds, signal },
        inputs: streams.slice(0, inputs.length),
        unswept: unswept.map(({ leastEnd }, i) => ({
          rows: streams[inputs.length + i] as RowStream,
          leastEnd,
        })),
      });
      const left: RemainingPiece[] = [];
      for (const [i, { leastEnd }] of swept.remaining.entries()) {
        const piece = await remaining[i]?.finish();
        if (piece !== undefined) left.push({ piece, leastEnd });
      }
      signal.throwIfAborted();
      onDone(left);
      isDone = true;
      return ended;
    } finally {
      for (const stream of streams) stream.close();
      for (const piece of remaining) piece.close();
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
  readonly form: RowForm;
  readonly rowsMax: number;
  readonly firedAtMs: number;
  readonly reached: ReachedTimes;
  readonly ended: Promise<EndOrderSorter>;
  /** Called once; with undefined if the sweep failed. */
  readonly release: (ended: EndOrderSorter | undefined) => void;
  readonly find: (accountId: bigint) => Promise<readonly WindowResult[]>;
}

/** Firing of the sessions that a sweep took out, ascending by end. It may have no rows. */
export class SweptFiring implements StateFiring {
  readonly bounds: FiredBounds;
  readonly form: RowForm;
  readonly rowsMax: number;
  readonly firedAtMs: number;
  readonly reached: ReachedTimes;
  isClosed = false;
  private readonly parts: SweptParts;
  private rows: Promise<RowStream> | undefined;

  constructor(parts: SweptParts) {
    this.parts = parts;
    this.bounds = parts.bounds;
    this.form = parts.form;
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
