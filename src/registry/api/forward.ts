/** Writes go to the one instance that may write; reads stay where they arrive.
 *
 *  Invariants: (1) a request is sent again only when it wrote nothing for sure, or when doing it
 *  twice comes to the same as once (a registration, a setting; never a deletion); (2) a forwarded
 *  request is never forwarded again; (3) what was written through this instance can be read here
 *  when the answer arrives; (4) with access rules, credentials leave only for an address that the
 *  operator vouches for.
 */
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

/** Says that a request comes from another instance. */
const FORWARD_HEADER = 'x-forward';

/** Who answers a request that another instance forwarded. */
const INSTANCE_HEADER = 'x-millrace-instance';

/** How long a write waits for an instance that may write, where nobody may. Longer than an election
 *  takes: a lease, then a campaign of about a second, each more than once where machines or brokers
 *  stall. */
const LEADER_WAIT_MS = 20_000;
const LEADER_POLL_MS = 20;
const RESEND_MS = 100;
const MOVED_POLL_MS = 100;
const CONNECTIONS_MAX = 64;
const REPLY_TIMEOUT_MS = 30_000;
const REPLY_BYTES_MAX = 16 << 20;
/** Leaders remembered, each with its connections. */
const TARGETS_MAX = 8;

/** What a client says that matters to the one who answers. */
const REQUEST_HEADERS = [
  'accept',
  'authorization',
  'content-type',
  'confluent-accept-unknown-properties',
  'traceparent',
  'user-agent',
];
/** What belongs to one connection, or is written anew by our own server. */
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

/** Failures of a connection that was never made: the request did not leave. */
const NOT_SENT = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EHOSTUNREACH', 'ENETUNREACH', 'EADDRNOTAVAIL']);
/** error_codes of an instance that may not write; it has kept nothing. */
const NOTHING_KEPT = new Set([50003, 50004]);

export interface ForwardTransport {
  /** Why nothing may be sent to this address; undefined: it may. */
  refusal?(url: string): MillraceError | undefined;
  /** @throws unreachable, timeout */
  send(url: string, request: Parameters<HttpClient['send']>[0]): Promise<HttpClientReply>;
  close(): void;
}

export interface ForwardOptions {
  /** PEM of the authorities of the other instances over https; absent: those of the system. */
  readonly authorities?: string | undefined;
  /** Absent: any address of a leader is forwarded to. */
  readonly trust?: ForwardTrust | undefined;
}

/** The addresses that may get the credentials of clients. Whoever can write to the topic of leaders
 *  names an address there. */
export class ForwardTrust {
  /** Origins, the port `*` for any. */
  private readonly allowed: ReadonlySet<string>;
  private readonly verified: boolean;

  /** @param allowed `http://host:port`, `http://host:*`
   *  @param verified https addresses are verified against authorities of our own: those of the
   *  system vouch for every
   *  name on the internet
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

/** Keeps connections to the leaders there were lately. */
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

/** Answers to forwarded requests say which instance gave them, errors too: an address can be wrong,
 *  or somebody else's.
 *  @param instanceOf its name, where there is one */
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

/** Where to write: `here`, or the leader. Waits for one until `deadline`. @throws leader_unknown */
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
      throw registryError('leader_unknown', 'the request was forwarded to an instance that may not write', {
        next: 'try again',
      });
    }
    if (role.url !== undefined) return { url: role.url, instance: role.instance };
    if (clock.monotonicMs() >= deadline || request.signal.aborted) {
      throw registryError('leader_unknown', 'no instance of the registry may write at the moment', {
        next: 'try again; an instance takes over by itself',
      });
    }
    await sleep(clock, LEADER_POLL_MS);
  }
}

const keptNothing = (reply: HttpClientReply): boolean => {
  if (reply.status !== 500 || reply.body.length > 4096) return false;
  const found = /"error_code"\s*:\s*(\d+)/.exec(Buffer.from(reply.body).toString());
  return found !== null && NOTHING_KEPT.has(Number(found[1]));
};

/** What is no UTF-8 is no request of this registry, at the leader neither. @throws
 *  malformed_request */
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
    next: 'read what you wrote before you write it again: whether it was kept is not known',
    cause: thrown,
  });
}

/** A server that stands before a registry, or a registry that still starts, may say 5xx without a
 *  name. */
