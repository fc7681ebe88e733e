/** Idempotent endpoints for any handler: `idempotency` with one transaction for each request,
 *  `idempotencySteps` with recovery points. */

import type { IncomingMessage, ServerResponse } from 'node:http';
import { outboxError } from '../errors.ts';
import type { ResponseLike } from './adapters/capture.ts';
import { type HonoLike, honoHandler } from './adapters/fetch.ts';
import { grpcHandler, type UnaryCallLike, type UnaryMethodLike } from './adapters/grpc.ts';
import { fastifyHandler, httpHandler, type IncomingLike, type ReplyLike } from './adapters/http.ts';
import { type NestInterceptorLike, nestInterceptor } from './adapters/nest.ts';
import { EndpointCore, type Executor, type KeyFacts } from './core.ts';
import { type IdempotencyOptions, type Resolved, resolveOptions } from './options.ts';
import { inOneTransaction } from './single.ts';
import type { AnySql, TransactionOf } from './source.ts';
import { inSteps, type Steps } from './steps.ts';

/** Argument of a handler of `idempotency` beside the request. */
export interface TransactionContext<Tx> {
  /** The open transaction. It commits with the record of the key when the handler has answered. */
  readonly tx: Tx;
}

/** The request body, where the endpoint or a parser has read it. */
export interface BodyFacts {
  /** Bytes that the endpoint read, or what a parser made of them; undefined without a body, and for
   *  a body that the handler itself reads. */
  readonly body: unknown;
}

// biome-ignore lint/suspicious/noExplicitAny: scope and fingerprint fix the type of the request
type Any = any;

/** Makes handlers idempotent. `Context` is what a handler receives: a transaction, or steps. */
export class IdempotentEndpoints<Context extends object> {
  private readonly core: EndpointCore<Context, Any>;

  constructor(core: EndpointCore<Context, Any>) {
    this.core = core;
  }

  /** Returns a listener of node:http, which is also a handler of express.
   *  @example
   *  const server = createServer(idem.http(async (req, res, { tx, body }) => {
   *    await tx.query('INSERT INTO payments (cents) VALUES ($1)',
   *  [JSON.parse(String(body)).cents]);   res.writeHead(201, { 'content-type': 'application/json'
   *  }).end('{}'); }));
   */
  http<Request extends IncomingLike = IncomingMessage, Response extends ResponseLike = ServerResponse>(
    handler: (request: Request, response: Response, context: Context & KeyFacts & BodyFacts) => unknown,
  ): (request: Request, response: Response, next?: (error?: Any) => void) => Promise<void> {
    return httpHandler<Context, Request, Response>(this.core, handler);
  }

  /** Returns a handler of express 4 or 5; errors of the handler go to `next`.
   *  @example
   *  app.post('/payments', express.json(), idem.express(async (req, res, { tx }) => {
   *    await tx.query('INSERT INTO payments (cents) VALUES ($1)', [req.body.cents]);
   *    res.status(201).json({});
   *  }));
   */
  express<Request extends IncomingLike = Any, Response extends ResponseLike = Any>(
    handler: (request: Request, response: Response, context: Context & KeyFacts & BodyFacts) => unknown,
  ): (request: Request, response: Response, next: (error?: Any) => void) => Promise<void> {
    return httpHandler<Context, Request, Response>(this.core, handler);
  }

  /** Returns a handler of fastify.
   *  @example
   *  app.post('/payments', idem.fastify(async (request, reply, { tx }) => {
   *    await tx.query('INSERT INTO payments (cents) VALUES ($1)', [request.body.cents]);
   *    return reply.code(201).send({});
   *  }));
   */
  fastify<Request extends { readonly raw: IncomingLike } = Any, Reply extends ReplyLike = Any>(
    handler: (request: Request, reply: Reply, context: Context & KeyFacts & BodyFacts) => unknown,
  ): (request: Request, reply: Reply) => Promise<Reply> {
    return fastifyHandler<Context, Request, Reply>(this.core, handler);
  }

  /** Returns a handler of hono.
   *  @example
   *  app.post('/payments', idem.hono(async (c, { tx }) => {
   *    await tx.query('INSERT INTO payments (cents) VALUES ($1)', [(await c.req.json()).cents]);
   *    return c.json({}, 201);
   *  }));
   */
  hono<Hono extends HonoLike = Any>(
    handler: (c: Hono, context: Context & KeyFacts & BodyFacts) => Response | Promise<Response>,
  ): (c: Hono) => Promise<Response> {
    return honoHandler<Context, Hono>(this.core, handler);
  }

