/** Creating an order once per idempotency key, whatever arrives how often and on whichever process.
 *
 *  In one process, requests of one key follow the first (single flight), and repeats of a finished
 *  one are answered from memory; across processes the unique index makes the second wait for the
 *  first transaction. All serve the stored text, byte for byte. Every request is settled within the
 *  deadline; what it asked for may still come to be, and its key finds out.
 */
import type { Clock } from '../../core/clock.ts';
import { outboxError } from '../errors.ts';
import type { UuidV7 } from '../ids.ts';
import type { OrdersMetrics } from './metrics.ts';
import type { OrderReads } from './reads.ts';
import type { CreateRequest } from './request.ts';
import { requestHashHex } from './request-hash.ts';
import type { BatchControl } from './write/batch-control.ts';
import type { ReplayCache, StoredAnswer } from './write/replay-cache.ts';
import type { OrderView } from './write/store.ts';
import type { OrderWriter, QueuedOrder } from './write/writer.ts';

export interface OrdersOptions {
  /** Beside the hot path. */
  readonly reads: OrderReads;
  readonly writer: OrderWriter;
  readonly control: BatchControl;
  readonly replays: ReplayCache;
  readonly ids: UuidV7;
  readonly clock: Clock;
  readonly metrics: OrdersMetrics;
  /** Requests under way above which another one is shed. */
  readonly inFlightMax: number;
  /** Expected wait for a transaction above which a request is shed. */
  readonly queueWaitMaxMs: number;
  readonly deadlineMs: number;
}

export interface CreateContext {
  /** W3C trace context, already judged to be well-formed. */
  readonly traceparent?: string | undefined;
  /** SHA-256 that guards the key in place of that of the fields. */
  readonly hash?: Uint8Array | undefined;
}

export interface CreateAnswer {
  readonly orderId: string;
  readonly code: number;
  /** The stored text. */
  readonly body: string;
  readonly replayed: boolean;
}

/** One request that waits for its answer. */
class Waiter {
  readonly hash: string;
  readonly request: CreateRequest;
  readonly dueMs: number;
  readonly resolve: (answer: CreateAnswer | PromiseLike<CreateAnswer>) => void;
  readonly reject: (error: unknown) => void;

  constructor(
    hash: string,
    request: CreateRequest,
    dueMs: number,
    resolve: (answer: CreateAnswer | PromiseLike<CreateAnswer>) => void,
    reject: (error: unknown) => void,
  ) {
    this.hash = hash;
    this.request = request;
    this.dueMs = dueMs;
    this.resolve = resolve;
    this.reject = reject;
  }
}

/** The order of a key on its way, and everyone who asked for it. */
class Flight implements QueuedOrder {
  readonly key: string;
  readonly requestHash: string;
  readonly orderId: string;
  readonly msgId: string;
  readonly accountId: bigint;
  readonly amountCents: bigint;
  readonly traceparent: string | undefined;
  readonly queuedMs: number;
  readonly lead: Waiter;
  followers: Waiter[] | undefined;
  abandoned = false;
  private readonly orders: Orders;

  constructor(
    orders: Orders,
    key: string,
    lead: Waiter,
    ids: UuidV7,
    queuedMs: number,
    context: CreateContext,
  ) {
    this.orders = orders;
    this.key = key;
    this.lead = lead;
    this.requestHash = lead.hash;
    this.accountId = lead.request.accountId;
    this.amountCents = lead.request.amountCents;
    this.orderId = ids.next();
    this.msgId = ids.next();
    this.traceparent = context.traceparent;
    this.queuedMs = queuedMs;
  }

  settle(answer: StoredAnswer, first: boolean): void {
    this.orders.landed(this, answer, first);
  }

  fail(error: unknown): void {
    this.orders.failed(this, error);
  }
}

export class Orders {
  private readonly options: OrdersOptions;
  private readonly flying = new Map<string, Flight>();
  /** In the order of their arrival, which is that of their deadlines. */
  private readonly waiting = new Map<Waiter, Flight>();
  private readonly replayedFrom;
  private readonly shedFor;

  constructor(options: OrdersOptions) {
    this.options = options;
    const { replays, shed } = options.metrics;
    this.replayedFrom = {
      memory: replays.series('memory'),
      flight: replays.series('flight'),
      database: replays.series('database'),
    };
    this.shedFor = { inFlight: shed.series('in_flight'), queue: shed.series('queue') };
  }

  inFlight(): number {
    return this.waiting.size;
  }

