/** Part that drains the same events in several formats beside the fixed layout of 256 bytes, and
 *  the fixed layout beside a bare loop. */
import { invariant } from '../../src/core/errors.ts';
import type { World } from '../effects/world.ts';
import { type BenchResult, result, type Series, seriesOf, takeTurns } from '../harness.ts';
import { BARE_LOOP, type BareRun, openBareLoop } from './drains.ts';
import { type Drained, EngineRuns } from './engine-run.ts';
import { type EventsSpec, type EventsTopic, EventsTopics } from './events-topic.ts';

const TUMBLING = ['-window=tumbling', '-size=1m'] as const;
/** Two minutes of event time; a third of the events warms up. */
const EVENTS: EventsSpec = { events: 9_000_000, accounts: 1_000_000, zipf: 1.1, perMs: 75 };
const SMOKE_PART = 150;

/** Formats with the flags that read the events, and the least share of the fixed layout's rate. */
const FORMATS = {
  avro: { time: 'event_ts', rate: 0.75, cpu: 0.625, title: 'Avro events of 120 B' },
  protobuf: { time: 'event_ts', rate: undefined, cpu: undefined, title: 'Protobuf events of 125 B' },
  json: { time: 'event_ts:ms', rate: 0.35, cpu: undefined, title: 'JSON events of 190 B' },
} as const;
/** Avro events whose key is a string of 16 bytes, with the least share of the rate of u64 keys, and
 *  those of the rate and the CPU time of the fixed layout. */
const TEXT_KEYS = {
  ...{ besideNumbers: 0.6, rate: 0.75, cpu: 0.625 },
  title: 'Avro events with string keys of 16 B',
} as const;
type Format = keyof typeof FORMATS;
type Side = Format | 'fixed' | 'text';
const NAMES = Object.keys(FORMATS) as readonly Format[];

const goalOf = (least: number | undefined) => (least === undefined ? {} : { goal: { ratioAtLeast: least } });

/** Drains topics of each format; all sides must have the same results. */
export async function formats(world: World): Promise<readonly BenchResult[]> {
  const { context } = world;
  const registry = await world.start('registry', ['registry', '-store=memory', '-listen=127.0.0.1:0']);
  const address = `http://${registry.address}`;
  const topics = new EventsTopics(world);
  const runs = new EngineRuns(world);
  const spec = context.smoke
    ? { ...EVENTS, events: EVENTS.events / SMOKE_PART, perMs: EVENTS.perMs / SMOKE_PART }
    : EVENTS;
  const drained = new Map<string, Drained[]>(['fixed', 'text', ...NAMES].map((name) => [name, []]));
  const drain = (name: Side, topic: EventsTopic, flags: readonly string[]) => async () => {
    const known = drained.get(name) as Drained[];
    const one = await runs.drain(topic, { flags: [...TUMBLING, ...flags], digest: known.length === 0 });
    const expected = drained.get('fixed')?.[0]?.digest ?? one.digest;
    invariant(
      one.digest === undefined || JSON.stringify(one.digest) === JSON.stringify(expected),
      `events in ${name} must have the results of the fixed layout`,
    );
    return known.push(one);
  };
  const fixed = await topics.of(spec);
  const bareLoop = await openBareLoop(world, fixed);
  const bare: BareRun[] = [];
  const sides: Record<string, () => Promise<number>> = {
    bare: async () => bare.push(await bareLoop()),
    fixed: drain('fixed', fixed, []),
  };
  for (const name of NAMES) {
    const topic = await topics.of({ ...spec, flags: [`-format=${name}`, `-registry=${address}`] });
    const fields = ['-key=account_id', '-value=value', `-time=${FORMATS[name].time}`, `-format=${name}`];
    sides[name] = drain(name, topic, name === 'json' ? fields : [...fields, `-registry=${address}`]);
  }
  const framed = `-registry=${address}`;
  const text = await topics.of({ ...spec, flags: ['-format=avro', '-key-type=string', framed] });
  const textFields = ['-key=account_id', '-value=value', '-time=event_ts', '-format=avro', framed];
  sides['text'] = drain('text', text, textFields);
  context.say('draining the fixed layout, Avro with both types of keys, Protobuf and JSON');
  try {
    await takeTurns(sides, context.repeats);
  } finally {
    await registry.stop();
  }
  return rowsOf(drained, bare);
}

/** Rows of the drains of each side. */
function rowsOf(
  drained: ReadonlyMap<string, readonly Drained[]>,
  bare: readonly BareRun[],
): readonly BenchResult[] {
  const series = (name: Side, pick: (one: Drained) => number): Series =>
    seriesOf((drained.get(name) ?? []).map(pick));
  const perSecond = (one: Drained): number => one.perSecond;
  const cpuUs = (one: Drained): number => one.cpuUs;
  const fixedLayout = 'fixed layout of 256 B';
  /** Rate and CPU time beside another side. */
  const compared = (
    title: string,
    name: Side,
    least: { readonly rate?: number | undefined; readonly cpu?: number | undefined },
  ) => [
    result({
      ...{ unit: 'events/s', better: 'more', list: true, metric: `${title}: rate` },
      ...{ ours: series(name, perSecond), ...goalOf(least.rate) },
      against: { name: fixedLayout, series: series('fixed', perSecond) },
    }),
    result({
      ...{ unit: 'us CPU/event', better: 'less', list: true, metric: `${title}: CPU` },
      ...{ ours: series(name, cpuUs), ...goalOf(least.cpu) },
      against: { name: fixedLayout, series: series('fixed', cpuUs) },
    }),
  ];
  return [
    result({
      ...{ unit: 'us CPU/event', better: 'less', list: true, metric: 'fixed layout of 256 B: CPU' },
      ours: series('fixed', cpuUs),
      against: {
        name: BARE_LOOP,
        series: seriesOf(bare.map((one) => (one.cpu_seconds / one.events) * 1e6)),
      },
    }),
    ...NAMES.flatMap((name) => compared(FORMATS[name].title, name, FORMATS[name])),
    ...compared(TEXT_KEYS.title, 'text', TEXT_KEYS),
    result({
      ...{ unit: 'events/s', better: 'more', list: true },
      metric: `${TEXT_KEYS.title}: rate beside u64 keys`,
      ...{ ours: series('text', perSecond), ...goalOf(TEXT_KEYS.besideNumbers) },
      against: { name: 'Avro events with u64 keys', series: series('avro', perSecond) },
    }),
    result({
      ...{ unit: 'us CPU/event', better: 'less', list: true },
      metric: `${TEXT_KEYS.title}: CPU beside u64 keys`,
      ours: series('text', cpuUs),
      against: { name: 'Avro events with u64 keys', series: series('avro', cpuUs) },
    }),
  ];
}
