/** Creating an order once per idempotency key, whatever arrives how often and on whichever process.
 *
 *  In one process, requests of one key follow the first (single flight); across processes the unique index makes the
 *  second wait for the first transaction. Both then serve the stored text, byte for byte. Nothing is kept in memory
 *  beyond the requests under way.
 */
import type { Clock } from '../../core/clock.ts';
import type { SqlPool } from '../../io/sql/port.ts';
import { outboxError } from '../errors.ts';
import type { UuidV7 } from '../ids.ts';
import { ORDER_CREATED, orderCreatedPayload, STATUS_CREATED } from './event.ts';
import { type CallFacts, type CreateRequest, requestHash } from './request.ts';
import { type OrderView, readOrder, type StoredAnswer } from './store.ts';
import type { OrderWriter, Written } from './writer.ts';

export interface OrdersOptions {
  readonly pool: SqlPool;
  readonly writer: OrderWriter;
  readonly ids: UuidV7;
  readonly clock: Clock;
  /** Requests under way above which a new one is shed. */
  readonly inFlightMax: number;
}

export interface CreateAnswer {
  readonly orderId: string;
  readonly code: number;
  /** The stored text. */
  readonly body: string;
  readonly replayed: boolean;
}

const sameBytes = (a: Uint8Array, b: Uint8Array): boolean =>
  a.length === b.length && a.every((byte, i) => byte === b[i]);

export class Orders {
  private readonly options: OrdersOptions;
  private readonly flying = new Map<string, Promise<Written>>();
  private underWay = 0;

  constructor(options: OrdersOptions) {
    this.options = options;
  }

  inFlight(): number {
    return this.underWay;
  }

  /** @throws idempotency_key_reused, overloaded, in_flight, database_unavailable, unreachable */
  async create(key: string, request: CreateRequest, call: CallFacts = {}): Promise<CreateAnswer> {
    if (this.underWay >= this.options.inFlightMax) {
      throw outboxError('overloaded', `${this.options.inFlightMax} requests are under way`, {
        next: 'send the same request again in a second',
      });
    }
    this.underWay++;
    try {
      const hash = call.hash ?? requestHash(request);
      const ahead = this.flying.get(key);
      const written = ahead === undefined ? await this.lead(key, hash, request) : await this.follow(ahead);
      return this.judge(written, hash, request);
    } finally {
      this.underWay--;
    }
  }

  async find(orderId: string): Promise<OrderView | undefined> {
    return readOrder(this.options.pool, orderId);
  }

  private async follow(ahead: Promise<Written>): Promise<Written> {
    const { answer } = await ahead;
    return { answer, first: false };
  }

  private lead(key: string, hash: Uint8Array, request: CreateRequest): Promise<Written> {
    const { ids, clock, writer } = this.options;
    const orderId = ids.next();
    const createdAt = new Date(clock.wallNowMs());
    const flight = writer
      .write({
        key,
        requestHash: hash,
        orderId,
        accountId: request.accountId,
        amountCents: request.amountCents,
        status: STATUS_CREATED,
        responseCode: 201,
        responseBody: JSON.stringify({ order_id: orderId, status: STATUS_CREATED }),
        msgId: ids.next(),
        eventType: ORDER_CREATED,
        payload: orderCreatedPayload(orderId, request, createdAt),
        createdAt,
      })
      .finally(() => this.flying.delete(key));
    this.flying.set(key, flight);
    return flight;
  }

  private judge(written: Written, hash: Uint8Array, request: CreateRequest): CreateAnswer {
    const { answer, first } = written;
    if (!sameBytes(answer.requestHash, hash)) throw reused(answer, request);
    return {
      orderId: answer.orderId,
      code: answer.responseCode,
      body: answer.responseBody,
      replayed: !first,
    };
  }
}

/** Names the fields that differ, never their values: the key may have leaked to somebody else. */
function reused(answer: StoredAnswer, request: CreateRequest): Error {
  const differs = [
    ...(answer.accountId === null || answer.accountId === request.accountId ? [] : ['account_id']),
    ...(answer.amountCents === null || answer.amountCents === request.amountCents ? [] : ['amount_cents']),
  ];
  return outboxError(
    'idempotency_key_reused',
    `the key was used before with another ${differs.join(' and ') || 'request'}`,
    {
      next: 'use a new key for a new order',
      details: { differs, idempotency_key: answer.key },
    },
  );
}
