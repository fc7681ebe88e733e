/** Access control of a server: authenticates the caller, limits its rate, authorises the operation
 *  by rules, and writes the audit log.
 *  Invariants: (1) Credentials that are not accepted get a 401 even if anonymous access would
 *  suffice; they never become `anonymous`. (2) Wrong credentials take a token from the bucket of
 *  the client's address, and no check begins while it is empty. A check that hashes holds a token
 *  until it ends, so at most the burst of them runs for one address. (3) An operation that
 *  no rule allows is refused. (4) No credential reaches a log line, a message or a metric. */

import type { Clock } from '../core/clock.ts';
import { clientOf } from '../core/connections.ts';
import { findMillraceError, type MillraceError } from '../core/errors.ts';
import type { LogFields, Logger } from '../core/log.ts';
import type { Counter } from '../core/metrics.ts';
import type { BasicScheme } from './basic.ts';
import { Buckets } from './bucket.ts';
import type { JwtScheme } from './jwt.ts';
import { BadCredentials, forbidden, rateLimited, unauthenticated } from './refusal.ts';
import type { Access, Caller, CredentialCheck, Need, RequestGate, Scheme } from './request.ts';
import { ANONYMOUS, type Principal, type Rules } from './rules.ts';

const BUCKETS_MAX = 100_000;
/** Burst of a client, in seconds of its rate. */
const BURST_S = 2;
/** Burst of wrong passwords and tokens from one address. */
const FAILURES_BURST = 50;
/** Rate of logged refusals of one client. Omitted loggedRefusals are counted in a later line. */
const REFUSALS_LOGGED = { perSecond: 5, burst: 50 };

export interface GateOptions {
  /** True: each allowed change is logged. Meant for services with few changes. */
  readonly logsAllowed: boolean;
  /** Undefined: every caller may do everything; only the rate is limited. */
  readonly rules: (() => Rules) | undefined;
  readonly basic: BasicScheme | undefined;
  readonly jwt: JwtScheme | undefined;
  /** True if the subject of a client certificate names a principal. */
  readonly mtls: boolean;
  /** Requests per second of one client; 0: no limit. */
  readonly clientRate: number;
  /** Failed attempts per second of one address. */
  readonly failureRate: number;
  readonly clock: Clock;
  readonly log: Logger;
  /** Counter with the labels scheme and outcome. */
  readonly decisions: Counter;
}

const EVERYONE: Access = {
  principal: ANONYMOUS,
  may: () => true,
  mayRead: () => true,
  mayReadContext: () => true,
};

type Outcome = 'accepted' | 'unauthenticated' | 'forbidden' | 'rate_limited' | 'unavailable';

export class Gate implements RequestGate {
  private readonly options: GateOptions;
  private readonly challenge: string;
  private readonly clients: Buckets | undefined;
  private readonly failures: Buckets;
  private readonly loggedRefusals: Buckets;
  private readonly decisions: Counter;
  private omittedRefusals = 0;

  constructor(options: GateOptions) {
    this.options = options;
    const { clock, clientRate, failureRate } = options;
    const burst = Math.max(1, Math.ceil(clientRate * BURST_S));
    this.clients =
      clientRate === 0
        ? undefined
        : new Buckets({ perSecond: clientRate, burst, bucketsMax: BUCKETS_MAX, clock });
    this.failures = new Buckets({
      perSecond: failureRate,
      burst: FAILURES_BURST,
      bucketsMax: BUCKETS_MAX,
      clock,
    });
    this.loggedRefusals = new Buckets({ ...REFUSALS_LOGGED, bucketsMax: BUCKETS_MAX, clock });
    this.decisions = options.decisions;
    this.challenge = challengeOf(options);
  }

  authorise(request: Caller, need: Need): Access | Promise<Access> {
    let scheme: Scheme | 'none' | 'unknown' = 'unknown';
    try {
      const credentials = this.credentialsOf(request);
      scheme = credentials.scheme;
      const { name } = credentials;
      if (typeof name !== 'object') return this.admit(request, need, scheme, name);
      return this.checkThenAdmit(request, need, credentials.scheme as Scheme, name);
    } catch (thrown) {
      throw this.refuse(request, need, scheme, this.chargeMalformed(request, thrown));
    }
  }

  demand(request: Caller, access: Access, need: Need): void {
    if (access.may(need)) {
      this.audit(request, need, access.principal);
      return;
    }
    throw this.refuse(request, need, schemeOf(access.principal), this.denied(access, need));
  }

  private async checkThenAdmit(
    request: Caller,
    need: Need,
    scheme: Scheme,
    { holdsGuess, run }: CredentialCheck,
  ): Promise<Access> {
    const client = clientOf(request.remoteAddress);
    try {
      this.chargeAttempt(client);
      if (!holdsGuess) this.failures.refund(client);
      let isWrong = false;
      try {
        return this.admit(
          request,
          need,
          scheme,
          await run().catch((thrown: unknown) => {
            isWrong = thrown instanceof BadCredentials;
            throw thrown;
          }),
        );
      } finally {
        if (holdsGuess && !isWrong) this.failures.refund(client);
        if (!holdsGuess && isWrong) this.failures.take(client);
      }
    } catch (thrown) {
      throw this.refuse(request, need, scheme, thrown);
    }
  }

  /** @throws rate_limited */
  private chargeAttempt(client: string): void {
    const waitS = this.failures.take(client);
    if (waitS > 0) throw rateLimited('attempts with wrong credentials from this address', waitS);
  }

