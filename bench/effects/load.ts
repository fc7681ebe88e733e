/** Runs the load generator bench/peers/http-load, compiled at first use, as a separate process. */
import { execFile, spawn } from 'node:child_process';
import { mkdirSync, readdirSync, renameSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { coreError, invariant } from '../../src/core/errors.ts';
import { packageRoot } from '../../src/shell/package.ts';

const run = promisify(execFile);

export interface Quantiles {
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly p999: number;
  readonly max: number;
}

/** Output of the load generator; the head of http_load.cc documents the fields. */
export interface LoadReport {
  readonly seconds: number;
  /** Wall time that corresponds to due time 0, in ms since the epoch. */
  readonly started_ms: number;
  readonly intents: number;
  readonly requests: number;
  readonly replies: number;
  /** Replies per second to requests that were due after the warm-up. */
  readonly per_second: number;
  readonly acknowledged_intents: number;
  readonly replayed: number;
  readonly refused: number;
  readonly failures: number;
  readonly unknown: number;
  readonly differing: number;
  readonly cpu_us: number;
  readonly latency_ms: Quantiles;
  /** Latency of the sends that are due outside the time after a fault. */
  readonly calm_ms: Quantiles;
  readonly service_ms: Quantiles;
  readonly wait_ms: Quantiles;
  readonly statuses: Readonly<Record<string, number>>;
  readonly backlog: readonly number[];
  readonly slowest_ms: readonly number[];
}

export interface LoadOptions {
  /** host:port */
  readonly target: string;
  /** Requests per second; 0: closed model. */
  readonly rate: number;
  readonly seconds: number;
  readonly seed: number;
  readonly warmupSeconds?: number;
  readonly connections?: number;
  readonly pattern?: 'fresh' | 'zipf' | 'single';
  readonly keys?: number;
  readonly ledger?: string;
  /** grpc: the same intents with Orders.Create over HTTP/2. */
  readonly protocol?: 'http' | 'grpc';
  readonly giveUpSeconds?: number;
  /** Faults that the caller makes; `calm_ms` leaves out the time after each. */
  readonly faults?: FaultTimes | undefined;
  /** Called when the load starts; its due times count from about then. */
  readonly onStart?: () => void;
}

/** A fault every `everySeconds` of the measured time, the first after that time. */
export interface FaultTimes {
  readonly everySeconds: number;
  readonly forSeconds: number;
}

let compiled: Promise<string> | undefined;

async function compile(): Promise<string> {
  const folder = join(packageRoot(), 'bench', 'peers', 'http-load');
  const binary = join(packageRoot(), '.millrace', 'bench', 'http-load');
  const changedMs = Math.max(...readdirSync(folder).map((name) => statSync(join(folder, name)).mtimeMs));
  const built = statSync(binary, { throwIfNoEntry: false });
  if (built !== undefined && built.mtimeMs > changedMs) return binary;
  mkdirSync(dirname(binary), { recursive: true });
  const part = `${binary}.${process.pid}`;
  try {
    await run('c++', ['-std=c++20', '-O2', '-Wall', '-Wextra', join(folder, 'http_load.cc'), '-o', part]);
  } catch (cause) {
    throw coreError('bad_file', `the load generator did not compile: ${(cause as Error).message}`, {
      next: 'install a C++ compiler with C++20',
      cause,
    });
  }
  renameSync(part, binary);
  return binary;
}

/** Runs a load. Fails if the answers to a key differ, or if an intent has no 2xx answer and
 *  `giveUpSeconds` is not set.
 *  @throws bad_file, unreachable */
export async function load(options: LoadOptions): Promise<LoadReport> {
  compiled ??= compile();
  const flags: Readonly<Record<string, string | number | undefined>> = {
    target: options.target,
    rate: options.rate,
    duration: options.seconds + (options.warmupSeconds ?? 0),
    warmup: options.warmupSeconds ?? 0,
    seed: options.seed,
    connections: options.connections,
    pattern: options.pattern,
    keys: options.keys,
    ledger: options.ledger,
    protocol: options.protocol,
    'give-up': options.giveUpSeconds,
    'fault-every': options.faults?.everySeconds,
    'fault-for': options.faults?.forSeconds,
  };
  const args = Object.entries(flags).flatMap(([name, value]) =>
    value === undefined ? [] : [`-${name}=${value}`],
  );
  const child = spawn(await compiled, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  options.onStart?.();
  const [stdout, stderr, code] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
  if (stdout === '')
    throw coreError('unreachable', `the load generator ended with ${code}: ${stderr.trim()}`);
  const report = JSON.parse(stdout) as LoadReport;
  invariant(report.differing === 0, `all answers of a key are equal, but ${report.differing} were not`);
  if (options.giveUpSeconds === undefined)
    invariant(
      code === 0,
      `every intent is acknowledged: ${report.unknown} are not, of statuses ${JSON.stringify(report.statuses)}: ${stderr.trim()}`,
    );
  return report;
}

/** Least-squares slope, per second, of values sampled once per second. */
export function slope(values: readonly number[]): number {
  const n = values.length;
  if (n < 2) return 0;
  const meanX = (n - 1) / 2;
  const meanY = values.reduce((sum, one) => sum + one, 0) / n;
  let above = 0;
  let below = 0;
  for (const [x, y] of values.entries()) {
    above += (x - meanX) * (y - meanY);
    below += (x - meanX) ** 2;
  }
  return above / below;
}
