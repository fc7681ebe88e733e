/** Broker failures, as values (BrokerEvent) and as errors.
 *
 *  A driver reports a failure after which it can continue as a BrokerEvent. It throws only when a
 *  call has no result; the event is then in `details.event`.
 */
import { coreError, errorRow, errorsOf, type MillraceError } from '../../core/errors.ts';
import { ERROR_CODES } from './codes.ts';
import type { BrokerEvent, BrokerOptions, TransactionFailure } from './port.ts';
import { SHOWN_PROPERTIES, secretsOf } from './properties.ts';

export const BROKER_ERRORS = {
  /** The broker refused the request. */
  broker_refused: errorRow('conflict', { exit: 2 }),
  /** The broker did not answer, or asked for a retry. */
  broker_unavailable: errorRow('unavailable'),
  /** The group assigned these partitions to another member. */
  group_fenced: errorRow('fenced'),
  bad_broker_property: errorRow('invalid'),
  /** The broker does not accept the credentials. */
  broker_unauthenticated: errorRow('invalid'),
  /** The client does not trust the broker's certificate, or the broker not the client's. */
  broker_untrusted: errorRow('invalid'),
  /** The broker's access control list does not allow the operation. */
  broker_forbidden: errorRow('conflict', { http: 403, grpc: 7, exit: 2 }),
  /** The driver does not support the call in this thread. */
  driver_unusable: errorRow('internal'),
} as const;

export const brokerError = errorsOf(BROKER_ERRORS);

/** Code of a record that is larger than the whole arena of the batch; outside librdkafka's range.
 */
export const OVERSIZE_CODE = -10_000;
const OVERSIZE_NAME = 'MILLRACE_OVERSIZE';

export const ERR = {
  DESTROY: -197,
  TRANSPORT: -195,
  PARTITION_EOF: -191,
  UNKNOWN_PARTITION: -190,
  ALL_BROKERS_DOWN: -187,
  INVALID_ARG: -186,
  TIMED_OUT: -185,
  QUEUE_FULL: -184,
  ASSIGN_PARTITIONS: -175,
  REVOKE_PARTITIONS: -174,
  STATE: -172,
  NO_OFFSET: -168,
  PURGE_QUEUE: -152,
  FATAL: -150,
  APPLICATION: -143,
  ASSIGNMENT_LOST: -142,
  UNKNOWN_TOPIC_OR_PART: 3,
  GROUP_AUTHORIZATION_FAILED: 30,
  TOPIC_ALREADY_EXISTS: 36,
} as const;

const NAME_BY_CODE = new Map(ERROR_CODES.map(([code, name]) => [code, name]));
const TEXT_BY_CODE = new Map(ERROR_CODES.map(([code, , text]) => [code, text]));
const CODE_BY_TEXT = new Map(ERROR_CODES.map(([code, , text]) => [text.toLowerCase(), code]));

/** Codes of transient errors: connections, elections, coordinators, timeouts, full queues. */
const RETRIABLE = new Set([
  -196, -195, -193, -192, -187, -185, -184, -180, -178, -177, -166, -164, -153, 3, 5, 6, 7, 8, 9, 13, 14, 15,
  16, 19, 20, 56, 70, 71, 72, 74, 75, 88, 89,
]);

/** Codes that mean: another member of the group owns the committed partitions. */
const FENCED = new Set([-144, -142, 22, 25, 27, 82, 110, 113]);

/** Codes that mean: a newer producer has the transactional id (_FENCED, INVALID_PRODUCER_EPOCH,
 *  INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED). */
const PRODUCER_FENCED = new Set([-144, 47, 49, 90]);

/** Classifies the failure of a transaction step for its caller. */
export function transactionFailure(
  event: BrokerEvent,
  { retriable, abortable }: { readonly retriable: boolean; readonly abortable: boolean },
): TransactionFailure {
  if (PRODUCER_FENCED.has(event.code)) return { kind: 'fenced', event };
  if (event.fatal) return { kind: 'fatal', event };
  if (abortable) return { kind: 'abort', event };
  return { kind: retriable ? 'retry' : 'fatal', event };
}

