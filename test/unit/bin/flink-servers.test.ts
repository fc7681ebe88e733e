/** `engine submit` beside a small gateway and job manager of Flink: statements, errors, secrets,
 *  and what follows a job. */
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, it } from 'vitest';
import { runStatements } from '../../../src/bin/engine/flink/gateway.ts';
import { causeOf, type FlinkServer, serverOf } from '../../../src/bin/engine/flink/http.ts';
import {
  cancelJob,
  type FlinkJobs,
  findJob,
  jobLogs,
  jobStatus,
  savepointAndStop,
} from '../../../src/bin/engine/flink/jobs.ts';
import type { Cancel, TimerHold, Timers } from '../../../src/core/clock.ts';
import { systemClock } from '../../../src/io/clock/system.ts';
import { arrival, turn } from '../../wait.ts';

type Reply = readonly [status: number, body: unknown];
type Handler = (method: string, path: string, body: string) => Reply | undefined;

const HANGS = Symbol('no answer');
const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

interface Fake {
  readonly url: string;
  /** `POST /v3/sessions BODY` */
  readonly requests: string[];
}

/** @param handler its answer `HANGS` leaves the request without an answer */
async function fake(handler: Handler): Promise<Fake> {
  const requests: string[] = [];
  const server = createServer(async (request: IncomingMessage, response) => {
    const body = await text(request);
    const { method = '', url = '' } = request;
    requests.push(`${method} ${url} ${body}`.trim());
    const [status, answer] = handler(method, url, body) ?? [404, { errors: ['Not found'] }];
    if (answer === HANGS) return;
    response.writeHead(status).end(typeof answer === 'string' ? answer : JSON.stringify(answer));
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests };
}

const JOB = 'a9bd2951a82937926449da9be6135d4a';
const signal = new AbortController().signal;
const run = (server: FlinkServer, statements: readonly string[], own: Partial<FlinkJobs> = {}) =>
  runStatements(server, statements, { clock: systemClock, signal, ...own });
const jobsAt = (url: string, own: Partial<FlinkJobs> = {}): FlinkJobs => ({
  server: serverOf('flink-rest', url),
  clock: systemClock,
  signal,
  ...own,
});

/** Clock whose timers of one kind end in the next turn, when at least a minute has passed: the
 *  pauses between two questions hold the process, the limits of exchanges do not. */
class HastyClock implements Timers {
  private readonly hold: TimerHold;
  private nowMs = 0;

  constructor(hold: TimerHold) {
    this.hold = hold;
  }

  wallNowMs(): number {
    return this.nowMs;
  }

  monotonicMs(): number {
    return this.nowMs;
  }

  after(ms: number, run: () => void, hold: TimerHold = 'holds'): Cancel {
    let isCancelled = hold !== this.hold;
    void turn().then(() => {
      if (isCancelled) return;
      this.nowMs += Math.max(60_000, ms);
      run();
    });
    return () => {
      isCancelled = true;
    };
  }

  every(): Cancel {
    throw new Error('no exchange repeats by a timer');
  }
}

/** A gateway whose operations answer `result` after one NOT_READY. */
function gateway(result: (statement: string) => Reply): Handler {
  const statements: string[] = [];
  const asked = new Set<string>();
  return (method, path, body) => {
    if (method === 'POST' && path === '/v3/sessions') return [200, { sessionHandle: 'se' }];
    if (method === 'POST' && path === '/v3/sessions/se/statements') {
      const count = statements.push(JSON.parse(body).statement);
      return [200, { operationHandle: `op${count - 1}` }];
    }
    const operation = /^\/v3\/sessions\/se\/operations\/op(\d+)\/result\/0\?rowFormat=JSON$/.exec(path)?.[1];
    if (operation !== undefined) {
      if (!asked.has(operation)) {
        asked.add(operation);
        return [200, { resultType: 'NOT_READY' }];
      }
      return result(statements[Number(operation)] as string);
    }
    return method === 'DELETE' ? [200, {}] : undefined;
  };
}

describe('the SQL gateway', () => {
  it('statements run in their order in one session, which is closed, and the job id is returned', async () => {
    const { url, requests } = await fake(
      gateway((statement) =>
        statement.startsWith('INSERT')
          ? [200, { resultType: 'PAYLOAD', results: { data: [{ kind: 'INSERT', fields: [JOB] }] } }]
          : [200, { resultType: 'EOS', results: { data: [] } }],
      ),
    );
    expect(await run(serverOf('flink', `${url}/`), ['SET a', 'INSERT b'])).toBe(JOB);
    expect(requests.filter((one) => one.includes('/statements'))).toEqual([
      'POST /v3/sessions/se/statements {"statement":"SET a"}',
      'POST /v3/sessions/se/statements {"statement":"INSERT b"}',
    ]);
    expect(requests.at(-1)).toBe('DELETE /v3/sessions/se');
  });

  it('the innermost cause of a refused statement is the message, without secrets, and the session is closed', async () => {
    const trace =
      'org.apache.flink.table.gateway.Failed: x\n\tat a.B.c\nCaused by: org.apache.flink.SqlParserException: bad password hunter2\n\tat d.E\n';
    const { url, requests } = await fake(gateway(() => [500, { errors: ['Internal server error.', trace] }]));
    const refused = run(serverOf('flink', url, ['hunter2']), ['CREATE t']);
    await expect(refused).rejects.toMatchObject({
      code: 'flink_refused',
      message: expect.stringMatching(/: SqlParserException: bad password \*\*\*$/),
    });
    expect(requests.at(-1)).toBe('DELETE /v3/sessions/se');
  });

  it.each<readonly [string, Handler, string, RegExp]>([
    ['a server that is no gateway', () => [200, '<html>'], 'flink_unreachable', /no JSON/],
    ['a job manager', () => [404, { errors: ['Not found: /v3/sessions'] }], 'flink_refused', /Not found/],
    ['a session without a handle', () => [200, {}], 'flink_refused', /without a session/],
    [
      'a job without an id',
      gateway(() => [200, { resultType: 'EOS' }]),
      'flink_refused',
      /without the id of a job/,
    ],
    [
      'a body that is too long',
      () => [200, 'x'.repeat(17 << 20)],
      'flink_unreachable',
      /over 16777216 bytes/,
    ],
  ])('the answer of %s is an error with its reason', async (_, handler, code, message) => {
    const { url } = await fake(handler);
    await expect(run(serverOf('flink', url), ['SET a'])).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message),
    });
  });

  it('an address without a server is unreachable', async () => {
    const { url } = await fake(() => undefined);
    servers.splice(0)[0]?.close();
    await expect(run(serverOf('flink', url), ['SET a'])).rejects.toMatchObject({ code: 'flink_unreachable' });
  });

  it.each(['flink:8083', 'ftp://flink', 'http://user:secret@flink:8083'])(
    'the text %s is no address',
    (address) => {
      expect(() => serverOf('flink', address)).toThrow(/^-flink is not an address of a server$/);
    },
  );

  it('a stop ends the wait for a statement', async () => {
    const { url } = await fake((method, path) =>
      path.includes('/result/')
        ? [200, { resultType: 'NOT_READY' }]
        : gateway(() => [200, {}])(method, path, '{"statement":""}'),
    );
    const stopped = run(serverOf('flink', url), ['SET a'], { signal: AbortSignal.abort() });
    await expect(stopped).rejects.toMatchObject({ code: 'interrupted' });
  });

  /** A gateway whose statement with a word never ends, or is never answered. */
  const stuck = (word: string, answer: unknown = { resultType: 'NOT_READY' }): Handler =>
    gateway((statement) => [200, statement.includes(word) ? answer : { resultType: 'EOS' }]);

  it.each([
    ['SET a', 'statement 1 of 2 (SET)', 'see its log; no job was submitted'],
    [
      'INSERT INTO b',
      'statement 2 of 2 (INSERT INTO)',
      'see its log, and the web interface of Flink for a job that was submitted all the same',
    ],
  ])(
    'the statement %s that does not end is an error that names it, and the session is closed',
    async (word, title, next) => {
      const { url, requests } = await fake(stuck(word));
      const clock = new HastyClock('holds');
      await expect(
        run(serverOf('flink', url), ["SET a = 'hunter22'", 'INSERT INTO b'], { clock }),
      ).rejects.toMatchObject({
        code: 'flink_unreachable',
        row: { exit: 3 },
        message: `the SQL gateway of Flink at ${url} has not run ${title} within 300 s`,
        next,
      });
      expect(requests.at(-1)).toBe('DELETE /v3/sessions/se');
    },
  );

  it('a gateway that does not answer is unreachable after the limit of an exchange', async () => {
    const { url } = await fake(() => [200, HANGS]);
    const clock = new HastyClock('background');
    await expect(run(serverOf('flink', url), ['SET a'], { clock })).rejects.toMatchObject({
      code: 'flink_unreachable',
      row: { exit: 3 },
      message: `the SQL gateway of Flink at ${url} cannot be reached: it has not answered within 60 s`,
    });
  });

  it.each([
    ['SET a', 'engine submit was stopped before the job was submitted', 'submit it again'],
    [
      'INSERT b',
      'engine submit was stopped while Flink started the job, which may run',
      'look for the job in the web interface of Flink before you submit it again',
    ],
  ])(
    'a stop during the statement %s ends a question without an answer, and closes the session',
    async (word, message, next) => {
      const stop = new AbortController();
      const handler = stuck(word, HANGS);
      const { url, requests } = await fake((method, path, body) => {
        const reply = handler(method, path, body);
        if (reply?.[1] === HANGS) stop.abort();
        return reply;
      });
      await expect(
        run(serverOf('flink', url), ['SET a', 'INSERT b'], { signal: stop.signal }),
      ).rejects.toMatchObject({ code: 'interrupted', row: { exit: 130 }, message, next });
      expect(requests.at(-1)).toBe('DELETE /v3/sessions/se');
    },
  );
});

