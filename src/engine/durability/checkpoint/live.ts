/** The keyed state as checkpoints see it: parts, which are the slices of windows or all sessions as
 *  one, of ranges of keys. */

import type { RowBytes, RowRun, SessionState, WindowState } from '../../../addon/window-surface.ts';
import { invariant } from '../../../core/errors.ts';
import type { WindowAssigner } from '../../window/definition.ts';
import { refusePiece, type SpilledRun } from '../spill/pieces.ts';

export interface LiveState {
  /** Parts that hold rows and are not sealed, ascending. */
  parts(): Float64Array;
  rowCount(): number;
  /** Bytes of all tables, empty places among them. */
  bytes(): number;
  /** Copies rows of a range as the kernels do; 0 at the end. */
  copyRange(range: number, part: number, cursor: Float64Array, into: RowBytes): number;

  /** Makes room for so many rows, which come in the order of their ranges. */
  reserve(part: number, rows: number): void;
  load(part: number, rows: RowBytes, count: number): void;

  deltaBytesMax(): number;
  encodeDeltas(out: Uint8Array): number;
  /** As the kernels do: DELTA_STATUS.* */
  applyDeltas(bytes: Uint8Array, seq: number, covered: Float64Array): number;

  /** Once the frontier has passed it, the part is of no use. */
  lastEndOf(part: number): number;
  /** Lets go of a part. */
  drop(part: number): void;
  /** Takes the rows of a part out; `load` puts them back. */
  detach(part: number): Promise<RowRun>;
  /** Takes a piece in, as state that is on disk. @throws out_of_range where there is no place for
   *  it */
  adopt(piece: SpilledRun): void;
  /** Lets go of all that is of no use once every window that ends by `fired` is durable in the
   *  sink. `isWhole`: nothing of the state is elsewhere. */
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
      for (const part of parts().filter((one) => assigner.lastEndOf(one) <= fired)) state.drop(part);
    },
    close: () => state.close(),
  };
}

/** Sessions are one part, number 0. */
export function liveSessions(
  state: SessionState,
  adopt: (piece: SpilledRun) => void = refusePiece,
): LiveState {
  const all = Float64Array.of(0);
  const none = new Float64Array(0);
  return {
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
    // What seems to have ended may be a part of a session that goes on elsewhere.
    dropEnded: async (fired, isWhole) => {
      if (isWhole && state.leastEnd() <= fired) (await state.fire(fired)).close();
    },
    close: () => state.close(),
  };
}
