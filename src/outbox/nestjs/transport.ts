/** Custom transport of NestJS: Kafka topics of our relay, through an inbox. Each message has its
 *  effect once, in one transaction with its inbox row.
 *
 *  Types of NestJS and rxjs are structural, so that the package does not depend on them.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { invariant } from '../../core/errors.ts';
import type { SqlSession } from '../../io/postgres/sql/port.ts';
import { outboxError } from '../errors.ts';
import type { InboxRecord } from '../inbox/port.ts';
import type { Service, ServiceConsumer } from '../service.ts';
import { type KafkaMessage, MillraceContext, messageOf } from './message.ts';

/** Consumer of one topic; the pattern of its handler is the name of the topic. */
export type NestConsumer<T> = Omit<ServiceConsumer<T>, 'handle'>;

export interface NestTransportOptions<T> {
  /** Service that joins the groups. The transport closes it. */
  readonly service: Pick<Service, 'consume' | 'failure' | 'close'>;
  readonly consumers: readonly NestConsumer<T>[];
  /** Called when a consumer ends with an error, which no retry cures. Default: throws it outside
   *  of any caller, which ends the process. */
  readonly onFailure?: (failure: unknown) => void;
}

/** Message handler that NestJS registers. */
type NestHandler = ((data: KafkaMessage['value'], context: MillraceContext<unknown>) => Promise<unknown>) & {
  next?: NestHandler;
  isEventHandler?: boolean;
  extras?: unknown;
};

/** Subset of an rxjs Observable. */
interface Stream {
  subscribe(observer: { error(thrown: unknown): void; complete(): void }): unknown;
}

const isStream = (value: unknown): value is Stream =>
  typeof value === 'object' &&
  value !== null &&
  'subscribe' in value &&
  typeof value.subscribe === 'function';

/** Runs a handler to its end, also that of the stream it returned. */
async function settle(result: Promise<unknown>): Promise<void> {
  const value = await result;
  if (!isStream(value)) return;
  await new Promise<void>((resolve, reject) => {
    value.subscribe({ error: (thrown) => reject(errorOf(thrown)), complete: () => resolve() });
  });
}

/** Filters of NestJS throw plain objects. */
function errorOf(thrown: unknown): unknown {
  if (thrown instanceof Error) return thrown;
  const { message } = (thrown ?? {}) as { readonly message?: unknown };
  return new Error(typeof message === 'string' ? message : String(thrown), { cause: thrown });
}

const CURRENT = new AsyncLocalStorage<unknown>();

/** Returns the transaction of the message that is being handled: the handle of the database client
 *  of the consumer's `transaction`, or the session of our pool. Repositories write through it, so
 *  that handlers need no parameter for it.
 *  @throws not_in_transaction outside of a handler
 *  @example
 *  currentTransaction<EntityManager>().insert(Charge, { order: orderId });
 */
export function currentTransaction<T = SqlSession>(): T {
  const current = CURRENT.getStore();
  if (current !== undefined) return current as T;
  throw outboxError('not_in_transaction', 'no message is being handled here', {
    next: 'call it in a handler of MillraceTransport, before the handler settles',
  });
}

/** Transport strategy of a NestJS microservice. Handlers with @EventPattern or @MessagePattern of a
 *  topic run once for each message id; a handler that fails is retried, and then its record is
 *  parked. Results of @MessagePattern handlers are not sent: append an event instead.
 */
export class MillraceTransport<T = SqlSession> {
  /** NestJS leaves errors of event handlers to this transport. */
  readonly propagatesEventHandlerErrors = true;
  private readonly options: NestTransportOptions<T>;
  private readonly handlers = new Map<string, NestHandler>();
  private closing: Promise<void> | undefined;

  constructor(options: NestTransportOptions<T>) {
    this.options = options;
  }

  /** Called by NestJS for each handler. The handlers of one event are called as a chain. */
  addHandler(pattern: unknown, handler: NestHandler, isEventHandler = false, extras: unknown = {}): void {
    const topic = typeof pattern === 'string' ? pattern : JSON.stringify(pattern);
    handler.isEventHandler = isEventHandler;
    handler.extras = extras;
    let last = this.handlers.get(topic);
    while (last?.next !== undefined) last = last.next;
    if (last === undefined || !isEventHandler) this.handlers.set(topic, handler);
    else last.next = handler;
  }

  /** Handlers by topic. */
  getHandlers(): ReadonlyMap<string, NestHandler> {
    return this.handlers;
  }

  /** Called by NestJS: joins the groups.
   *  @throws bad_option: a consumer without a handler, or a handler without a consumer; errors of
   *    Service.consume */
  listen(callback: (error?: unknown) => void): void {
    const { service, consumers, onFailure = throwLater } = this.options;
    try {
      this.requireMatch();
      for (const consumer of consumers) {
        const { topic } = consumer;
        service.consume<T>({ ...consumer, handle: (own, record) => this.handle(topic, own, record) });
      }
    } catch (thrown) {
      callback(thrown);
      return;
    }
    service.failure().catch(onFailure);
    callback();
  }

  /** Called by NestJS: finishes the batches in flight and closes the service. */
  close(): Promise<void> {
    this.closing ??= this.options.service.close();
    return this.closing;
  }

  /** Called by NestJS. The transport has no events. */
  on(): void {}

  /** Returns the service. */
  unwrap<S>(): S {
    return this.options.service as S;
  }

  private async handle(topic: string, own: T, record: InboxRecord): Promise<void> {
    const handler = this.handlers.get(topic);
    invariant(handler !== undefined, 'each consumed topic has a handler');
    const message = messageOf(record);
    const context = new MillraceContext<unknown>(message, own, record.msgId);
    await CURRENT.run(own, () => settle(handler(message.value, context)));
  }

  private requireMatch(): void {
    const topics = this.options.consumers.map(({ topic }) => topic);
    const unhandled = topics.find((topic) => !this.handlers.has(topic));
    const unread = [...this.handlers.keys()].find((pattern) => !topics.includes(pattern));
    if (unhandled !== undefined)
      throw badOption(
        `topic ${unhandled} has a consumer and no handler`,
        `add @EventPattern('${unhandled}')`,
      );
    if (unread !== undefined)
      throw badOption(
        `the handler of ${unread} has no consumer`,
        'name its topic in `consumers` of MillraceTransport',
      );
    if (new Set(topics).size !== topics.length)
      throw badOption('two consumers have the same topic', 'leave one of them out');
  }
}

const badOption = (why: string, next: string) => outboxError('bad_option', why, { next });

function throwLater(failure: unknown): void {
  queueMicrotask(() => {
    throw failure;
  });
}
