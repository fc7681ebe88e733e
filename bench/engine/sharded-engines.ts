/** Whole engines with one and with two shards, beside the broker that they read from. */
import { invariant } from '../../src/core/errors.ts';
import type { World } from '../effects/world.ts';
import { type BenchResult, result, seriesOf, takeTurns } from '../harness.ts';
import { type Drained, EngineRuns } from './engine-run.ts';
import { EventsTopics } from './events-topic.ts';

const EVENTS = 9_000_000;
const EVENTS_SMOKE = 180_000;
const EVENT_TIME_MS = 120_000;
const ACCOUNTS = 1_000_000;
const ACCOUNTS_SMOKE = 20_000;
const ZIPF = 1.1;
const FLAGS = ['-window=tumbling', '-size=1m'] as const;
/** Allows 1.15 times the CPU time. */
const CPU_GOAL = 0.8696;

export async function shardedEngines(world: World): Promise<readonly BenchResult[]> {
  const { smoke, rows, repeats, say } = world.context;
  const events = rows ?? (smoke ? EVENTS_SMOKE : EVENTS);
  const perMs = Math.max(1, Math.round(events / EVENT_TIME_MS));
  const accounts = smoke ? ACCOUNTS_SMOKE : ACCOUNTS;
  const topic = await new EventsTopics(world).of({ events, accounts, zipf: ZIPF, perMs });
  const runs = new EngineRuns(world);
  const drained: Record<1 | 2, Drained[]> = { 1: [], 2: [] };
  let expected: string | undefined;
  const drain = (shards: 1 | 2) => async (): Promise<number> => {
    const digest = drained[shards].length === 0;
    const one = await runs.drain(topic, { flags: [...FLAGS, `-shards=${shards}`], digest });
    const found = digest ? JSON.stringify(one.digest) : expected;
    expected ??= found;
    invariant(found === expected, `both must have the same results: ${found}, not ${expected}`);
    return drained[shards].push(one);
  };
  say('draining with one shard and with two');
  await takeTurns({ one: drain(1), two: drain(2) }, repeats);
  const compared = (figure: (one: Drained) => number) => ({
    ours: seriesOf(drained[2].map(figure)),
    against: { name: 'one shard', series: seriesOf(drained[1].map(figure)) },
    list: true,
  });
  const what = `engine beside its broker, ${events} events of 256 B, two shards`;
  return [
    result({
      ...compared(({ cpuUs }) => cpuUs),
      ...{ metric: `${what}: CPU`, unit: 'us CPU/event', better: 'less' },
      goal: { ratioAtLeast: CPU_GOAL },
    }),
    result({
      ...compared(({ perSecond }) => perSecond),
      ...{ metric: `${what}: rate`, unit: 'events/s', better: 'more' },
    }),
  ];
}
