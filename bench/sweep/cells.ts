/** Cells of the sweep: allowed skew by allowed lateness in full, then one further setting at a
 *  time, for each kind of window. */
import { formatDuration } from '../../src/core/quantity.ts';

export const KINDS = ['tumbling', 'sliding', 'session'] as const;
export type Kind = (typeof KINDS)[number];
/** The settings that a cell varies, beside its kind of window. */
export const AXES = ['lateness', 'checkpoint', 'window', 'keys'] as const;
export type Axis = (typeof AXES)[number];

const SECOND = 1000;
const MINUTE = 60 * SECOND;

export const SKEWS_MS: readonly number[] = [SECOND, 5 * SECOND, 30 * SECOND, 2 * MINUTE];
export const LATENESSES_MS: readonly number[] = [0, 10 * SECOND, MINUTE, 5 * MINUTE];
const INTERVALS_MS: readonly number[] = [5 * SECOND, 30 * SECOND, 2 * MINUTE];
const WINDOWS_MS: readonly number[] = [SECOND, MINUTE, 10 * MINUTE];
const KEYS: readonly number[] = [100_000, 1_000_000, 10_000_000];
/** A sliding window slides by this part of its size, as the example of 5 minutes by 1 minute. */
export const SLIDES = 5;

export interface Cell {
  readonly kind: Kind;
  readonly skewMs: number;
  readonly latenessMs: number;
  /** Time between checkpoints. */
  readonly intervalMs: number;
  /** Size of a tumbling or sliding window; gap of a session. */
  readonly windowMs: number;
  readonly keys: number;
}

/** Window of each kind in the cells that do not vary it: a minute, and the examples of the
 *  requirements. */
const USUAL_WINDOW_MS: Readonly<Record<Kind, number>> = {
  tumbling: MINUTE,
  sliding: 5 * MINUTE,
  session: 30 * SECOND,
};

/** The cell to which all axes of a kind belong. */
export const usualCell = (kind: Kind): Cell => ({
  kind,
  skewMs: 5 * SECOND,
  latenessMs: MINUTE,
  intervalMs: 30 * SECOND,
  windowMs: USUAL_WINDOW_MS[kind],
  keys: 1_000_000,
});

const keysName = (keys: number): string => (keys >= 1e6 ? `${keys / 1e6}M` : `${keys / 1e3}k`);

export function windowName({ kind, windowMs }: Pick<Cell, 'kind' | 'windowMs'>): string {
  const size = formatDuration(windowMs);
  return kind === 'sliding' ? `${size}/${formatDuration(windowMs / SLIDES)}` : size;
}

/** Value of the cell on an axis. */
export function axisValue(cell: Cell, axis: Axis): string {
  switch (axis) {
    case 'lateness':
      return `${formatDuration(cell.skewMs)} + ${formatDuration(cell.latenessMs)}`;
    case 'checkpoint':
      return formatDuration(cell.intervalMs);
    case 'window':
      return windowName(cell);
    case 'keys':
      return keysName(cell.keys);
  }
}

/** Unique name of a cell. */
export const cellName = (cell: Cell): string =>
  `${cell.kind} ${windowName(cell)}, skew ${formatDuration(cell.skewMs)}, lateness ${formatDuration(cell.latenessMs)}, checkpoint ${formatDuration(cell.intervalMs)}, ${keysName(cell.keys)} keys`;

/** True if the cell differs from the usual one in this axis alone. The usual cell is on all axes.
 */
export function isOn(cell: Cell, axis: Axis): boolean {
  const usual = usualCell(cell.kind);
  return AXES.every((one) => one === axis || axisValue(cell, one) === axisValue(usual, one));
}

/** Cells of one axis in ascending order, the usual one included. */
export function cellsOn(kind: Kind, axis: Axis): readonly Cell[] {
  const usual = usualCell(kind);
  const ascending = (values: readonly number[], own: number): readonly number[] =>
    [...new Set([...values, own])].sort((a, b) => a - b);
  switch (axis) {
    case 'lateness':
      return SKEWS_MS.flatMap((skewMs) =>
        LATENESSES_MS.map((latenessMs) => ({ ...usual, skewMs, latenessMs })),
      );
    case 'checkpoint':
      return ascending(INTERVALS_MS, usual.intervalMs).map((intervalMs) => ({ ...usual, intervalMs }));
    case 'window':
      return ascending(WINDOWS_MS, usual.windowMs).map((windowMs) => ({ ...usual, windowMs }));
    case 'keys':
      return ascending(KEYS, usual.keys).map((keys) => ({ ...usual, keys }));
  }
}

/** Every cell once. */
export function allCells(): readonly Cell[] {
  const cells = KINDS.flatMap((kind) => AXES.flatMap((axis) => cellsOn(kind, axis)));
  return [...new Map(cells.map((cell) => [cellName(cell), cell])).values()];
}

/** Cells that need no other topic and differ in nothing that decides which results are right have
 *  one count. */
export const countName = (cell: Cell): string =>
  cellName({ ...cell, intervalMs: usualCell(cell.kind).intervalMs });

/** Flags of the engine that a cell names. */
export function windowFlags(cell: Cell): readonly string[] {
  const { kind, windowMs, skewMs, latenessMs } = cell;
  const window = {
    tumbling: [`-size=${windowMs}ms`],
    sliding: [`-size=${windowMs}ms`, `-slide=${windowMs / SLIDES}ms`],
    session: [`-gap=${windowMs}ms`],
  }[kind];
  return [`-window=${kind}`, ...window, `-allowed-skew=${skewMs}ms`, `-allowed-lateness=${latenessMs}ms`];
}

/** Time by which an event may be behind the greatest one of its partition. */
export const delayOf = ({ skewMs, latenessMs }: Pick<Cell, 'skewMs' | 'latenessMs'>): number =>
  skewMs + latenessMs;
