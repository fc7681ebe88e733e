/** Executes a request in several transactions, with a recovery point after each.
 *
 *  Invariants: (1) the result of a step commits in the transaction of the step; (2) only the owner
 *  of a request writes: each write names the owner's token, so a paused former owner changes no row
 *  after another process has resumed the request; (3) a finished request has no owner; (4) once a
 *  call may have begun, the key belongs to this request until it expires. Another body would get
 *  the `stepKey` of the first, and the other system would answer with the effect of the first.
 *
 *  The owner renews a lease by the clock of the database. When it has expired, the next request
 *  with the key replaces the token and resumes after the last recorded step. The server ends a
 *  transaction that is idle for the time of the lease, so the locks of an owner that vanished or is
 *  paused do not block the next one.
 */
import { randomUuid } from '../../core/clock.ts';
import { findMillraceError } from '../../core/errors.ts';
import type { OpenTransaction } from '../database/transaction.ts';
import { outboxError } from '../errors.ts';
import { decodeAnswer, type EndpointAnswer, encodeAnswer } from './answer.ts';
import { fingerprint } from './fingerprint.ts';
import type { Attempt } from './flights.ts';
import type { Resolved } from './options.ts';
import { foundOf, type KeyClaim, type KeyedRequest, requireSame } from './record.ts';
import { HandlerFailure } from './single.ts';
import { isFused, isLost, openOf } from './source.ts';
import { withLiterals } from './table.ts';

/** Maximum number of steps of one request. */
export const STEPS_MAX = 100;
/** Largest result of a step, bytes of JSON. */
export const STEP_BYTES_MAX = 64 * 1024;
/** Renewals of a lease within its time. */
const RENEWALS = 4;

const STEP_NAME = /^[\x21-\x7e]{1,100}$/;

/** Recovery points of a request. A result is JSON; `undefined` is recorded as null. */
export interface Steps<Tx> {
  /** Runs a step in its own transaction, unless a former attempt recorded its result.
   *  @throws request_taken_over, bad_option; errors of the step, which is rolled back */
  step<T>(name: string, work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Runs a call to another system without a transaction, and records its result afterwards. A
   *  crash in between repeats the call with the same `stepKey`, a UUID: give it to that system as
   *  its idempotency key. From the call on, the key of the request is refused for another body,
   *  even if the call fails.
   *  @throws request_taken_over, bad_option; errors of the call */
  call<T>(name: string, work: (stepKey: string) => Promise<T>): Promise<T>;
}

type Opened =
  | { readonly kind: 'owned'; readonly steps: ReadonlyMap<string, string> }
  | Exclude<KeyClaim, { kind: 'claimed' }>;

/** Request that this process owns until its lease expires. */
class OwnedRequest<Tx, Request> implements Steps<Tx> {
  private readonly options: Resolved<Tx, Request>;
  private readonly request: KeyedRequest;
  private readonly mine: readonly [scope: string, key: string, owner: string];
  /** Recorded results, JSON by step. */
  private recorded: ReadonlyMap<string, string> = new Map();
  private readonly used = new Set<string>();
  private renewal: Promise<void> | undefined;
  private lost = false;
  /** True if a call may have begun, in this attempt or in one before it. */
  private mayHaveCalled = false;

  constructor(options: Resolved<Tx, Request>, request: KeyedRequest) {
    this.options = options;
    this.request = request;
    this.mine = [request.scope, request.key, randomUuid(options.random)];
  }

  /** Takes the request if its key is free or its lease has expired.
   *  @throws idempotency_key_reused */
  async open(): Promise<Opened> {
    const { sql, ttlMs, leaseMs } = this.options;
    const { fingerprint: hash } = this.request;
    const [scope, key, owner] = this.mine;
    const opened = await this.transaction<Opened>(async (on) => {
      const made = await on.query(sql.open, [scope, key, hash, ttlMs, owner, leaseMs]);
      if (made.rows.length === 1) return { kind: 'owned', steps: new Map() };
      const [taken] = (await on.query(sql.takeOver, [scope, key, hash, owner, leaseMs])).rows;
      if (taken !== undefined) {
        this.mayHaveCalled = true;
        const steps = JSON.parse(String(taken['steps'])) as Readonly<Record<string, string>>;
        return { kind: 'owned', steps: new Map(Object.entries(steps)) };
      }
      const found = foundOf((await on.query(sql.read, [scope, key])).rows[0]);
      return found === undefined || found.kind === 'claimed' ? { kind: 'in_flight' } : found;
    });
    if (opened.kind === 'owned') this.recorded = opened.steps;
    else requireSame(opened.fingerprint, this.request);
    return opened;
  }

  async step<T>(name: string, work: (tx: Tx) => Promise<T>): Promise<T> {
    const known = this.begin(name);
    if (known !== undefined) return JSON.parse(known) as T;
    return this.record(name, work);
  }

  async call<T>(name: string, work: (stepKey: string) => Promise<T>): Promise<T> {
    const known = this.begin(name);
    if (known !== undefined) return JSON.parse(known) as T;
    this.mayHaveCalled = true;
    const result = await work(this.stepKey(name));
    return this.record(name, async () => result);
  }

  /** Starts a step and returns its recorded result, if any. */
  private begin(name: string): string | undefined {
    const bad = (why: string, next: string): Error =>
      outboxError('bad_option', `the step ${JSON.stringify(String(name).slice(0, 60))} ${why}`, { next });
    if (typeof name !== 'string' || !STEP_NAME.test(name))
      throw bad('has no valid name', 'use 1 to 100 visible characters');
    if (this.used.has(name)) throw bad('ran before in this request', 'give each step a name of its own');
    if (this.used.size >= STEPS_MAX) throw bad('is one too many', `use at most ${STEPS_MAX} steps`);
    this.used.add(name);
    this.requireOwner();
    return this.recorded.get(name);
  }

