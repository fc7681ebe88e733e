/** One source of registry answers for all threads of a process.
 *
 *  The main thread owns the HTTP client; the clients of the other threads ask it over a
 *  MessagePort, and each keeps its parsed schemas in its own caches.
 *  Invariants: (1) while an answer is fetched, every thread that asks for it waits for this one
 *  request; (2) an answer that never changes (the schema of an id, guid or referenced version, the
 *  id of a registered text) is kept up to ANSWERS_BYTES_MAX, so each is requested once a process;
 *  (3) the answer "unknown id" is kept for `unknownForMs`, up to UNKNOWN_BYTES_MAX;
 *  (4) every other answer may change, so it is never shared. */
import type { MessagePort } from 'node:worker_threads';
import type { Clock } from '../core/clock.ts';
import { coreError, findMillraceError, type MillraceError } from '../core/errors.ts';
import { LruMap } from '../core/lru-map.ts';
import { SERDE_ERRORS, serdeError } from './errors.ts';
import {
  contextOfVersion,
  contextSubject,
  errorNumber,
  isSuccess,
  type RegistryRequests,
  schemaPath,
} from './requests.ts';
import type { TransportAnswer } from './transport.ts';

/** Memory for kept answers, bytes. */
const ANSWERS_BYTES_MAX = 64 << 20;
/** Memory for kept answers about unknown ids, bytes. */
const UNKNOWN_BYTES_MAX = 4 << 20;
/** Memory of an entry beside its texts, bytes. */
const ENTRY_BYTES = 200;

/** Operations whose success never changes. */
const LASTING: ReadonlySet<string> = new Set(['schema_by_id', 'schema_by_guid', 'reference', 'register']);
/** Operations whose answer "not found" is kept. */
const ABSENT: ReadonlySet<string> = new Set(['schema_by_id', 'schema_by_guid']);

type Method = Parameters<RegistryRequests['ask']>[1];

interface Question {
  readonly number: number;
  readonly operation: string;
  readonly method: Method;
  readonly path: string;
  readonly body?: unknown;
}

interface Failure {
  readonly code: string | undefined;
  readonly message: string;
  readonly next: string | undefined;
}

type Reply =
  | { readonly number: number; readonly answer: TransportAnswer }
  | { readonly number: number; readonly failure: Failure };

interface KeptAnswer {
  readonly answer: TransportAnswer;
  /** Monotonic time of expiry, ms. */
  readonly untilMs: number;
  readonly bytes: number;
}

/** Answers by key, at most `bytesMax`; the answer used longest ago is evicted first. */
class AnswerCache {
  private readonly bytesMax: number;
  private readonly kept = new LruMap<string, KeptAnswer>();
  private bytes = 0;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  get(key: string, nowMs: number): TransportAnswer | undefined {
    const found = this.kept.get(key);
    if (found === undefined || nowMs < found.untilMs) return found?.answer;
    this.kept.delete(key);
    this.bytes -= found.bytes;
    return undefined;
  }

  set(key: string, answer: TransportAnswer, untilMs: number): void {
    const bytes = ENTRY_BYTES + 2 * (key.length + answer.body.length);
    this.bytes += bytes - (this.kept.set(key, { answer, untilMs, bytes })?.bytes ?? 0);
    while (this.bytes > this.bytesMax)
      this.bytes -= (this.kept.shift() as readonly [string, KeptAnswer])[1].bytes;
  }
}

export interface SharedRequestsOptions {
  /** Sends the requests. */
  readonly requests: RegistryRequests;
  readonly clock: Clock;
  /** Time for which the answer "unknown id" is kept, ms. A client keeps it as long again. */
  readonly unknownForMs: number;
}

/** Requests of all clients of a process, on the main thread.
 *  @example
 *  const shared = new SharedRequests({ requests, clock: systemClock, unknownForMs: 10_000 });
 *  const { port1, port2 } = new MessageChannel();
 *  shared.serve(port1);
 *  const worker = new Worker(file, { workerData: { registry: port2 }, transferList: [port2] });
 *  // In the thread:
 *  const requests = new ThreadRequests(workerData.registry);
 *  const client = new RegistryClient({ requests, clock, metrics, unknownForMs: 10_000 });
 */
export class SharedRequests implements RegistryRequests {
  private readonly options: SharedRequestsOptions;
  private readonly inFlight = new Map<string, Promise<TransportAnswer>>();
  private readonly lasting = new AnswerCache(ANSWERS_BYTES_MAX);
  private readonly absent = new AnswerCache(UNKNOWN_BYTES_MAX);
  private readonly answeredIds = new Set<string>();

  constructor(options: SharedRequestsOptions) {
    this.options = options;
  }

