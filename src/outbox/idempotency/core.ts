/** The part of an idempotent endpoint that knows no framework: from a request with its key to its
 *  answer. */
import type { EndpointAnswer } from './answer.ts';
import { fingerprint } from './fingerprint.ts';
import { type Attempt, Flights, type KeyOutcome } from './flights.ts';
import type { Resolved } from './options.ts';
import { type KeyRefusal, refusalOf } from './problems.ts';
import { Pruner } from './pruner.ts';
import { type KeyedRequest, requireScope } from './record.ts';
import { HandlerFailure } from './single.ts';

/** Request as an adapter reads it. */
export interface EndpointCall<Request> {
  readonly request: Request;
  readonly key: string;
  readonly method: string;
  readonly path: string;
  /** Returns the body. @throws bad_option if neither the endpoint nor a parser has read it */
  readonly body: () => unknown;
}

/** Key and tenant of the request that a handler serves. */
export interface KeyFacts {
  readonly key: string;
  readonly scope: string;
}

/** Executes a request whose key is free, in the mode of the endpoint. */
export type Executor<Context> = (
  request: KeyedRequest,
  execute: (context: Context) => Promise<EndpointAnswer>,
) => Promise<Attempt>;

export class EndpointCore<Context extends object, Request> {
  readonly bodyBytesMax: number;
  readonly answerBytesMax: number;
  readonly onError: (error: unknown) => void;
  readonly pruner: Pruner;
  private readonly options: Resolved<unknown, Request>;
  private readonly executor: Executor<Context>;
  private readonly flights: Flights;
  /** Context of each request that a handler serves now, by the request of its framework. */
  private readonly contexts = new WeakMap<object, Context & KeyFacts>();
  private readonly count: (outcome: string) => void;

  constructor(options: Resolved<unknown, Request>, executor: Executor<Context>) {
    this.options = options;
    this.executor = executor;
    this.flights = new Flights(options);
    this.bodyBytesMax = options.bodyBytesMax;
    this.answerBytesMax = options.answerBytesMax;
    this.onError = options.onError;
    const requests = options.metrics?.counter(
      'idempotency_requests_total',
      'Requests by outcome: executed, not_stored, replayed, failed, or the code of a refusal.',
      ['outcome'],
    );
    const pruned = options.metrics?.counter('idempotency_pruned_total', 'Expired keys that were deleted.');
    const waiting = options.metrics?.gauge(
      'idempotency_waiting',
      'Requests that wait for another one with their key.',
    );
    options.metrics?.onCollect(() => waiting?.set(this.flights.waiters()));
    this.count = (outcome) => requests?.add(1, requests.series(outcome));
    this.pruner = new Pruner({
      source: options.source,
      sql: options.sql,
      ttlMs: options.ttlMs,
      clock: options.clock,
      onPruned: (rows) => pruned?.add(rows),
      onError: options.onError,
    });
  }

  /** Executes the request, or replays the answer of its key.
   *  @param execute is called at most once
   *  @throws a refusal (refusalOf), a HandlerFailure, or an error of the database */
  async run(
    call: EndpointCall<Request>,
    execute: (context: Context & KeyFacts) => Promise<EndpointAnswer>,
  ): Promise<KeyOutcome> {
    const { request, key, method, path, body } = call;
    const scope = requireScope(await this.options.scope(request));
    // A selector that does not read the body also identifies a request whose body is a stream.
    const selected = {
      ...{ request, method, path },
      get body() {
        return body();
      },
    };
    const hash = fingerprint(this.options.parts(selected));
    const keyed = { scope, key, fingerprint: hash };
    let stored = true;
    const outcome = await this.flights.run(keyed, async () => {
      const attempt = await this.executor(keyed, async (given) => {
        const context = Object.assign(given, { key, scope });
        const held = typeof request === 'object' && request !== null ? request : undefined;
        if (held !== undefined) this.contexts.set(held, context);
        try {
          return await execute(context);
        } finally {
          if (held !== undefined) this.contexts.delete(held);
        }
      });
      if (attempt.kind === 'executed') stored = attempt.stored;
      return attempt;
    });
    this.count(outcome.replayed ? 'replayed' : stored ? 'executed' : 'not_stored');
    this.pruner.tick();
    return outcome;
  }

  /** Returns the answer of a refused request, or undefined for an error of the service; counts it.
   *  */
  refusal(thrown: unknown): KeyRefusal | undefined {
    const refusal = refusalOf(thrown, this.options.reusedStatus);
    this.count(refusal?.code ?? 'failed');
    return refusal;
  }

  /** Context of a request that a handler serves now. */
  contextOf(request: object): (Context & KeyFacts) | undefined {
    return this.contexts.get(request);
  }
}

/** Returns the error as the handler threw it. */
export const thrownBy = (thrown: unknown): unknown =>
  thrown instanceof HandlerFailure ? thrown.thrown : thrown;
