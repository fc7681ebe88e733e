/** Forwards writes to the leader, the only instance that may write. Each instance answers reads
 *  itself.
 *  Invariants: (1) A request is sent again only if it certainly wrote nothing, or if it is
 *  idempotent (a registration, a setting; never a deletion). (2) A forwarded request is never
 *  forwarded again. (3) When the answer to a write arrives, this instance can read what was
 *  written. (4) With access rules, credentials are sent only to addresses that the operator
 *  allowed. */
import { type Cancel, sleep, type Timers } from '../../core/clock.ts';
import { coreError, findMillraceError, MillraceError } from '../../core/errors.ts';
import type { HttpClient, HttpClientDriver, HttpClientReply } from '../../io/http/client-port.ts';
import type {
  HttpAdmission,
  HttpRequest,
  HttpRequestHead,
  HttpResponse,
  HttpRoute,
} from '../../io/http/port.ts';
import { registryError } from '../errors.ts';
import type { RegistryLog } from '../store/log.ts';

/** Marks a request that another instance forwarded. */
const FORWARD_HEADER = 'x-forward';

/** Names the instance that answers a forwarded request. */
const INSTANCE_HEADER = 'x-millrace-instance';

/** Longest time that a write waits for a leader. Longer than an election: a lease and a campaign of
 *  about a second, each of which may repeat if a machine or broker stalls. */
const LEADER_WAIT_MS = 20_000;
const LEADER_POLL_MS = 20;
const RESEND_MS = 100;
const MOVED_POLL_MS = 100;
const CONNECTIONS_MAX = 64;
const REPLY_TIMEOUT_MS = 30_000;
const REPLY_BYTES_MAX = 16 << 20;
/** Leaders to which connections are kept. */
const TARGETS_MAX = 8;

/** Headers of the client that the leader needs. */
const REQUEST_HEADERS = [
  'accept',
  'authorization',
  'content-type',
  'confluent-accept-unknown-properties',
  'traceparent',
  'user-agent',
];
/** Headers that belong to one connection, or that our own server sets. */
const OWN_HEADERS = new Set([
  'connection',
  'content-length',
  'date',
  'keep-alive',
  'proxy-authenticate',
  'trailer',
  'transfer-encoding',
  'upgrade',
  INSTANCE_HEADER,
]);

/** Reasons of a connection that was never made: the request was not sent. */
const NOT_SENT = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EHOSTUNREACH', 'ENETUNREACH', 'EADDRNOTAVAIL']);
/** `error_code`s of an instance that is not the leader; it stored nothing. */
const NOTHING_STORED = new Set([50003, 50004]);

export interface ForwardTransport {
  /** Reason not to send to this address; undefined: sending is allowed. */
  refusal?(url: string): MillraceError | undefined;
  /** @throws unreachable, timeout */
  send(url: string, request: Parameters<HttpClient['send']>[0]): Promise<HttpClientReply>;
  close(): void;
}

export interface ForwardOptions {
  /** PEM of the certificate authorities of the other instances' https addresses; absent: those of
   *  the system. */
  readonly authorities?: string | undefined;
  /** Absent: requests are forwarded to any address that a leader announces. */
  readonly trust?: ForwardTrust | undefined;
}

/** Addresses that may receive the credentials of clients. They are limited because anyone with
 *  write access to the election topic can announce an address there. */
export class ForwardTrust {
  /** Origins; `*` as the port allows any port. */
  private readonly allowed: ReadonlySet<string>;
  private readonly verified: boolean;

  /** @param allowed `http://host:port`, `http://host:*`
   *  @param verified true if https addresses are verified against our own authorities; those of the
   *  system sign for every name on the internet, so they prove nothing here
   *  @throws bad_value */
  constructor(allowed: readonly string[], verified: boolean) {
    this.allowed = new Set(allowed.map(originOf));
    this.verified = verified;
  }

  trusts(text: string): boolean {
    if (!URL.canParse(text)) return false;
    const url = new URL(text);
    if (this.verified && url.protocol === 'https:') return true;
    return this.allowed.has(url.origin) || this.allowed.has(`${url.protocol}//${url.hostname}:*`);
  }
}

