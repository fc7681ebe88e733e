/** `millrace chaos -target`: the faults of a plan against a user's own processes, and the verdict
 *  of their own query. */
import { rmSync } from 'node:fs';
import { basename } from 'node:path';
import { TARGET_REPORT_FORMAT, type TargetReport } from '../../../chaos/report.ts';
import { type FaultOutcome, runFaults } from '../../../chaos/run.ts';
import type { PlannedFault } from '../../../chaos/schedule.ts';
import type { ChaosTarget } from '../../../chaos/target/document.ts';
import { judgeTarget, type Violations } from '../../../chaos/target/judge.ts';
import type { ChaosVerdict } from '../../../chaos/verdict.ts';
import { sleep } from '../../../core/clock.ts';
import { coreError, EXIT } from '../../../core/errors.ts';
import { packageVersion } from '../../../shell/package.ts';
import { applyTo, ROWS_LOCKED_MAX } from '../apply.ts';
import { beforeFaults, START_MS_MAX } from '../before-faults.ts';
import { checkReports, printPlan, replayOf, shownSettings, writeReports } from '../documents.ts';
import type { ChaosContext as Context } from '../settings.ts';
import { CHAOS_EXIT } from '../settings.ts';
import { type Watch, watchChaos } from '../watch.ts';
import { readTargetFile } from './file.ts';
import { INTENTS_MAX, type LoadFacts, TargetLoadRun } from './load.ts';
import { planTarget } from './plan.ts';
import { requirePrograms } from './processes.ts';
import { ViolationReader } from './violations.ts';
import { openTargetWorld, type TargetWorld } from './world.ts';

const POLL_MS = 100;
const KEYS_SHOWN_MAX = 20;

/** Results of a run up to its verdict. */
interface Finished extends ChaosVerdict {
  readonly violations: Violations;
  readonly load: LoadFacts;
  /** First keys with two answers; undefined: answers are not compared. */
  readonly changed: readonly string[] | undefined;
  readonly outcomes: readonly FaultOutcome[];
  readonly seconds: number;
}

export async function runTarget(context: Context, path: string): Promise<number> {
  const { target, folder } = readTargetFile(path);
  const plan = planTarget(context, target);
  requirePrograms(target, folder);
  requireBounded(context);
  if (context.settings.plan) {
    printPlan(context, plan);
    return EXIT.done;
  }
  checkReports(context);
  const watch = watchChaos(context, plan);
  watch.phase('starting');
  const world = await openTargetWorld(context, target, folder, plan, watch);
  context.setReady();
  try {
    const end = await breakTarget(context, world, target, plan, watch);
    watch.phase('done');
    watch.done();
    if (end === undefined) {
      rmSync(world.dir, { recursive: true, force: true });
      context.say(`the run was stopped; replay: ${replayOf(context, plan)}`);
      return CHAOS_EXIT.stopped;
    }
    return describe(context, world, plan, end);
  } finally {
    for (const service of Object.values(world.services)) service.abandon();
  }
}

/** @throws bad_value: the answers of a run are kept in memory */
function requireBounded({ settings }: Context): void {
  const requests = (settings.rate * settings.duration) / 1000;
  if (requests <= INTENTS_MAX) return;
  throw coreError('bad_value', `-rate and -duration make ${requests} requests, over ${INTENTS_MAX}`, {
    next: 'give a lower -rate or a shorter -duration',
  });
}

async function breakTarget(
  context: Context,
  world: TargetWorld,
  target: ChaosTarget,
  plan: readonly PlannedFault[],
  watch: Watch,
): Promise<Finished | undefined> {
  const { clock, drain, settings } = context;
  const { observer } = world;
  const reader = new ViolationReader(world.connect, target.reconcile, clock);
  context.onClose(() => reader.close());
  const startMs = clock.monotonicMs();
  const load = await startTarget(context, world, target, reader, watch);
  if (load === undefined) return undefined;
  watch.phase('faults');
  const beganMs = clock.monotonicMs();
  const outcomes = await runFaults({
    ...{ plan, clock, signal: drain, faultMsMax: settings['fault-timeout'] },
    apply: applyTo({
      ...{ services: world.services, members: {}, proxies: world.proxies, servers: world.servers.own },
      disks: world.servers.disks,
      ...{ connect: world.connect, schema: world.schema, slot: '', clock, tableOf: (name) => name },
      lockRows: target.tables.map(
        (name) => `SELECT FROM ${name} LIMIT ${ROWS_LOCKED_MAX} FOR UPDATE SKIP LOCKED`,
      ),
    }),
    onStart: watch.onStart,
    onEnd: watch.onOutcome,
  });
  await sleep(clock, Math.max(0, beganMs + settings.duration - clock.monotonicMs()), drain);
  if (drain.aborted) return undefined;
  watch.phase('draining');
  const loaded = await load.end();
  const timeoutMs = settings['settle-timeout'];
  const undrained = await observer.drained(timeoutMs, drain);
  await reader.settled(loaded.sent, timeoutMs, drain);
  await observer.stop();
  for (const service of Object.values(world.services)) await service.stop();
  if (drain.aborted) return undefined;
  watch.phase('judging');
  // A service may write while it stops.
  const violations = await reader.answered(loaded.sent, timeoutMs, drain);
  watch.onDeltas(violations.count);
  const verdict = judgeTarget({
    ...{ violations, outcomes, ends: world.ends, undrained },
    intents: loaded.intents,
    acknowledged: loaded.acknowledged,
    unanswered: loaded.unanswered,
    repeats: loaded.result.repeats,
    retryRate: settings['retry-rate'],
    changedAnswers: target.load.sameAnswers ? loaded.changed : undefined,
    mustStay: target.processes.flatMap(({ name, mustStay }) => (mustStay ? [name] : [])),
  });
  const changed = target.load.sameAnswers ? loaded.changed.slice(0, KEYS_SHOWN_MAX) : undefined;
  return {
    ...verdict,
    violations,
    outcomes,
    load: loaded,
    changed,
    seconds: (clock.monotonicMs() - startMs) / 1000,
  };
}

