/** The bare C++ loops as contestants: they read the topic into hash tables, and do nothing else. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../src/core/errors.ts';
import { consumerProperties } from '../../src/io/kafka/properties.ts';
import { compilePeer } from '../compile.ts';
import { cpuSeconds } from '../effects/cpu.ts';
import { PARTITIONS } from '../engine/events-topic.ts';
import type { BenchContext } from '../harness.ts';
import { type Cell, WINDOWS } from './cells.ts';
import type { Contestant, Drain, Name, Task } from './contestant.ts';
import { peakBytesOf } from './engine.ts';

const POLL_MS = 20;
/** Default fetch limits of Millrace's clients. */
const PARTITION_BYTES = 1_048_576;
const RESPONSE_BYTES = 52_428_800;

/** Line that a loop prints; events, seconds and CPU are those after a third of the events. */
interface Printed {
  readonly events: number;
  readonly seconds: number;
  readonly cpu_seconds: number;
  readonly rows: string;
  readonly count: string;
  readonly sum: string;
}

/** The loops have tables of tumbling windows, which they never release, and read the fixed layout.
 */
const does = ({ format, kind, firing }: Cell): boolean =>
  format === 'binary256' && kind === 'tumbling' && firing === 'light';

/** Differences of the totals to those of all windows, the ones that never end included. */
export function bareProblems(
  { expected, tail }: Pick<Task, 'expected' | 'tail'>,
  printed: Printed,
): readonly string[] {
  const wanted = {
    rows: `${expected.rows + tail.rows}`,
    count: `${expected.count + tail.count}`,
    sum: `${BigInt.asUintN(64, expected.weighted + tail.weighted)}`,
  };
  return (['rows', 'count', 'sum'] as const).flatMap((name) =>
    printed[name] === wanted[name] ? [] : [`${name}: ${printed[name]}, expected ${wanted[name]}`],
  );
}

/** Power of two that keeps the tables at most half full. */
const slotsOf = ({ expected }: Task): number => 2 ** Math.ceil(Math.log2(expected.rows));

class BareLoop implements Contestant {
  readonly does = does;
  readonly name: Name;
  readonly title: string;
  readonly settings: string;
  private readonly program: 'raw-engine' | 'raw-fetch';
  private readonly context: BenchContext;
  private binary = '';

  constructor(context: BenchContext, name: Name, program: 'raw-engine' | 'raw-fetch') {
    this.context = context;
    this.name = name;
    this.program = program;
    const isFetch = program === 'raw-fetch';
    this.title = isFetch ? 'bare C++ fetch loop' : 'bare C++ librdkafka loop';
    this.settings = isFetch
      ? '`bench/peers/raw-fetch`: record batches walked in place, no CRC check, one hash table a window; nothing fires and nothing is stored'
      : "`bench/peers/raw-engine`: librdkafka's batch calls with the properties of Millrace, one hash table a window; nothing fires and nothing is stored";
  }

  async open(): Promise<void> {
    this.binary = await compilePeer(this.program);
  }

  private argumentsOf(task: Task): readonly string[] {
    const { sizeMs } = WINDOWS[task.cell.kind];
    const numbers = [task.events, sizeMs, slotsOf(task)].map(String);
    if (this.program === 'raw-fetch') {
      const bootstrap = task.brokers.split(',')[0] as string;
      return [task.topic, ...numbers, bootstrap, String(PARTITION_BYTES), String(RESPONSE_BYTES)];
    }
    const properties = consumerProperties({ brokers: task.brokers, clientId: 'bench' });
    const pairs = Object.entries(properties).map(([name, value]) => `${name}=${value}`);
    return [task.topic, String(PARTITIONS), ...numbers, ...pairs];
  }

  async drain(task: Task): Promise<Drain> {
    const child = spawn(this.binary, this.argumentsOf(task), { stdio: ['ignore', 'pipe', 'pipe'] });
    const out = collected(child);
    const ended = once(child, 'close');
    let [peakBytes, cpu] = [0, 0];
    try {
      while (child.exitCode === null && child.signalCode === null) {
        this.context.drain.throwIfAborted();
        const pid = child.pid as number;
        peakBytes = Math.max(peakBytes, peakBytesOf(pid));
        cpu = Math.max(cpu, cpuSeconds(pid));
        await sleep(POLL_MS);
      }
    } finally {
      child.kill('SIGKILL');
      await ended;
    }
    const { stdout, stderr } = out();
    if (child.exitCode !== 0)
      throw coreError('unreachable', `${this.program}: ${stderr.trim().slice(0, 300)}`);
    const printed = JSON.parse(stdout) as Printed;
    return {
      rate: printed.events / printed.seconds,
      cpuUs: (printed.cpu_seconds / printed.events) * 1e6,
      // A loop may end before its CPU time is read.
      cpuAllUs: (Math.max(cpu, printed.cpu_seconds) / task.events) * 1e6,
      peakBytes,
      firstEventMs: null,
      firstResultMs: null,
      problems: bareProblems(task, printed),
    };
  }
}

function collected(child: ChildProcess): () => { readonly stdout: string; readonly stderr: string } {
  const text = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const)
    child[name]?.setEncoding('utf8').on('data', (chunk: string) => {
      text[name] += chunk;
    });
  return () => text;
}

export const bareContestants = (context: BenchContext): readonly Contestant[] => [
  new BareLoop(context, 'bare-librdkafka', 'raw-engine'),
  new BareLoop(context, 'bare-fetch', 'raw-fetch'),
];
