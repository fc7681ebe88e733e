/** `millrace bench registry`: any registry under the same load, compared with the raw limits of the
 *  machine.
 *
 *  All sides alternate in one run: an empty handler of the same HTTP backend for lookups, fdatasync
 *  of as many bytes on the same file system for durable registrations, and with -vs=URL another
 *  registry for all loads. The load runs in a separate process, on the same cores as the
 *  servers. */
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { packageRoot } from '../src/shell/package.ts';
import { type Bench, type BenchResult, result, type Series, seriesOf, takeTurns } from './harness.ts';
import { type DiskMode, dataBytesUnder, fdatasyncRate } from './registry-disk.ts';
import { kafkaRates, kafkaStarts } from './registry-kafka.ts';
import { largeResults } from './registry-large.ts';
import { RegistryLoads } from './registry-loads.ts';
import { peerOf, peerStarter } from './registry-peer.ts';
import { beside, lessMs, more, type Run } from './registry-run.ts';
import {
  backendOf,
  residentBytes,
  type Started,
  startEmpty,
  startOurs,
  type Target,
} from './registry-server.ts';

/** Goal of lookups per second; the percentile is measured at half of it. */
const LOOKUPS_GOAL = 20_000;
/** Goal of checks per second of distinct pairs. */
const CHECKS_GOAL = 10_000;
const WRITES_BESIDE = 200;

/** Loads of a run: on Millrace, and on the other registry. */
interface Sides {
  readonly ours: RegistryLoads;
  readonly peer: RegistryLoads | undefined;
}

/** Measures both sides, alternating. */
async function both(
  run: Run,
  sides: Sides,
  measure: (loads: RegistryLoads) => Promise<number>,
  extra: Readonly<Record<string, () => Promise<number> | number>> = {},
): Promise<Readonly<Record<string, Series>>> {
  const { ours, peer } = sides;
  return takeTurns(
    {
      ours: () => measure(ours),
      ...extra,
      ...(peer === undefined ? {} : { peer: () => measure(peer) }),
    },
    run.context.repeats,
  );
}

async function lookups(run: Run, sides: Sides): Promise<BenchResult[]> {
  const { context, sizes } = run;
  const results: BenchResult[] = [];
  const backend = await backendOf(sides.ours.target);
  const emptyName = `empty handler, same backend (${backend})`;
  const empty = await startEmpty(backend);
  try {
    const bare = new RegistryLoads({ name: 'empty', url: empty.url }, run.name, sizes, context.drain);
    bare.borrowIds(sides.ours);
    let reached = 0;
    for (const connections of [1, 16, 64]) {
      context.say(`lookups, ${connections} connections`);
      const rate = (loads: RegistryLoads): Promise<number> => loads.lookupRate(connections);
      const series = await both(run, sides, rate, { empty: () => rate(bare) });
      reached = Math.max(reached, series['ours']?.median as number);
      results.push(
        ...beside(
          {
            ...more,
            metric: `lookups by id, ${connections} connections`,
            ours: series['ours'] as Series,
            against: { name: emptyName, series: series['empty'] as Series },
            ...(connections === 64 ? { goal: { valueAtLeast: LOOKUPS_GOAL } } : {}),
          },
          sides.peer?.target.name,
          series['peer'],
        ),
      );
    }
    const half = Math.floor(Math.min(reached, LOOKUPS_GOAL) / 2);
    context.say(`lookups at ${half}/s`);
    const late = await takeTurns(
      { ours: () => sides.ours.lookupP99Ms(half, 64), empty: () => bare.lookupP99Ms(half, 64) },
      context.repeats,
    );
    results.push(
      result({
        ...lessMs,
        metric: `lookups by id at ${half}/s, p99`,
        ours: late.ours,
        against: { name: emptyName, series: late.empty },
        goal: { ratioAtLeast: 0.5 },
      }),
    );
  } finally {
    await empty.stop();
  }
  return results;
}

