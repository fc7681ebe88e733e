/** Millrace as a contestant: `bin/millrace engine` with its default settings and one of its two
 *  broker clients. Its results are read from its embedded store. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../src/core/errors.ts';
import { FIRED_FAMILIES, readFired } from '../../src/engine/output/fired/store.ts';
import type { StartedCommand } from '../../src/shell/children/started-command.ts';
import { kvDriver } from '../../src/shell/drivers.ts';
import type { Children } from '../children.ts';
import { metricIn, scrape } from '../engine/engine-run.ts';
import type { BenchContext } from '../harness.ts';
import { type Cell, CHECKPOINT_MS, LATENESS_MS, SKEW_MS, WINDOWS } from './cells.ts';
import type { Contestant, Task } from './contestant.ts';
import {
  drainEngine,
  type Engine,
  type Progress,
  type RunningEngine,
  recoverEngine,
  untilProgress,
} from './engine.ts';
import { differencesOf, ROW_WORDS, RowSet } from './rows.ts';

/** A scrape costs the engine about 3 ms of CPU. */
const POLL_MS = 250;
const POLL_MS_SMOKE = 25;
/** Time without a further result after which all results are durable. */
const QUIET_MS = 1500;
const STORE_BUDGET_BYTES = 64 * 1024 * 1024;
const CLIENTS = { millrace: 'librdkafka', 'millrace-direct': 'direct' } as const;

export function windowFlags({ kind, format }: Cell, registry: string | undefined): readonly string[] {
  const { sizeMs, slideMs } = WINDOWS[kind];
  const window = {
    tumbling: [`-size=${sizeMs}ms`],
    sliding: [`-size=${sizeMs}ms`, `-slide=${slideMs}ms`],
    session: [`-gap=${sizeMs}ms`],
  }[kind];
  const fields =
    format === 'avro'
      ? ['-format=avro', `-registry=${registry}`, '-key=account_id', '-value=value', '-time=event_ts']
      : ['-format=binary256'];
  return [`-window=${kind}`, ...window, ...fields];
}

interface OwnProgress extends Progress {
  /** Results that are fired and not yet durable. */
  readonly waiting: number;
}

interface RunningCommand extends RunningEngine {
  readonly process: StartedCommand;
  progress(): Promise<OwnProgress>;
}

class MillraceEngine implements Engine<RunningCommand> {
  readonly pollMs: number;
  private readonly context: BenchContext;
  private readonly children: Children;
  private readonly client: string;

  constructor(context: BenchContext, children: Children, client: string) {
    this.context = context;
    this.children = children;
    this.client = client;
    this.pollMs = context.smoke ? POLL_MS_SMOKE : POLL_MS;
  }

  async start(task: Task): Promise<RunningCommand> {
    const startedAt = Date.now();
    const process = this.children.processes.spawn('engine', [
      'engine',
      `-brokers=${task.brokers}`,
      `-topic=${task.topic}`,
      `-state-dir=${task.folder}`,
      `-allowed-skew=${SKEW_MS}ms`,
      `-allowed-lateness=${LATENESS_MS}ms`,
      `-checkpoint-interval=${CHECKPOINT_MS}ms`,
      `-broker-client=${this.client}`,
      // A partition that is read later than the others on a busy machine is not idle.
      '-idle-timeout=0',
      ...windowFlags(task.cell, task.registry),
      '-listen=127.0.0.1:0',
      '-log-level=warn',
    ]);
    const address = await process.address();
    return {
      process,
      pid: process.pid,
      startedAt,
      logPath: process.logPath,
      ended: process.ended,
      kill: () => process.kill('SIGKILL'),
      async progress() {
        const now = await scrape({ address }).catch(() => undefined);
        const value = (name: string): number => (now?.has(name) ? metricIn(now, name) : 0);
        return {
          events: value('engine_events_total'),
          rows: value('engine_sink_rows_total'),
          waiting: value('engine_sink_waiting_rows'),
          ...{ firstEventAt: null, firstRowAt: null, lastRowAt: null },
        };
      },
    };
  }

  async finish(task: Task, running: RunningCommand): Promise<readonly string[]> {
    const { process } = running;
    let [seen, quietSince] = [-1, performance.now()];
    await untilProgress(
      this.context,
      running,
      () => running.progress(),
      ({ events, rows, waiting }) => {
        if (rows !== seen || waiting > 0) [seen, quietSince] = [rows, performance.now()];
        return events >= task.events && performance.now() - quietSince >= QUIET_MS;
      },
      POLL_MS_SMOKE,
    );
    process.kill('SIGTERM');
    const { code, signal } = await process.ended;
    if (code !== 0)
      throw coreError('unreachable', `the engine ended with ${signal ?? code}`, {
        next: `see ${process.logPath}`,
      });
    return differencesOf(task.expected, await this.rows(task));
  }

  private async rows(task: Task): Promise<RowSet> {
    const set = new RowSet(task.expected.rows);
    const cells = new BigInt64Array(ROW_WORDS / 2);
    const words = new Uint32Array(cells.buffer);
    const options = { budgetBytes: STORE_BUDGET_BYTES, families: FIRED_FAMILIES, missing: 'refuse' } as const;
    const store = await (await kvDriver(this.context)).open(join(task.folder, 'fired'), options);
    try {
      for await (const page of readFired(store)) {
        for (const { accountId, windowStart, windowEnd, count, sum } of page) {
          cells[0] = BigInt.asIntN(64, accountId);
          cells[1] = BigInt(windowStart);
          cells[2] = BigInt(windowEnd);
          cells[3] = count;
          cells[4] = BigInt.asIntN(64, sum);
          set.add(words, 0);
        }
        await sleep(0);
      }
    } finally {
      await store.close();
    }
    return set;
  }
}

export function ourContestants(context: BenchContext, children: Children): readonly Contestant[] {
  return (['millrace', 'millrace-direct'] as const).map((name) => {
    const client = CLIENTS[name];
    const engine = new MillraceEngine(context, children, client);
    return {
      name,
      title: `Millrace, ${client === 'direct' ? 'direct client' : 'librdkafka'}`,
      settings: `\`millrace engine -broker-client=${client}\`, otherwise the defaults: one shard, state on disk beyond the memory budget, every change in the changelog, results durable in the embedded store`,
      does: () => true,
      open: async () => {},
      drain: (task) => drainEngine(context, engine, task),
      recover: (task) => recoverEngine(context, engine, task),
    };
  });
}
