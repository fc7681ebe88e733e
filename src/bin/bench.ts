/** `millrace bench NAME`: measures Millrace beside a peer or a raw limit in one run. With `-check`
 *  a missed goal sets the exit code. */
import { join } from 'node:path';
import {
  type Bench,
  type BenchContext,
  type BenchReport,
  machine,
  renderTable,
} from '../../bench/harness.ts';
import { BENCHES } from '../../bench/index.ts';
import { storeParts } from '../../bench/stored.ts';
import { coreError, EXIT } from '../core/errors.ts';
import { formatDuration } from '../core/quantity.ts';
import { nearest } from '../core/settings.ts';
import { BROKER_SETTINGS } from '../shell/broker-settings.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { buildDigest } from '../shell/package.ts';

const REPEATS = 5;
const REPEATS_SMOKE = 2;

const SETTINGS = {
  smoke: {
    type: 'bool',
    default: 'false',
    help: 'a short run (seconds); the answers are checked, the numbers are not meaningful',
  },
  check: { type: 'bool', default: 'false', help: 'exit 1 if a goal is missed' },
  repeats: {
    type: 'int',
    min: 1,
    max: 1000,
    help: `how often each side runs (${REPEATS}, with -smoke ${REPEATS_SMOKE}; engine-peers at most 3)`,
  },
  ...BROKER_SETTINGS,
  brokers: {
    type: 'string',
    help: 'host:port list of a Kafka cluster to use; without it a benchmark that needs one starts it',
  },
  postgres: {
    type: 'string',
    secret: true,
    help: 'orders, relay, inbox, idempotency, engine, volume, chaos: database to use, postgres://user:password@host:port/name; the benchmark creates a new database next to it, chaos a schema in it',
  },
  only: {
    type: 'list',
    help: 'orders, relay, inbox, volume, engine, engine-peers, serde, rollout, sweep: the parts to run (default: all), of sweep kinds of windows (tumbling, sliding, session), settings (lateness, checkpoint, window, keys), and counts to run no engine; engine-peers: contestants (millrace, millrace-direct, bare-librdkafka, bare-fetch, flink-heap, flink-rocksdb, kafka-streams, hazelcast-jet; with -smoke the first four), cells (base, format, window, keys, firing), and throughput or recovery alone; contracts: avro, protobuf (default: avro); chaos: crash points',
  },
  peers: {
    type: 'list',
    help: 'relay: peers to compare with: debezium, watermill, pg-transactional-outbox; serde: protobufjs, bufbuild, kafkajs, confluent, arrow-avro; an empty value for no peer (default: all, with -smoke none)',
  },
  duration: {
    type: 'duration',
    min: 1000,
    help: 'orders, relay, volume, engine, engine-soak, contracts, chaos: length of a run (60s, volume 20m, the engine 20s, engine-soak 40m, engine-soak-avro 85m, contracts 20m, chaos 10m and 2m, with -smoke 2s)',
  },
  rate: {
    type: 'rate',
    min: 1,
    help: 'orders, relay, volume, engine, engine-soak, sweep, contracts: requests, rows or events a second of the steady load (5000, for the engine four fifths of its ceiling, engine-soak 450k, engine-soak-avro 200k, sweep 100k, for contracts the highest flat rate, which it searches, chaos 200, volume as fast as they are answered)',
  },
  rows: {
    type: 'int',
    min: 1000,
    max: 1_000_000_000,
    help: 'relay, inbox: rows of a backlog (1000000); idempotency: requests of a run (20000); fetch: events of the topic (9000000); volume: rows of a prepared leg (10000000)',
  },
  events: {
    type: 'int',
    min: 10_000,
    max: 1_000_000_000,
    help: 'sweep, engine-peers: events of a cell (20000000 and 10000000, with -smoke 20000 and 100000)',
  },
  preload: {
    type: 'int',
    min: 0,
    max: 1_000_000_000,
    help: 'orders: idempotency keys inserted before the load (0); volume: the same (50000000); inbox: rows (100000000)',
  },
  'broker-count': {
    type: 'int',
    min: 1,
    max: 9,
    help: 'brokers of a cluster that the bench starts (1, chaos 3)',
  },
  'held-xmin': {
    type: 'bool',
    default: 'false',
    help: 'relay: keep an old transaction open during the load',
  },
  'kill-after': {
    type: 'duration',
    min: 1000,
    help: 'engine-soak, engine-soak-avro: kill and restart the engine each time it has run so long (default: never)',
  },
  'live-rollout': {
    type: 'duration',
    min: 1000,
    max: 86_400_000,
    help: 'contracts: upgrade a fleet at the rate of the run, with this time under load (default: no rollout)',
  },
  vs: {
    type: 'string',
    help: 'registry: URL of another registry that gets the same load in the same run (the registered schemas stay there), or apicurio to download and start Apicurio',
  },
  out: {
    type: 'string',
    help: 'folder for NAME.json (NAME-PART.json for parts selected by -only), and for NAME.md of rollout, replay, sweep, engine-peers, contracts, volume and chaos, such as docs/results; cells of rollout and corpora of replay that the same build has made there are kept, runs of engine-peers of the same build and of other cells, and cells of sweep, runs of chaos and orders-load and legs of volume of any build',
  },
  cases: {
    type: 'int',
    min: 2,
    max: 100_000_000,
    help: 'compatibility: random pairs of schemas (120000, with -smoke 400); parsers: hostile texts (1000000, with -smoke 4000); half of them Avro',
  },
  seed: {
    type: 'int',
    min: 0,
    max: 1_000_000_000,
    help: 'compatibility, parsers: number of the first case (1)',
  },
} as const;

