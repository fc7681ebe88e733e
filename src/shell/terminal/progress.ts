/** Progress of long work: a line that is rewritten on a TTY, with a table above it where the work
 *  has one; else a plain line every 10 s. */
import type { Clock } from '../../core/clock.ts';
import type { Progress, ProgressOptions } from '../command.ts';
import type { Screen } from './screen.ts';

const TTY_EVERY_MS = 200;
const PLAIN_EVERY_MS = 10_000;
/** Window of the displayed rate in ms, so that it follows changes. */
const RATE_WINDOW_MS = 5_000;

/** Formats a number with three significant digits: 950, 12.3k, 4.56M. */
export function shortNumber(value: number): string {
  if (!Number.isFinite(value)) return '-';
  const scaled: ReadonlyArray<readonly [number, string]> = [
    [1e9, 'G'],
    [1e6, 'M'],
    [1e3, 'k'],
  ];
  for (const [scale, unit] of scaled) {
    if (Math.abs(value) >= scale) return `${(value / scale).toPrecision(3)}${unit}`;
  }
  return Number.isInteger(value) ? String(value) : value.toPrecision(3);
}

/** Formats a duration: 4s, 2m05s, 1h02m. */
export function shortDuration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds}s`;
  const two = (n: number): string => String(n).padStart(2, '0');
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m${two(seconds % 60)}s`;
  return `${Math.floor(seconds / 3600)}h${two(Math.floor((seconds % 3600) / 60))}m`;
}

export interface ProgressState {
  readonly what: string;
  readonly unit: string;
  readonly count: number;
  readonly errors: number;
  readonly elapsedMs: number;
  readonly perSecond: number;
  readonly total?: number | undefined;
  readonly note?: string | undefined;
}

/** `gen: 1.20M of 2.00M events (60%), 412k/s, ETA 2s, 0 errors` */
export function progressText(state: ProgressState): string {
  const { total, count, perSecond } = state;
  const unit = state.unit === '' ? '' : ` ${state.unit}`;
  const parts = [
    total === undefined
      ? `${shortNumber(count)}${unit} in ${shortDuration(state.elapsedMs)}`
      : `${shortNumber(count)} of ${shortNumber(total)}${unit} (${total === 0 ? 100 : Math.floor((count / total) * 100)}%)`,
    `${shortNumber(perSecond)}/s`,
  ];
  if (total !== undefined && count < total)
    parts.push(perSecond > 0 ? `ETA ${shortDuration(((total - count) / perSecond) * 1000)}` : 'ETA -');
  parts.push(`${state.errors} error${state.errors === 1 ? '' : 's'}`);
  if (state.note !== undefined) parts.push(state.note);
  return `${state.what}: ${parts.join(', ')}`;
}

/** Starts a progress line. `quiet` prints nothing but still counts. */
export function startProgress(
  options: ProgressOptions,
  screen: Screen,
  clock: Clock,
  quiet: boolean,
): Progress {
  const startMs = clock.monotonicMs();
  let count = 0;
  let errors = 0;
  let finished = false;
  let marks: Array<{ readonly atMs: number; readonly count: number }> = [{ atMs: startMs, count: 0 }];

  const text = (whole: boolean): string => {
    const nowMs = clock.monotonicMs();
    marks = marks.filter((mark, index) => nowMs - mark.atMs <= RATE_WINDOW_MS || index === marks.length - 1);
    const from = whole ? { atMs: startMs, count: 0 } : (marks[0] as { atMs: number; count: number });
    const spanMs = nowMs - from.atMs;
    const perSecond = spanMs > 0 ? ((count - from.count) / spanMs) * 1000 : 0;
    marks.push({ atMs: nowMs, count });
    return progressText({
      what: options.what,
      unit: options.unit ?? '',
      count,
      errors,
      elapsedMs: nowMs - startMs,
      perSecond,
      total: options.total,
      note: options.note?.(whole ? 'whole' : 'last'),
    });
  };

  /** Lines of the table; the progress line and the prompt after it need a row each. */
  const table = (): readonly string[] => {
    const { columns, rows } = screen.size;
    return screen.isTty ? (options.table?.({ columns, rows: Math.max(1, rows - 2) }) ?? []) : [];
  };
  const tick = (): void => {
    if (screen.isTty) screen.showBlock([...table(), text(false)]);
    else screen.line(text(false));
  };
  const timer = quiet ? undefined : setInterval(tick, screen.isTty ? TTY_EVERY_MS : PLAIN_EVERY_MS);
  timer?.unref();

  return {
    add: (more) => {
      count += more;
    },
    set: (value) => {
      count = value;
    },
    error: (more = 1) => {
      errors += more;
    },
    done: () => {
      if (finished) return;
      finished = true;
      clearInterval(timer);
      if (quiet) return;
      screen.clear();
      for (const line of table()) screen.line(line);
      screen.line(text(true));
    },
  };
}
