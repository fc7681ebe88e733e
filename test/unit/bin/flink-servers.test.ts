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
import { systemClock } from '../../../src/io/clock/system.ts';

type Reply = readonly [status: number, body: unknown];
type Handler = (method: string, path: string, body: string) => Reply | undefined;

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

interface Fake {
  readonly url: string;
  /** `POST /v3/sessions BODY` */
  readonly requests: string[];
}

async function fake(handler: Handler): Promise<Fake> {
  const requests: string[] = [];
  const server = createServer(async (request: IncomingMessage, response) => {
    const body = await text(request);
    const { method = '', url = '' } = request;
    requests.push(`${method} ${url} ${body}`.trim());
    const [status, answer] = handler(method, url, body) ?? [404, { errors: ['Not found'] }];
    response.writeHead(status).end(typeof answer === 'string' ? answer : JSON.stringify(answer));
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests };
}

const JOB = 'a9bd2951a82937926449da9be6135d4a';
const signal = new AbortController().signal;
const run = (server: FlinkServer, statements: readonly string[]) =>
  runStatements(server, statements, { clock: systemClock, signal });
const jobsAt = (url: string): FlinkJobs => ({
  server: serverOf('flink-rest', url),
  clock: systemClock,
  signal,
});

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
    const stopped = runStatements(serverOf('flink', url), ['SET a'], {
      clock: systemClock,
      signal: AbortSignal.abort(),
    });
    await expect(stopped).rejects.toMatchObject({ code: 'closed' });
  });
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
