/** HTTP load from a process of its own: raw sockets, keep-alive, one request at a time on each
 *  connection.
 *
 *  Closed model: every connection sends its next request when it has its answer; the rate is what
 *  comes out. Open model (`ratePerSecond`): requests fall due on a clock that waits for nobody, and
 *  latency counts from then, so that a server that stalls cannot hide it.
 */
import { fork } from 'node:child_process';
import { join } from 'node:path';
import { invariant } from '../src/core/errors.ts';
import { packageRoot } from '../src/shell/package.ts';

/** Stands for the running number of a request (0, 1, 2, …) in its path and body. */
export const NUMBER = '@n@';

export interface LoadRequest {
  readonly method: string;
  /** May contain NUMBER. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as UTF-8 with its length; may contain NUMBER. */
  readonly body?: string;
}

export interface LoadPlan {
  /** `http://host:port` */
  readonly url: string;
  readonly connections: number;
  /** Sent in turn, over and over. */
  readonly requests: readonly LoadRequest[];
  /** Answers of this first part are not measured. */
  readonly warmupMs: number;
  /** Length of the measured part, which goes on while it has no answer at all. */
  readonly durationMs: number;
  /** Ends the measured part early, after so many answers. */
  readonly countMax?: number;
  /** Open model; absent: closed model. */
  readonly ratePerSecond?: number;
  /** First value of NUMBER, so that two runs need not collide. Default 0. */
  readonly firstNumber?: number;
}

export interface LoadReport {
  /** Answers in the measured part, and its length. */
  readonly answered: number;
  readonly seconds: number;
  readonly ratePerSecond: number;
  /** Answers in the measured part by status. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Connections that failed or ended, whole run; each is opened again. */
  readonly failures: number;
  /** Open model: requests that were due and still waited for a connection at the end. */
  readonly unsent: number;
  /** The next free value of NUMBER. */
  readonly nextNumber: number;
  readonly latencyUs: {
    readonly p50: number;
    readonly p90: number;
    readonly p99: number;
    readonly p999: number;
    readonly max: number;
  };
  /** Body of the first answer to each of `requests`, as text; empty where none came. */
  readonly firstBodies: readonly string[];
}

/** Runs a plan in a child process, compiled beside this file, and gives what it measured. */
export function driveLoad(plan: LoadPlan, signal?: AbortSignal): Promise<LoadReport> {
  invariant(plan.connections > 0 && plan.requests.length > 0, 'a load needs connections and requests');
  return new Promise((resolve, reject) => {
    const child = fork(join(packageRoot(), 'dist', 'bench', 'http-load-child.js'), [], {
      serialization: 'advanced',
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      execArgv: [],
    });
    const stop = (): void => {
      child.kill('SIGKILL');
    };
    signal?.addEventListener('abort', stop, { once: true });
    let report: LoadReport | undefined;
    child.on('message', (message) => {
      report = message as LoadReport;
    });
    child.on('error', reject);
    child.on('exit', (code, killed) => {
      signal?.removeEventListener('abort', stop);
      if (report !== undefined) resolve(report);
      else reject(new Error(`the load process ended without a report (${killed ?? code})`));
    });
    child.send(plan);
  });
}