function originOf(text: string): string {
  const anyPort = /^(https?:\/\/[^/?#@*]+):\*\/?$/i.exec(text)?.[1];
  const given = anyPort ?? text;
  const url = /^https?:\/\/[^/?#@*]+\/?$/i.test(given) && URL.canParse(given) ? new URL(given) : undefined;
  if (url === undefined || (anyPort !== undefined && url.port !== '')) {
    throw coreError('bad_value', `-forward-to=${text} is not an address of an instance`, {
      next: 'give http://host:port as the others advertise it, or http://host:* for any port',
    });
  }
  return anyPort === undefined ? url.origin : `${url.protocol}//${url.hostname}:*`;
}

function untrusted(url: string): MillraceError {
  return registryError(
    'leader_untrusted',
    `the write was not forwarded to the leader at ${url}: access rules are on, and credentials are not sent to an address that only the topic names`,
    {
      next: 'give every instance -forward-to with the addresses of the others, or let them speak https and give -forward-ca',
    },
  );
}

/** Keeps connections to the leaders that were used last. */
export function forwardTransport(driver: HttpClientDriver, options: ForwardOptions = {}): ForwardTransport {
  const { authorities, trust } = options;
  const clients = new Map<string, HttpClient>();
  return {
    refusal: (url) => (trust === undefined || trust.trusts(url) ? undefined : untrusted(url)),
    async send(url, request) {
      let client = clients.get(url);
      if (client === undefined) {
        client = driver.open({
          target: url,
          connectionsMax: CONNECTIONS_MAX,
          timeoutMs: REPLY_TIMEOUT_MS,
          bodyBytesMax: REPLY_BYTES_MAX,
          ...(authorities === undefined ? {} : { ca: authorities }),
        });
        const [oldest] = clients.keys();
        if (clients.size >= TARGETS_MAX && oldest !== undefined) {
          clients.get(oldest)?.close();
          clients.delete(oldest);
        }
        clients.set(url, client);
      }
      return client.send(request);
    },
    close() {
      for (const client of clients.values()) client.close();
      clients.clear();
    },
  };
}

const isForwarded = (request: HttpRequestHead): boolean =>
  request.header(FORWARD_HEADER).some((value) => value.toLowerCase() === 'true');

/** Adds the instance's name to the answers to forwarded requests, errors too. The sender needs it
 *  because an announced address can be wrong or belong to another server.
 *  @param instanceOf returns the name of this instance; undefined: no name yet */
export function signForwarded(
  routes: readonly HttpRoute[],
  instanceOf: () => string | undefined,
): readonly HttpRoute[] {
  const signed = <T extends HttpAdmission>(
    request: HttpRequestHead,
    response: T | Promise<T>,
  ): T | Promise<T> => {
    const instance = isForwarded(request) ? instanceOf() : undefined;
    if (instance === undefined) return response;
    const sign = (given: T): T =>
      given === undefined ? given : { ...given, headers: { ...given.headers, [INSTANCE_HEADER]: instance } };
    return response instanceof Promise ? response.then(sign) : sign(response);
  };
  return routes.map((route) => {
    const { admit } = route;
    return {
      ...route,
      ...(admit === undefined
        ? {}
        : { admit: (head: HttpRequestHead) => signed<HttpAdmission>(head, admit(head)) }),
      handler: (request) => signed<HttpResponse>(request, route.handler(request)),
    };
  });
}

interface Leader {
  readonly url: string;
  readonly instance: string | undefined;
}

/** Resolves to the leader, or to `here` if this instance is the leader. Waits for a leader until
 *  `deadline`; a forwarded or aborted request does not wait. @throws leader_unknown */
async function leaderOf(
  log: RegistryLog,
  request: HttpRequest,
  clock: Timers,
  deadline: number,
): Promise<Leader | 'here'> {
  for (;;) {
    const role = log.role();
    if (role.leader) return 'here';
    if (isForwarded(request)) {
      throw registryError(
        'leader_unknown',
        'the request was forwarded to an instance that is not the leader',
        {
          next: 'try again',
        },
      );
    }
    if (role.url !== undefined) return { url: role.url, instance: role.instance };
    if (clock.monotonicMs() >= deadline || request.signal.aborted) {
      throw registryError('leader_unknown', 'the registry has no leader at the moment', {
        next: 'try again; an instance becomes the leader automatically',
      });
    }
    await sleep(clock, LEADER_POLL_MS);
  }
}

const storedNothing = (reply: HttpClientReply): boolean => {
  if (reply.status !== 500 || reply.body.length > 4096) return false;
  const found = /"error_code"\s*:\s*(\d+)/.exec(Buffer.from(reply.body).toString());
  return found !== null && NOTHING_STORED.has(Number(found[1]));
};

/** Decodes the body. A body that is not UTF-8 is refused here, because the leader would refuse it
 *  too. @throws malformed_request */
function textOf(request: HttpRequest): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(request.body);
  } catch (cause) {
    throw registryError('malformed_request', 'the request body is not UTF-8', {
      next: 'see /openapi.json for what is expected',
      cause,
    });
  }
}

function failed(url: string, thrown: MillraceError): MillraceError {
  return registryError('forwarding_failed', `the leader at ${url} did not answer: ${thrown.message}`, {
    next: 'read the data back before you repeat the write: whether it was stored is not known',
    cause: thrown,
  });
}

/** A proxy in front of a registry, or a registry that is starting, may answer 5xx without its name.
 */
const mayBeRegistry = (reply: HttpClientReply): boolean =>
  reply.headers[INSTANCE_HEADER] !== undefined || reply.status >= 500;

/** Error for an answer from a server other than the leader that announced the address. */
function misdirected(url: string, reply: HttpClientReply): MillraceError {
  const who = reply.headers[INSTANCE_HEADER] === undefined ? 'no registry of this topic' : 'another instance';
  return registryError(
    'forwarding_failed',
    `${who} answers at ${url}, the address that the leader announces (HTTP ${reply.status})`,
    {
      next: mayBeRegistry(reply)
        ? 'read the data back before you repeat the write: whether it was stored is not known'
        : 'nothing was written; give the leader an -advertise at which the other instances reach it',
    },
  );
}

/** True if `reply` is from that leader, or from an instance that has announced itself at the same
 *  address since. */
function isFrom(log: RegistryLog, { url, instance }: Leader, reply: HttpClientReply): boolean {
  const from = reply.headers[INSTANCE_HEADER];
  if (from === instance) return true;
  const role = log.role();
  return !role.leader && role.url === url && from === role.instance;
}

/** Resolves to true if the leadership moved from `leader` before `deadline`. */
async function movedFrom(
  log: RegistryLog,
  leader: Leader,
  request: HttpRequest,
  clock: Timers,
  deadline: number,
): Promise<boolean> {
  for (;;) {
    const role = log.role();
    if (role.leader || role.url !== leader.url || role.instance !== leader.instance) return true;
    if (clock.monotonicMs() >= deadline || request.signal.aborted) return false;
    await sleep(clock, LEADER_POLL_MS);
  }
}

/** The reply; `not sent`: nothing was written; an error: the outcome is unknown. */
type Sent = HttpClientReply | 'not sent' | MillraceError;

async function sendTo(url: string, transport: ForwardTransport, request: HttpRequest): Promise<Sent> {
  const headers: Record<string, string> = { [FORWARD_HEADER]: 'true' };
  for (const name of REQUEST_HEADERS) {
    const values = request.header(name);
    if (values.length > 0) headers[name] = values.join(', ');
  }
  const body = textOf(request);
  const query = request.query.size > 0 ? `?${request.query}` : '';
  try {
    return await transport.send(url, { method: request.method, path: request.path + query, headers, body });
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    return NOT_SENT.has(String(error.details['reason'])) ? 'not sent' : failed(url, error);
  }
}

/** Sends like `sendTo`, but stops waiting when the instance loses the leadership. It may be
 *  suspended, and cannot write any more when it resumes. */
async function sendWhileLeading(
  log: RegistryLog,
  url: string,
  transport: ForwardTransport,
  request: HttpRequest,
  clock: Timers,
): Promise<Sent> {
  let cancel: Cancel = () => {};
  const moved = new Promise<Sent>((resolve) => {
    cancel = clock.every(MOVED_POLL_MS, () => {
      const role = log.role();
      if (!role.leader && (role.url === undefined || role.url === url)) return;
      resolve(
        registryError('forwarding_failed', `the leader at ${url} was replaced before it answered`, {
          next: 'read the data back before you repeat the write: whether it was stored is not known',
        }),
      );
    });
  });
  try {
    return await Promise.race([sendTo(url, transport, request), moved]);
  } finally {
    cancel();
  }
}

/** True if the request is idempotent. */
const isRepeatable = (request: HttpRequest): boolean => request.method !== 'DELETE';

function responseOf(reply: HttpClientReply): HttpResponse {
  const headers = Object.fromEntries(
    Object.entries(reply.headers).filter(([name]) => !OWN_HEADERS.has(name)),
  );
  return { status: reply.status, headers, body: reply.body };
}

/** Returns the leader's answer to a write; undefined if this instance is the leader and must
 *  answer.
 *  @param deadline monotonic ms until which a leader is awaited
 *  @throws forwarding_failed, leader_unknown, leader_untrusted */
export async function forwardToLeader(
  log: RegistryLog,
  transport: ForwardTransport,
  request: HttpRequest,
  clock: Timers,
  deadline = clock.monotonicMs() + LEADER_WAIT_MS,
): Promise<HttpResponse | undefined> {
  for (;;) {
    const leader = await leaderOf(log, request, clock, deadline);
    if (leader === 'here') return undefined;
    const { url } = leader;
    const refusal = transport.refusal?.(url);
    if (refusal !== undefined) throw refusal;
    const reply = await sendWhileLeading(log, url, transport, request, clock);
    const late = clock.monotonicMs() >= deadline || request.signal.aborted;
    if (reply === 'not sent') {
      if (late) {
        throw registryError(
          'forwarding_failed',
          `the leader at ${url} cannot be reached; nothing was written`,
          {
            next: 'try again; another instance becomes the leader automatically',
          },
        );
      }
    } else if (reply instanceof MillraceError) {
      if (late || !isRepeatable(request)) throw reply;
    } else if (!isFrom(log, leader, reply)) {
      const error = misdirected(url, reply);
      const mayRepeat = mayBeRegistry(reply) && (storedNothing(reply) || isRepeatable(request));
      // Send at most once per announcement: the same wrong server would answer again.
      if (!mayRepeat || !(await movedFrom(log, leader, request, clock, deadline))) throw error;
    } else if (late || !storedNothing(reply)) {
      // The answer is valid even if this instance cannot catch up at the moment.
      if (reply.status < 400) await log.catchUp().catch(() => {});
      return responseOf(reply);
    }
    await sleep(clock, RESEND_MS);
  }
}

/** Answers a write: with `here` if this instance is the leader, else with the answer of the leader.
 *  If the leadership is lost before anything was stored, the request is sent to the next leader;
 *  all attempts together wait at most `LEADER_WAIT_MS` for one.
 *  @throws forwarding_failed, leader_unknown, leader_untrusted, and errors of `here` */
export async function writeAtLeader(
  log: RegistryLog,
  transport: ForwardTransport,
  request: HttpRequest,
  clock: Timers,
  here: () => Promise<HttpResponse>,
): Promise<HttpResponse> {
  const deadline = clock.monotonicMs() + LEADER_WAIT_MS;
  for (;;) {
    const forwarded = await forwardToLeader(log, transport, request, clock, deadline);
    if (forwarded !== undefined) return forwarded;
    try {
      return await here();
    } catch (thrown) {
      const code = findMillraceError(thrown)?.code;
      // The sender of a forwarded request finds the next leader itself, so `not_leader` is left to
      // it. It does not know that `store_unknown` may be repeated.
      const unknown = code === 'store_unknown' && isRepeatable(request);
      const again = unknown || (code === 'not_leader' && !isForwarded(request));
      if (!again || clock.monotonicMs() >= deadline) throw thrown;
    }
    await sleep(clock, RESEND_MS);
  }
}