async function writes(run: Run, sides: Sides, store: string): Promise<BenchResult[]> {
  const { context, sizes, dir } = run;
  const results: BenchResult[] = [];
  const peer = sides.peer?.target.name;
  // Bytes that one registration of this load writes to the disk.
  const before = dataBytesUnder(store);
  await sides.ours.register(100);
  const recordBytes = Math.ceil((dataBytesUnder(store) - before) / 100);
  const disk = join(dir, 'raw');
  const raw = (mode: DiskMode) => () => fdatasyncRate(disk, recordBytes, sizes.durationMs, mode);
  for (const [connections, goal, name] of [
    [1, 0.6, 'registrations, durable, one after the other'],
    [16, 3, 'registrations, durable, 16 at once'],
  ] as const) {
    context.say(name);
    const series = await both(run, sides, (loads) => loads.registrationRate(connections), {
      raw: raw('grow'),
      inPlace: raw('overwrite'),
    });
    const inPlace = {
      name: `write and fdatasync of ${recordBytes} B in space that is there`,
      series: series['inPlace'] as Series,
    };
    results.push(
      ...beside(
        {
          ...more,
          metric: name,
          ours: series['ours'] as Series,
          against: {
            name: `append and fdatasync of ${recordBytes} B`,
            series: series['raw'] as Series,
          },
          goal: { ratioAtLeast: goal },
        },
        peer,
        series['peer'],
      ),
      result({ ...more, metric: name, ours: series['ours'] as Series, against: inPlace }),
    );
  }
  for (const connections of [1, 16]) {
    const how = connections === 1 ? 'one after the other' : `${connections} at once`;
    for (const [name, measure] of [
      ['identical registrations', (loads: RegistryLoads) => loads.repeatRate(connections)],
      ['compatibility checks', (loads: RegistryLoads) => loads.checkRate(connections)],
    ] as const) {
      context.say(`${name}, ${how}`);
      const series = await both(run, sides, measure);
      const row = { ...more, metric: `${name}, ${how}`, ours: series['ours'] as Series };
      results.push(...beside(row, peer, series['peer']));
    }
  }
  return [...results, ...(await distinctChecks(run, sides))];
}

async function distinctChecks(run: Run, sides: Sides): Promise<BenchResult[]> {
  const name = 'compatibility checks of distinct pairs, 16 at once';
  run.context.say(name);
  const series = await both(run, sides, (loads) => loads.checkDistinctRate(16));
  const row = {
    ...more,
    metric: name,
    ours: series['ours'] as Series,
    goal: { valueAtLeast: CHECKS_GOAL },
  };
  return beside(row, sides.peer?.target.name, series['peer']);
}

async function coldClients(run: Run, sides: Sides): Promise<BenchResult[]> {
  const { context } = run;
  context.say(`cold lookups during ${WRITES_BESIDE} registrations per second`);
  const series = await both(run, sides, (loads) => loads.coldLookupP99Ms(WRITES_BESIDE));
  return beside(
    {
      ...lessMs,
      metric: `lookup by a cold client beside ${WRITES_BESIDE} registrations/s, p99`,
      ours: series['ours'] as Series,
      goal: { valueAtMost: 25 },
    },
    sides.peer?.target.name,
    series['peer'],
  );
}