function errorName(code: number): string {
  if (code === OVERSIZE_CODE) return OVERSIZE_NAME;
  return NAME_BY_CODE.get(code) ?? `ERR_${code}`;
}

/** Code of an error description; -1 when the table does not contain it. */
function codeOfText(text: string): number {
  return CODE_BY_TEXT.get(text.toLowerCase()) ?? -1;
}

interface EventPlace {
  readonly topic?: string;
  readonly partition?: number;
}

export function brokerEvent(
  code: number,
  message?: string,
  place: EventPlace = {},
  fatal = code === ERR.FATAL,
): BrokerEvent {
  return {
    code,
    name: errorName(code),
    message: message === undefined || message === '' ? (TEXT_BY_CODE.get(code) ?? `error ${code}`) : message,
    retriable: !fatal && RETRIABLE.has(code),
    fatal,
    ...(place.topic === undefined ? {} : { topic: place.topic }),
    ...(place.partition === undefined ? {} : { partition: place.partition }),
  };
}

/** Codes of a missing access control entry: topic, group, cluster, transactional id, delegation
 *  token. */
const FORBIDDEN: ReadonlyMap<number, string> = new Map([
  [29, 'the topic'],
  [30, 'the consumer group'],
  [31, 'the cluster'],
  [53, 'the transactional id'],
  [65, 'the delegation token'],
]);

/** Error of a refused operation. */
const forbidden = (line: string, event: BrokerEvent): MillraceError =>
  brokerError('broker_forbidden', line, {
    next: `allow the user of this client this operation on ${FORBIDDEN.get(event.code)} (kafka-acls --add)`,
    details: { event },
  });

/** Error of a call that failed with `event`. @param what the call, for the message */
export function errorOfEvent(what: string, event: BrokerEvent): MillraceError {
  const details = { event };
  const line = `${what}: ${event.message}`;
  if (FENCED.has(event.code)) {
    return brokerError('group_fenced', line, {
      next: 'drop what was read of these partitions; their new owner reads it again',
      details,
    });
  }
  if (FORBIDDEN.has(event.code)) return forbidden(line, event);
  if (event.fatal)
    return coreError('unreachable', line, { next: 'close this client and open another', details });
  if (event.code === ERR.TIMED_OUT)
    return coreError('timeout', line, { next: 'see whether the broker runs, then try again', details });
  if (event.retriable) return brokerError('broker_unavailable', line, { next: 'try again', details });
  return brokerError('broker_refused', line, {
    next: 'mend what the broker names; a retry gets the same answer',
    details,
  });
}

/** True when no later poll can deliver a row: a fatal error, or a group whose access control list
 *  excludes this member. librdkafka reports that refusal once and repeats its request without end.
 *  @param isMember true after a subscribe */
export const endsPolling = (isMember: boolean, { code, fatal }: BrokerEvent): boolean =>
  fatal || (isMember && code === ERR.GROUP_AUTHORIZATION_FAILED);

/** Event of an error that node-rdkafka threw or emitted. */
export function thrownEvent(thrown: unknown): BrokerEvent {
  const { code: given, message } = thrown as { readonly code?: unknown; readonly message?: string };
  let code = typeof given === 'number' ? given : -1;
  const text = message ?? String(thrown);
  // node-rdkafka's events have only the description, in lower case and without its origin.
  if (code === -1) {
    for (const origin of ['local: ', 'broker: ', '']) if (code === -1) code = codeOfText(`${origin}${text}`);
  }
  return brokerEvent(code, code === -1 ? text : undefined);
}

/** Prefix of a configuration warning, which node-rdkafka may give instead of the connection error.
 */
const CONFIG_WARNING = /^CONFWARN\b/;

/** Reasons in the texts of librdkafka for which a retry gets the same answer. A refusal `ofCluster`
 *  is one that every broker repeats; a certificate is that of one broker. */
