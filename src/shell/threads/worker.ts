/** Worker thread of a command: the part of a command's context that its instances need.
 *
 *  Metrics, log lines and the command's own state travel to the main thread, which alone serves
 *  HTTP, writes to stdout and stderr, and receives signals.
 *  Invariants: (1) the last report of a thread precedes its result or its failure; (2) the closers
 *  have run before either is sent. */
import { parentPort, workerData } from 'node:worker_threads';
import type { Timers } from '../../core/clock.ts';
import { invariant } from '../../core/errors.ts';
import type { LogFields, Logger } from '../../core/log.ts';
import { Metrics } from '../../core/metrics.ts';
import { ThreadRequests } from '../../serde/shared-client.ts';
import { systemClock } from '../clock.ts';
import {
  errorOfThread,
  type FromThread,
  failureOfThread,
  type LogLevel,
  REPORT_EVERY_MS,
  sendable,
  type ThreadData,
  type ToThread,
} from './messages.ts';

export interface ThreadContext<Settings, Job> {
  /** From 0. */
  readonly number: number;
  readonly settings: Settings;
  readonly job: Job;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly clock: Timers;
  readonly drain: AbortSignal;
  /** Requests that the main thread's registry client sends. */
  readonly registry: ThreadRequests | undefined;
  /** Runs after the work settled, even if it failed; the last registered runs first. */
  onClose(close: () => Promise<void> | void): void;
  setReady(): void;
  /** Sets the state that each report carries. */
  onReport(state: () => unknown): void;
  /** Asks the main thread. @throws the error of its answer */
  ask(question: unknown): Promise<unknown>;
}

const LEVELS: readonly LogLevel[] = ['debug', 'info', 'warn', 'error'];

function threadLog(send: (message: FromThread) => void, level: string, base: LogFields): Logger {
  const lowest = level === 'silent' ? LEVELS.length : LEVELS.indexOf(level as LogLevel);
  const at = (one: LogLevel) => (fields: LogFields, message: string) => {
    if (LEVELS.indexOf(one) >= lowest)
      send({ kind: 'log', level: one, fields: sendable({ ...base, ...fields }), message });
  };
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: (fields) => threadLog(send, level, { ...base, ...fields }),
  };
}

interface Waiting {
  resolve(answer: unknown): void;
  reject(error: unknown): void;
}

/** Questions of this thread that the main thread has not answered. */
class Questions {
  private readonly send: (message: FromThread) => void;
  private readonly waiting = new Map<number, Waiting>();
  private last = 0;

  constructor(send: (message: FromThread) => void) {
    this.send = send;
  }

  ask(question: unknown): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const number = ++this.last;
      this.waiting.set(number, { resolve, reject });
      this.send({ kind: 'ask', number, question });
    });
  }

  settle(reply: Exclude<ToThread, { kind: 'drain' }>): void {
    const asked = this.waiting.get(reply.number);
    this.waiting.delete(reply.number);
    if (reply.kind === 'answer') asked?.resolve(reply.answer);
    else asked?.reject(errorOfThread(reply.failure));
  }
}

/** Runs the work of this thread and sends its result. Call it once, at the top level of the
 *  thread's module. */
export async function runThread<Settings extends { readonly 'log-level': string }, Job>(
  work: (context: ThreadContext<Settings, Job>) => Promise<unknown>,
): Promise<void> {
  const port = parentPort;
  invariant(port !== null, 'this module runs in a worker thread');
  const { number, settings, job, registry } = workerData as ThreadData;
  const send = (message: FromThread): void => port.postMessage(message);
  const questions = new Questions(send);
  const drain = new AbortController();
  port.on('message', (message: ToThread) => {
    if (message.kind === 'drain') drain.abort(new Error('drain'));
    else questions.settle(message);
  });
  const metrics = new Metrics();
  const closers: Array<() => Promise<void> | void> = [];
  let state: () => unknown = () => undefined;
  const report = (): void => send({ kind: 'report', metrics: metrics.snapshot(), state: state() });
  const stop = systemClock.every(REPORT_EVERY_MS, report, 'background');
  const own = settings as Settings;
  let last: FromThread;
  try {
    const result = await work({
      number,
      settings: own,
      job: job as Job,
      log: threadLog(send, own['log-level'], { thread: number }),
      metrics,
      clock: systemClock,
      drain: drain.signal,
      registry: registry === undefined ? undefined : new ThreadRequests(registry),
      onClose: (close) => void closers.push(close),
      setReady: () => {
        // The page of a ready process has every metric of its threads.
        report();
        send({ kind: 'ready' });
      },
      onReport: (of) => {
        state = of;
      },
      ask: (question) => questions.ask(question),
    });
    last = { kind: 'done', result };
  } catch (thrown) {
    last = { kind: 'failed', failure: failureOfThread(thrown) };
  }
  for (const close of closers.reverse()) {
    try {
      await close();
    } catch (thrown) {
      if (last.kind === 'done') last = { kind: 'failed', failure: failureOfThread(thrown) };
    }
  }
  stop();
  report();
  send(last);
}
