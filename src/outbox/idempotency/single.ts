/** Executes a request in one transaction, which also writes the record of its key.
 *
 *  The open transaction is the lease: it holds the key until it ends, and PostgreSQL ends it when
 *  the connection of a crashed process closes. A paused process cannot write after its transaction
 *  has ended.
 */
import { type OpenTransaction, requireOpen } from '../database/transaction.ts';
import type { EndpointAnswer } from './answer.ts';
import { decodeAnswer, encodeAnswer } from './answer.ts';
import type { Attempt } from './flights.ts';
import type { Resolved } from './options.ts';
import { CLAIMS_MAX, claimKey, fusedClaim, type KeyClaim, type KeyedRequest, storeAnswer } from './record.ts';
import { type FusedSource, isFused, openOf } from './source.ts';

/** Error of a handler, distinct from errors of the transaction around it. */
export class HandlerFailure extends Error {
  readonly thrown: unknown;

  constructor(thrown: unknown) {
    super('the handler failed', { cause: thrown });
    this.thrown = thrown;
  }
}

/** Reason to roll back without an error: the answer is not stored. */
const UNSTORED = new Error('the answer is not stored, so its transaction is rolled back');

/** Ways in which a transaction ended that its client may wrap, as they were thrown. */
interface Ended {
  failed?: HandlerFailure;
  unstored?: EndpointAnswer;
}

/** Executes the request unless its key has an answer or is in flight.
 *  @param execute is called at most once, in the transaction
 *  @throws idempotency_key_reused, answer_too_large, HandlerFailure; errors of the database */
export async function inOneTransaction<Tx, Request>(
  options: Resolved<Tx, Request>,
  request: KeyedRequest,
  execute: (tx: Tx) => Promise<EndpointAnswer>,
): Promise<Attempt> {
  const { source, sql, ttlMs, leaseMs } = options;
  const ended: Ended = {};
  const serve = (tx: Tx, on: OpenTransaction, claim: KeyClaim): Promise<Attempt> | Attempt => {
    if (claim.kind === 'in_flight') return { kind: 'in_flight' };
    if (claim.kind === 'stored')
      return { kind: 'stored', answer: decodeAnswer(claim.columns, options.headers) };
    return executeClaimed(options, request, ended, on, () => execute(tx));
  };
  try {
    if (isFused(source)) return await inFused(source, options, request, serve);
    return await source.transaction<Attempt>(async (tx, open) => {
      const on = await openOf(tx, open);
      return serve(tx, on, await claimKey(on, sql, request, ttlMs, leaseMs));
    });
  } catch (thrown) {
    if (ended.unstored !== undefined) return { kind: 'executed', answer: ended.unstored, stored: false };
    throw ended.failed ?? thrown;
  }
}

/** Claims the key with the BEGIN, and asks for its answer with the COMMIT. */
async function inFused<Tx, Request>(
  source: FusedSource<Tx>,
  { sql, ttlMs, leaseMs }: Resolved<Tx, Request>,
  request: KeyedRequest,
  serve: (tx: Tx, on: OpenTransaction, claim: KeyClaim) => Promise<Attempt> | Attempt,
): Promise<Attempt> {
  const { first, claim } = fusedClaim(sql, request, ttlMs, leaseMs);
  for (let count = 0; count < CLAIMS_MAX; count++) {
    const attempt = await source.fused<Attempt | undefined>(first, async (tx, fused) => {
      if (fused === undefined) {
        const on = await openOf(tx, undefined);
        return serve(tx, on, await claimKey(on, sql, request, ttlMs, leaseMs));
      }
      const claimed = await claim(fused);
      return claimed === undefined ? undefined : serve(tx, tx as OpenTransaction, claimed);
    });
    if (attempt !== undefined) return attempt;
  }
  return { kind: 'in_flight' };
}

/** Executes a request whose key this transaction has claimed, and stores its answer. */
async function executeClaimed<Tx, Request>(
  { sql, stores, headers, answerBytesMax }: Resolved<Tx, Request>,
  request: KeyedRequest,
  ended: Ended,
  on: OpenTransaction,
  execute: () => Promise<EndpointAnswer>,
): Promise<Attempt> {
  let answer: EndpointAnswer;
  try {
    answer = await execute();
  } catch (thrown) {
    ended.failed = new HandlerFailure(thrown);
    throw ended.failed;
  }
  if (!stores(answer.status)) {
    ended.unstored = answer;
    throw UNSTORED;
  }
  // A handler that ended the transaction itself would store its record apart from its rows.
  await requireOpen(on);
  await storeAnswer(on, sql, request, encodeAnswer(answer, headers, answerBytesMax));
  return { kind: 'executed', answer, stored: true };
}
