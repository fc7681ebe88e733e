/** Idempotent handlers for servers with the Request and Response of the fetch standard: hono. */

import { answerTooLarge, type EndpointAnswer } from '../answer.ts';
import type { EndpointCore, KeyFacts } from '../core.ts';
import { thrownBy } from '../core.ts';
import { KEY_NAME, readKey } from '../key.ts';
import { problemOf } from '../problems.ts';
import { readBounded, requireLength } from './body.ts';
import { markers } from './http.ts';

/** Part of the context of hono that the adapter uses. */
export interface HonoLike {
  readonly req: { raw: Request };
}

/** Reads the body of a response. @throws answer_too_large */
async function answerOf(response: Response, bytesMax: number): Promise<EndpointAnswer> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  if (response.body !== null) {
    for await (const chunk of response.body as AsyncIterable<Uint8Array>) {
      bytes += chunk.length;
      if (bytes > bytesMax) throw answerTooLarge(bytesMax);
      chunks.push(chunk);
    }
  }
  return { status: response.status, headers: [...response.headers], body: Buffer.concat(chunks) };
}

function responseOf(
  { status, headers, body }: EndpointAnswer,
  more: Readonly<Record<string, string>>,
): Response {
  const all = new Headers();
  for (const [name, value] of headers) all.append(name, value);
  for (const [name, value] of Object.entries(more)) all.set(name, value);
  // A status such as 204 forbids even an empty body.
  return new Response(body.length === 0 ? null : Buffer.from(body), { status, headers: all });
}

/** Returns a handler of hono. The handler may read the body again. Errors of the handler go to
 *  hono's onError. */
export function honoHandler<Context extends object, Hono extends HonoLike>(
  core: EndpointCore<Context, Hono>,
  handler: (
    c: Hono,
    context: Context & KeyFacts & { readonly body: unknown },
  ) => Response | Promise<Response>,
): (c: Hono) => Promise<Response> {
  return async (c) => {
    const { raw } = c.req;
    const { pathname, search } = new URL(raw.url);
    try {
      const given = raw.headers.get(KEY_NAME);
      const key = readKey(given === null ? [] : [given]);
      let body: Buffer | undefined;
      if (raw.body !== null) {
        requireLength(raw.headers.get('content-length'), core.bodyBytesMax);
        body = await readBounded(raw.body as AsyncIterable<Uint8Array>, core.bodyBytesMax);
        c.req.raw = new Request(raw, { body: body.length === 0 ? null : new Uint8Array(body) });
      }
      const call = { request: c, key, method: raw.method, path: pathname + search, body: () => body };
      const { answer, replayed } = await core.run(call, async (context) =>
        answerOf(await handler(c, Object.assign(context, { body })), core.answerBytesMax),
      );
      return responseOf(answer, markers(replayed));
    } catch (thrown) {
      const refusal = core.refusal(thrown);
      if (refusal === undefined) throw thrownBy(thrown);
      const { headers, body } = problemOf(refusal, pathname + search);
      return new Response(body, { status: refusal.status, headers });
    }
  };
}