  /** @param name undefined: no credentials were sent */
  private admit(request: Caller, need: Need, scheme: Scheme | 'none', name: string | undefined): Access {
    const { rules } = this.options;
    const principal = name === undefined ? ANONYMOUS : `${scheme}:${name}`;
    const waitS = this.clients?.take(name === undefined ? clientOf(request.remoteAddress) : principal) ?? 0;
    if (waitS > 0) throw rateLimited(`requests of ${name === undefined ? 'this address' : principal}`, waitS);
    const access: Access = rules === undefined ? EVERYONE : rules().principal(principal);
    if (!access.may(need)) throw this.denied(access, need);
    this.decisions.add(1, this.decisions.series(scheme, 'accepted' satisfies Outcome));
    this.audit(request, need, principal);
    return access;
  }

  private audit(request: Caller, need: Need, principal: string): void {
    const { rules, log, logsAllowed } = this.options;
    if (logsAllowed && rules !== undefined && need.operation !== 'read')
      log.info({ ...auditOf(request, need), principal }, 'audit: allowed');
  }

  private denied(access: Access, need: Need): MillraceError {
    if (access.principal === ANONYMOUS)
      return unauthenticated('this operation needs credentials, and the request has none', this.challenge);
    const { principal } = access as Principal;
    return forbidden(principal, `${need.operation} ${targetOf(need)}`);
  }

  /** Returns the scheme of the request and its principal's name, or the check that finds it. A
   *  certificate counts only without an Authorization header.
   *  @throws BadCredentials */
  private credentialsOf(request: Caller): {
    readonly scheme: Scheme | 'none';
    readonly name: string | CredentialCheck | undefined;
  } {
    const { basic, jwt, mtls, rules } = this.options;
    if (rules === undefined) return { scheme: 'none', name: undefined };
    const headers = request.header('authorization');
    if (headers.length > 1) throw new BadCredentials('more than one Authorization header');
    const header = headers[0];
    if (header !== undefined) {
      const match = /^([A-Za-z]+) +(\S+)$/u.exec(header);
      const scheme = match?.[1]?.toLowerCase();
      if (scheme === 'basic' && basic !== undefined)
        return { scheme, name: basic.identify(match?.[2] as string) };
      if (scheme === 'bearer' && jwt !== undefined)
        return { scheme: 'jwt', name: jwt.identify(match?.[2] as string) };
      throw new BadCredentials('this service does not support the scheme of the Authorization header');
    }
    const subject = mtls ? request.peer?.subject : undefined;
    if (subject !== undefined && subject !== '') return { scheme: 'mtls', name: subject };
    return { scheme: 'none', name: undefined };
  }

  /** Charges an attempt for malformed credentials too, which are refused without a check. */
  private chargeMalformed(request: Caller, thrown: unknown): unknown {
    if (!(thrown instanceof BadCredentials)) return thrown;
    try {
      this.chargeAttempt(clientOf(request.remoteAddress));
    } catch (limited) {
      return limited;
    }
    return thrown;
  }

  /** Counts and logs a refusal, and returns the error of the answer. */
  private refuse(request: Caller, need: Need, scheme: string, thrown: unknown): unknown {
    const bad = thrown instanceof BadCredentials ? thrown : undefined;
    const error =
      bad === undefined ? findMillraceError(thrown) : unauthenticated(bad.message, this.challenge);
    if (error === undefined) return thrown;
    const outcome = outcomeOf(error);
    this.decisions.add(1, this.decisions.series(scheme, outcome));
    if (this.loggedRefusals.take(clientOf(request.remoteAddress)) > 0) {
      this.omittedRefusals++;
      return error;
    }
    const fields = {
      ...auditOf(request, need),
      scheme,
      why: error.message,
      ...(bad?.claimed === undefined ? {} : { claimed: bad.claimed }),
      ...(this.omittedRefusals === 0 ? {} : { leftOut: this.omittedRefusals }),
    };
    this.omittedRefusals = 0;
    this.options.log.warn(fields, `audit: refused (${outcome})`);
    return error;
  }
}

function outcomeOf({ code }: MillraceError): Outcome {
  return code === 'unauthenticated' || code === 'forbidden' || code === 'rate_limited' ? code : 'unavailable';
}

function schemeOf(principal: string): string {
  return principal === ANONYMOUS ? 'none' : (principal.split(':', 1)[0] as string);
}

function targetOf(need: Need): string {
  if (need.subject !== undefined) return need.subject;
  return need.anyOf === undefined ? 'the service as a whole' : 'any subject that uses this schema';
}

/** Returns the log fields of a request. Omits its query and headers, which may hold secrets. */
function auditOf(request: Caller, need: Need): LogFields {
  return {
    method: request.method,
    path: request.path,
    operation: need.operation,
    ...(need.subject === undefined ? {} : { subject: need.subject }),
    address: request.remoteAddress,
  };
}

/** RFC 9110 requires a challenge in every 401. Certificates have no registered scheme, so the name
 *  `Certificate` only informs the client. */
function challengeOf(options: GateOptions): string {
  const parts: string[] = [];
  if (options.basic !== undefined) parts.push('Basic realm="millrace", charset="UTF-8"');
  if (options.jwt !== undefined) parts.push('Bearer realm="millrace"');
  if (parts.length === 0) parts.push('Certificate realm="millrace"');
  return parts.join(', ');
}