const mayBeRegistry = (reply: HttpClientReply): boolean =>
  reply.headers[INSTANCE_HEADER] !== undefined || reply.status >= 500;

/** An answer of somebody else than who announced the address. */
function misdirected(url: string, reply: HttpClientReply): MillraceError {
  const who = reply.headers[INSTANCE_HEADER] === undefined ? 'no registry of this topic' : 'another instance';
  return registryError(
    'forwarding_failed',
    `${who} answers at ${url}, where the leader says that it is (HTTP ${reply.status})`,
    {
      next: mayBeRegistry(reply)
        ? 'read what you wrote before you write it again: whether it was kept is not known'
        : 'nothing was written; give the leader an -advertise at which the other instances reach it',
    },
  );
}

/** Whether the leader that was forwarded to, or who announced itself there since, gave this reply.
 */
function isFrom(log: RegistryLog, { url, instance }: Leader, reply: HttpClientReply): boolean {
  const from = reply.headers[INSTANCE_HEADER];
  if (from === instance) return true;
  const role = log.role();
  return !role.leader && role.url === url && from === role.instance;
}

/** Settles with whether leadership moved from `leader` before `deadline`. */
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

/** The reply; `not sent`: nothing can have been written; an error: nobody knows. */
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

/** As sendTo, but does not wait for an instance that is the leader no more: it may be asleep, and
 *  can write nothing when it wakes. */
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
          next: 'read what you wrote before you write it again: whether it was kept is not known',
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

/** Done twice, it comes to the same as once. */
const isRepeatable = (request: HttpRequest): boolean => request.method !== 'DELETE';

function responseOf(reply: HttpClientReply): HttpResponse {
  const headers = Object.fromEntries(
    Object.entries(reply.headers).filter(([name]) => !OWN_HEADERS.has(name)),
  );
  return { status: reply.status, headers, body: reply.body };
}

/** The leader's answer to a request that changes something; undefined where this instance is the
 *  leader and has to answer itself. @throws forwarding_failed, leader_unknown, leader_untrusted */
export async function forwardToLeader(
  log: RegistryLog,
  transport: ForwardTransport,
  request: HttpRequest,
  clock: Timers,
): Promise<HttpResponse | undefined> {
  const deadline = clock.monotonicMs() + LEADER_WAIT_MS;
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
            next: 'try again; another instance takes over by itself',
          },
        );
      }
    } else if (reply instanceof MillraceError) {
      if (late || !isRepeatable(request)) throw reply;
    } else if (!isFrom(log, leader, reply)) {
      const error = misdirected(url, reply);
      const mayRepeat = mayBeRegistry(reply) && (keptNothing(reply) || isRepeatable(request));
      // Once an announcement: it is no use to say it to the same stranger again.
      if (!mayRepeat || !(await movedFrom(log, leader, request, clock, deadline))) throw error;
    } else if (late || !keptNothing(reply)) {
      // An answer that was given stands, even where this instance cannot follow at the moment.
      if (reply.status < 400) await log.catchUp().catch(() => {});
      return responseOf(reply);
    }
    await sleep(clock, RESEND_MS);
  }
}

/** Answers a request that changes something: by `here` at the leader, by the leader otherwise.
 *  Leadership that is lost before anything was kept sends the request to the next leader, as often
 *  as an election takes to settle.
 *  @throws forwarding_failed, leader_unknown, leader_untrusted, and whatever `here` throws */
export async function writeAtLeader(
  log: RegistryLog,
  transport: ForwardTransport,
  request: HttpRequest,
  clock: Timers,
  here: () => Promise<HttpResponse>,
): Promise<HttpResponse> {
  const deadline = clock.monotonicMs() + LEADER_WAIT_MS;
  for (;;) {
    const forwarded = await forwardToLeader(log, transport, request, clock);
    if (forwarded !== undefined) return forwarded;
    try {
      return await here();
    } catch (thrown) {
      const code = findMillraceError(thrown)?.code;
      // Who forwarded it knows the next leader too, but not that this outcome may be repeated.
      const unknown = code === 'store_unknown' && isRepeatable(request);
      const again = unknown || (code === 'not_leader' && !isForwarded(request));
      if (!again || clock.monotonicMs() >= deadline) throw thrown;
    }
    await sleep(clock, RESEND_MS);
  }
}
