/** `-window` of `millrace engine`: one window, or several named ones over one read. */
import { coreError } from '../../../core/errors.ts';
import { formatDuration, parseDuration } from '../../../core/quantity.ts';
import type { Setting } from '../../../core/settings.ts';
import type { JobWindows } from '../../../engine/job.ts';

/** Most windows over one read: each has a state, a changelog and stores of its own. */
export const WINDOWS_MAX = 16;
/** A name is a part of the names of tables, topics and folders. */
export const NAME = '[a-z][a-z0-9_]{0,30}';
/** Names that would make another name of an output, such as the table of late events. */
const RESERVED = /^(late|latest|stage|quarantine|key|value|all)$|_(late|latest|stage)$/;
const SIZE_MS = 60_000;
export const AGGREGATE_FLAG = 'window-aggregate';

export const WINDOW_SETTING = {
  type: 'list',
  default: 'tumbling',
  entry: {
    pattern: `(${NAME}=)?(tumbling|sliding|session)(:[^,\\s]+)?`,
    form: 'tumbling|sliding|session|[NAME=]KIND:TIMES',
  },
  help: 'kind of window; session: groups events of a key that are less than -gap apart. Given several times (or with commas between), several windows over one read, each with its times and results of its own: minute=tumbling:1m (SIZE), smooth=sliding:5m:1m (SIZE:SLIDE), visits=session:30s (GAP), then options such as hour=tumbling:1h:lateness=5m or visits=session:30s:emit=final. A name is a part of the names of tables, topics and folders (default: from kind and times, tumbling_1m)',
} as const satisfies Setting;

export const WINDOW_AGGREGATE_SETTING = {
  type: 'string',
  help: 'aggregates of single windows, each instead of those of -aggregate, with semicolons between: hour=count,p99(latency);visits=sum(amount) (default: every window has those of -aggregate)',
} as const satisfies Setting;

export interface WindowSettings {
  readonly 'window-aggregate'?: string | undefined;
  readonly window: readonly string[];
  readonly size: number | undefined;
  readonly slide: number | undefined;
  readonly gap: number | undefined;
}

export interface WindowSpec {
  /** Undefined: the only window, whose outputs have the names that the flags give. */
  readonly name: string | undefined;
  readonly windows: JobWindows;
  /** Options of this window alone; absent: those of the flags. */
  readonly latenessMs?: number;
  readonly emit?: 'final' | 'updates';
  readonly aggregate?: string;
}

type Kind = JobWindows['window'];

const refused = (message: string, next: string, code: 'usage' | 'bad_value' = 'usage'): Error =>
  coreError(code, message, { next, details: { setting: 'window' } });

/** Windows of a run, in the order of the flags. @throws usage, bad_value */
export function windowSpecs(settings: WindowSettings): readonly [WindowSpec, ...WindowSpec[]] {
  const { window } = settings;
  if (window.length > WINDOWS_MAX)
    throw refused(
      `-window has ${window.length} windows, more than ${WINDOWS_MAX}`,
      'run a second engine with the others, with a -state-dir of its own',
    );
  const [first = '', ...others] = window;
  if (others.length === 0 && !first.includes(':') && !first.includes('=')) {
    aggregatesOf(settings, []);
    return [{ name: undefined, windows: windowsOf(first as Kind, settings) }];
  }
  for (const flag of ['size', 'slide', 'gap'] as const)
    if (settings[flag] !== undefined)
      throw coreError('usage', `-${flag} has no meaning beside -window=${first}, which has its times`, {
        next: `leave -${flag} out`,
        details: { setting: flag },
      });
  const specs = window.map((text) => specOf(text, others.length === 0));
  const names = specs.map(({ name }) => name);
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined)
    throw refused(`-window has two windows named ${twice}`, 'give each window a name of its own');
  const aggregates = aggregatesOf(settings, names);
  const all = specs.map((spec): WindowSpec => {
    const aggregate = aggregates.get(spec.name);
    return aggregate === undefined ? spec : { ...spec, aggregate };
  });
  return all as [WindowSpec, ...WindowSpec[]];
}

/** Aggregates by the names of the windows that have their own. @throws usage, bad_value */
function aggregatesOf(
  { 'window-aggregate': text }: WindowSettings,
  names: readonly (string | undefined)[],
): ReadonlyMap<string | undefined, string> {
  const found = new Map<string | undefined, string>();
  const fail = (message: string, next: string, code: 'usage' | 'bad_value' = 'usage'): Error =>
    coreError(code, message, { next, details: { setting: AGGREGATE_FLAG } });
  for (const entry of text?.split(';') ?? []) {
    const [, name, aggregate] = /^\s*([^=\s]+)=(.+)$/s.exec(entry) ?? [];
    if (name === undefined || aggregate === undefined)
      throw fail(
        `-${AGGREGATE_FLAG} has ${JSON.stringify(entry.slice(0, 60))}, which is no NAME=AGGREGATES`,
        'give entries such as hour=count,sum(amount) with semicolons between',
        'bad_value',
      );
    if (!names.includes(name))
      throw fail(
        `-${AGGREGATE_FLAG} names ${JSON.stringify(name.slice(0, 60))}, and -window has ${names.every((one) => one === undefined) ? 'no window with a name' : `only ${names.join(', ')}`}`,
        names.every((one) => one === undefined) ? 'give -aggregate' : 'name one of them',
      );
    if (found.has(name)) throw fail(`-${AGGREGATE_FLAG} names ${name} twice`, 'give each window once');
    found.set(name, aggregate.trim());
  }
  return found;
}

