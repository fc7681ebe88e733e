/** Fleet of a user's own processes: a command line for each role and version, readiness and
 *  counters over HTTP.
 *  Invariant: an instance that did not become ready is ended before `start` rejects. */
import { sleep, type Timers } from '../../core/clock.ts';
import { coreError } from '../../core/errors.ts';
import { freePort } from '../../devstack/ports.ts';
import type { FleetInstance, FleetRole, FleetSlot, Side } from '../../registry/rollout/model.ts';
import type { GroupProcess, ProcessGroups } from '../user-processes/groups.ts';
import { fillWords, type Placeholder, valueEnvironment } from './command-line.ts';
import type { StartInstance } from './fleet.ts';
import { type FleetMetrics, MetricsPage } from './page.ts';

const POLL_MS = 50;
/** A ready instance gets this long until its page has the named metrics: some libraries register a
 *  metric with its first value. */
const METRICS_MS_MAX = 5000;
const READY_ANSWER_MS_MAX = 2000;

export type FleetCommands = Readonly<Record<FleetRole, Readonly<Record<Side, readonly string[]>>>>;

export interface UserFleetOptions {
  readonly groups: ProcessGroups;
  readonly clock: Timers;
  readonly commands: FleetCommands;
  /** Values of an instance but for its port. */
  readonly valuesOf: (slot: FleetSlot, side: Side) => Readonly<Record<Exclude<Placeholder, 'port'>, string>>;
  readonly env: NodeJS.ProcessEnv;
  /** Empty: an instance is ready when its metrics can be read. */
  readonly readyPath: string;
  readonly metricsPath: string;
  readonly metrics: FleetMetrics;
  readonly readyMs: number;
  /** Time that an instance gets to finish its work before its group is killed. */
  readonly stopMs: number;
}

export function userFleet(options: UserFleetOptions): StartInstance {
  const { clock, groups } = options;
  const ports = new Set<number>();
  return async (slot, side, signal) => {
    const port = await freePort(ports);
    ports.add(port);
    const values = { ...options.valuesOf(slot, side), port: String(port) };
    const words = fillWords(options.commands[slot.role][side], values);
    const env = { ...options.env, ...valueEnvironment(values) };
    const process = groups.start(values.instance, words, env);
    const origin = `http://127.0.0.1:${port}`;
    const page = new MetricsPage(`${origin}${options.metricsPath}`, slot.role, options.metrics, clock);
    try {
      await untilReady(options, values.instance, process, origin, page, signal);
    } catch (thrown) {
      await process.stop(0);
      throw thrown;
    }
    return instanceOf(options, values.instance, process, page);
  };
}

/** Waits for a successful answer and for a page with the named metrics.
 *  @throws unreachable, timeout */
async function untilReady(
  { clock, readyPath, readyMs }: UserFleetOptions,
  name: string,
  process: GroupProcess,
  origin: string,
  page: MetricsPage,
  signal: AbortSignal,
): Promise<void> {
  const endMs = clock.monotonicMs() + readyMs;
  let answeredMs: number | undefined;
  for (;;) {
    if (signal.aborted) throw coreError('unreachable', `${name} was ended before it was ready`);
    const ending = process.ending();
    if (ending !== undefined)
      throw coreError('unreachable', `${name} ${ending} before it was ready${quoted(process)}`, {
        next: `see ${process.logPath}`,
      });
    const why = readyPath === '' ? '' : await refusal(`${origin}${readyPath}`);
    if (why === '' && (await page.read()) !== undefined) return;
    const nowMs = clock.monotonicMs();
    if (why === '' && readyPath !== '') answeredMs ??= nowMs;
    if (answeredMs !== undefined && page.failure !== undefined && nowMs >= answeredMs + METRICS_MS_MAX)
      throw coreError('wrong_server', `${name} is ready, but ${page.failure}`, {
        next: 'name what it serves with -metrics-path, -errors-metric, -consumed-metric, -lag-metric and -produced-metric',
      });
    if (nowMs >= endMs)
      throw coreError('timeout', `${name} was not ready within ${readyMs} ms: ${why || page.reason}`, {
        next: `see ${process.logPath}`,
      });
    await sleep(clock, POLL_MS, signal);
  }
}

/** Reason why an address does not answer with success; empty: it does. */
async function refusal(url: string): Promise<string> {
  try {
    const answer = await fetch(url, {
      redirect: 'manual',
      signal: AbortSignal.timeout(READY_ANSWER_MS_MAX),
    });
    await answer.body?.cancel();
    return answer.ok ? '' : `${url} answers ${answer.status}`;
  } catch (thrown) {
    const { cause, message } = thrown as Error;
    return `${url} does not answer (${(cause as { code?: string } | undefined)?.code ?? message})`;
  }
}

const quoted = (process: GroupProcess): string => {
  const tail = process.tail();
  return tail === '' ? '' : `: ${tail}`;
};

function instanceOf(
  { stopMs }: UserFleetOptions,
  name: string,
  process: GroupProcess,
  page: MetricsPage,
): FleetInstance {
  let isStopping = false;
  return {
    countsWork: page.countsWork,
    scrape: () => page.read(),
    failure: () => {
      if (isStopping) return undefined;
      const ending = process.ending();
      return ending === undefined
        ? page.failure
        : `${name} ${ending}${quoted(process)}; see ${process.logPath}`;
    },
    stop: async () => {
      isStopping = true;
      await process.stop(stopMs);
      return undefined;
    },
  };
}
