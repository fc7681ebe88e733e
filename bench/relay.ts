/** `millrace bench relay`: moves rows of an outbox to a topic, with Millrace's relay in both modes
 *  and with its peers.
 *
 *  All sides get the same orders and payloads, the same topic settings and the same measurement
 *  (effects/relay-course.ts). A side that cannot be downloaded is skipped with a message. */
import { setTimeout as sleep } from 'node:timers/promises';
import { openParts, type Part } from './effects/parts.ts';
import { type DrainResult, drain, type SteadyResult, steady } from './effects/relay-course.ts';
import { PEERS } from './effects/relay-peers.ts';
import { ourRelay, type RelaySide } from './effects/relay-side.ts';
import type { World } from './effects/world.ts';
import { type Bench, type BenchResult, result, type Series, seriesOf } from './harness.ts';

const ROWS = 1_000_000;
const ROWS_SMOKE = 2000;
const LATENCY_RATES = [1000, 5000];
const P99_GOALS_MS: Readonly<Record<number, number>> = { 1000: 25, 5000: 50 };

const MODES = ['poll', 'wal'] as const;

interface Sides {
  readonly ours: readonly RelaySide[];
  readonly peers: readonly RelaySide[];
}

/** Sides that are available on this machine. */
async function sidesOf(world: World): Promise<Sides> {
  const { context } = world;
  const ours = MODES.map((mode) => ourRelay(world, mode));
  const peers: RelaySide[] = [];
  for (const [name, make] of Object.entries(PEERS)) {
    if (context.peers?.includes(name) === false || (context.smoke && context.peers === undefined)) continue;
    if (Object.keys(world.properties).length > 0) {
      context.say(`skipped: ${name}: peers take no -broker-config and no -broker-property`);
      continue;
    }
    try {
      peers.push(await make(world));
    } catch (thrown) {
      context.say(`skipped: ${name}: ${(thrown as Error).message.split('\n')[0]}`);
    }
  }
  return { ours, peers };
}

/** Runs every side `repeats` times, alternating. A failing peer is skipped with a message; a
 *  failure of Millrace's relay is an error. */
async function inTurn<T>(
  world: World,
  sides: Sides,
  measure: (side: RelaySide) => Promise<T>,
): Promise<ReadonlyMap<RelaySide, readonly T[]>> {
  const found = new Map<RelaySide, T[]>();
  const failed = new Set<RelaySide>();
  const all = [...sides.ours, ...sides.peers];
  for (let round = 0; round < world.context.repeats; round++) {
    for (const side of round % 2 === 0 ? all : [...all].reverse()) {
      if (failed.has(side) || world.context.drain.aborted) continue;
      try {
        const one = await measure(side);
        found.set(side, [...(found.get(side) ?? []), one]);
      } catch (thrown) {
        if (sides.ours.includes(side)) throw thrown;
        failed.add(side);
        world.context.say(`skipped: ${side.name}: ${(thrown as Error).message.split('\n')[0]}`);
        await sleep(1000);
      }
    }
  }
  return found;
}

const series = <T>(runs: readonly T[] | undefined, pick: (one: T) => number): Series =>
  seriesOf((runs ?? []).map(pick));

