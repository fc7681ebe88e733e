/** The one way into the log: requests queue, a batch of them is decided on a draft, kept by one append, then answered.
 *
 *  Invariants: (1) a request sees all that was decided before it; (2) nobody outside the batch sees any of it before
 *  it is kept; (3) an append that failed fails exactly the requests of its batch, refusals among them, because what a
 *  refusal rests on may be gone; (4) after an append whose outcome is not known nothing is decided until the log has
 *  told all it holds.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { sleep, type Timers } from '../../core/clock.ts';
import { findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import { registryError } from '../errors.ts';
import { Draft } from './draft.ts';
import type { RegistryLog } from './log.ts';
import type { Notices } from './notices.ts';
import type { State } from './state/model.ts';

/** Requests and bytes of one append. */
const BATCH_REQUESTS_MAX = 512;
const BATCH_BYTES_MAX = 8 << 20;
/** Deciding gives way to reads this often. */
const SLICE_MS = 4;
const CATCH_UP_RETRY_MS = 250;

interface Request {
  readonly decide: (draft: Draft) => unknown;
  readonly resolve: (value: never) => void;
  readonly reject: (reason: unknown) => void;
}

type Outcome = { readonly value: unknown } | { readonly error: unknown };

export interface WriterOptions {
  readonly log: RegistryLog;
  readonly logger: Logger;
  readonly clock: Timers;
  readonly state: State;
  readonly notices: Notices;
}

export class Writer {
  private readonly log: RegistryLog;
  private readonly logger: Logger;
  private readonly clock: Timers;
  private readonly state: State;
  private readonly notices: Notices;
  private queue: Request[] = [];
  private running: Promise<void> | undefined;
  private closed = false;
  /** Counts what others wrote: a draft made before is not decided on the state that is. */
  private foreign = 0;

  constructor(options: WriterOptions) {
    this.log = options.log;
    this.logger = options.logger;
    this.clock = options.clock;
    this.state = options.state;
    this.notices = options.notices;
  }

  /** `decide` is synchronous and may run again on another state; it throws to refuse. */
  write<T>(decide: (draft: Draft) => T): Promise<T> {
    if (this.closed) return Promise.reject(registryError('store_failed', 'the registry is closing'));
    return new Promise<T>((resolve, reject) => {
      this.queue.push({ decide, resolve, reject });
      this.running ??= this.run();
    });
  }

  noteForeign(): void {
    this.foreign++;
  }

  /** Settles when all that was asked for is answered; further requests are refused. */
  async close(): Promise<void> {
    this.closed = true;
    await this.running;
  }

  private async run(): Promise<void> {
    // What has arrived by now belongs to the same batch: a backend hands requests over one by one.
    await nextTurn();
    while (this.queue.length > 0) await this.batch();
    this.running = undefined;
  }

  private async batch(): Promise<void> {
    const role = this.log.role();
    if (!role.leader) {
      const error = registryError('not_leader', 'this instance is not the one that writes', {
        next: 'send the request to the leader',
        details: { url: role.url },
      });
      for (const { reject } of this.queue.splice(0)) reject(error);
      return;
    }
    const { draft, requests, outcomes, foreign } = await this.decide();
    if (draft.records.length > 0) {
      try {
        const how = await this.log.append(draft.records);
        this.notices.appended();
        // Applied again, an earlier value of a key would replace a later one.
        if (how !== 'applied') draft.commit(this.state, foreign !== this.foreign);
      } catch (thrown) {
        // That another instance writes is no failure.
        if (findMillraceError(thrown)?.code !== 'not_leader') this.notices.appendFailed(thrown);
        for (const { reject } of requests) reject(thrown);
        if (findMillraceError(thrown)?.code === 'store_unknown') await this.findOut(thrown);
        return;
      }
    }
    for (const [i, { resolve, reject }] of requests.entries()) {
      const outcome = outcomes[i] as Outcome;
      if ('error' in outcome) reject(outcome.error);
      else resolve(outcome.value as never);
    }
  }

  private async decide(): Promise<{
    readonly draft: Draft;
    readonly requests: readonly Request[];
    readonly outcomes: readonly Outcome[];
    readonly foreign: number;
  }> {
    for (;;) {
      const foreign = this.foreign;
      const draft = new Draft(this.state, Math.floor(this.clock.wallNowMs()));
      const outcomes: Outcome[] = [];
      let bytes = 0;
      let sliceEnd = this.clock.monotonicMs() + SLICE_MS;
      while (outcomes.length < Math.min(this.queue.length, BATCH_REQUESTS_MAX) && bytes < BATCH_BYTES_MAX) {
        const attempt = draft.fork();
        try {
          const value = (this.queue[outcomes.length] as Request).decide(attempt);
          attempt.mergeIntoParent();
          outcomes.push({ value });
        } catch (error) {
          outcomes.push({ error });
        }
        for (const { key, value } of attempt.records) bytes += key.length + (value?.length ?? 0);
        if (this.clock.monotonicMs() < sliceEnd) continue;
        await nextTurn();
        if (foreign !== this.foreign) break;
        sliceEnd = this.clock.monotonicMs() + SLICE_MS;
      }
      // The first write into a topic that others may write says that what stands there is ours.
      const { state } = draft;
      if (this.log.shared === true && draft.records.length > 0 && !state.foreign)
        if (state.origin() === undefined) draft.put({ kind: 'origin', value: 'PROVEN' });
      if (foreign === this.foreign)
        return { draft, requests: this.queue.splice(0, outcomes.length), outcomes, foreign };
    }
  }

  private async findOut(cause: unknown): Promise<void> {
    this.logger.warn(
      { error: String(cause) },
      'the outcome of a write is not known; writes wait for the log',
    );
    for (;;) {
      try {
        await this.log.catchUp();
        return;
      } catch (thrown) {
        if (this.closed) {
          for (const { reject } of this.queue.splice(0)) reject(cause);
          return;
        }
        this.logger.warn({ error: String(thrown) }, 'the log cannot be read up to its end; trying again');
        await sleep(this.clock, CATCH_UP_RETRY_MS);
      }
    }
  }
}