describe('jobs', () => {
  const overview =
    (...jobs: readonly object[]): Handler =>
    (_, path) =>
      path === '/jobs/overview' ? [200, { jobs }] : undefined;

  it('a job is found by its name: a job that runs, else the newest', async () => {
    const ended = { jid: 'old', name: 'n', state: 'FAILED', 'start-time': 1 };
    const newer = { jid: 'new', name: 'n', state: 'FINISHED', 'start-time': 2 };
    const other = { jid: 'other', name: 'm', state: 'RUNNING', 'start-time': 9 };
    const running = { jid: 'run', name: 'n', state: 'RUNNING', 'start-time': 0 };
    const found = async (...jobs: readonly object[]) =>
      findJob(jobsAt((await fake(overview(...jobs))).url), undefined, 'n');
    expect(await found(ended, newer, other)).toBe('new');
    expect(await found(ended, newer, running)).toBe('run');
    await expect(found(other)).rejects.toMatchObject({ code: 'flink_job_missing' });
    await expect(found(running, { ...running, jid: 'run2' })).rejects.toThrow(
      /runs 2 jobs named n: run, run2/,
    );
  });

  it('an id that is none is refused before a request', async () => {
    await expect(findJob(jobsAt('http://127.0.0.1:1'), '../x', 'n')).rejects.toMatchObject({
      code: 'bad_value',
    });
  });

  it('a job that Flink does not know is missing', async () => {
    const { url } = await fake(() => [404, { errors: [`Job ${JOB} not found`] }]);
    await expect(jobStatus(jobsAt(url), JOB)).rejects.toMatchObject({ code: 'flink_job_missing' });
  });

  const exceptions = {
    exceptionHistory: { entries: [{ stacktrace: 'a.B: x\nCaused by: c.D: disk full\n' }] },
  };

  it('a status has the state, the tasks, the last checkpoint and the last failure', async () => {
    const metrics = { 'read-records': 5, 'write-records': 3 };
    const vertices = [{ id: 'v', name: 'Source', status: 'RUNNING', parallelism: 2, metrics }];
    const { url } = await fake((_, path) => {
      if (path === `/jobs/${JOB}`) return [200, { name: 'n', state: 'RUNNING', duration: 1500, vertices }];
      if (path.endsWith('/checkpoints'))
        return [200, { latest: { completed: { id: 7, latest_ack_timestamp: 9, state_size: 11 } } }];
      return path.includes('/exceptions') ? [200, exceptions] : undefined;
    });
    expect(await jobStatus(jobsAt(url), JOB)).toEqual({
      job: JOB,
      name: 'n',
      state: 'RUNNING',
      seconds: 1.5,
      tasks: [{ name: 'Source', state: 'RUNNING', parallelism: 2, read: 5, written: 3 }],
      checkpoint: { id: 7, atMs: 9, bytes: 11 },
      failure: 'D: disk full',
    });
  });

  /** A job manager that completes a savepoint, and ends the job, at the second question. */
  const savepoints = (operation: object): Handler => {
    let asked = 0;
    let states = 0;
    return (method, path) => {
      if (path === `/jobs/${JOB}`) return [200, { state: states++ === 0 ? 'RUNNING' : 'FINISHED' }];
      if (method === 'POST' && path === `/jobs/${JOB}/stop`) return [202, { 'request-id': 'r1' }];
      if (path !== `/jobs/${JOB}/savepoints/r1`) return undefined;
      return asked++ === 0
        ? [200, { status: { id: 'IN_PROGRESS' } }]
        : [200, { status: { id: 'COMPLETED' }, operation }];
    };
  };

  it('a job has stopped with a savepoint in the folder that is given', async () => {
    const { url, requests } = await fake(savepoints({ location: 's3://b/savepoint-1' }));
    expect(await savepointAndStop(jobsAt(url), JOB, 's3://b')).toBe('s3://b/savepoint-1');
    expect(requests[0]).toBe(`POST /jobs/${JOB}/stop {"drain":false,"targetDirectory":"s3://b"}`);
    // The savepoint is complete before the job has ended.
    expect(requests.slice(-2)).toEqual([`GET /jobs/${JOB}`, `GET /jobs/${JOB}`]);
  });

  it('a savepoint that fails has the cause', async () => {
    const failure = {
      'failure-cause': { 'stack-trace': 'a.B: x\nCaused by: java.io.IOException: no space left\n' },
    };
    const { url } = await fake(savepoints(failure));
    await expect(savepointAndStop(jobsAt(url), JOB, undefined)).rejects.toMatchObject({
      code: 'flink_refused',
      message: 'Flink made no savepoint: IOException: no space left',
    });
  });

  const CONTINUES =
    'Flink continues, and stops the job with the savepoint: see its checkpoints in the web interface of Flink';
  const CANCELS = `Flink continues to cancel it: see engine submit status -flink-job=${JOB}`;
  const LOCATION = 's3://b/savepoint-1';
  const STOPS = `Flink continues to stop it: see engine submit status -flink-job=${JOB} before -flink-from=${LOCATION}`;
  /** A job manager that accepts changes, and completes none beyond `done`. */
  const slow =
    (done: 'nothing' | 'savepoint', last: unknown): Handler =>
    (method, path) => {
      if (method === 'POST') return [202, { 'request-id': 'r1' }];
      if (method === 'PATCH') return [202, {}];
      if (!path.endsWith('/savepoints/r1')) return [200, last];
      return done === 'nothing'
        ? [200, last]
        : [200, { status: { id: 'COMPLETED' }, operation: { location: LOCATION } }];
    };
  const savepoint = (jobs: FlinkJobs): Promise<string> => savepointAndStop(jobs, JOB, undefined);
  const cancel = (jobs: FlinkJobs): Promise<string> => cancelJob(jobs, JOB);
  const WAITS: ReadonlyArray<
    readonly [string, (jobs: FlinkJobs) => Promise<string>, 'nothing' | 'savepoint', string, string]
  > = [
    ['a savepoint', savepoint, 'nothing', `the savepoint of job ${JOB}`, CONTINUES],
    [
      'the end of a job with a savepoint',
      savepoint,
      'savepoint',
      `the end of job ${JOB}, whose savepoint is ${LOCATION}`,
      STOPS,
    ],
    ['a cancellation', cancel, 'nothing', `the end of job ${JOB}`, CANCELS],
  ];

  it.each(WAITS)(
    'a wait for %s ends after 600 s with an error that says what continues',
    async (_, change, done, what, next) => {
      const { url } = await fake(slow(done, { state: 'RUNNING', status: { id: 'IN_PROGRESS' } }));
      await expect(change(jobsAt(url, { clock: new HastyClock('holds') }))).rejects.toMatchObject({
        code: 'flink_unreachable',
        row: { exit: 3 },
        message: `Flink has not reported ${what}: 600 s have passed`,
        next,
      });
    },
  );

  it.each(WAITS)(
    'a stop during the wait for %s ends it between two questions and within one',
    async (_, change, done, what, next) => {
      for (const last of [{ state: 'RUNNING', status: { id: 'IN_PROGRESS' } }, HANGS]) {
        const stop = new AbortController();
        let asked: () => void = () => undefined;
        const question = new Promise<void>((resolve) => {
          asked = resolve;
        });
        const handler = slow(done, last);
        const { url, requests } = await fake((method, path, body) => {
          const reply = handler(method, path, body);
          if (reply?.[1] === last) asked();
          return reply;
        });
        const changed = change(jobsAt(url, { signal: stop.signal }));
        const refused = expect(changed).rejects.toMatchObject({
          code: 'interrupted',
          row: { exit: 130 },
          message: `engine submit was stopped while it waited for ${what}`,
          next,
        });
        await arrival('question', question, () => requests);
        stop.abort();
        await refused;
      }
    },
  );

  it('a job manager that is lost during the wait is an error that names the savepoint', async () => {
    const { url } = await fake(slow('savepoint', '<html>'));
    await expect(savepoint(jobsAt(url))).rejects.toMatchObject({
      code: 'flink_unreachable',
      message: expect.stringMatching(
        /^Flink has not reported the end of job \w+, whose savepoint is s3:\S+: .* is no JSON/,
      ),
      next: STOPS,
    });
  });

  it('a stop before an answer to another question is an error, not a result', async () => {
    const stop = new AbortController();
    const { url } = await fake(() => {
      stop.abort();
      return [200, HANGS];
    });
    await expect(jobStatus(jobsAt(url, { signal: stop.signal }), JOB)).rejects.toMatchObject({
      code: 'interrupted',
      row: { exit: 130 },
      message: `engine submit was stopped before the REST interface of Flink at ${url} had answered`,
    });
  });

  it('a cancellation waits for the end of the job', async () => {
    let asked = 0;
    const { url, requests } = await fake((method, path) => {
      if (method === 'PATCH' && path === `/jobs/${JOB}?mode=cancel`) return [202, {}];
      return [200, { state: asked++ === 0 ? 'CANCELLING' : 'CANCELED' }];
    });
    expect(await cancelJob(jobsAt(url), JOB)).toBe('CANCELED');
    expect(requests).toHaveLength(3);
  });

  it('the logs are the failures, and the end of the log of each process that has one', async () => {
    const { url } = await fake((_, path) => {
      if (path === `/jobs/${JOB}`) return [200, { vertices: [{ id: 'v' }, { id: 'w' }] }];
      if (path.endsWith('/taskmanagers')) return [200, { taskmanagers: [{ 'taskmanager-id': 'tm-1' }] }];
      if (path.includes('/exceptions')) return [200, exceptions];
      if (path === '/jobmanager/log') return [404, { errors: ['no file'] }];
      return path === '/taskmanagers/tm-1/log' ? [200, `begin${'.'.repeat(20_000)}end`] : undefined;
    });
    const { failures, logs } = await jobLogs(jobsAt(url), JOB);
    expect(failures).toEqual(['D: disk full']);
    expect(logs.map(({ process }) => process)).toEqual(['jobmanager', 'taskmanager tm-1']);
    expect(logs[0]?.end).toBeNull();
    expect(logs[1]?.end).toMatch(/^\.{16381}end$/);
  });

  it.each([
    ['a.b.C: x\n\tat d\nCaused by: e.f.G: y\n\t... 3 more\n', 'G: y'],
    ['a.b.C: x\n\tat d\n', 'C: x'],
    ['', ''],
  ])('the cause of %j is %j', (trace, cause) => {
    expect(causeOf(trace)).toBe(cause);
  });
});
