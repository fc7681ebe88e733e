/** Jobs of a Flink cluster, by the REST interface of its job manager. */
import { sleep, type Timers } from '../../../core/clock.ts';
import { coreError } from '../../../core/errors.ts';
import { engineError } from '../../../engine/errors.ts';
import { ask, askEnd, causeOf, type FlinkAnswer, type FlinkServer, hide } from './http.ts';

const POLL_MS = 500;
/** Time for a savepoint or a cancellation. */
const CHANGE_MS_MAX = 600_000;
const ENDED: readonly string[] = ['FINISHED', 'CANCELED', 'FAILED'];

export interface FlinkJobs {
  readonly server: FlinkServer;
  readonly clock: Timers;
  readonly signal: AbortSignal;
}

const records = (value: unknown): readonly FlinkAnswer[] =>
  Array.isArray(value) ? (value as readonly FlinkAnswer[]) : [];
const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

/** Id of the job that an id or a name means: a job that runs, or else the newest that ended.
 *  @throws flink_job_missing, usage */
export async function findJob({ server }: FlinkJobs, id: string | undefined, name: string): Promise<string> {
  if (id !== undefined) {
    if (/^[0-9a-f]{32}$/.test(id)) return id;
    throw coreError('bad_value', `-flink-job=${id.slice(0, 64)} is not the id of a job`, {
      next: 'give 32 hexadecimal digits, as engine submit prints them',
      details: { setting: 'flink-job' },
    });
  }
  const all = records((await ask(server, 'GET', '/jobs/overview'))['jobs']);
  const own = all.filter((job) => job['name'] === name);
  const running = own.filter((job) => !ENDED.includes(textOf(job['state'])));
  if (running.length > 1)
    throw coreError(
      'usage',
      `Flink runs ${running.length} jobs named ${name}: ${running.map(({ jid }) => jid).join(', ')}`,
      {
        next: 'give -flink-job=ID',
        details: { setting: 'flink-job' },
      },
    );
  const [newest] =
    running.length > 0 ? running : [...own].sort((a, b) => Number(b['start-time']) - Number(a['start-time']));
  if (newest !== undefined) return textOf(newest['jid']);
  throw engineError('flink_job_missing', `Flink has no job named ${name}`, {
    next: 'give -flink-job=ID, or the -job file with which it was submitted',
  });
}

export interface JobStatus {
  readonly job: string;
  readonly name: string;
  readonly state: string;
  readonly seconds: number;
  readonly tasks: ReadonlyArray<{
    readonly name: string;
    readonly state: string;
    readonly parallelism: number;
    readonly read: number;
    readonly written: number;
  }>;
  /** The last whole checkpoint; null: none. */
  readonly checkpoint: { readonly id: number; readonly atMs: number; readonly bytes: number } | null;
  readonly failure: string | null;
}

export async function jobStatus({ server }: FlinkJobs, job: string): Promise<JobStatus> {
  const found = await ask(server, 'GET', `/jobs/${job}`);
  const { latest } = (await ask(server, 'GET', `/jobs/${job}/checkpoints`)) as {
    readonly latest?: FlinkAnswer;
  };
  const completed = (latest?.['completed'] ?? undefined) as FlinkAnswer | undefined;
  return {
    job,
    name: textOf(found['name']),
    state: textOf(found['state']),
    seconds: Number(found['duration']) / 1000,
    tasks: records(found['vertices']).map((vertex) => {
      const metrics = (vertex['metrics'] ?? {}) as FlinkAnswer;
      return {
        name: textOf(vertex['name']),
        state: textOf(vertex['status']),
        parallelism: Number(vertex['parallelism']),
        read: Number(metrics['read-records'] ?? 0),
        written: Number(metrics['write-records'] ?? 0),
      };
    }),
    checkpoint:
      completed === undefined
        ? null
        : {
            id: Number(completed['id']),
            atMs: Number(completed['latest_ack_timestamp']),
            bytes: Number(completed['state_size']),
          },
    failure: (await failures({ server }, job))[0] ?? null,
  };
}

/** Causes of the failures of a job, newest first. */
async function failures({ server }: Pick<FlinkJobs, 'server'>, job: string): Promise<readonly string[]> {
  const answer = await ask(server, 'GET', `/jobs/${job}/exceptions?maxExceptions=20`);
  const { entries } = (answer['exceptionHistory'] ?? {}) as FlinkAnswer;
  return records(entries).map((entry) => hide(server, causeOf(textOf(entry['stacktrace']))));
}