  /** Returns an interceptor of NestJS; `of(request)` gives the transaction to the controller.
   *  @example
   *  UseInterceptors(idem.nest())(PaymentsController);
   */
  nest(): NestInterceptorLike {
    return nestInterceptor<Context, Any>(this.core);
  }

  /** Returns a unary handler of @grpc/grpc-js.
   *  @param method definition of the method, from the service definition
   *  @example
   *  server.addService(definition, {
   *    Create: idem.grpc(definition.Create, async (call, { tx }) => {
   *      await tx.query('INSERT INTO payments (cents) VALUES ($1)', [call.request.cents]);
   *      return { state: 'created' };
   *    }),
   *  });
   */
  grpc<Call extends UnaryCallLike<Message>, Message, Reply>(
    method: UnaryMethodLike<Message, Reply>,
    handler: (call: Call, context: Context & KeyFacts) => Promise<Reply>,
  ): (call: Call, callback: (error: Any, reply?: Reply | null, trailer?: Any) => void) => void {
    return grpcHandler<Context, Call, Message, Reply>(this.core, method, handler);
  }

  /** Returns the context of a request that a handler serves now, by the request of its framework.
   *  @throws not_in_transaction outside of a handler */
  of(request: object): Context & KeyFacts {
    const context = this.core.contextOf(request);
    if (context !== undefined) return context;
    throw outboxError('not_in_transaction', 'no idempotent handler serves this request now', {
      next: 'call it with the request of the framework, within the handler',
    });
  }

  /** Deletes the keys that have expired. Requests start it too, in the background.
   *  @returns number of deleted keys */
  prune(): Promise<number> {
    return this.core.pruner.prune();
  }

  /** Ends the pruning; call it before the pool is closed. */
  close(): Promise<void> {
    return this.core.pruner.close();
  }
}

function endpoints<Context extends object, Tx, Request>(
  options: Resolved<Tx, Request>,
  executor: Executor<Context>,
): IdempotentEndpoints<Context> {
  const core = new EndpointCore<Context, Request>(options as unknown as Resolved<unknown, Request>, executor);
  return new IdempotentEndpoints<Context>(core);
}

/** Options whose source decides the type of the transaction. */
type OptionsWith<Sql, Request> = Omit<IdempotencyOptions<Any, Request>, 'sql'> & { readonly sql: Sql };

/** Makes endpoints idempotent: a repeated request with the same Idempotency-Key gets the first
 *  answer, byte for byte, and has no second effect. The key's record is written in the transaction
 *  that the handler receives.
 *  @throws bad_option, bad_table_name
 *  @example
 *  const idem = idempotency({ sql: pool, scope: (req) => req.tenant, ttlMs: 86_400_000 });
 */
export function idempotency<Sql extends AnySql, Request = Any>(
  options: OptionsWith<Sql, Request>,
): IdempotentEndpoints<TransactionContext<TransactionOf<Sql>>> {
  const resolved = resolveOptions<TransactionOf<Sql>, Request>(options);
  return endpoints(resolved, (request, execute) =>
    inOneTransaction(resolved, request, (tx) => execute({ tx })),
  );
}

/** Makes endpoints with several transactions idempotent: the handler receives steps, each of which
 *  is a recovery point. After a crash, the next request with the key resumes after the last one.
 *  @throws bad_option, bad_table_name
 *  @example
 *  const idem = idempotencySteps({ sql: pool, scope: (req) => req.tenant, ttlMs: 86_400_000 });
 */
export function idempotencySteps<Sql extends AnySql, Request = Any>(
  options: OptionsWith<Sql, Request>,
): IdempotentEndpoints<Steps<TransactionOf<Sql>>> {
  const resolved = resolveOptions<TransactionOf<Sql>, Request>(options);
  return endpoints(resolved, (request, execute) =>
    inSteps(resolved, request, (steps) =>
      execute({
        step: (name, work) => steps.step(name, work),
        call: (name, work) => steps.call(name, work),
      }),
    ),
  );
}
