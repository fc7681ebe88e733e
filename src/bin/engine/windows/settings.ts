/** Settings of one of several windows: those of the run, with names of its own for its outputs. */
import { join } from 'node:path';
import { coreError } from '../../../core/errors.ts';
import { WINDOWS_FOLDER } from '../../../engine/durability/savepoint/files.ts';
import type { Job } from '../../../engine/job.ts';
import { BINARY256 } from '../../../engine/source/input/binary256.ts';
import { listIn } from '../../../engine/source/input/definition.ts';
import { AGGREGATE_FLAG, demandName, namesOf, type WindowSpec, windowSpecs } from './specs.ts';

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
  readonly aggregate: string | undefined;
  readonly 'window-aggregate': string | undefined;
}

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
  const { name, windows, latenessMs, emit, aggregate } = spec;
  const own = {
    ...settings,
    window: [windows.window],
    size: windows.window === 'session' ? undefined : windows.sizeMs,
    slide: windows.window === 'sliding' ? windows.slideMs : undefined,
    gap: windows.window === 'session' ? windows.gapMs : undefined,
    'allowed-lateness': latenessMs ?? settings['allowed-lateness'],
    emit: emit ?? settings.emit,
    aggregate: aggregate ?? settings.aggregate,
    'window-aggregate': undefined,
  };
  return name === undefined ? own : outputsOf(own, name);
}

/** Checks that all windows count the same events: elements of one list, or records.
 *  @throws usage */
export function demandSameEvents(
  plans: readonly { readonly name: string | undefined; readonly job: Job }[],
): void {
  const lists = plans.map(({ job }) => listIn(job.input ?? BINARY256)?.join('.'));
  const other = lists.findIndex((list) => list !== lists[0]);
  if (other < 0) return;
  const text = (at: number): string =>
    `window ${plans[at]?.name} has ${lists[at] === undefined ? 'records' : `the elements of ${lists[at]}`}`;
  throw coreError('usage', `the windows have different events: ${text(0)}, and ${text(other)}`, {
    next: 'name fields of one list in the aggregates of all windows, in -where or in -key, or run a second engine',
    details: { setting: AGGREGATE_FLAG },
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

/** A window that is verified. */
export interface VerifiedWindow<S> {
  readonly name: string | undefined;
  readonly settings: S;
  /** Aggregates of all windows of the run: an event is valid for all of them, or for none. */
  readonly aggregates: readonly string[];
}

/** Settings of the windows that a verification compares: all, or that of -verify-window.
 *  The windows must be given: they decide the results.
 *  @throws usage, bad_value */
export function verifySettings<S extends Windowed & { readonly 'verify-window': string | undefined }>(
  settings: S,
): readonly VerifiedWindow<S>[] {
  const asked = settings['verify-window'];
  const specs = windowSpecs(settings);
  const isNamed = namesOf(specs).length > 0;
  const all = specs.flatMap(({ aggregate }) => aggregate ?? settings.aggregate ?? []);
  const aggregates = isNamed ? [...new Set(all)] : [];
  if (asked === undefined)
    return specs.map((spec) => ({
      ...{ name: spec.name, settings: settingsOf(settings, spec), aggregates },
    }));
  if (!isNamed)
    throw coreError('usage', `-verify-window=${asked} names a window, and -window has none with a name`, {
      next: 'give the -window flags, or the -job file, with which the engine ran',
    });
  return [{ name: asked, settings: namedSettings(settings, 'verify-window', asked), aggregates }];
}
