/** Worker threads of a command: results, failures, ends and drains, with threads that speak the
 *  messages of the pool. */
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../../../src/core/errors.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import { type PoolOptions, ThreadPool } from '../../../../src/shell/threads/pool.ts';
import { realClock, until } from '../../../wait.ts';

/** Thread that does what its job says, with the messages of `src/shell/threads/messages.ts`. */
const THREAD = `
  const { parentPort, workerData } = require('node:worker_threads');
  const { job, number } = workerData;
  const send = (message) => parentPort.postMessage(message);
  const snapshot = (value) => [{ name: 'work_total', help: 'w', kind: 'counter', labelNames: [], bounds: [], samples: [{ labels: {}, value }] }];
  const report = (value) => send({ kind: 'report', metrics: snapshot(value), state: value });
  const jobs = {
    count: () => { report(job.value); report(job.value * 2); send({ kind: 'done', result: job.value * 2 }); },
    wait: () => parentPort.on('message', ({ kind }) => { if (kind === 'drain') { report(1); send({ kind: 'done', result: 'drained' }); } }),
    fail: () => send({ kind: 'failed', failure: { message: 'refused', stack: undefined, code: 'bad_value', row: { kind: 'invalid', http: 400, grpc: 3, exit: 2 }, next: 'give another' } }),
    throw: () => setImmediate(() => { throw new Error('a bug of the thread'); }),
    exit: () => process.exit(0),
    ask: () => { send({ kind: 'ask', number: 1, question: job.value }); parentPort.on('message', (message) => send({ kind: 'done', result: message })); },
  };
  send({ kind: 'ready' });
  jobs[job.do]();
`;
const ENTRY = new URL(
  `data:text/javascript,${encodeURIComponent(`
  import { createRequire } from 'node:module';
  const require = createRequire('/');
  ${THREAD}
`)}`,
);

interface Opened {
  readonly pool: ThreadPool;
  readonly metrics: Metrics;
  readonly drain: AbortController;
  readonly checks: ReadonlyMap<string, () => boolean | Promise<boolean>>;
  close(): Promise<void>;
}

function open(jobs: readonly unknown[], more: Partial<PoolOptions> = {}): Opened {
  const metrics = new Metrics();
  const drain = new AbortController();
  const closers: Array<() => Promise<void> | void> = [];
  const checks = new Map<string, () => boolean | Promise<boolean>>();
  const pool = new ThreadPool({
    context: {
      settings: {} as never,
      log: silentLogger,
      metrics,
      clock: realClock,
      drain: drain.signal,
      readiness: (name, check) => void checks.set(name, check),
      onClose: (close) => void closers.push(close),
    },
    entry: ENTRY,
    jobs: jobs.map((job, number) => ({ job, part: `instance ${number}` })),
    ...more,
  });
  return {
    pool,
    metrics,
    drain,
    checks,
    close: async () => {
      for (const close of closers) await close();
    },
  };
}

const workOf = (metrics: Metrics): unknown =>
  metrics.snapshot().find(({ name }) => name === 'work_total')?.samples[0]?.value;

describe('threads', () => {
  it('a run has the results of its threads in their order, and the sum of their counts', async () => {
    const states: unknown[] = [];
    const { pool, metrics } = open(
      [
        { do: 'count', value: 3 },
        { do: 'count', value: 10 },
      ],
      { onState: (thread, state) => void states.push([thread, state]) },
    );
    await pool.ready;
    expect(await pool.run()).toEqual([6, 20]);
    expect(workOf(metrics)).toBe(26);
    expect(states).toHaveLength(4);
  });

  it('a thread that fails ends the run with its own error after the others have drained', async () => {
    const { pool, metrics } = open([{ do: 'wait' }, { do: 'fail' }]);
    const failure = await pool.run().catch((thrown: unknown) => thrown);
    expect(findMillraceError(failure)).toMatchObject({
      code: 'bad_value',
      message: 'refused',
      next: 'give another',
      row: { exit: 2 },
    });
    // The thread that waited has drained: its count is in.
    expect(workOf(metrics)).toBe(1);
  });

  it('a thread that throws outside any promise ends the run with an error that names the thread', async () => {
    const { pool } = open([{ do: 'wait' }, { do: 'throw' }]);
    await expect(pool.run()).rejects.toThrow('thread 1 (instance 1): a bug of the thread');
  });

  it('a thread that ends without a result ends the run with an internal error', async () => {
    const { pool } = open([{ do: 'exit' }, { do: 'wait' }]);
    const failure = await pool.run().catch((thrown: unknown) => thrown);
    expect(findMillraceError(failure)).toMatchObject({ code: 'internal', row: { exit: 70 } });
    expect(String(failure)).toMatch(/thread 0 \(instance 0\) ended with code 0 before its work was done/);
  });

  it('the drain of the process reaches every thread', async () => {
    const { pool, drain } = open([{ do: 'wait' }, { do: 'wait' }]);
    await pool.ready;
    drain.abort();
    expect(await pool.run()).toEqual(['drained', 'drained']);
  });

  it('a question is answered, and an error of its answer is sent with its code', async () => {
    const { pool } = open([{ do: 'ask', value: 'a line' }], {
      answer: async (_thread, text) => `wrote ${text}`,
    });
    expect(await pool.run()).toEqual([{ kind: 'answer', number: 1, answer: 'wrote a line' }]);
    const refused = open([{ do: 'ask', value: 'a line' }], {
      answer: async () => {
        throw new Error('no room');
      },
    });
    expect(await refused.pool.run()).toMatchObject([{ kind: 'refusal', failure: { message: 'no room' } }]);
  });

  it('the readiness of the process knows each thread', async () => {
    const { pool, checks, metrics, close } = open([{ do: 'wait' }, { do: 'wait' }]);
    const check = checks.get('threads') as () => boolean;
    expect(check).toThrow(/thread 0 \(instance 0\) is starting/);
    await pool.ready;
    expect(check()).toBe(true);
    const running = (): unknown =>
      metrics.snapshot().find(({ name }) => name === 'worker_threads')?.samples[0]?.value;
    expect(running()).toBe(2);
    await close();
    await until('the end of the threads', () => running() === 0);
  });
});
