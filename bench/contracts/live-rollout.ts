/** Rolling upgrade of a whole fleet under the load of the benchmark, by `millrace rollout`. */
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../src/core/errors.ts';
import type { RolloutVerdict } from '../../src/registry/rollout/model.ts';
import { ready } from '../../src/shell/children/ready.ts';
import type { Children } from '../children.ts';
import type { BenchContext } from '../harness.ts';
import { countsOf } from './pages.ts';
import type { ContractsPlan } from './plan.ts';

/** Step of Order that one order of upgrade alone survives in Avro: a field is renamed. */
const STEP = ['-from-version=3', '-to-version=4', '-mode=BACKWARD', '-order=consumers-first'];
/** Lag, in seconds of the rate and for each group, up to which the next step follows. On a machine
 *  without spare CPU the start of a process raises the lag, and only unreadable records are judged.
 */
const LAG_SECONDS_MAX = 120;

export interface LiveRollout {
  readonly rate: number;
  readonly durationMs: number;
  readonly verdict: RolloutVerdict;
  readonly reason: string | null;
  readonly produced: number;
  /** Records that the groups have read together. */
  readonly consumed: number;
  /** Records that a consumer could not read. */
  readonly errors: number;
  /** Replaced processes, in order. */
  readonly upgraded: readonly string[];
  /** Largest and last lag over all groups, records, as the rollout's own page shows them. */
  readonly lagMax: number;
  readonly lagLast: number;
}

/** @throws unreachable when the rollout ends without a document */
export async function liveRollout(
  context: BenchContext,
  children: Children,
  plan: ContractsPlan,
  rate: number,
  durationMs: number,
): Promise<LiveRollout> {
  const { rolloutProcesses: processes, groups, producers, partitions } = plan;
  const child = children.processes.spawn('rollout', [
    'rollout',
    `-brokers=${children.brokers}`,
    ...STEP,
    `-format=${plan.format}`,
    `-rate=${rate}`,
    `-duration=${durationMs}ms`,
    `-producers=${processes}`,
    `-consumers=${processes}`,
    `-groups=${groups}`,
    `-instances=${Math.max(1, Math.floor(producers / processes))}`,
    `-partitions=${partitions}`,
    `-retention-bytes=${plan.topicBytesMax}`,
    `-lag-max=${Math.ceil(rate * LAG_SECONDS_MAX * groups)}`,
    '-settle-timeout=10m',
    '-stop-timeout=2m',
    '-connect-timeout=60s',
    '-listen=127.0.0.1:0',
    '-log-level=warn',
    '-json',
  ]);
  const address = await ready('rollout', child);
  let over = false;
  const ended = child.ended.finally(() => {
    over = true;
  });
  let [lagMax, lagLast] = [0, 0];
  while (!over) {
    await Promise.race([ended, sleep(plan.sampleMs)]);
    context.drain.throwIfAborted();
    // The page ends with the process.
    const counts = await countsOf([address]).catch(() => undefined);
    if (counts === undefined) continue;
    lagLast = counts.total('rollout_lag_records');
    lagMax = Math.max(lagMax, lagLast);
  }
  const { code, signal } = await ended;
  const document = documentOf(child.stdout());
  if (document === undefined)
    throw coreError('unreachable', `the rollout ended with ${code ?? signal}`, {
      next: `see ${child.logPath}`,
    });
  const { verdict, reason, produced, consumed, errors, upgraded } = document;
  return { rate, durationMs, verdict, reason, produced, consumed, errors, upgraded, lagMax, lagLast };
}

type Document = Pick<LiveRollout, 'verdict' | 'reason' | 'produced' | 'consumed' | 'errors' | 'upgraded'>;

function documentOf(stdout: string): Document | undefined {
  try {
    return JSON.parse(stdout) as Document;
  } catch {
    return undefined;
  }
}