  private async record<T>(name: string, work: (tx: Tx) => Promise<T>): Promise<T> {
    const { sql, leaseMs } = this.options;
    let isOwnFailure = false;
    const committed = this.transaction(async (on, tx) => {
      const result = await work(tx).catch((thrown: unknown) => {
        isOwnFailure = true;
        throw thrown;
      });
      const json = JSON.stringify(result ?? null);
      if (json === undefined || Buffer.byteLength(json) > STEP_BYTES_MAX)
        throw outboxError(
          'bad_option',
          `the result of the step ${name} is no JSON of at most ${STEP_BYTES_MAX} bytes`,
          {
            next: 'return what later steps need; store the rest in your own tables',
          },
        );
      // The last statement of the transaction: it fails if the request has another owner.
      const { rows } = await on.query(sql.step, [...this.mine, leaseMs, name, json]);
      if (rows.length !== 1) this.lose();
      return JSON.parse(json) as T;
    });
    return committed.catch((thrown: unknown) => {
      if (isOwnFailure || findMillraceError(thrown) !== undefined || !isLost(thrown)) throw thrown;
      throw outboxError('database_unavailable', `the connection of the step ${name} was lost`, {
        next: 'send the same request with the same key again; the step runs again unless it has committed',
        cause: thrown,
      });
    });
  }

  /** UUID of a step of this request, the same in every attempt (version 8, RFC 9562). */
  private stepKey(name: string): string {
    const [scope, key] = this.mine;
    const bytes = fingerprint(['step', this.options.sql.table, scope, key, name]).subarray(0, 16);
    bytes[6] = ((bytes[6] as number) & 0x0f) | 0x80;
    bytes[8] = ((bytes[8] as number) & 0x3f) | 0x80;
    const hex = bytes.toString('hex');
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
  }

  /** Renews the lease in the background. */
  renew(): void {
    if (this.renewal !== undefined || this.lost) return;
    const { sql, leaseMs, onError } = this.options;
    this.renewal = this.write(sql.renew, [leaseMs])
      .then((rows) => {
        this.lost ||= rows !== 1;
      }, onError)
      .finally(() => {
        this.renewal = undefined;
      });
  }

  /** Stores the answer and ends the ownership. @throws request_taken_over, answer_too_large */
  async finish(answer: EndpointAnswer): Promise<void> {
    const { sql, headers, answerBytesMax } = this.options;
    const columns = encodeAnswer(answer, headers, answerBytesMax);
    const rows = await this.write(sql.finish, [columns.status, columns.headers, columns.body]);
    if (rows !== 1) this.lose();
  }

  /** Ends the ownership without an answer: the next request resumes without a wait. A request
   *  without a recorded step and without a call leaves no row. */
  async release(): Promise<void> {
    const { sql } = this.options;
    const isDropped = !this.mayHaveCalled && (await this.write(sql.drop, [])) > 0;
    if (!isDropped) await this.write(sql.expire, []);
  }

  private write(text: string, params: readonly unknown[]): Promise<number> {
    return this.transaction(async (on) => (await on.query(text, [...this.mine, ...params])).rows.length);
  }

  /** Runs a transaction that the server ends when it is idle for the time of the lease. */
  private transaction<T>(work: (on: OpenTransaction, tx: Tx) => Promise<T>): Promise<T> {
    const { source, sql, leaseMs } = this.options;
    const limit = [String(leaseMs)];
    if (isFused(source))
      return source.fused(withLiterals(sql.limitIdle, limit), async (tx, fused) => {
        const on = await openOf(tx, undefined);
        if (fused === undefined) await on.query(sql.limitIdle, limit);
        return work(on, tx);
      });
    return source.transaction(async (tx, open) => {
      const on = await openOf(tx, open);
      await on.query(sql.limitIdle, limit);
      return work(on, tx);
    });
  }

  private requireOwner(): void {
    if (this.lost) this.lose();
  }

  private lose(): never {
    this.lost = true;
    throw outboxError('request_taken_over', 'another process has resumed this request; nothing was written', {
      next: 'send the same request with the same key again',
    });
  }
}

/** Executes the request step by step unless its key has an answer or is in flight.
 *  @param execute is called at most once
 *  @throws idempotency_key_reused, answer_too_large, request_taken_over, HandlerFailure; errors of
 *    the database */
export async function inSteps<Tx, Request>(
  options: Resolved<Tx, Request>,
  request: KeyedRequest,
  execute: (steps: Steps<Tx>) => Promise<EndpointAnswer>,
): Promise<Attempt> {
  const owned = new OwnedRequest(options, request);
  const opened = await owned.open();
  if (opened.kind === 'in_flight') return { kind: 'in_flight' };
  if (opened.kind === 'stored')
    return { kind: 'stored', answer: decodeAnswer(opened.columns, options.headers) };
  const stop = options.clock.every(options.leaseMs / RENEWALS, () => owned.renew(), 'background');
  try {
    const answer = await execute(owned).catch((thrown: unknown) => {
      throw new HandlerFailure(thrown);
    });
    const stored = options.stores(answer.status);
    if (stored) await owned.finish(answer);
    else await owned.release();
    return { kind: 'executed', answer, stored };
  } catch (thrown) {
    await owned.release().catch(options.onError);
    throw thrown;
  } finally {
    stop();
  }
}