  async ask(operation: string, method: Method, path: string, body?: unknown): Promise<TransportAnswer> {
    const { requests, clock } = this.options;
    if (operation === 'version') return this.noted(path, await requests.ask(operation, method, path, body));
    if (!LASTING.has(operation)) return requests.ask(operation, method, path, body);
    const key = `${method} ${path}${body === undefined ? '' : ` ${JSON.stringify(body)}`}`;
    const nowMs = clock.monotonicMs();
    const known = this.lasting.get(key, nowMs) ?? this.absent.get(key, nowMs);
    if (known !== undefined) return known;
    let pending = this.inFlight.get(key);
    if (pending === undefined) {
      pending = requests
        .ask(operation, method, path, body)
        .then((answer) => this.keep(key, operation, answer))
        .finally(() => this.inFlight.delete(key));
      this.inFlight.set(key, pending);
    }
    return pending;
  }

  distinctIds(): number {
    return this.answeredIds.size;
  }

  /** Answers the requests of the thread that has the other end, until that end closes. The port
   *  does not keep the process alive. */
  serve(port: MessagePort): void {
    port.on('message', (question: Question) => void this.reply(port, question));
    port.unref();
  }

  private async reply(port: MessagePort, question: Question): Promise<void> {
    const { number, operation, method, path, body } = question;
    try {
      const answer = await this.ask(operation, method, path, body);
      port.postMessage({ number, answer } satisfies Reply);
    } catch (thrown) {
      const error = findMillraceError(thrown);
      const message = error?.message ?? String(thrown);
      const failure = { code: error?.code, message, next: error?.next };
      port.postMessage({ number, failure } satisfies Reply);
    }
  }

  /** Keeps the schema of a version as the answer for its id, in the context of that id. */
  private noted(path: string, answer: TransportAnswer): TransportAnswer {
    const byId = isSuccess(answer) ? pathOfId(path, answer) : undefined;
    if (byId !== undefined) this.lasting.set(`GET ${byId}`, answer, Number.POSITIVE_INFINITY);
    return answer;
  }

  private keep(key: string, operation: string, answer: TransportAnswer): TransportAnswer {
    if (isSuccess(answer)) {
      this.lasting.set(key, answer, Number.POSITIVE_INFINITY);
      if (operation === 'schema_by_id') this.answeredIds.add(key);
    } else if (ABSENT.has(operation) && isNotFound(answer)) {
      const { clock, unknownForMs } = this.options;
      this.absent.set(key, answer, clock.monotonicMs() + unknownForMs);
    }
    return answer;
  }
}

/** Path of the schema of the id in the answer for a version; undefined for an answer of another
 *  form. @param path `/subjects/{subject}/versions/{version}` */
function pathOfId(path: string, { body }: TransportAnswer): string | undefined {
  try {
    const { id, schema, subject } = JSON.parse(body) as Readonly<Record<string, unknown>>;
    if (typeof id !== 'number' || typeof schema !== 'string') return undefined;
    const requested = decodeURIComponent(path.split('/')[2] ?? '');
    return schemaPath(id, contextSubject(contextOfVersion(requested, subject)));
  } catch {
    return undefined;
  }
}

const isNotFound = (answer: TransportAnswer): boolean =>
  answer.status === 404 && errorNumber(answer) === SERDE_ERRORS.schema_not_found.number;

interface Waiting {
  resolve(answer: TransportAnswer): void;
  reject(error: unknown): void;
}

/** Requests of the clients of a thread, which the main thread sends. The port keeps the thread
 *  alive only while an answer is awaited. */
export class ThreadRequests implements RegistryRequests {
  private readonly port: MessagePort;
  private readonly waiting = new Map<number, Waiting>();
  private last = 0;
  private closed = false;

  /** @param port end of a channel whose other end SharedRequests serves */
  constructor(port: MessagePort) {
    this.port = port;
    port.on('message', (reply: Reply) => this.settle(reply));
    port.on('close', () => this.end());
    port.unref();
  }

  /** @throws registry_unavailable, registry_protocol; closed when the main thread closed the
   *  channel */
  ask(operation: string, method: Method, path: string, body?: unknown): Promise<TransportAnswer> {
    if (this.closed) return Promise.reject(channelClosed());
    return new Promise((resolve, reject) => {
      const number = ++this.last;
      this.waiting.set(number, { resolve, reject });
      this.port.ref();
      this.port.postMessage({ number, operation, method, path, body } satisfies Question);
    });
  }

  private settle(reply: Reply): void {
    const asked = this.waiting.get(reply.number);
    this.waiting.delete(reply.number);
    if (this.waiting.size === 0) this.port.unref();
    if ('answer' in reply) asked?.resolve(reply.answer);
    else asked?.reject(errorOf(reply.failure));
  }

  private end(): void {
    this.closed = true;
    for (const { reject } of this.waiting.values()) reject(channelClosed());
    this.waiting.clear();
  }
}

const channelClosed = (): MillraceError =>
  coreError('closed', 'the main thread closed the channel of its registry client', {
    next: 'keep the main thread running until its threads have ended',
  });

function errorOf({ code, message, next }: Failure): Error {
  if (code === undefined || !Object.hasOwn(SERDE_ERRORS, code)) return new Error(message);
  return serdeError(code as keyof typeof SERDE_ERRORS, message, next === undefined ? {} : { next });
}
