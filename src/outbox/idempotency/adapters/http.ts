/** Idempotent handlers for everything on node:http: node:http itself, express, fastify, NestJS. */
import type { EndpointCore, KeyFacts } from '../core.ts';
import { thrownBy } from '../core.ts';
import { KEY_NAME, readKey } from '../key.ts';
import { INTERNAL, problemOf } from '../problems.ts';
import { bodyUnseen, readBounded, requireLength } from './body.ts';
import { CapturedResponse, type ResponseLike } from './capture.ts';

type HeaderValues = Readonly<Record<string, string | readonly string[] | undefined>>;

/** Part of IncomingMessage that the adapter uses. */
export interface IncomingLike extends AsyncIterable<Uint8Array | string> {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers: HeaderValues;
  readonly headersDistinct?: Readonly<Record<string, readonly string[] | undefined>>;
  readonly readableDidRead?: boolean;
  /** Iterator that leaves the stream open for the answer when the reading ends early. */
  // biome-ignore lint/suspicious/noExplicitAny: the chunks of a stream
  iterator?(options: { destroyOnReturn: boolean }): AsyncIterable<any>;
}

/** Request of a framework: what its parsers made of the body, and its path before routing. */
interface ParsedLike {
  readonly originalUrl?: string;
  readonly body?: unknown;
  readonly rawBody?: unknown;
}

/** Headers of an answer that tell if it is a replay. `idempotent-replayed` is another common name,
 *  by its convention present only on a replay. */
export const markers = (replayed: boolean): Readonly<Record<string, string>> =>
  replayed
    ? { 'idempotency-replayed': 'true', 'idempotent-replayed': 'true' }
    : { 'idempotency-replayed': 'false' };

/** Sources of one request. */
export interface HttpExchange<Request> {
  /** Request of the framework, which scope and fingerprint receive. */
  readonly request: Request;
  readonly raw: IncomingLike;
  readonly res: ResponseLike;
  /** True if a body that no parser has read may be read here. */
  readonly mayRead: boolean;
}

const valuesOf = (raw: IncomingLike, name: string): readonly string[] => {
  const distinct = raw.headersDistinct?.[name];
  if (distinct !== undefined) return distinct;
  const value = raw.headers[name];
  if (value === undefined) return [];
  return typeof value === 'string' ? [value] : value;
};

const hasBody = ({ headers }: IncomingLike): boolean =>
  headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;

/** Body that neither the endpoint nor a parser has read. */
const UNSEEN = Symbol('unseen');

/** Returns the body for the fingerprint: raw bytes where they are known, otherwise what a parser
 *  made of them, or UNSEEN.
 *  @throws body_too_large */
async function bodyOf<Request>(
  { request, raw, mayRead }: HttpExchange<Request>,
  bytesMax: number,
): Promise<unknown> {
  const { rawBody, body } = request as ParsedLike;
  if (rawBody !== undefined) return rawBody;
  if (!hasBody(raw)) return undefined;
  if (mayRead && raw.readableDidRead !== true) {
    requireLength(valuesOf(raw, 'content-length')[0], bytesMax);
    return readBounded(raw.iterator?.({ destroyOnReturn: false }) ?? raw, bytesMax);
  }
  return body ?? UNSEEN;
}

/** Serves one exchange: executes the handler or replays, and sends the answer after the commit.
 *  @param invoke calls the handler; its promise settles when the handler has returned
 *  @returns `answered: false` with an error of the handler, which its framework handles */
