/** Worker threads of a command, as the main thread sees them.
 *
 *  Invariants: (1) `run` settles when every thread has ended; the first failure is its error.
 *  (2) A failure of one thread drains the others, for at most OTHERS_END_MS, so that they commit
 *  what they have finished. (3) A thread that ends without a result is a failure. */
import { type MessagePort, Worker } from 'node:worker_threads';
import { type Timers, within } from '../../core/clock.ts';
import { coreError, findMillraceError, MillraceError } from '../../core/errors.ts';
import type { Gauge } from '../../core/metrics.ts';
import type { CommandContext } from '../command.ts';
import {
  errorOfThread,
  type FromThread,
  failureOfThread,
  type ThreadData,
  type ThreadFailure,
  type ToThread,
} from './messages.ts';
import { ThreadMetrics } from './metrics.ts';

/** Time without a report after which a thread counts as blocked, ms. */
const SILENT_MS = 10_000;
/** Time that the other threads have to finish after a failure, ms. */
const OTHERS_END_MS = 10_000;

export type PoolContext = Pick<
  CommandContext<Record<never, never>>,
  'settings' | 'log' | 'metrics' | 'clock' | 'drain' | 'readiness' | 'onClose'
>;

export interface PoolOptions {
  readonly context: PoolContext;
  /** Compiled module that calls `runThread`. */
  readonly entry: URL;
  /** Job of each thread, with the words that name its part in messages, such as `instances 0 to
   *  11`. A job is sent as a structured clone. */
  readonly jobs: readonly { readonly job: unknown; readonly part: string }[];
  /** Makes the port of a thread to the registry client of the process. */
  readonly registryPort?: () => MessagePort;
  /** Receives the state of a thread. The last one precedes its result. */
  readonly onState?: (thread: number, state: unknown) => void;
  /** Answers a question of a thread. Its error is thrown in the thread. */
  readonly answer?: (thread: number, question: unknown) => Promise<unknown>;
}

interface Thread {
  readonly number: number;
  readonly part: string;
  readonly worker: Worker;
  readonly ended: Promise<unknown>;
  isReady: boolean;
  hasEnded: boolean;
  reportedAtMs: number;
}

/** Says which thread an error is from. */
function placed(error: Error, where: string): Error {
  const known = findMillraceError(error);
  if (known === undefined) {
    const made = new Error(`${where}: ${error.message}`);
    if (error.stack !== undefined) made.stack = error.stack;
    return made;
  }
  const next = known.next === undefined ? {} : { next: known.next };
  return new MillraceError(known.code, known.row, known.message, { ...next, cause: error });
}

export class ThreadPool {
  private readonly options: PoolOptions;
  private readonly clock: Timers;
  private readonly merged: ThreadMetrics;
  private readonly running: Gauge;
  private readonly threads: readonly Thread[];
  private whenReady: () => void = () => {};
  private failure: unknown;
  private hasFailed = false;
  /** Resolves when every thread is ready, or one has failed. */
  readonly ready: Promise<void>;

  constructor(options: PoolOptions) {
    this.options = options;
    const { context, jobs } = options;
    this.clock = context.clock;
    this.merged = new ThreadMetrics(context.metrics);
    this.running = context.metrics.gauge('worker_threads', 'Worker threads that run.', [], 'own');
    this.ready = new Promise((resolve) => {
      this.whenReady = resolve;
    });
    this.threads = jobs.map(({ job, part }, number) => this.start(number, part, job));
    context.readiness('threads', () => this.check());
    context.drain.addEventListener('abort', () => this.drain(), { once: true });
    if (context.drain.aborted) this.drain();
    context.onClose(() => this.close());
  }

  /** Waits for the results of the threads, in their order. @throws the first failure */
  async run<Result>(): Promise<readonly Result[]> {
    const all = Promise.allSettled(this.threads.map(({ ended }) => ended));
    const failed = Promise.race(
      this.threads.map(({ ended }) =>
        ended.then(
          () => new Promise<void>(() => {}),
          () => undefined,
        ),
      ),
    );
    await Promise.race([all, failed]);
    if (this.hasFailed) {
      this.drain();
      if (!(await within(this.clock, OTHERS_END_MS, all)))
        this.options.context.log.warn({}, 'a thread did not finish after the failure of another one');
      await this.close();
      throw this.failure;
    }
    const results = (await all) as PromiseFulfilledResult<Result>[];
    await this.close();
    return results.map(({ value }) => value);
  }

