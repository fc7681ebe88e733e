/** Windows of a run, checked by their settings alone, and those that resume in the folder. */
import type { MemoryShares } from '../../../engine/durability/spill/budget.ts';
import type { Job } from '../../../engine/job.ts';
import { aggregatesIn } from '../../../engine/source/input/definition.ts';
import type { Disk } from '../../../io/disk/port.ts';
import type { EngineContext } from '../actions/settings.ts';
import { jobOf } from '../job.ts';
import { memoryOf } from '../memory.ts';
import { type SideNames, sideCount, sideNames } from '../sides.ts';
import { requireValidSink } from '../sinks.ts';
import { settingsOf } from './settings.ts';
import type { WindowSpec } from './specs.ts';
import { demandNoSet, nextSet, writeSet } from './state.ts';

/** A window of the run, checked by its settings alone. */
export interface WindowPlan {
  /** Undefined: the only window, without a name. */
  readonly name: string | undefined;
  /** The context with the settings of this window. */
  readonly context: EngineContext;
  readonly job: Job;
  readonly names: SideNames;
  readonly shares: MemoryShares | undefined;
}

/** @throws usage, bad_value, bad_setting */
export function planOf(context: EngineContext, spec: WindowSpec, windows: number): WindowPlan {
  const { name } = spec;
  const settings = settingsOf(context.settings, spec);
  const log = name === undefined ? context.log : context.log.child({ window: name });
  const own = { ...context, settings, log };
  const job = jobOf(settings);
  const names = sideNames(own, job);
  const shares = memoryOf(own, sideCount(names), job.input?.dedup !== undefined, windows);
  requireValidSink(own, aggregatesIn(job.input ?? {}));
  return { name, context: own, job, names, shares };
}

/** Decides which windows resume in the folder, and writes it down.
 *  @returns the windows; the quarantine is that of one of them, and a function that notes that all
 *  windows have stopped */
export async function openSet(root: Disk, plans: readonly WindowPlan[], { log, settings }: EngineContext) {
  const names = plans.flatMap(({ name }) => (name === undefined ? [] : [name]));
  if (names.length === 0) {
    await demandNoSet(root);
    return { windows: plans, started: async () => {}, stopped: async () => {} };
  }
  const hasQuarantine = plans.some(({ names: { quarantine } }) => quarantine !== undefined);
  const { set, removed } = await nextSet(root, { topic: settings.topic, names, hasQuarantine });
  if (removed.length > 0)
    log.warn(
      { removed, folder: root.where },
      'windows of the run before are not continued; their state stays, and they resume if they are given again',
    );
  const windows = plans.map((plan) =>
    plan.name === set.quarantine ? plan : { ...plan, names: { ...plan.names, quarantine: undefined } },
  );
  // A run that cannot start changes nothing.
  const started = (): Promise<void> => writeSet(root, set);
  return { windows, started, stopped: () => writeSet(root, { ...set, isStopped: true }) };
}