/** Starts the processes one after the other, checks the queries on the state before the load, and
 *  waits for the first acknowledged request. @returns undefined when the run was stopped */
async function startTarget(
  context: Context,
  world: TargetWorld,
  target: ChaosTarget,
  reader: ViolationReader,
  watch: Watch,
): Promise<TargetLoadRun | undefined> {
  const { clock, drain, settings } = context;
  let load: TargetLoadRun | undefined;
  const early = { ends: world.ends, isError: () => true, dir: world.dir };
  await beforeFaults(context, early, async (signal) => {
    for (const service of Object.values(world.services)) {
      service.start();
      await service.ready(signal);
    }
    await requireCleanState(world, reader, settings['settle-timeout'], signal);
    watch.phase('load');
    const started = new TargetLoadRun({
      ...{ load: target.load, url: world.loadUrl, seed: settings.seed, clock },
      ...{ rate: settings.rate, retryRate: settings['retry-rate'] },
    });
    load = started;
    world.observer.start(async () => started.answered, clock.monotonicMs());
    while (started.acknowledged === 0) {
      if (signal.aborted)
        throw coreError(
          'timeout',
          `no request was acknowledged with a 2xx answer within ${START_MS_MAX} ms`,
          {
            next: `see load in the file of the target, and the logs in ${world.dir}`,
          },
        );
      await sleep(clock, POLL_MS, signal);
    }
  }).catch(async (thrown: unknown) => {
    await load?.end().catch(() => {});
    if (!drain.aborted) throw thrown;
  });
  if (!drain.aborted) return load;
  await load?.end().catch(() => {});
  return undefined;
}

/** A violation before the first request would be counted as one of the run. @throws bad_value */
async function requireCleanState(
  { observer }: TargetWorld,
  reader: ViolationReader,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<void> {
  await observer.pending();
  const { count, rows } = await reader.answered(() => [], timeoutMs, signal);
  if (count > 0)
    throw coreError(
      'bad_value',
      `the query reconcile finds ${count} violations before the first request: ${JSON.stringify(rows[0])}`,
      { next: 'empty the tables under setup, or correct the query' },
    );
}

function describe(
  context: Context,
  world: TargetWorld,
  plan: readonly PlannedFault[],
  end: Finished,
): number {
  const { settings } = context;
  const { violations, load, outcomes, holds, reasons, seconds } = end;
  const replay = replayOf(context, plan);
  const { latency: _, ...counts } = load.result;
  const report: TargetReport = {
    format: TARGET_REPORT_FORMAT,
    version: packageVersion(),
    seed: settings.seed,
    settings: shownSettings(context),
    replay,
    seconds,
    load: { ...counts, unanswered: load.unanswered },
    plan,
    outcomes,
    unplanned_ends: world.ends,
    violations,
    changed_answers: end.changed,
    samples: world.observer.samples,
    holds,
    reasons,
  };
  const name = basename(settings.target ?? '');
  const title = `chaos of ${name}, seed ${settings.seed}: ${holds ? 'no violation, every fault applied' : 'BROKEN'}`;
  writeReports(context, title, report);
  const applied = outcomes.filter((one) => one.applied).length;
  const lines = [
    `${load.intents} requests, ${load.acknowledged} acknowledged, ${load.unanswered} without a final answer, ${violations.count}${violations.isMore ? ' or more' : ''} violations`,
    ...violations.rows.map((row) => `  ${JSON.stringify(row)}`),
    `${applied} of ${plan.length} planned faults applied, ${world.ends.length} unplanned ends, ${seconds.toFixed(0)} s`,
    ...reasons.map((reason) => `  ${reason}`),
    ...(holds ? [] : [`the logs are in ${world.dir}`]),
    ...(holds ? [`replay: ${replay}`] : [`replay with: ${replay}`]),
    title,
  ];
  if (holds) rmSync(world.dir, { recursive: true, force: true });
  context.print(lines.join('\n'), report);
  return holds ? EXIT.done : EXIT.no;
}