  /** Rejects with idempotency_key_reused, overloaded, in_flight, database_unavailable,
   *  deadline_passed, unreachable. */
  create(key: string, request: CreateRequest, context: CreateContext = {}): Promise<CreateAnswer> {
    const { clock, replays, writer, ids, deadlineMs, metrics } = this.options;
    const hash = context.hash === undefined ? requestHashHex(request) : hexOf(context.hash);
    const known = replays.get(key, clock.wallNowMs());
    if (known !== undefined) {
      if (known.requestHash !== hash) return this.refuse(key, known, request);
      metrics.replays.add(1, this.replayedFrom.memory);
      return Promise.resolve(answerOf(known, true));
    }
    const ahead = this.flying.get(key);
    const why = this.shedReason(ahead === undefined);
    if (why !== undefined) return Promise.reject(why);
    const nowMs = clock.monotonicMs();
    return new Promise((resolve, reject) => {
      const waiter = new Waiter(hash, request, nowMs + deadlineMs, resolve, reject);
      if (ahead !== undefined) {
        ahead.abandoned = false;
        ahead.followers ??= [];
        ahead.followers.push(waiter);
        this.waiting.set(waiter, ahead);
        return;
      }
      const flight = new Flight(this, key, waiter, ids, nowMs, context);
      this.flying.set(key, flight);
      this.waiting.set(waiter, flight);
      writer.write(flight);
    });
  }

  /** Rejects with overloaded, deadline_passed, unreachable. */
  find(orderId: string): Promise<OrderView | undefined> {
    return this.options.reads.find(orderId);
  }

  /** Answers those whose deadline has passed; to be called several times a second. */
  tick(): void {
    this.options.reads.tick();
    const nowMs = this.options.clock.monotonicMs();
    for (const [waiter, flight] of this.waiting) {
      if (waiter.dueMs > nowMs) return;
      this.waiting.delete(waiter);
      this.options.metrics.deadlines.add();
      waiter.reject(
        outboxError('deadline_passed', `there is no outcome after ${this.options.deadlineMs} ms`, {
          next: 'send the same request with the same key again',
        }),
      );
      flight.abandoned =
        !this.waiting.has(flight.lead) && !flight.followers?.some((one) => this.waiting.has(one));
    }
  }

  /** Of a flight: the answer that is stored under its key. */
  landed(flight: Flight, answer: StoredAnswer, first: boolean): void {
    const { replays, metrics } = this.options;
    this.land(flight);
    replays.put(flight.key, answer);
    if (!first) metrics.replays.add(1, this.replayedFrom.database);
    this.answer(flight, flight.lead, answer, !first);
    if (flight.followers === undefined) return;
    metrics.replays.add(flight.followers.length, this.replayedFrom.flight);
    for (const follower of flight.followers) this.answer(flight, follower, answer, true);
  }

  failed(flight: Flight, error: unknown): void {
    this.land(flight);
    for (const waiter of [flight.lead, ...(flight.followers ?? [])]) {
      if (this.waiting.delete(waiter)) waiter.reject(error);
    }
  }

  private land(flight: Flight): void {
    if (this.flying.get(flight.key) === flight) this.flying.delete(flight.key);
  }

  private answer(flight: Flight, waiter: Waiter, answer: StoredAnswer, replayed: boolean): void {
    if (!this.waiting.delete(waiter)) return;
    if (waiter.hash === answer.requestHash) waiter.resolve(answerOf(answer, replayed));
    else waiter.resolve(this.refuse(flight.key, answer, waiter.request));
  }

  private shedReason(isNew: boolean): Error | undefined {
    const { inFlightMax, queueWaitMaxMs, control, writer, metrics } = this.options;
    if (this.waiting.size >= inFlightMax) {
      metrics.shed.add(1, this.shedFor.inFlight);
      return shed(`${inFlightMax} requests are under way`);
    }
    if (!isNew || control.expectedWaitMs(writer.queued()) <= queueWaitMaxMs) return undefined;
    metrics.shed.add(1, this.shedFor.queue);
    return shed(`a request would wait for more than ${queueWaitMaxMs} ms`);
  }

  /** Names the fields that differ, where the database has time to tell; never their values: the key
   *  may have leaked to somebody else. */
  private async refuse(key: string, answer: StoredAnswer, request: CreateRequest): Promise<never> {
    const order = await this.options.reads.findIfFree(answer.orderId);
    const differs = [
      ...(order === undefined || order.accountId === request.accountId ? [] : ['account_id']),
      ...(order === undefined || order.amountCents === request.amountCents ? [] : ['amount_cents']),
    ];
    throw outboxError(
      'idempotency_key_reused',
      `the key was used before with another ${differs.join(' and ') || 'request'}`,
      { next: 'use a new key for a new order', details: { differs, idempotency_key: key } },
    );
  }
}

const answerOf = (answer: StoredAnswer, replayed: boolean): CreateAnswer => ({
  orderId: answer.orderId,
  code: answer.responseCode,
  body: answer.responseBody,
  replayed,
});

const hexOf = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');

const shed = (why: string): Error =>
  outboxError('overloaded', why, { next: 'send the same request again in a second' });
