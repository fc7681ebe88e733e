/** Cells of the comparison with other engines: one setting at a time from a base cell. */
import { formatDuration } from '../../src/core/quantity.ts';
import { DEFAULT_EVENTS, type EventOptions } from '../../src/gen/event-options.ts';

export const AXES = ['format', 'window', 'keys', 'firing'] as const;
export type Axis = (typeof AXES)[number];
/** Axis value of the cell that is on every axis. */
export const BASE_PART = 'base';

export type Kind = 'tumbling' | 'sliding' | 'session';

export interface Cell {
  readonly format: 'binary256' | 'avro';
  readonly kind: Kind;
  readonly keys: number;
  /** light: three windows of a minute; heavy: twenty-one. */
  readonly firing: 'light' | 'heavy';
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
/** Bound of disorder: skew and lateness of Millrace, one delay of the other engines. */
export const SKEW_MS = 5 * SECOND;
export const LATENESS_MS = 10 * SECOND;
export const DELAY_MS = SKEW_MS + LATENESS_MS;
/** Time between checkpoints, or between commits. */
export const CHECKPOINT_MS = 5 * SECOND;

/** Size of a window, or gap of a session, and the slide of sliding windows. */
export const WINDOWS: Readonly<Record<Kind, { readonly sizeMs: number; readonly slideMs: number }>> = {
  tumbling: { sizeMs: MINUTE, slideMs: MINUTE },
  sliding: { sizeMs: 5 * MINUTE, slideMs: MINUTE },
  session: { sizeMs: 30 * SECOND, slideMs: 30 * SECOND },
};

/** Event time of all events. */
const SPAN_MS: Readonly<Record<Cell['firing'], number>> = { light: 2 * MINUTE, heavy: 20 * MINUTE };
const ZIPF = 1.1;
const WIDE_KEYS = 10_000_000;
const SMOKE_PART = 100;

/** Events that follow all others and close their windows: more than enough for each partition to
 *  have one. */
export const TAIL_EVENTS = 800;
const TAIL_AFTER_MS = 60 * MINUTE;

export const BASE: Cell = { format: 'binary256', kind: 'tumbling', keys: 1_000_000, firing: 'light' };

const VALUES: { readonly [A in Axis]: readonly Partial<Cell>[] } = {
  format: [{ format: 'binary256' }, { format: 'avro' }],
  window: [{ kind: 'tumbling' }, { kind: 'sliding' }, { kind: 'session' }],
  keys: [{ keys: 100_000 }, { keys: 1_000_000 }, { keys: WIDE_KEYS }],
  firing: [{ firing: 'light' }, { firing: 'heavy' }],
};

export const cellsOn = (axis: Axis): readonly Cell[] => VALUES[axis].map((value) => ({ ...BASE, ...value }));

/** Every cell once; cells that read the same topic follow each other. */
export function allCells(): readonly Cell[] {
  const cells = [BASE, ...(['window', 'keys', 'firing', 'format'] as const).flatMap(cellsOn)];
  return [...new Map(cells.map((cell) => [cellName(cell), cell])).values()];
}

export const isBase = (cell: Cell): boolean => cellName(cell) === cellName(BASE);
/** True for the cell that holds ten million keys, few of them more than once. */
export const isWide = ({ keys }: Cell): boolean => keys === WIDE_KEYS;
/** Cells in which the engines are killed: recovery depends on the size of the state. */
export const hasKill = (cell: Cell): boolean =>
  cellsOn('keys').some((one) => cellName(one) === cellName(cell));

const keysName = (keys: number): string => (keys >= 1e6 ? `${keys / 1e6}M` : `${keys / 1e3}k`);

function windowName(kind: Kind): string {
  const { sizeMs, slideMs } = WINDOWS[kind];
  const size = formatDuration(sizeMs);
  return `${kind} ${kind === 'sliding' ? `${size}/${formatDuration(slideMs)}` : size}`;
}

const FORMATS: Readonly<Record<Cell['format'], string>> = {
  binary256: 'fixed layout of 256 B',
  avro: 'Avro of 120 B',
};

/** Unique name of a cell. */
export const cellName = ({ format, kind, keys, firing }: Cell): string =>
  `${windowName(kind)}, ${FORMATS[format]}, ${keysName(keys)} keys, firing-${firing}`;

/** Cells of one name read the same topic. */
export const topicName = ({ format, keys, firing }: Cell): string => `${format} ${keys} ${firing}`;

/** Events of a cell, all in true order, so that no engine drops any. Ten million keys are uniform,
 *  so that most of them are open; fewer are Zipf-distributed. */
export function streamOf(cell: Cell, events: number, isSmoke: boolean): EventOptions {
  return {
    ...DEFAULT_EVENTS,
    order: 'true',
    count: events,
    accounts: isSmoke ? cell.keys / SMOKE_PART : cell.keys,
    zipf: isWide(cell) ? 0 : ZIPF,
    perMs: events / SPAN_MS[cell.firing],
  };
}

/** Events an hour after the last one of the cell. They close every window of the cell, and their
 *  own windows never end. */
export function tailOf(cell: Cell): EventOptions {
  return {
    ...DEFAULT_EVENTS,
    order: 'true',
    count: TAIL_EVENTS,
    accounts: TAIL_EVENTS,
    zipf: 0,
    perMs: TAIL_EVENTS,
    baseMs: DEFAULT_EVENTS.baseMs + SPAN_MS[cell.firing] + TAIL_AFTER_MS,
  };
}