export async function serveHttp<Context extends object, Request>(
  core: EndpointCore<Context, Request>,
  exchange: HttpExchange<Request>,
  invoke: (context: Context & KeyFacts & { readonly body: unknown }) => unknown,
): Promise<{ readonly answered: true } | { readonly answered: false; readonly thrown: unknown }> {
  const { request, raw, res } = exchange;
  const path = (request as ParsedLike).originalUrl ?? raw.url ?? '/';
  let captured: CapturedResponse | undefined;
  try {
    const key = readKey(valuesOf(raw, KEY_NAME));
    const seen = await bodyOf(exchange, core.bodyBytesMax);
    const body = seen === UNSEEN ? undefined : seen;
    const bodySeen = (): unknown => {
      if (seen === UNSEEN) throw bodyUnseen();
      return body;
    };
    const call = { request, key, method: raw.method ?? 'GET', path, body: bodySeen };
    const { answer, replayed } = await core.run(call, async (context) => {
      captured = new CapturedResponse(res, core.answerBytesMax);
      await invoke(Object.assign(context, { body }));
      await captured.endedOrClosed();
      return captured.answer();
    });
    for (const [name, value] of Object.entries(markers(replayed))) res.setHeader(name, value);
    if (captured !== undefined && !replayed) {
      captured.send();
      return { answered: true };
    }
    captured?.discard();
    res.statusCode = answer.status;
    for (const [name, value] of grouped(answer.headers)) res.setHeader(name, value);
    res.end(answer.body);
    return { answered: true };
  } catch (thrown) {
    const wasEnded = captured?.hasEnded === true;
    captured?.discard();
    const refusal = core.refusal(thrown);
    // After the handler has answered, its framework regards the request as finished.
    if (refusal === undefined && !wasEnded) return { answered: false, thrown: thrownBy(thrown) };
    if (refusal === undefined) core.onError(thrownBy(thrown));
    sendProblem(res, path, refusal ?? INTERNAL);
    return { answered: true };
  }
}

/** Sends a problem document. The connection closes where the body was not read to its end. */
function sendProblem(res: ResponseLike, path: string, refusal: Parameters<typeof problemOf>[0]): void {
  if (res.headersSent) return;
  const { headers, body } = problemOf(refusal, path);
  res.statusCode = refusal.status;
  for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
  if (refusal.code === 'body_too_large') res.setHeader('connection', 'close');
  res.end(body);
}

/** Groups the values of headers that are given several times. */
function grouped(headers: ReadonlyArray<readonly [string, string]>): ReadonlyMap<string, string | string[]> {
  const found = new Map<string, string | string[]>();
  for (const [name, value] of headers) {
    const before = found.get(name);
    found.set(name, before === undefined ? value : [...(Array.isArray(before) ? before : [before]), value]);
  }
  return found;
}

/** Returns a listener of node:http, which is a handler of express too. With `next`, errors of the
 *  handler go there; without, they are answered with 500 and reported to onError. */
export function httpHandler<
  Context extends object,
  Request extends IncomingLike,
  Response extends ResponseLike,
>(
  core: EndpointCore<Context, Request>,
  handler: (
    request: Request,
    response: Response,
    context: Context & KeyFacts & { readonly body: unknown },
  ) => unknown,
): (request: Request, response: Response, next?: (error?: unknown) => void) => Promise<void> {
  return async (request, response, next) => {
    const exchange = { request, raw: request, res: response, mayRead: true };
    const result = await serveHttp(core, exchange, (context) => handler(request, response, context));
    if (result.answered) return;
    if (next !== undefined) {
      next(result.thrown);
      return;
    }
    core.onError(result.thrown);
    sendProblem(response, request.url ?? '/', INTERNAL);
  };
}

/** Part of a fastify reply that the adapter uses. */
export interface ReplyLike {
  readonly raw: ResponseLike;
  // biome-ignore lint/suspicious/noExplicitAny: the payload of a reply
  send(payload?: any): unknown;
  hijack(): unknown;
}

/** Returns a handler of fastify. */
export function fastifyHandler<
  Context extends object,
  Request extends { readonly raw: IncomingLike },
  Reply extends ReplyLike,
>(
  core: EndpointCore<Context, Request>,
  handler: (
    request: Request,
    reply: Reply,
    context: Context & KeyFacts & { readonly body: unknown },
  ) => unknown,
): (request: Request, reply: Reply) => Promise<Reply> {
  return async (request, reply) => {
    let invoked = false;
    const exchange = { request, raw: request.raw, res: reply.raw, mayRead: false };
    const result = await serveHttp(core, exchange, async (context) => {
      invoked = true;
      // A reply is a promise of its sent answer. The answer is sent after the handler has returned,
      // so an async handler that returns its reply would wait for itself.
      Object.defineProperty(reply, 'then', { value: undefined, configurable: true });
      const value: unknown = await handler(request, reply, context);
      if (value !== undefined && value !== reply) reply.send(value);
    });
    Reflect.deleteProperty(reply, 'then');
    if (!result.answered) throw result.thrown;
    // A replay or a refusal is written below fastify, which must not write another answer.
    if (!invoked) reply.hijack();
    return reply;
  };
}