const REFUSALS = [
  {
    text: /certificate verify failed|self[- ]signed certificate|unable to get (local )?issuer|certificate (has expired|is not yet valid)|hostname mismatch|ip address mismatch|broker certificate could not be verified/i,
    code: 'broker_untrusted',
    what: 'the certificate of the broker is not trusted',
    next: 'give its authority as ssl.ca.location, and an address that the certificate names',
    ofCluster: false,
  },
  {
    text: /alert (bad certificate|certificate (required|unknown|expired|revoked)|unknown ca|handshake failure)|sslv3 alert|tlsv1[0-9]* alert/i,
    code: 'broker_untrusted',
    what: 'the broker refused the TLS handshake',
    next: 'give the certificate and key of this client as ssl.certificate.location and ssl.key.location',
    ofCluster: false,
  },
  {
    text: /authentication failed|invalid credentials|SASL authentication error|SaslAuthenticate/i,
    code: 'broker_unauthenticated',
    what: 'the broker does not accept the credentials',
    next: 'check sasl.username, sasl.password and sasl.mechanism',
    ofCluster: true,
  },
  {
    text: /unsupported SASL mechanism|mechanism handshake failed|SASL .*mechanism/i,
    code: 'broker_unauthenticated',
    what: 'the broker does not accept the SASL mechanism',
    next: 'give sasl.mechanism as one that the listener has',
    ofCluster: true,
  },
] as const;

/** End of a conversation that broke off before the broker had decided. */
const BROKEN_OFF = /failed: Local: /;

/** Failures of a client that speaks another security protocol than the listener; the last one is a
 *  TLS alert, read as the size of an answer. */
const OTHER_PROTOCOL = /security\.protocol|PLAINTEXT broker listener|response size 3525\d{5}\b/;

const refusalIn = (line: string): (typeof REFUSALS)[number] | undefined =>
  BROKEN_OFF.test(line) ? undefined : REFUSALS.find(({ text }) => text.test(line));

/** True when the line names a refusal, which a retry does not change. */
export const isRefusal = (line: string): boolean => refusalIn(line) !== undefined;

/** True when no further request can get an answer. A broker with an untrusted certificate may be
 *  one of several. @param why lines of the log */
export const isFinal = (brokers: string, why: string): boolean =>
  why.split('\n').some((line) => {
    const refusal = refusalIn(line);
    return refusal !== undefined && (refusal.ofCluster || !brokers.includes(','));
  });

/** Error of a client that got no answer. A refusal of the broker has a code of its own. @param why
 *  lines of the log, the newest at the end */
export function unreachable(
  { brokers, properties }: Pick<BrokerOptions, 'brokers' | 'properties'>,
  why: string,
): MillraceError {
  const lines = why.split('\n');
  const line = lines.findLast(isRefusal) ?? (lines.at(-1) as string);
  const cause = CONFIG_WARNING.test(line) ? '' : `: ${secretsOf(properties).hide(line)}`;
  const refusal = refusalIn(line);
  if (refusal !== undefined)
    return brokerError(refusal.code, `${refusal.what} at ${brokers}${cause}`, {
      next: refusal.next,
      details: { brokers },
    });
  return coreError('unreachable', `no broker answers at ${brokers}${cause}`, {
    next: OTHER_PROTOCOL.test(line)
      ? 'check security.protocol: the listener may speak TLS or SASL, or neither'
      : 'check the address and that the broker runs',
    details: { brokers },
  });
}

/** Error of properties that librdkafka refuses. Its message quotes values or parts of them, so it
 *  is forwarded only when it does not name a secret property. */
export function badProperty(properties: BrokerOptions['properties'] = {}, why: string): MillraceError {
  const secret = Object.keys(properties).filter((name) => !SHOWN_PROPERTIES.has(name) && why.includes(name));
  const unknown = /^No such configuration property/i.test(why);
  const text =
    secret.length === 0
      ? secretsOf(properties).hide(why)
      : `librdkafka ${unknown ? 'has no property' : 'refuses the value of'} ${secret.join(' or ')}`;
  return brokerError('bad_broker_property', text, { next: 'see the configuration page of librdkafka' });
}

export function closedError(what: string): MillraceError {
  return coreError('closed', `the ${what} is closed`, { next: 'open another' });
}