type Benches = Readonly<Record<string, () => Promise<{ readonly bench: Bench }>>>;

async function list(context: CommandContext<typeof SETTINGS>, table: Benches): Promise<void> {
  const benches: Array<{ name: string; summary: string }> = [];
  for (const [name, load] of Object.entries(table))
    benches.push({ name, summary: (await load()).bench.summary });
  const lines = benches.map(({ name, summary }) => `  ${name.padEnd(10)} ${summary}`);
  context.print(['millrace bench NAME [-smoke] [-json] [-check]', '', ...lines].join('\n'), { benches });
}

type Context = CommandContext<typeof SETTINGS>;

/** Options of a run, from the flags. */
function runOptions(context: Context): BenchContext {
  const { smoke, repeats, brokers, vs, cases, seed, only, peers, duration, rate, rows, preload } =
    context.settings;
  return {
    smoke,
    repeats: repeats ?? (smoke ? REPEATS_SMOKE : REPEATS),
    log: context.log,
    metrics: context.metrics,
    settings: context.settings,
    brokers,
    brokerProperties: context.settings['broker-property'],
    vs: vs?.replace(/\/+$/, ''),
    cases,
    seed,
    postgres: context.settings.postgres,
    only,
    peers,
    durationMs: duration,
    rate,
    rows,
    events: context.settings.events,
    preload,
    brokerCount: context.settings['broker-count'],
    heldXmin: context.settings['held-xmin'],
    killAfterMs: context.settings['kill-after'],
    liveRolloutMs: context.settings['live-rollout'],
    out: context.settings.out,
    drain: context.drain,
    say: (line) => context.say(line),
    onClose: (close) => context.onClose(close),
  };
}

/** The flags that were given and change a result, for the report. */
function givenFlags(context: Context): string[] {
  const { repeats, vs, cases, seed, only, peers, duration, rate, rows, preload } = context.settings;
  const { 'kill-after': killAfter, 'live-rollout': liveRollout } = context.settings;
  const given = {
    only: only?.join(),
    peers: peers?.join(),
    duration: duration === undefined ? undefined : formatDuration(duration),
    rate,
    rows,
    events: context.settings.events,
    preload,
    'broker-count': context.settings['broker-count'],
    'held-xmin': context.settings['held-xmin'] || undefined,
    'kill-after': killAfter === undefined ? undefined : formatDuration(killAfter),
    'live-rollout': liveRollout === undefined ? undefined : formatDuration(liveRollout),
    repeats,
    vs,
    cases,
    seed,
  };
  return Object.entries(given).flatMap(([flag, value]) => (value === undefined ? [] : [`-${flag}=${value}`]));
}

/** @throws usage where the benchmark would leave the properties out */
function checkBrokerProperties({ settings }: Context, bench: Bench): void {
  const isBare = Object.keys(settings['broker-property']).length === 0;
  if (isBare || (bench.takesBrokerProperties === true && settings.brokers !== undefined)) return;
  const why = bench.takesBrokerProperties === true ? 'without -brokers' : `for bench ${bench.name}`;
  throw coreError('usage', `-broker-config and -broker-property change nothing ${why}`, {
    next: 'leave them out, or give -brokers to a bench that uses a broker',
  });
}

/** Stores the report in the folder of -out. An interrupted run lacks results, and leaves the stored
 *  report as it is. */
function storeWhole({ settings, drain, say }: Context, report: BenchReport): void {
  if (settings.out === undefined) return;
  if (drain.aborted) say('interrupted: the report is not stored');
  else say(`stored in ${join(settings.out, storeParts(settings.out, report, settings.only))}`);
}

/** Defines the command for a table of benchmarks. */
export const benchCommand = (table: Benches) =>
  defineCommand({
    name: 'bench',
    summary: 'Measure a part beside its peer or its raw limit, in one run.',
    description: 'Without a name it lists the benchmarks. Example: millrace bench hash -smoke -check',
    settings: SETTINGS,
    positionalMax: 1,
    positionalHelp: '[NAME]',
    async run(context) {
      const { settings } = context;
      const name = context.positional[0];
      if (name === undefined) {
        await list(context, table);
        return EXIT.done;
      }
      const load = Object.hasOwn(table, name) ? table[name] : undefined;
      if (load === undefined) {
        const near = nearest(name, Object.keys(table));
        const next =
          near === undefined ? `there are ${Object.keys(table).join(', ')}` : `did you mean ${near}?`;
        throw coreError('usage', `unknown benchmark ${JSON.stringify(name)}`, { next });
      }
      const { bench } = await load();
      checkBrokerProperties(context, bench);
      context.setReady();
      const results = await bench.run(runOptions(context));
      const flags = givenFlags(context);
      const report: BenchReport = {
        bench: name,
        build: buildDigest(),
        machine: machine(),
        ...(flags.length === 0 ? {} : { flags }),
        results,
      };
      context.print(renderTable(report), report);
      if (bench.storesReport !== true) storeWhole(context, report);
      const missed = results.filter((one) => one.met === false);
      if (settings.check)
        for (const { metric, goal, ratio, value } of missed)
          context.say(`missed: ${metric}: ${goal}, it is ${goal?.startsWith('ratio') ? ratio : value}`);
      return settings.check && missed.length > 0 ? EXIT.no : EXIT.done;
    },
  });
export const command = benchCommand(BENCHES);