  private async close(): Promise<void> {
    await Promise.all(this.threads.map(({ worker }) => worker.terminate()));
  }

  private drain(): void {
    for (const { worker, hasEnded } of this.threads)
      if (!hasEnded) worker.postMessage({ kind: 'drain' } satisfies ToThread);
  }

  private check(): boolean {
    const nowMs = this.clock.monotonicMs();
    for (const { number, part, isReady, hasEnded, reportedAtMs } of this.threads) {
      if (hasEnded) continue;
      if (!isReady) throw new Error(`thread ${number} (${part}) is starting`);
      const silentMs = nowMs - reportedAtMs;
      if (silentMs > SILENT_MS)
        throw new Error(`thread ${number} (${part}) has not reported for ${Math.round(silentMs / 1000)} s`);
    }
    return true;
  }

  private start(number: number, part: string, job: unknown): Thread {
    const { context, entry, registryPort } = this.options;
    const registry = registryPort?.();
    const data: ThreadData = { number, settings: context.settings, job, registry };
    const worker = new Worker(entry, {
      workerData: data,
      name: `millrace-${number}`,
      transferList: registry === undefined ? [] : [registry],
    });
    const ended = this.outcomeOf(worker, number, part);
    // `run` awaits the outcome; this prevents an unhandled rejection before it does.
    ended.catch(() => undefined);
    this.running.set(this.running.value() + 1);
    const reportedAtMs = this.clock.monotonicMs();
    return { number, part, worker, ended, isReady: false, hasEnded: false, reportedAtMs };
  }

  private outcomeOf(worker: Worker, number: number, part: string): Promise<unknown> {
    const where = `thread ${number} (${part})`;
    return new Promise((resolve, reject) => {
      const end = (): boolean => {
        const thread = this.threads[number] as Thread;
        if (thread.hasEnded) return false;
        thread.hasEnded = true;
        this.running.set(this.running.value() - 1);
        this.merged.end(number);
        this.noteReady();
        return true;
      };
      const fail = (failure: ThreadFailure): void => {
        if (!end()) return;
        const error = placed(errorOfThread(failure), where);
        if (!this.hasFailed) this.failure = error;
        this.hasFailed = true;
        this.whenReady();
        reject(error);
      };
      worker.on('message', (message: FromThread) => {
        if (message.kind === 'done') {
          if (end()) resolve(message.result);
        } else if (message.kind === 'failed') fail(message.failure);
        else this.receive(this.threads[number] as Thread, message);
      });
      worker.once('error', (thrown) => fail(failureOfThread(thrown)));
      worker.once('exit', (code) =>
        fail(
          failureOfThread(
            coreError('internal', `${where} ended with code ${code} before its work was done`, {
              next: 'this is a bug of millrace: run it again with -log-level=debug and report the log',
            }),
          ),
        ),
      );
    });
  }

  private receive(thread: Thread, message: Exclude<FromThread, { kind: 'done' | 'failed' }>): void {
    const { context, onState } = this.options;
    switch (message.kind) {
      case 'ready':
        thread.isReady = true;
        this.noteReady();
        break;
      case 'log':
        context.log[message.level](message.fields, message.message);
        break;
      case 'report':
        thread.reportedAtMs = this.clock.monotonicMs();
        if (!thread.hasEnded) this.merged.apply(thread.number, message.metrics);
        onState?.(thread.number, message.state);
        break;
      case 'ask':
        void this.reply(thread, message.number, message.question);
    }
  }

  private noteReady(): void {
    if (this.threads.every(({ isReady, hasEnded }) => isReady || hasEnded)) this.whenReady();
  }

  private async reply({ number: thread, worker }: Thread, number: number, question: unknown): Promise<void> {
    let reply: ToThread;
    try {
      reply = { kind: 'answer', number, answer: await this.options.answer?.(thread, question) };
    } catch (thrown) {
      reply = { kind: 'refusal', number, failure: failureOfThread(thrown) };
    }
    worker.postMessage(reply);
  }
}
