/** The engines on the JVM as contestants. Their libraries come from the Maven registry, pinned by
 *  the pom.xml of each peer; their programs are compiled with `javac` from bench/peers. */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../src/core/errors.ts';
import { checkJava, javaProgram } from '../../src/devstack/kafka/server.ts';
import { freePort } from '../../src/devstack/ports.ts';
import type { BenchContext } from '../harness.ts';
import { peerDigest, peerFolder, peerSource, runForPeer } from '../peer-folder.ts';
import { CHECKPOINT_MS, DELAY_MS, WINDOWS } from './cells.ts';
import type { Contestant, Name, Task } from './contestant.ts';
import {
  drainEngine,
  type Engine,
  type Progress,
  type RunningEngine,
  recoverEngine,
  untilProgress,
} from './engine.ts';
import { differencesOf, RowSet, readRows } from './rows.ts';

const HEAP = '4g';
const POLL_MS = 200;
const FINISH_POLL_MS = 500;
/** Time without progress after which no further results are expected. */
const QUIET_MS = 30_000;
const SETPRIV = '/usr/bin/setpriv';
/** Records of a poll of the peers; their default of 500 costs them more. */
const POLL_RECORDS = 5000;
const STREAMS_CACHE_BYTES = 256 * 1024 * 1024;
const MANAGED = '1g';
/** Layout of the file of bench/peers/jvm/Progress.java. */
const PARTITIONS_MAX = 64;
const PROGRESS_CELLS = PARTITIONS_MAX + 4;

/** Packages that engines open by reflection, as their own scripts list them for Java 17. */
const OPENED = [
  ...['java.base/java.lang', 'java.base/java.net', 'java.base/java.io', 'java.base/java.nio'],
  ...['java.base/sun.nio.ch', 'java.base/java.lang.reflect', 'java.base/java.text', 'java.base/java.time'],
  ...['java.base/java.util', 'java.base/java.util.concurrent', 'java.base/java.util.concurrent.atomic'],
  ...['java.base/java.util.concurrent.locks', 'java.management/sun.management'],
  'jdk.management/com.sun.management.internal',
];
const JVM = [
  `-Xmx${HEAP}`,
  '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
  '--add-modules=java.se',
  '--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED',
  ...OPENED.map((one) => `--add-opens=${one}=ALL-UNNAMED`),
];

interface Program {
  /** Folder below bench/peers, and its main class. */
  readonly peer: string;
  readonly main: string;
  readonly title: string;
  /** Artifact whose version is that of the engine. */
  readonly artifact: string;
  readonly settings: string;
  /** Arguments besides those of every peer. */
  more(): Promise<Readonly<Record<string, string>>>;
}

const FLINK = { peer: 'flink', main: 'FlinkWindows', artifact: 'flink-streaming-java' } as const;
const FLINK_SETTINGS =
  'DataStream API, job manager and task manager in one process, object reuse, exactly-once checkpoints';

const PROGRAMS: Readonly<Partial<Record<Name, Program>>> = {
  'flink-heap': {
    ...FLINK,
    title: 'Apache Flink, heap state',
    settings: `${FLINK_SETTINGS}, state backend hashmap`,
    more: async () => ({ backend: 'hashmap', managed: '128m' }),
  },
  'flink-rocksdb': {
    ...FLINK,
    title: 'Apache Flink, RocksDB state',
    settings: `${FLINK_SETTINGS}, state backend rocksdb with incremental checkpoints and ${MANAGED} of managed memory`,
    more: async () => ({ backend: 'rocksdb', managed: MANAGED }),
  },
  'kafka-streams': {
    peer: 'kafka-streams',
    main: 'StreamsWindows',
    artifact: 'kafka-streams',
    title: 'Kafka Streams',
    settings:
      'RocksDB stores with changelog, exactly_once_v2, a commit at each checkpoint interval, cache of 256 MiB, suppressed until the window closes, static member; 100 ms of linger, lz4, transaction timeout of 60 s',
    more: async () => ({ cacheBytes: String(STREAMS_CACHE_BYTES) }),
  },
  'hazelcast-jet': {
    peer: 'hazelcast-jet',
    main: 'JetWindows',
    artifact: 'hazelcast',
    title: 'Hazelcast Jet',
    settings:
      'embedded member, queues of 16,384 events, state on the heap, no processing guarantee: snapshots would be in the memory of the killed process, so a restart reads from the beginning',
    more: async () => ({ port: String(await freePort()) }),
  },
};

