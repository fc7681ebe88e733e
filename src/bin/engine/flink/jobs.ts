/** Jobs of a Flink cluster, by the REST interface of its job manager. */
import { sleep } from '../../../core/clock.ts';
import { coreError, findMillraceError } from '../../../core/errors.ts';
import { engineError } from '../../../engine/errors.ts';
import { ask, askEnd, causeOf, type FlinkAnswer, type FlinkLink, hide } from './http.ts';

const POLL_MS = 500;
/** Time for a savepoint or a cancellation. */
const CHANGE_MS_MAX = 600_000;
const ENDED: readonly string[] = ['FINISHED', 'CANCELED', 'FAILED'];

export type FlinkJobs = FlinkLink;

const records = (value: unknown): readonly FlinkAnswer[] =>
  Array.isArray(value) ? (value as readonly FlinkAnswer[]) : [];
const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

/** Id of the job that an id or a name means: a job that runs, or else the newest that ended.
 *  @throws flink_job_missing, usage */
export async function findJob(jobs: FlinkJobs, id: string | undefined, name: string): Promise<string> {
  if (id !== undefined) {
    if (/^[0-9a-f]{32}$/.test(id)) return id;
    throw coreError('bad_value', `-flink-job=${id.slice(0, 64)} is not the id of a job`, {
      next: 'give 32 hexadecimal digits, as engine submit prints them',
      details: { setting: 'flink-job' },
    });
  }
  const all = records((await ask(jobs, 'GET', '/jobs/overview'))['jobs']);
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

export async function jobStatus(jobs: FlinkJobs, job: string): Promise<JobStatus> {
  const found = await ask(jobs, 'GET', `/jobs/${job}`);
  const { latest } = (await ask(jobs, 'GET', `/jobs/${job}/checkpoints`)) as {
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
    failure: (await failures(jobs, job))[0] ?? null,
  };
}

/** Causes of the failures of a job, newest first. */
async function failures(jobs: FlinkJobs, job: string): Promise<readonly string[]> {
  const answer = await ask(jobs, 'GET', `/jobs/${job}/exceptions?maxExceptions=20`);
  const { entries } = (answer['exceptionHistory'] ?? {}) as FlinkAnswer;
  return records(entries).map((entry) => hide(jobs.server, causeOf(textOf(entry['stacktrace']))));
}

/** Stops a job with a savepoint, waits for its end, and returns where the savepoint is.
 *  @throws flink_refused; flink_unreachable after CHANGE_MS_MAX; interrupted */
export async function savepointAndStop(
  jobs: FlinkJobs,
  job: string,
  folder: string | undefined,
): Promise<string> {
  const { server } = jobs;
  const { 'request-id': request } = await ask(jobs, 'POST', `/jobs/${job}/stop`, {
    drain: false,
    ...(folder === undefined ? {} : { targetDirectory: folder }),
  });
  const wait: Wait = {
    what: `the savepoint of job ${job}`,
    next: 'Flink continues, and stops the job with the savepoint: see its checkpoints in the web interface of Flink',
  };
  const savepoint = await poll(jobs, wait, async () => {
    const answer = await ask(jobs, 'GET', `/jobs/${job}/savepoints/${textOf(request)}`);
    const { status, operation } = answer as {
      readonly status?: FlinkAnswer;
      readonly operation?: FlinkAnswer;
    };
    return status?.['id'] === 'COMPLETED' ? (operation ?? {}) : undefined;
  });
  const failure = savepoint['failure-cause'] as FlinkAnswer | undefined;
  if (failure === undefined) {
    // Flink reports the savepoint before the job has ended.
    const location = textOf(savepoint['location']);
    await jobEnd(jobs, job, {
      what: `the end of job ${job}, whose savepoint is ${location}`,
      next: `Flink continues to stop it: see engine submit status -flink-job=${job} before -flink-from=${location}`,
    });
    return location;
  }
  throw engineError(
    'flink_refused',
    `Flink made no savepoint: ${hide(server, causeOf(textOf(failure['stack-trace'])))}`,
    {
      next: 'the job runs on; see the cause, or give -flink-savepoint-dir=FOLDER that all task managers can write',
    },
  );
}

/** Cancels a job, and returns its last state.
 *  @throws flink_refused; flink_unreachable after CHANGE_MS_MAX; interrupted */
export async function cancelJob(jobs: FlinkJobs, job: string): Promise<string> {
  await ask(jobs, 'PATCH', `/jobs/${job}?mode=cancel`);
  return jobEnd(jobs, job, {
    what: `the end of job ${job}`,
    next: `Flink continues to cancel it: see engine submit status -flink-job=${job}`,
  });
}

/** A wait for a change in Flink, in the errors of its end. */
interface Wait {
  readonly what: string;
  readonly next: string;
}

/** Waits for the end of a job, and returns its last state. */
const jobEnd = (jobs: FlinkJobs, job: string, wait: Wait): Promise<string> =>
  poll(jobs, wait, async () => {
    const state = textOf((await ask(jobs, 'GET', `/jobs/${job}`))['state']);
    return ENDED.includes(state) ? state : undefined;
  });

async function poll<T>(
  jobs: FlinkJobs,
  { what, next }: Wait,
  question: () => Promise<T | undefined>,
): Promise<T> {
  const { clock, signal } = jobs;
  const startMs = clock.monotonicMs();
  try {
    for (;;) {
      const answer = await question();
      if (answer !== undefined) return answer;
      if (clock.monotonicMs() - startMs > CHANGE_MS_MAX)
        throw engineError('flink_unreachable', `${CHANGE_MS_MAX / 1000} s have passed`);
      await sleep(clock, POLL_MS, signal);
    }
  } catch (thrown) {
    const { code, message } = findMillraceError(thrown) ?? {};
    const options = { next, cause: thrown };
    if (code === 'interrupted')
      throw coreError('interrupted', `engine submit was stopped while it waited for ${what}`, options);
    if (code === 'flink_unreachable')
      throw engineError('flink_unreachable', `Flink has not reported ${what}: ${message}`, options);
    throw thrown;
  }
}

export interface JobLogs {
  readonly failures: readonly string[];
  /** End of the log of each process; null: the process keeps no log in a file. */
  readonly logs: ReadonlyArray<{ readonly process: string; readonly end: string | null }>;
}

/** Failures of a job, and the ends of the logs of the processes that run it. */
export async function jobLogs(jobs: FlinkJobs, job: string): Promise<JobLogs> {
  const { vertices } = await ask(jobs, 'GET', `/jobs/${job}`);
  const managers = new Set<string>();
  for (const { id } of records(vertices)) {
    const found = await ask(jobs, 'GET', `/jobs/${job}/vertices/${textOf(id)}/taskmanagers`);
    for (const one of records(found['taskmanagers'])) managers.add(textOf(one['taskmanager-id']));
  }
  const logs = [{ process: 'jobmanager', end: await endOf(jobs, '/jobmanager/log') }];
  for (const id of [...managers].filter((one) => one !== ''))
    logs.push({
      process: `taskmanager ${id}`,
      end: await endOf(jobs, `/taskmanagers/${encodeURIComponent(id)}/log`),
    });
  return { failures: await failures(jobs, job), logs };
}

async function endOf(jobs: FlinkJobs, path: string): Promise<string | null> {
  const text = await askEnd(jobs, path);
  return text === undefined ? null : hide(jobs.server, text);
}
