/** Creates an order once for each idempotency key, across repeats and processes.
 *
 *  In one process, requests with one key join the first (single flight), and repeats of a finished
 *  one are answered from memory. Across processes, the unique index makes the second request wait
 *  for the first transaction. All get the stored text, byte for byte. Every request is settled
 *  within the deadline. After a timeout the order may still be created; a retry with the same key
 *  gets its answer.
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
  /** Reads, with a limit separate from that of writes. */
  readonly reads: OrderReads;
  readonly writer: OrderWriter;
  readonly control: BatchControl;
  readonly replays: ReplayCache;
  readonly ids: UuidV7;
  readonly clock: Clock;
  readonly metrics: OrdersMetrics;
  /** Maximum number of requests in flight; above it, requests are shed. */
  readonly inFlightMax: number;
  /** Maximum expected wait for a transaction, ms; above it, new orders are shed. */
  readonly queueWaitMaxMs: number;
  readonly deadlineMs: number;
}

export interface CreateContext {
  /** W3C trace context, validated. */
  readonly traceparent?: string | undefined;
  /** W3C tracestate of that traceparent, validated. */
  readonly tracestate?: string | undefined;
  /** SHA-256 that guards the key instead of the hash of the fields. */
  readonly hash?: Uint8Array | undefined;
}

export interface CreateAnswer {
  readonly orderId: string;
  readonly code: number;
  /** Stored text. */
  readonly body: string;
  readonly replayed: boolean;
}

/** Request that waits for its answer. */
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

/** Order of a key in flight, with all requests that wait for it. */
class PendingOrder implements QueuedOrder {
  readonly key: string;
  readonly requestHash: string;
  readonly orderId: string;
  readonly msgId: string;
  readonly accountId: bigint;
  readonly amountCents: bigint;
  readonly traceparent: string | undefined;
  readonly tracestate: string | undefined;
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
    this.tracestate = context.tracestate;
    this.queuedMs = queuedMs;
  }

  settle(answer: StoredAnswer, first: boolean): void {
    this.orders.onStored(this, answer, first);
  }

  fail(error: unknown): void {
    this.orders.onFailed(this, error);
  }
}

export class Orders {
  private readonly options: OrdersOptions;
  private readonly pending = new Map<string, PendingOrder>();
  /** Waiting requests in the order of their arrival, which is that of their deadlines. */
  private readonly waiting = new Map<Waiter, PendingOrder>();
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

  /** Creates an order or returns the stored answer of its key. Rejects with idempotency_key_reused,
   *  overloaded, in_flight, database_unavailable, deadline_passed, unreachable. */
  create(key: string, request: CreateRequest, context: CreateContext = {}): Promise<CreateAnswer> {
    const { clock, replays, writer, ids, deadlineMs, metrics } = this.options;
    const hash = context.hash === undefined ? requestHashHex(request) : hexOf(context.hash);
    const known = replays.get(key, clock.wallNowMs());
    if (known !== undefined) {
      if (known.requestHash !== hash) return this.refuse(key, known, request);
      metrics.replays.add(1, this.replayedFrom.memory);
      return Promise.resolve(answerOf(known, true));
    }
    const ahead = this.pending.get(key);
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
      const order = new PendingOrder(this, key, waiter, ids, nowMs, context);
      this.pending.set(key, order);
      this.waiting.set(waiter, order);
      writer.write(order);
    });
  }

  /** Reads one order. Rejects with overloaded, deadline_passed, unreachable. */
  find(orderId: string): Promise<OrderView | undefined> {
    return this.options.reads.find(orderId);
  }

  /** Rejects the requests whose deadline has passed; must be called several times a second. */
  tick(): void {
    this.options.reads.tick();
    const nowMs = this.options.clock.monotonicMs();
    for (const [waiter, order] of this.waiting) {
      if (waiter.dueMs > nowMs) return;
      this.waiting.delete(waiter);
      this.options.metrics.deadlines.add();
      waiter.reject(
        outboxError('deadline_passed', `there is no outcome after ${this.options.deadlineMs} ms`, {
          next: 'send the same request with the same key again',
        }),
      );
      order.abandoned =
        !this.waiting.has(order.lead) && !order.followers?.some((one) => this.waiting.has(one));
    }
  }

  /** Answers all requests of an order with what is stored under its key. */
  onStored(order: PendingOrder, answer: StoredAnswer, first: boolean): void {
    const { replays, metrics } = this.options;
    this.removePending(order);
    replays.put(order.key, answer);
    if (!first) metrics.replays.add(1, this.replayedFrom.database);
    this.answer(order, order.lead, answer, !first);
    if (order.followers === undefined) return;
    metrics.replays.add(order.followers.length, this.replayedFrom.flight);
    for (const follower of order.followers) this.answer(order, follower, answer, true);
  }

  onFailed(order: PendingOrder, error: unknown): void {
    this.removePending(order);
    for (const waiter of [order.lead, ...(order.followers ?? [])]) {
      if (this.waiting.delete(waiter)) waiter.reject(error);
    }
  }

  private removePending(order: PendingOrder): void {
    if (this.pending.get(order.key) === order) this.pending.delete(order.key);
  }

  private answer(order: PendingOrder, waiter: Waiter, answer: StoredAnswer, replayed: boolean): void {
    if (!this.waiting.delete(waiter)) return;
    if (waiter.hash === answer.requestHash) waiter.resolve(answerOf(answer, replayed));
    else waiter.resolve(this.refuse(order.key, answer, waiter.request));
  }

  private shedReason(isNew: boolean): Error | undefined {
    const { inFlightMax, queueWaitMaxMs, control, writer, metrics } = this.options;
    if (this.waiting.size >= inFlightMax) {
      metrics.shed.add(1, this.shedFor.inFlight);
      return shed(`${inFlightMax} requests are in flight`);
    }
    if (!isNew || control.expectedWaitMs(writer.queued()) <= queueWaitMaxMs) return undefined;
    metrics.shed.add(1, this.shedFor.queue);
    return shed(`a request would wait for more than ${queueWaitMaxMs} ms`);
  }

  /** Rejects a reused key. Names the differing fields if the database is free to read them, but
   *  never their values: the key may have leaked to another client. */
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