/** Stops a job with a savepoint, waits for its end, and returns where the savepoint is.
 *  @throws flink_refused */
export async function savepointAndStop(
  jobs: FlinkJobs,
  job: string,
  folder: string | undefined,
): Promise<string> {
  const { server } = jobs;
  const { 'request-id': request } = await ask(server, 'POST', `/jobs/${job}/stop`, {
    drain: false,
    ...(folder === undefined ? {} : { targetDirectory: folder }),
  });
  const savepoint = await poll(jobs, 'the savepoint', async () => {
    const answer = await ask(server, 'GET', `/jobs/${job}/savepoints/${textOf(request)}`);
    const { status, operation } = answer as {
      readonly status?: FlinkAnswer;
      readonly operation?: FlinkAnswer;
    };
    return status?.['id'] === 'COMPLETED' ? (operation ?? {}) : undefined;
  });
  const failure = savepoint['failure-cause'] as FlinkAnswer | undefined;
  if (failure === undefined) {
    // Flink reports the savepoint before the job has ended.
    await jobEnd(jobs, job);
    return textOf(savepoint['location']);
  }
  throw engineError(
    'flink_refused',
    `Flink made no savepoint: ${hide(server, causeOf(textOf(failure['stack-trace'])))}`,
    {
      next: 'the job runs on; see the cause, or give -flink-savepoint-dir=FOLDER that all task managers can write',
    },
  );
}

/** Cancels a job, and returns its last state. */
export async function cancelJob(jobs: FlinkJobs, job: string): Promise<string> {
  await ask(jobs.server, 'PATCH', `/jobs/${job}?mode=cancel`);
  return jobEnd(jobs, job);
}

/** Waits for the end of a job, and returns its last state. */
const jobEnd = (jobs: FlinkJobs, job: string): Promise<string> =>
  poll(jobs, 'the end of the job', async () => {
    const state = textOf((await ask(jobs.server, 'GET', `/jobs/${job}`))['state']);
    return ENDED.includes(state) ? state : undefined;
  });

async function poll<T>(
  { clock, signal }: FlinkJobs,
  what: string,
  question: () => Promise<T | undefined>,
): Promise<T> {
  const startMs = clock.monotonicMs();
  for (;;) {
    const answer = await question();
    if (answer !== undefined) return answer;
    if (signal.aborted) throw coreError('closed', `stopped while waiting for ${what}; Flink continues`);
    if (clock.monotonicMs() - startMs > CHANGE_MS_MAX)
      throw engineError(
        'flink_unreachable',
        `Flink has not reported ${what} within ${CHANGE_MS_MAX / 1000} s`,
        {
          next: 'see the job in the web interface of Flink',
        },
      );
    await sleep(clock, POLL_MS, signal);
  }
}

export interface JobLogs {
  readonly failures: readonly string[];
  /** End of the log of each process; null: the process keeps no log in a file. */
  readonly logs: ReadonlyArray<{ readonly process: string; readonly end: string | null }>;
}

/** Failures of a job, and the ends of the logs of the processes that run it. */
export async function jobLogs(jobs: FlinkJobs, job: string): Promise<JobLogs> {
  const { server } = jobs;
  const { vertices } = await ask(server, 'GET', `/jobs/${job}`);
  const managers = new Set<string>();
  for (const { id } of records(vertices)) {
    const found = await ask(server, 'GET', `/jobs/${job}/vertices/${textOf(id)}/taskmanagers`);
    for (const one of records(found['taskmanagers'])) managers.add(textOf(one['taskmanager-id']));
  }
  const logs = [{ process: 'jobmanager', end: await endOf(server, '/jobmanager/log') }];
  for (const id of [...managers].filter((one) => one !== ''))
    logs.push({
      process: `taskmanager ${id}`,
      end: await endOf(server, `/taskmanagers/${encodeURIComponent(id)}/log`),
    });
  return { failures: await failures(jobs, job), logs };
}

async function endOf(server: FlinkServer, path: string): Promise<string | null> {
  const text = await askEnd(server, path);
  return text === undefined ? null : hide(server, text);
}
