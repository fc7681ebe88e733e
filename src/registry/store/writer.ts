/** Single writer of the log. Requests queue; a batch of them is decided on a draft, made durable by
 *  one append (group commit), then answered.
 *
 *  Invariants:
 *  1. A request sees every decision before it.
 *  2. A decision is visible only inside its batch until it is durable.
 *  3. A failed append fails exactly the requests of its batch. Refusals fail too, because a refusal
 *     may rest on a lost decision.
 *  4. After an append with unknown outcome nothing is decided until the log has been read to its
 *     end.
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

/** Maximum requests and bytes of one append. */
const BATCH_REQUESTS_MAX = 512;
const BATCH_BYTES_MAX = 8 << 20;
/** Time of deciding after which reads get a turn. */
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
  /** Number of batches that other processes wrote. A draft from before the latest of them is stale.
   */
  private foreign = 0;

  constructor(options: WriterOptions) {
    this.log = options.log;
    this.logger = options.logger;
    this.clock = options.clock;
    this.state = options.state;
    this.notices = options.notices;
  }

  /** Queues a write. `decide` is synchronous and may run again on another state; it throws to
   *  refuse.
   */
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

  /** Settles when all queued requests are answered; further requests are refused. */
  async close(): Promise<void> {
    this.closed = true;
    await this.running;
  }

  private async run(): Promise<void> {
    // Waits one turn, because a backend delivers requests one by one: all that have arrived by then
    // share a batch.
    await nextTurn();
    while (this.queue.length > 0) await this.batch();
    this.running = undefined;
  }

  private async batch(): Promise<void> {
    const role = this.log.role();
    if (!role.leader) {
      const error = registryError('not_leader', 'this instance is not the leader', {
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
        // Applying the records again could replace a later value of a key by an earlier one.
        if (how !== 'applied') draft.commit(this.state, foreign !== this.foreign);
      } catch (thrown) {
        // Another leader is not a failure of the store.
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
      // The first write into an empty shared topic records that the log is Millrace's own.
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
      'the outcome of a write is unknown; writes wait until the log is read to its end',
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
        this.logger.warn({ error: String(thrown) }, 'the log cannot be read to its end; retrying');
        await sleep(this.clock, CATCH_UP_RETRY_MS);
      }
    }
  }
}