/** Names of the windows; empty for one window without a name. */
export const namesOf = (specs: readonly WindowSpec[]): readonly string[] =>
  specs.flatMap(({ name }) => (name === undefined ? [] : [name]));

/** @throws bad_value, usage for a name that no window may have */
export function demandName(name: string): string {
  if (!new RegExp(`^${NAME}$`).test(name))
    throw refused(
      `${JSON.stringify(name.slice(0, 60))} is not the name of a window`,
      'use up to 31 small letters, digits and underscores, a letter first',
      'bad_value',
    );
  if (RESERVED.test(name))
    throw refused(
      `the name ${name} of a window is reserved, because outputs have such names`,
      'give the window another name',
      'bad_value',
    );
  return name;
}

/** Checks a window with a name. @throws bad_value, usage */
export function checkWindow(text: string, name: string): void {
  demandName(name);
  specOf(text, false);
}

/** @param isAlone true: a window without a name is that of a run without names */
function specOf(text: string, isAlone: boolean): WindowSpec {
  const [, given, rest = ''] = /^(?:([^=:]*)=)?(.*)$/s.exec(text) ?? [];
  const [kind = '', ...parts] = rest.split(':');
  const times = parts.filter((part) => !part.includes('=')).map((part) => timeOf(text, part));
  const windows = withTimes(kind as Kind, times, text);
  const ownName = given ?? (isAlone ? undefined : defaultName(windows));
  const name = ownName === undefined ? undefined : demandName(ownName);
  const options = parts.filter((part) => part.includes('='));
  return { name, windows, ...Object.assign({}, ...options.map((option) => optionOf(text, option))) };
}

function timeOf(text: string, part: string): number {
  const ms = parseDuration(part);
  if (ms !== undefined && ms > 0) return ms;
  throw refused(
    `-window=${text} has ${JSON.stringify(part)} where a time of at least 1ms is due`,
    'give a duration such as 250ms, 5s, 2m',
    'bad_value',
  );
}

function withTimes(window: Kind, times: readonly number[], text: string): JobWindows {
  const [first, second] = times;
  const wanted = window === 'sliding' ? 2 : 1;
  if (first === undefined || times.length !== wanted)
    throw refused(
      `-window=${text} has ${times.length} times, and a ${window} window has ${wanted === 1 ? 'one' : 'two'}`,
      `give ${EXAMPLES[window]}`,
    );
  if (window === 'session') return { window, gapMs: first };
  if (window === 'tumbling') return { window, sizeMs: first };
  return { window, sizeMs: first, slideMs: second as number };
}

const EXAMPLES: Readonly<Record<Kind, string>> = {
  tumbling: 'NAME=tumbling:SIZE',
  sliding: 'NAME=sliding:SIZE:SLIDE',
  session: 'NAME=session:GAP',
};

function optionOf(text: string, option: string): Pick<WindowSpec, 'latenessMs' | 'emit'> {
  const [name = '', value = ''] = option.split('=');
  if (name === 'lateness') {
    const latenessMs = parseDuration(value);
    if (latenessMs !== undefined) return { latenessMs };
  }
  if (name === 'emit' && (value === 'final' || value === 'updates')) return { emit: value };
  throw refused(
    `-window=${text} has the option ${JSON.stringify(option)}, which is none`,
    'give lateness=TIME, emit=final or emit=updates',
    'bad_value',
  );
}

/** `tumbling_1m`, `sliding_5m_1m`, `session_30s` */
function defaultName(windows: JobWindows): string {
  const times =
    windows.window === 'session'
      ? [windows.gapMs]
      : windows.window === 'sliding'
        ? [windows.sizeMs, windows.slideMs]
        : [windows.sizeMs];
  return [windows.window, ...times.map(formatDuration)].join('_');
}

/** Window of a kind alone, whose times are flags of their own. */
function windowsOf(window: Kind, { size, slide, gap }: WindowSettings): JobWindows {
  const refuse = (flag: string, value: number | undefined, kinds: string): void => {
    if (value === undefined) return;
    throw coreError('usage', `-${flag} has no meaning for -window=${window}`, {
      next: `leave -${flag} out, or give -window=${kinds}`,
      details: { setting: flag },
    });
  };
  const need = (flag: string, value: number | undefined, example: string): number => {
    if (value !== undefined) return value;
    throw refused(`-window=${window} needs -${flag}`, `give -${flag}=${example}`);
  };
  if (window === 'session') {
    const gapMs = need('gap', gap, '30s');
    refuse('size', size, 'tumbling or sliding');
    refuse('slide', slide, 'sliding');
    return { window, gapMs };
  }
  refuse('gap', gap, 'session');
  const sizeMs = size ?? SIZE_MS;
  if (window === 'sliding') return { window, sizeMs, slideMs: need('slide', slide, '10s') };
  refuse('slide', slide, 'sliding');
  return { window, sizeMs };
}