async function drains(world: World): Promise<readonly BenchResult[]> {
  const { context } = world;
  const sides = await sidesOf(world);
  const rows = context.rows ?? (context.smoke ? ROWS_SMOKE : ROWS);
  const runs = await inTurn<DrainResult>(world, sides, (side) => drain(world, side, rows));
  const results: BenchResult[] = [];
  for (const side of sides.ours) {
    const ours = runs.get(side);
    const rate = {
      metric: `${side.name}, drain of ${rows} rows`,
      unit: 'rows/s',
      better: 'more',
      ours: series(ours, ({ perSecond }) => perSecond),
      list: true,
    } as const;
    const cpu = (part: keyof DrainResult['cpu']) =>
      ({
        metric: `${side.name}, drain, CPU of ${part} a million rows`,
        unit: 's',
        better: 'less',
        ours: series(ours, (one) => one.cpu[part]),
      }) as const;
    results.push(result({ ...rate, goal: { valueAtLeast: 25_000 } }));
    const parts = ['relay', 'postgres', 'broker'] as const;
    const known = parts.filter((part) => !Number.isNaN(cpu(part).ours.median));
    for (const part of known) results.push(result(cpu(part)));
    for (const peer of sides.peers) {
      const theirs = runs.get(peer);
      if (theirs === undefined) continue;
      const name = `${peer.name}, ${theirs[0]?.rows} rows`;
      results.push(
        result({ ...rate, against: { name, series: series(theirs, ({ perSecond }) => perSecond) } }),
      );
      for (const part of known)
        results.push(
          result({
            ...cpu(part),
            against: { name, series: series(theirs, (one) => one.cpu[part]) },
            ...(part === 'relay' ? { goal: { ratioAtLeast: 1 } } : {}),
          }),
        );
    }
  }
  return results;
}

async function latencies(world: World): Promise<readonly BenchResult[]> {
  const { context } = world;
  const { smoke } = context;
  const sides = await sidesOf(world);
  const seconds = (context.durationMs ?? (smoke ? 2000 : 60_000)) / 1000;
  const warmupSeconds = smoke ? 1 : 5;
  const rates = context.rate !== undefined ? [context.rate] : smoke ? [200] : LATENCY_RATES;
  const results: BenchResult[] = [];
  for (const rate of rates) {
    const able = { ours: sides.ours, peers: sides.peers.filter(({ rateMax }) => rateMax >= rate) };
    const runs = await inTurn<SteadyResult>(world, able, (side) =>
      steady(world, side, { rate, seconds, warmupSeconds }),
    );
    for (const side of able.ours) {
      const ours = runs.get(side);
      const row = (what: string, pick: (one: SteadyResult) => number) =>
        ({
          metric: `${side.name} at ${rate}/s, ${what}`,
          unit: 'ms',
          better: 'less',
          ours: series(ours, pick),
          list: true,
        }) as const;
      const rows = {
        append50: row('commit to append, p50', ({ commitToAppendMs }) => commitToAppendMs.p50),
        append99: row('commit to append, p99', ({ commitToAppendMs }) => commitToAppendMs.p99),
        arrive50: row('commit to consumer, p50', ({ commitToConsumerMs }) => commitToConsumerMs.p50),
        arrive99: row('commit to consumer, p99', ({ commitToConsumerMs }) => commitToConsumerMs.p99),
      };
      const goal = P99_GOALS_MS[rate];
      results.push(
        result(rows.append50),
        result(rows.append99),
        result(rows.arrive50),
        result({ ...rows.arrive99, ...(goal === undefined ? {} : { goal: { valueAtMost: goal } }) }),
        result({
          metric: `${side.name} at ${rate}/s, CPU of relay a row`,
          unit: 'us',
          better: 'less',
          ours: series(ours, ({ cpuUs }) => cpuUs.relay),
        }),
      );
      for (const peer of able.peers) {
        const theirs = runs.get(peer);
        if (theirs === undefined) continue;
        const against = {
          name: peer.name,
          series: series(theirs, ({ commitToConsumerMs }) => commitToConsumerMs.p99),
        };
        results.push(result({ ...rows.arrive99, against, goal: { ratioAtLeast: 1 } }));
      }
    }
  }
  return results;
}

const PARTS: Readonly<Record<string, Part>> = { drain: drains, latency: latencies };

export const bench: Bench = {
  name: 'relay',
  takesBrokerProperties: true,
  summary:
    'A relay from outbox to topic, in both modes and against its peers: drain, latency from the commit, CPU a row.',
  run: (context) => openParts(context, PARTS),
};
