/** HTTP load from a separate process: raw sockets, keep-alive, one request at a time on each
 *  connection.
 *
 *  Closed model: every connection sends its next request after its answer; the rate is the result.
 *  Open model (`ratePerSecond`): requests are due on a fixed schedule, and latency counts from the
 *  due time, so that a stalled server cannot hide it. */
import { fork } from 'node:child_process';
import { join } from 'node:path';
import { invariant } from '../src/core/errors.ts';
import { packageRoot } from '../src/shell/package.ts';

/** Placeholder for the running number of a request (0, 1, 2, …) in its path and body. */
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
  /** Sent in turn, repeatedly. */
  readonly requests: readonly LoadRequest[];
  /** Length of the first part, whose answers are not measured. */
  readonly warmupMs: number;
  /** Length of the measured part, which is extended until it has an answer. */
  readonly durationMs: number;
  /** Ends the measured part early, after this many answers. */
  readonly countMax?: number;
  /** Open model; absent: closed model. */
  readonly ratePerSecond?: number;
  /** First value of NUMBER, so that two runs do not collide. Default 0. */
  readonly firstNumber?: number;
}

export interface LoadReport {
  /** Number of answers in the measured part. */
  readonly answered: number;
  readonly seconds: number;
  readonly ratePerSecond: number;
  /** Answers in the measured part by status. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Connections that failed or ended in the whole run; each is reopened. */
  readonly failures: number;
  /** Open model: due requests that still waited for a connection at the end. */
  readonly unsent: number;
  /** Next unused value of NUMBER. */
  readonly nextNumber: number;
  readonly latencyUs: {
    readonly p50: number;
    readonly p90: number;
    readonly p99: number;
    readonly p999: number;
    readonly max: number;
  };
  /** Body of the first answer to each of `requests`, as text; empty if there is none. */
  readonly firstBodies: readonly string[];
}

/** Runs a plan in a child process, compiled next to this file, and returns its report. */
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
