/** `millrace engine` without an action: computes the windows of a topic. */
import { EXIT } from '../../../core/errors.ts';
import type { NamedEngines } from '../../../engine/api/routes.ts';
import type { InputDefinition } from '../../../engine/source/input/definition.ts';
import { demandValidInput } from '../../../engine/source/invalid.ts';
import { limitedText } from '../../../engine/stages.ts';
import { brokerDriver } from '../../../shell/drivers.ts';
import { settingTableOf } from '../../../shell/load-settings.ts';
import { parseStart } from '../../registry-clients/start.ts';
import { chaosOf } from '../chaos.ts';
import { type InferredJob, inferredJob, jobFileText } from '../jobfile/inferred.ts';
import { progressNote } from '../progress.ts';
import { beginWithSavepoint, serveSavepoints } from '../savepoint/begin.ts';
import { groupName, openStateDir } from '../source/group.ts';
import { openAdmin, openReader } from '../source/reader.ts';
import { openCheckpointStore } from '../store/open.ts';
import { type OpenWindow, openOutside, openWindow, pinnedState } from '../windows/open.ts';
import { openSet, planOf } from '../windows/plan.ts';
import { runAll } from '../windows/run.ts';
import { demandSameEvents } from '../windows/settings.ts';
import { windowSpecs } from '../windows/specs.ts';
import { type EngineContext, neededBrokers, SETTINGS } from './settings.ts';

/** Engines of each context by the names of their windows: the routes are built before them. */
const engines = new WeakMap<object, NamedEngines>();
const NO_ENGINES: NamedEngines = new Map();
export const enginesOf = (context: object): NamedEngines => engines.get(context) ?? NO_ENGINES;

/** Job of each context that the first records completed. */
const inferred = new WeakMap<object, InferredJob>();

/** Progress of a run on the terminal: that of the first window. */
function openProgress(context: EngineContext, { engine, stages, metrics }: OpenWindow) {
  const note = progressNote({
    stages,
    watermark: () => (engine.restored ? engine.watermark() : undefined),
    openKeys: () => metrics.openKeys.value(),
  });
  return context.progress({ what: 'events', unit: 'events', note });
}

/** Adds the parts of a window to the readiness. */
function watchWindow(
  context: EngineContext,
  { name, engine, names: { late, quarantine } }: Pick<OpenWindow, 'name' | 'engine' | 'names'>,
): void {
  const add = (what: string, check: () => boolean): void =>
    context.readiness(name === undefined ? what : `${what} (${name})`, check);
  add('restored', () => engine.restored);
  add('sink', () => engine.sinkReady);
  if (late !== undefined) add('late topic', () => engine.isReady('late'));
  if (quarantine !== undefined) add('quarantine', () => engine.isReady('quarantine'));
}

/** Settings that the first records may decide: format, key and time. */
const INFERRED_MAX = 3;

/** Prints the job file of a run that the first records completed. */
function showInferred(context: EngineContext, definition: InputDefinition): void {
  // A run that names one of the three is no first run over a topic; the log has the rest.
  if (definition.inferred?.length !== INFERRED_MAX) return;
  const job = inferredJob(settingTableOf({ settings: SETTINGS }), context.settings, definition);
  inferred.set(context, job);
  context.print(jobFileText(job), undefined);
}

/** Runs the engine of a window to its end. Returns the summary as text and as a document. */
async function runWindow(context: EngineContext, window: OpenWindow, drain: AbortSignal) {
  const { settings } = context;
  const { engine, job, name, stored } = window;
  const running = engine.run(drain);
  const summary = await (stored === undefined ? running : Promise.race([running, stored.lost]));
  const text = `${name === undefined ? '' : `${name}: `}consumed ${summary.consumed} events: ${summary.accepted} accepted${summary.filtered === 0 ? '' : `, ${summary.filtered} of them filtered`}${summary.duplicates === 0 ? '' : `, ${summary.duplicates} of them duplicates`}, ${summary.droppedLate} dropped late, ${summary.invalid} invalid${summary.empty === 0 ? '' : `; ${summary.empty} records without an element`}; fired ${summary.firedWindows} ${job.window === 'session' ? 'times' : 'windows'}; ${limitedText(summary.limitedBy)}`;
  const { before, ...printed } = summary;
  const hasEnd = settings.bounded || settings['exit-at-end'];
  const demand = (): void => {
    if (hasEnd && !drain.aborted)
      demandValidInput(job.topic, { totals: summary, before, invalid: summary.invalidRecords });
  };
  return { text, document: { ...printed, ...engine.watermark() }, demand };
}

export async function runEngine(context: EngineContext): Promise<number> {
  const specs = windowSpecs(context.settings);
  const chaos = chaosOf(context.settings.chaos);
  parseStart(context.settings.start);
  neededBrokers(context);
  groupName(context);
  const plans = specs.map((spec) => planOf(context, spec, specs.length));
  demandSameEvents(plans);
  const root = await openStateDir(context);
  const stored = root && (await openCheckpointStore(context, root));
  if (root === undefined || stored === 'stopped') {
    context.print('stopped while another engine had the job', { consumed: 0 });
    return EXIT.done;
  }
  const driver = await brokerDriver(context);
  await beginWithSavepoint(context, {
    ...{ disk: root, plans },
    openAdmin: () => openAdmin(context, driver),
  });
  const set = await openSet(root, plans, context);
  const outside = [];
  for (const one of set.windows) outside.push(await openOutside(one, root, stored));
  const failure = new AbortController();
  const drain = AbortSignal.any([context.drain, failure.signal]);
  const shared = {
    driver,
    stored,
    ...(await openReader(context, outside, driver, drain, (definition) => showInferred(context, definition))),
  };
  const { lease, reader, input, stages } = shared;
  const windows: OpenWindow[] = [];
  let consumed = 0;
  const onConsumed = (events: number): void => {
    consumed = Math.max(consumed, events);
    progress.set(consumed);
  };
  for (const one of outside) windows.push(await openWindow(one, { ...shared, chaos, onConsumed }));
  const first = windows[0] as OpenWindow;
  if (reader === undefined) stages.of = first.stages;
  const progress = openProgress(context, first);
  engines.set(context, new Map(windows.map(({ name = '', engine }) => [name, engine])));
  context.readiness('registry', () => input.isReady);
  if (lease !== undefined) context.readiness('group', () => lease.isWhole);
  for (const window of windows) {
    watchWindow(context, window);
    await window.engine.restore();
  }
  await set.started();
  lease?.start();
  const states = windows.map(pinnedState);
  await serveSavepoints(context, root, states);
  await stored?.serve(states);
  context.setReady();
  const ended = await runAll(windows, failure, (window) => runWindow(context, window, drain));
  progress.done();
  if (reader?.isTogether !== false) await set.stopped();
  printSummary(context, windows, ended);
  for (const { demand } of ended) demand();
  return EXIT.done;
}

/** Prints the summaries: of one window without a name, or by the names of several. */
function printSummary(
  context: EngineContext,
  windows: readonly OpenWindow[],
  ended: readonly { readonly text: string; readonly document: object }[],
): void {
  const job = inferred.get(context);
  const documents = ended.map(({ document }, at) => [windows[at]?.name, document] as const);
  const document =
    windows[0]?.name === undefined ? documents[0]?.[1] : { windows: Object.fromEntries(documents) };
  context.print(ended.map(({ text }) => text).join('\n'), {
    ...document,
    ...(job === undefined ? {} : { job: job.settings }),
  });
}
