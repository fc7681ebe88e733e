/** Settings of one of several windows: those of the run, with names of its own for its outputs. */
import { join } from 'node:path';
import { coreError } from '../../../core/errors.ts';
import { demandName, namesOf, type WindowSpec, windowSpecs } from './specs.ts';

/** Settings that depend on the window. */
interface Outputs {
  readonly 'state-dir': string;
  readonly sink: string;
  readonly 'sink-table': string;
  readonly 'late-topic': string | undefined;
}

interface Windowed extends Outputs {
  readonly window: readonly string[];
  readonly size: number | undefined;
  readonly slide: number | undefined;
  readonly gap: number | undefined;
  readonly 'allowed-lateness': number;
  readonly emit: string;
}

/** Folder of the windows in -state-dir. */
const WINDOWS_FOLDER = 'windows';

/** Names of the outputs of a window. */
function outputsOf<S extends Outputs>(settings: S, name: string): S {
  const late = settings['late-topic'];
  return {
    ...settings,
    'state-dir': join(settings['state-dir'], WINDOWS_FOLDER, name),
    sink: sinkOf(settings.sink, name),
    'sink-table': `${settings['sink-table']}_${name}`,
    'late-topic': late === undefined ? undefined : `${late}.${name}`,
  };
}

/** A folder gets a folder for each window, a topic a topic beside it; a database a table. */
function sinkOf(sink: string, name: string): string {
  if (/^(rocksdb|parquet):./s.test(sink)) return `${sink.replace(/\/+$/, '')}/${name}`;
  return /^kafka:./s.test(sink) ? `${sink}.${name}` : sink;
}

/** Settings of a run with one window, as its flags would give them. */
export function settingsOf<S extends Windowed>(settings: S, spec: WindowSpec): S {
  const { name, windows, latenessMs, emit } = spec;
  const own = {
    ...settings,
    window: [windows.window],
    size: windows.window === 'session' ? undefined : windows.sizeMs,
    slide: windows.window === 'sliding' ? windows.slideMs : undefined,
    gap: windows.window === 'session' ? windows.gapMs : undefined,
    'allowed-lateness': latenessMs ?? settings['allowed-lateness'],
    emit: emit ?? settings.emit,
  };
  return name === undefined ? own : outputsOf(own, name);
}

/** Settings that move the state of one window. */
const OF_ONE_WINDOW = ['savepoint', 'checkpoint-store'] as const;

/** Checks that windows with names have no setting of a window without one. @throws usage */
export function demandMovable(
  settings: Readonly<Partial<Record<(typeof OF_ONE_WINDOW)[number], unknown>>>,
  specs: readonly WindowSpec[],
): void {
  const [name] = namesOf(specs);
  const moved = OF_ONE_WINDOW.find((flag) => settings[flag] !== undefined);
  if (name === undefined || moved === undefined) return;
  throw coreError('usage', `-${moved} is for a window without a name, and -window names ${name}`, {
    next: `leave -${moved} out, or run one window without a name`,
    details: { setting: moved },
  });
}

/** Settings of the window that a flag of an action names, of a run with several windows.
 *  @throws usage, bad_value */
function namedSettings<S extends Windowed>(settings: S, flag: string, asked: string | undefined): S {
  const specs = windowSpecs(settings);
  const names = namesOf(specs);
  if (asked === undefined && names.length <= 1) return settingsOf(settings, specs[0]);
  if (asked === undefined)
    throw coreError('usage', `the run has several windows: ${names.join(', ')}`, {
      next: `give -${flag}=NAME`,
    });
  const spec = specs.find(({ name }) => name === demandName(asked));
  if (spec !== undefined) return settingsOf(settings, spec);
  if (names.length === 0) return outputsOf(settings, asked);
  throw coreError('usage', `-${flag}=${asked} is none of the windows ${names.join(', ')}`, {
    next: 'name one of them',
  });
}

/** Settings of an export: with several windows, those of the window that -export-window names.
 *  @throws usage, bad_value */
export const exportSettings = <S extends Windowed & { readonly 'export-window': string | undefined }>(
  settings: S,
): S => namedSettings(settings, 'export-window', settings['export-window']);

/** Settings of a verification, as of an export. The windows must be given: they decide the results.
 *  @throws usage, bad_value */
export function verifySettings<S extends Windowed & { readonly 'verify-window': string | undefined }>(
  settings: S,
): S {
  const asked = settings['verify-window'];
  if (asked !== undefined && namesOf(windowSpecs(settings)).length === 0)
    throw coreError('usage', `-verify-window=${asked} names a window, and -window has none with a name`, {
      next: 'give the -window flags, or the -job file, with which the engine ran',
    });
  return namedSettings(settings, 'verify-window', asked);
}
