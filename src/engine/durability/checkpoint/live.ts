/** Keyed state as checkpoints see it: parts (the slices of windows, or all sessions as one), each
 *  divided into ranges of keys. */

import type { RowBytes, RowRun, SessionState, WindowState } from '../../../addon/window-surface.ts';
import { invariant } from '../../../core/errors.ts';
import type { WindowAssigner } from '../../window/definition.ts';
import { refusePiece, type SpilledRun } from '../spill/pieces.ts';

export interface LiveState {
  /** Bytes of a row. */
  readonly rowBytes: number;
  /** Bytes of a row in memory, without the blocks of its sketches. */
  readonly storedBytes: number;
  /** Parts that hold rows and are not sealed, ascending. */
  parts(): Float64Array;
  rowCount(): number;
  /** Bytes of all tables, including empty slots. */
  bytes(): number;
  /** Copies rows of a range as the kernels do; 0 at the end. */
  copyRange(range: number, part: number, cursor: Float64Array, into: RowBytes): number;

  /** Reserves room for `rows` rows, which are loaded in the order of their ranges. */
  reserve(part: number, rows: number): void;
  load(part: number, rows: RowBytes, count: number): void;

  deltaBytesMax(): number;
  encodeDeltas(out: Uint8Array): number;
  /** Applies deltas as the kernels do. Returns DELTA_STATUS.* */
  applyDeltas(bytes: Uint8Array, seq: number, covered: Float64Array): number;

  /** Frontier at which the part is no longer needed. */
  lastEndOf(part: number): number;
  /** Releases a part. */
  drop(part: number): void;
  /** Takes the rows of a part out of the state; `load` puts them back. */
  detach(part: number): Promise<RowRun>;
  /** Adopts a piece as state on disk. @throws out_of_range for a state in memory only */
  adopt(piece: SpilledRun): void;
  /** Releases the rows that are not needed once every window that ends by `fired` is durable in the
   *  sink.
   *  @param isWhole true: no part of the state is in pieces */
  dropEnded(fired: number, isWhole: boolean): Promise<void>;
  close(): void;
}

export function liveWindows(
  state: WindowState,
  assigner: Pick<WindowAssigner, 'lastEndOf'>,
  adopt: (piece: SpilledRun) => void = refusePiece,
): LiveState {
  let found = new Float64Array(64);
  const parts = (): Float64Array => {
    const count = state.slices(found);
    if (count <= found.length) return found.subarray(0, count);
    found = new Float64Array(2 * count);
    return parts();
  };
  return {
    rowBytes: state.form.bytes,
    storedBytes: state.form.storedBytes,
    parts,
    rowCount: () => state.keyCount(),
    bytes: () => state.bytes(),
    copyRange: (range, part, cursor, into) => state.copyRange(range, part, cursor, into),
    reserve: (part, rows) => state.reserve(part, rows),
    load: (part, rows, count) => state.load(part, rows, count),
    deltaBytesMax: () => state.deltaBytesMax(),
    encodeDeltas: (out) => state.encodeDeltas(out),
    applyDeltas: (bytes, seq, covered) => state.applyDeltas(bytes, seq, covered),
    lastEndOf: (part) => assigner.lastEndOf(part),
    drop: (part) => state.drop(part),
    detach: (part) => state.seal(part),
    adopt,
    dropEnded: async (fired) => {
      for (const part of parts().filter((start) => assigner.lastEndOf(start) <= fired)) state.drop(part);
    },
    close: () => state.close(),
  };
}

/** Adapts the session state; sessions are one part with the number 0. */
export function liveSessions(
  state: SessionState,
  adopt: (piece: SpilledRun) => void = refusePiece,
): LiveState {
  const all = Float64Array.of(0);
  const none = new Float64Array(0);
  return {
    rowBytes: state.form.bytes,
    storedBytes: state.form.storedBytes,
    parts: () => (state.sessionCount() > 0 ? all : none),
    rowCount: () => state.sessionCount(),
    bytes: () => state.bytes(),
    copyRange: (range, _, cursor, into) => state.copyRange(range, cursor, into),
    reserve: (_, rows) => state.reserve(rows),
    load: (_, rows, count) => state.load(rows, count),
    deltaBytesMax: () => state.deltaBytesMax(),
    encodeDeltas: (out) => state.encodeDeltas(out),
    applyDeltas: (bytes, seq, covered) => state.applyDeltas(bytes, seq, covered),
    lastEndOf: () => Number.POSITIVE_INFINITY,
    drop: () => invariant(false, 'sessions are never sealed'),
    detach: () => state.detach(),
    adopt,
    // A row that seems to have ended may belong to a session that continues in a piece.
    dropEnded: async (fired, isWhole) => {
      if (isWhole && state.leastEnd() <= fired) (await state.fire(fired)).close();
    },
    close: () => state.close(),
  };
}
