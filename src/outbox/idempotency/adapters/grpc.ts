/** Idempotent unary handlers of @grpc/grpc-js. Only answers with status OK are stored: their
 *  message is replayed byte for byte. */
import type { EndpointCore, KeyFacts } from '../core.ts';
import { thrownBy } from '../core.ts';
import { KEY_NAME, readKey } from '../key.ts';
import { INTERNAL, type KeyRefusal } from '../problems.ts';

const REPLAYED = 'idempotency-replayed';
const RETRY_MS = 'grpc-retry-pushback-ms';

/** Metadata of @grpc/grpc-js. */
export interface MetadataLike {
  get(name: string): ReadonlyArray<string | Uint8Array>;
  set(name: string, value: string): void;
}

/** Unary call of @grpc/grpc-js. */
export interface UnaryCallLike<Message> {
  readonly request: Message;
  readonly metadata: MetadataLike;
}

/** Definition of a unary method, from the service definition. */
export interface UnaryMethodLike<Message, Reply> {
  readonly path: string;
  readonly requestSerialize: (message: Message) => Buffer;
  readonly responseSerialize: (reply: Reply) => Buffer;
  readonly responseDeserialize: (bytes: Buffer) => Reply;
}

type Callback<Reply> = (
  // biome-ignore lint/suspicious/noExplicitAny: errors of grpc-js have their own type
  error: any,
  reply?: Reply | null,
  // biome-ignore lint/suspicious/noExplicitAny: the class of metadata of grpc-js
  trailer?: any,
) => void;

/** Returns new metadata of the same class. */
function metadataOf(call: UnaryCallLike<unknown>, entries: Readonly<Record<string, string>>): MetadataLike {
  const made = new (call.metadata.constructor as new () => MetadataLike)();
  for (const [name, value] of Object.entries(entries)) made.set(name, value);
  return made;
}

function statusOf(call: UnaryCallLike<unknown>, refusal: KeyRefusal): Error {
  const { retryAfterS } = refusal;
  const retry = retryAfterS === undefined ? {} : { [RETRY_MS]: String(Number(retryAfterS) * 1000) };
  return Object.assign(new Error(refusal.detail), {
    code: refusal.grpc,
    details: refusal.detail,
    metadata: metadataOf(call, { 'error-code': refusal.code.toUpperCase(), ...retry }),
  });
}

/** True for an error that the handler made for the client: it has a status of gRPC. */
const isStatus = (thrown: unknown): boolean => {
  const { code } = (thrown ?? {}) as { readonly code?: unknown };
  return Number.isInteger(code) && Number(code) > 0 && Number(code) <= 16;
};

/** Returns a unary handler. The handler returns the reply, or throws an error with a gRPC code. */
export function grpcHandler<Context extends object, Call extends UnaryCallLike<Message>, Message, Reply>(
  core: EndpointCore<Context, Call>,
  method: UnaryMethodLike<Message, Reply>,
  handler: (call: Call, context: Context & KeyFacts) => Promise<Reply>,
): (call: Call, callback: Callback<Reply>) => void {
  const serve = async (call: Call, callback: Callback<Reply>): Promise<void> => {
    const key = readKey(call.metadata.get(KEY_NAME).map(String), 'metadata');
    const body = (): Buffer => method.requestSerialize(call.request);
    const facts = { request: call, key, method: 'gRPC', path: method.path, body };
    let first: Reply | undefined;
    const { answer, replayed } = await core.run(facts, async (context) => {
      first = await handler(call, context);
      return { status: 0, headers: [], body: method.responseSerialize(first) };
    });
    const reply =
      replayed || first === undefined ? method.responseDeserialize(Buffer.from(answer.body)) : first;
    callback(null, reply, metadataOf(call, { [REPLAYED]: String(replayed) }));
  };
  return (call, callback) => {
    serve(call, callback).catch((thrown: unknown) => {
      const refusal = core.refusal(thrown);
      if (refusal !== undefined) return callback(statusOf(call, refusal));
      const cause = thrownBy(thrown);
      if (isStatus(cause)) return callback(cause);
      core.onError(cause);
      callback(statusOf(call, INTERNAL));
    });
  };
}