/** Classes in bench/peers/jvm that all peers share. */
const SHARED = ['Decoder', 'Event', 'Job', 'Progress', 'Rows', 'Sums'].map((name) => `${name}.java`);

/** Version of an artifact in the pom.xml of a peer; undefined in an installed package, which has no
 *  peers. */
export function versionIn(peer: string, artifact: string): string | undefined {
  const path = join(peerSource(peer), 'pom.xml');
  if (!existsSync(path)) return undefined;
  const pom = readFileSync(path, 'utf8');
  const found = new RegExp(`<artifactId>${artifact}</artifactId>\\s*<version>([^<]+)<`).exec(pom)?.[1];
  if (found === undefined) throw coreError('internal', `the pom.xml of ${peer} has no ${artifact}`);
  return found;
}

/** Class path of a peer. @throws unreachable if its libraries cannot be had, or it does not compile
 */
async function classPath({ peer, main }: Program): Promise<string> {
  if (!existsSync(peerSource(peer)))
    throw coreError('bad_file', 'its program is in a clone of the repository, not in the package');
  const libraries = await peerFolder(`${peer}-libs`, peerDigest(peer, ['pom.xml']), async (folder) => {
    const pom = join(peerSource(peer), 'pom.xml');
    const copy = ['dependency:copy-dependencies', '-DincludeScope=runtime', `-DoutputDirectory=${folder}`];
    await runForPeer('mvn', ['-B', '-q', '-f', pom, ...copy]);
  });
  const file = `${main}.java`;
  const digest = `${peerDigest('jvm', SHARED)}${peerDigest(peer, [file, 'pom.xml'])}`;
  const classes = await peerFolder(`${peer}-classes`, digest, async (folder) => {
    const sources = [...SHARED.map((name) => join(peerSource('jvm'), name)), join(peerSource(peer), file)];
    const options = ['-nowarn', '-proc:none', '-d', folder, '-cp', join(libraries, '*')];
    await runForPeer('javac', [...options, ...sources]);
  });
  return `${classes}:${join(libraries, '*')}`;
}

/** Progress that a peer has published. */
export function readProgress(path: string): Progress {
  const none: Progress = { events: 0, rows: 0, firstEventAt: null, firstRowAt: null, lastRowAt: null };
  if (!existsSync(path)) return none;
  const bytes = readFileSync(path);
  if (bytes.length < PROGRESS_CELLS * 8) return none;
  const cell = (at: number): number => Number(bytes.readBigInt64LE(at * 8));
  const time = (at: number): number | null => (cell(at) === 0 ? null : cell(at));
  let events = 0;
  for (let partition = 0; partition < PARTITIONS_MAX; partition++) events += cell(partition);
  return {
    events,
    rows: cell(PARTITIONS_MAX),
    firstEventAt: time(PARTITIONS_MAX + 1),
    firstRowAt: time(PARTITIONS_MAX + 2),
    lastRowAt: time(PARTITIONS_MAX + 3),
  };
}

class JvmEngine implements Engine {
  readonly pollMs = POLL_MS;
  private readonly context: BenchContext;
  private readonly program: Program;
  private classPath = '';
  private starts = 0;

  constructor(context: BenchContext, program: Program) {
    this.context = context;
    this.program = program;
  }

  async open(): Promise<void> {
    await checkJava(javaProgram(process.env));
    this.classPath = await classPath(this.program);
  }

