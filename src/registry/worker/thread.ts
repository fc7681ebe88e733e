/** Runs tasks on one thread beside the thread that serves requests: one task at a time, in the
 *  order of arrival.
 *
 *  The thread starts with the first task. A task that takes too long, or too much memory, ends the
 *  thread; the next task gets a new one.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import type { Timers } from '../../core/clock.ts';
import { registryError } from '../errors.ts';
import type { CheckMessage } from './entry.ts';
import { charsOf, type SchemaSource, tooMuchMemory, tooMuchTime } from './judge.ts';
import type { Reply, Task } from './task.ts';

/** Maximum size of the thread's heap, MiB. */
const CHECK_MEMORY_MIB_MAX = 768;
/** Maximum number of tasks that run or wait for the thread. */
const CHECKS_WAITING_MAX = 32;
/** Characters that are copied to the thread without a pause. */
const COPY_CHARS_MAX = 2 << 20;

/** Task with its texts and its limits. */
export interface TaskRequest {
  readonly task: Task;
  readonly sources: readonly SchemaSource[];
  readonly steps: number;
  /** Time limit, counted from the moment when the task gets the thread, ms. */
  readonly limitMs: number;
}

export interface Ran {
  readonly reply: Reply;
  readonly tookMs: number;
}

/** The worker thread that runs tasks. */
export interface TaskRunner {
  /** @throws check_too_long, checks_busy */
  run(job: TaskRequest): Promise<Ran>;
  close(): Promise<void>;
}

export class CheckThread implements TaskRunner {
  /** Maximum time that one request may use the thread, or wait for it, ms. */
  private readonly mostMs: number;
  private readonly clock: Timers;
  private worker: Worker | undefined;
  private waiting = 0;
  private last: Promise<unknown> = Promise.resolve();
  private closed = false;

  constructor(mostMs: number, clock: Timers) {
    this.mostMs = mostMs;
    this.clock = clock;
  }

  run(job: TaskRequest): Promise<Ran> {
    if (this.waiting >= CHECKS_WAITING_MAX)
      return Promise.reject(
        busy(`${this.waiting} checks of large schemas wait already (the limit checks-waiting)`),
      );
    this.waiting++;
    const asked = this.clock.monotonicMs();
    const ran = this.last.then(() => this.runNow(job, asked)).finally(() => this.waiting--);
    this.last = ran.catch(() => undefined);
    return ran;
  }

  async close(): Promise<void> {
    this.closed = true;
    await this.worker?.terminate();
  }

  private async runNow(job: TaskRequest, asked: number): Promise<Ran> {
    if (this.closed) throw registryError('store_failed', 'the registry is closing');
    const started = this.clock.monotonicMs();
    if (started - asked > this.mostMs)
      throw busy(
        `the check of this schema waited longer than ${this.mostMs} ms for others (the limit -check-timeout)`,
      );
    const worker = this.started();
    const reply = this.replyOf(worker, job.limitMs);
    // The reply is awaited below; this prevents an unhandled rejection when the thread ends during
    // the copy.
    reply.catch(() => undefined);
    await copy(worker, job.sources);
    worker.postMessage({ task: job.task, steps: job.steps } satisfies CheckMessage);
    return { reply: await reply, tookMs: this.clock.monotonicMs() - started };
  }

  private started(): Worker {
    if (this.worker !== undefined) return this.worker;
    const worker = new Worker(new URL('./entry.js', import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: CHECK_MEMORY_MIB_MAX },
    });
    // An idle thread keeps no process alive; a request in flight does.
    worker.unref();
    worker.once('exit', () => {
      if (this.worker === worker) this.worker = undefined;
    });
    // `replyOf` reports the error to the running task.
    worker.on('error', () => undefined);
    this.worker = worker;
    return worker;
  }

  private replyOf(worker: Worker, limitMs: number): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const settle = (): void => {
        cancel();
        worker.off('message', replied).off('error', failed).off('exit', ended);
      };
      const giveUp = (error: Error): void => {
        settle();
        if (this.worker === worker) this.worker = undefined;
        void worker.terminate();
        reject(error);
      };
      const replied = (reply: Reply): void => {
        settle();
        resolve(reply);
      };
      const failed = (error: Error & { readonly code?: string }): void =>
        giveUp(error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? tooMuchMemory(CHECK_MEMORY_MIB_MAX) : error);
      const ended = (code: number): void =>
        giveUp(
          this.closed
            ? registryError('store_failed', 'the registry is closing')
            : new Error(`the thread that checks schemas ended with ${code}`),
        );
      const cancel = this.clock.after(Math.max(1, limitMs), () => giveUp(tooMuchTime(this.mostMs)));
      worker.on('message', replied).on('error', failed).on('exit', ended);
    });
  }
}

const busy = (why: string) => registryError('checks_busy', `${why}; send the request again in a few seconds`);

async function copy(worker: Worker, sources: readonly SchemaSource[]): Promise<void> {
  let chars = 0;
  for (const source of sources) {
    worker.postMessage({ source } satisfies CheckMessage);
    chars += charsOf(source);
    if (chars < COPY_CHARS_MAX) continue;
    chars = 0;
    await nextTurn();
  }
}
