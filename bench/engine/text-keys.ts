/** Part with more text keys than the memory of the engine holds, beside ample memory and beside
 *  integer keys, which need no dictionary. */
import { invariant } from '../../src/core/errors.ts';
import type { World } from '../effects/world.ts';
import { type BenchResult, result, type Series, seriesOf, takeTurns } from '../harness.ts';
import { type Drained, EngineRuns } from './engine-run.ts';
import { type EventsSpec, EventsTopics } from './events-topic.ts';

const WINDOW = ['-window=tumbling', '-size=1m', '-allowed-lateness=1m'] as const;
/** Two and a half minutes of event time. */
const EVENTS: EventsSpec = { events: 24_000_000, accounts: 10_000_000, zipf: 1.1, perMs: 160 };
const SMOKE_PART = 400;
const REPEATS_MAX = 3;
const TIGHT = '384MiB';
const AMPLE = '2GiB';
/** Least share of the rate with ample memory. */
const RATE_RATIO = 0.7;

const TEXT_KEYS = 'Avro events with string keys of 16 B, 10M accounts';
type Side = 'tight' | 'ample' | 'numbers';

export async function textKeys(world: World): Promise<readonly BenchResult[]> {
  const { context } = world;
  const registry = await world.start('registry', ['registry', '-store=memory', '-listen=127.0.0.1:0']);
  const framed = ['-format=avro', `-registry=http://${registry.address}`];
  const topics = new EventsTopics(world);
  const runs = new EngineRuns(world);
  const spec = context.smoke
    ? { ...EVENTS, events: EVENTS.events / SMOKE_PART, perMs: EVENTS.perMs / SMOKE_PART }
    : EVENTS;
  const text = await topics.of({ ...spec, flags: [...framed, '-key-type=string'] });
  const numbers = await topics.of({ ...spec, flags: framed });
  const drained: Record<Side, Drained[]> = { tight: [], ample: [], numbers: [] };
  const drain = (side: Side, budget: string) => async () => {
    const known = drained[side];
    const flags = [
      ...[...WINDOW, ...framed, '-key=account_id', '-value=value', '-time=event_ts'],
      ...['-state=disk', `-mem-budget=${budget}`],
    ];
    const one = await runs.drain(side === 'numbers' ? numbers : text, { flags, digest: known.length === 0 });
    const expected = drained.tight[0]?.digest ?? one.digest;
    invariant(
      one.digest === undefined || JSON.stringify(one.digest) === JSON.stringify(expected),
      `the results with ${side} must be those with little memory`,
    );
    return known.push(one);
  };
  context.say('draining with little memory, with ample memory and with integer keys');
  try {
    await takeTurns(
      { tight: drain('tight', TIGHT), ample: drain('ample', AMPLE), numbers: drain('numbers', TIGHT) },
      Math.min(context.repeats, REPEATS_MAX),
    );
  } finally {
    await registry.stop();
  }
  return rowsOf(drained);
}

function rowsOf(drained: Readonly<Record<Side, readonly Drained[]>>): readonly BenchResult[] {
  const series = (side: Side, pick: (one: Drained) => number): Series => seriesOf(drained[side].map(pick));
  const compared = (
    { side, name, beside }: { readonly side: Side; readonly name: string; readonly beside: string },
    least?: number,
  ): readonly BenchResult[] => [
    result({
      ...{ unit: 'events/s', better: 'more', list: true, metric: `${TEXT_KEYS}, ${TIGHT}: rate ${beside}` },
      ours: series('tight', ({ perSecond }) => perSecond),
      against: { name, series: series(side, ({ perSecond }) => perSecond) },
      ...(least === undefined ? {} : { goal: { ratioAtLeast: least } }),
    }),
    result({
      ...{
        unit: 'us CPU/event',
        better: 'less',
        list: true,
        metric: `${TEXT_KEYS}, ${TIGHT}: CPU ${beside}`,
      },
      ours: series('tight', ({ cpuUs }) => cpuUs),
      against: { name, series: series(side, ({ cpuUs }) => cpuUs) },
    }),
  ];
  return [
    ...compared({ side: 'ample', name: `the same with ${AMPLE}`, beside: 'beside ample memory' }, RATE_RATIO),
    ...compared({ side: 'numbers', name: `u64 keys with ${TIGHT}`, beside: 'beside u64 keys' }),
  ];
}
