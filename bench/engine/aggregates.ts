/** Part that drains the same Avro events with several aggregates beside their count alone. */
import { invariant } from '../../src/core/errors.ts';
import type { World } from '../effects/world.ts';
import { type BenchResult, result, seriesOf, takeTurns } from '../harness.ts';
import { type Drained, EngineRuns } from './engine-run.ts';
import { type EventsSpec, EventsTopics } from './events-topic.ts';

const TUMBLING = ['-window=tumbling', '-size=1m'] as const;
/** Two minutes of event time; a third of the events warms up. */
const EVENTS: EventsSpec = { events: 9_000_000, accounts: 1_000_000, zipf: 1.1, perMs: 75 };
const SMOKE_PART = 150;

/** Aggregates with the least share of the CPU time that the count alone may have. */
const SIDES = {
  numbers: { text: 'count,sum(value),min(value),max(value),avg(value)', ratio: 0.909 },
  percentile: { text: 'count,p99(value)', ratio: 0.5 },
  distinct: { text: 'count,distinct(value)', ratio: undefined },
} as const;
type Side = keyof typeof SIDES;
const NAMES = Object.keys(SIDES) as readonly Side[];

/** Drains one topic with each list of aggregates. */
export async function aggregates(world: World): Promise<readonly BenchResult[]> {
  const { context } = world;
  const registry = await world.start('registry', ['registry', '-store=memory', '-listen=127.0.0.1:0']);
  const address = `-registry=http://${registry.address}`;
  const runs = new EngineRuns(world);
  const spec = context.smoke
    ? { ...EVENTS, events: EVENTS.events / SMOKE_PART, perMs: EVENTS.perMs / SMOKE_PART }
    : EVENTS;
  const topic = await new EventsTopics(world).of({ ...spec, flags: ['-format=avro', address] });
  const drained = new Map<string, Drained[]>(['count', ...NAMES].map((name) => [name, []]));
  const drain = (name: string, text: string) => async (): Promise<number> => {
    const fields = ['-key=account_id', '-time=event_ts', '-format=avro', address, `-aggregate=${text}`];
    const one = await runs.drain(topic, { flags: [...TUMBLING, ...fields] });
    invariant(one.cpuUs > 0, 'a drain takes time');
    return (drained.get(name) as Drained[]).push(one);
  };
  const sides: Record<string, () => Promise<number>> = { count: drain('count', 'count') };
  for (const name of NAMES) sides[name] = drain(name, SIDES[name].text);
  context.say('draining with the count alone, with numbers, a percentile and distinct values');
  try {
    await takeTurns(sides, context.repeats);
  } finally {
    await registry.stop();
  }
  const series = (name: string) => seriesOf((drained.get(name) ?? []).map(({ cpuUs }) => cpuUs));
  return NAMES.map((name) => {
    const { text, ratio } = SIDES[name];
    return result({
      ...{ unit: 'us CPU/event', better: 'less', list: true, metric: `-aggregate=${text}: CPU` },
      ...{ ours: series(name), against: { name: '-aggregate=count', series: series('count') } },
      ...(ratio === undefined ? {} : { goal: { ratioAtLeast: ratio } }),
    });
  });
}