  private async argumentsOf(task: Task): Promise<readonly string[]> {
    const { kind, format } = task.cell;
    const { sizeMs, slideMs } = WINDOWS[kind];
    const values: Readonly<Record<string, string | number>> = {
      ...{ brokers: task.brokers, topic: task.topic, folder: task.folder, format, kind, sizeMs, slideMs },
      registry: task.registry ?? '',
      delayMs: DELAY_MS,
      checkpointMs: CHECKPOINT_MS,
      threads: availableParallelism(),
      pollRecords: POLL_RECORDS,
      run: runName(task),
      ...(await this.program.more()),
    };
    return Object.entries(values).map(([name, value]) => `${name}=${value}`);
  }

  async start(task: Task): Promise<RunningEngine> {
    mkdirSync(task.folder, { recursive: true });
    const logPath = join(task.folder, `log-${this.starts++}`);
    const log = openSync(logPath, 'a');
    const java = [
      ...JVM,
      '-cp',
      this.classPath,
      `peers.${this.program.main}`,
      ...(await this.argumentsOf(task)),
    ];
    const owned = existsSync(SETPRIV);
    const program = javaProgram(process.env);
    const words = owned ? ['--pdeathsig', 'KILL', program, ...java] : java;
    const startedAt = Date.now();
    const child = spawn(owned ? SETPRIV : program, words, { stdio: ['ignore', log, log] });
    const ended = new Promise<void>((resolve) => {
      child.once('close', () => resolve());
      child.once('error', () => resolve());
    });
    const path = join(task.folder, 'progress');
    return {
      pid: child.pid as number,
      startedAt,
      logPath,
      ended,
      kill: () => void child.kill('SIGKILL'),
      // A file of the process before the restart says nothing about this one.
      progress: async () => {
        const now = readProgress(path);
        const isOwn = now.firstEventAt !== null && now.firstEventAt >= startedAt;
        return isOwn ? now : { ...now, events: 0, rows: 0, firstRowAt: null, lastRowAt: null };
      },
    };
  }

  /** Waits until the files have all results; a peer that wrote too few is given more time. */
  async finish(task: Task, running: RunningEngine): Promise<readonly string[]> {
    let [seen, movedAt] = ['', performance.now()];
    let set = new RowSet(task.expected.rows);
    await untilProgress(
      this.context,
      running,
      async () => {
        const now = await running.progress();
        const state = `${now.events} ${now.rows}`;
        if (state !== seen) {
          [seen, movedAt] = [state, performance.now()];
          set = new RowSet(task.expected.rows);
          await readRows(task.folder, set);
        }
        return now;
      },
      () => set.rows >= task.expected.rows || performance.now() - movedAt > QUIET_MS,
      FINISH_POLL_MS,
    );
    running.kill();
    await running.ended;
    await sleep(0);
    const final = new RowSet(task.expected.rows);
    await readRows(task.folder, final);
    return differencesOf(task.expected, final);
  }
}

/** Name of a run, for the group and the internal topics of Kafka Streams. */
const runName = (task: Task): string => task.folder.split('/').at(-1) as string;

/** Topics that a run leaves in the cluster. */
export const internalTopics = (task: Task): readonly string[] =>
  ['windows', 'closed-store'].map((store) => `streams-${runName(task)}-${store}-changelog`);

export function jvmContestants(context: BenchContext): readonly Contestant[] {
  return (Object.entries(PROGRAMS) as [Name, Program][]).map(([name, program]) => {
    const engine = new JvmEngine(context, program);
    const [family, ...kind] = program.title.split(', ');
    const version = versionIn(program.peer, program.artifact);
    return {
      name,
      title: [version === undefined ? family : `${family} ${version}`, ...kind].join(', '),
      settings: `${program.settings}; \`-Xmx${HEAP}\`, as many threads as cores, max.poll.records=${POLL_RECORDS}`,
      does: () => true,
      open: () => engine.open(),
      drain: (task) => drainEngine(context, engine, task),
      recover: (task) => recoverEngine(context, engine, task),
    };
  });
}