/** Time from spawn to the first accepted registration, and memory afterwards. */
async function starts(run: Run): Promise<BenchResult[]> {
  const { context, sizes, dir } = run;
  const filled = join(dir, 'filled');
  const first = await startOurs(`file:${filled}`, [], 'fill');
  let grown: number;
  try {
    await new RegistryLoads(first, `${run.name}s`, sizes, context.drain).fill(sizes.schemas - 1);
    grown = residentBytes(first.pid) / 1e6;
  } finally {
    await first.stop();
  }
  let turn = 0;
  const resident: number[] = [];
  const start = async (store: string): Promise<number> => {
    turn++;
    const server = await startOurs(`file:${store}`, [], `start${turn}`);
    if (store === filled) resident.push(residentBytes(server.pid) / 1e6);
    await server.stop();
    return server.writableMs;
  };
  const peer = peerStarter(context);
  let peerName: string | undefined;
  const peerResident: number[] = [];
  const startOther = async (): Promise<number> => {
    const server = await (peer as () => Promise<Started>)();
    peerName = server.name;
    peerResident.push(residentBytes(server.pid) / 1e6);
    await server.stop();
    return server.writableMs;
  };
  context.say('starts');
  const sides: Readonly<Record<string, () => Promise<number>>> = {
    empty: () => start(join(dir, `empty-${turn}`)),
    filled: () => start(filled),
    ...(peer === undefined ? {} : { peer: startOther }),
  };
  const series: Readonly<Record<string, Series>> = await takeTurns(sides, context.repeats);
  const row = (metric: string, ours: Series | undefined, atMost: number) =>
    ({ ...lessMs, metric, ours: ours as Series, goal: { valueAtMost: atMost } }) as const;
  const memory = (metric: string, values: readonly number[]) =>
    ({ metric, unit: 'MB', better: 'less', ours: seriesOf(values), goal: { valueAtMost: 100 } }) as const;
  return [
    ...beside(row('start until writable, empty file store', series['empty'], 300), peerName, series['peer']),
    result(row(`start until writable, ${sizes.schemas} schemas, file store`, series['filled'], 1000)),
    ...beside(
      memory(`memory after a start with ${sizes.schemas} schemas (the other: with one)`, resident),
      peerName,
      peerName === undefined ? undefined : seriesOf(peerResident),
    ),
    result(memory(`memory after registering ${sizes.schemas} schemas`, [grown])),
  ];
}

export const bench: Bench = {
  name: 'registry',
  takesBrokerProperties: true,
  summary:
    'A registry under load: lookups, registrations, checks, starts, memory; -vs=URL compares with another registry.',
  async run(context) {
    const { smoke } = context;
    const root = join(packageRoot(), '.millrace', 'bench');
    mkdirSync(root, { recursive: true });
    const dir = mkdtempSync(join(root, 'registry-'));
    const run: Run = {
      context,
      dir,
      name: randomBytes(3).toString('hex'),
      sizes: smoke
        ? { warmupMs: 50, durationMs: 250, schemas: 50, largeSchemas: 400, lenient: true }
        : { warmupMs: 500, durationMs: 3000, schemas: 1000, largeSchemas: 100_000 },
    };
    // Other load of the machine.
    const [busy] = loadavg();
    const results: BenchResult[] = [
      result({
        metric: 'load of the machine before the run, average of a minute',
        unit: 'processes',
        better: 'less',
        ours: seriesOf([busy as number]),
      }),
    ];
    const parts: ReadonlyArray<() => Promise<readonly BenchResult[]>> = [
      () => underLoad(run),
      () => starts(run),
      () => kafkaRates(run),
      () => largeResults(run),
      () => kafkaStarts(run),
    ];
    try {
      for (const part of parts) {
        if (context.drain.aborted) break;
        try {
          results.push(...(await part()));
        } catch (thrown) {
          // An interrupted run returns the results so far.
          if (!context.drain.aborted) throw thrown;
        }
      }
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
    return results;
  },
};

async function underLoad(run: Run): Promise<BenchResult[]> {
  const { context, sizes, dir } = run;
  const store = join(dir, 'store');
  const server: Started = await startOurs(`file:${store}`);
  let other: Awaited<ReturnType<typeof peerOf>>;
  try {
    other = await peerOf(context);
    const loads = (target: Target): RegistryLoads =>
      new RegistryLoads(target, run.name, sizes, context.drain);
    const sides: Sides = {
      ours: loads(server),
      peer: other === undefined ? undefined : loads(other),
    };
    await sides.ours.fill(sizes.schemas);
    await sides.peer?.fill(sizes.schemas);
    return [
      ...(await lookups(run, sides)),
      ...(await writes(run, sides, store)),
      ...(await coldClients(run, sides)),
    ];
  } finally {
    await other?.stop();
    await server.stop();
  }
}
