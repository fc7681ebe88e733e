/** Executes a request in one transaction, which also writes the record of its key.
 *
 *  The open transaction is the lease: it holds the key until it ends, and PostgreSQL ends it when
 *  the connection of a crashed process closes. A paused process cannot write after its transaction
 *  has ended.
 */
import { requireOpen } from '../database/transaction.ts';
import type { EndpointAnswer } from './answer.ts';
import { decodeAnswer, encodeAnswer } from './answer.ts';
import type { Attempt } from './flights.ts';
import type { Resolved } from './options.ts';
import { claimKey, type KeyedRequest, storeAnswer } from './record.ts';
import { openOf } from './source.ts';

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

/** Executes the request unless its key has an answer or is in flight.
 *  @param execute is called at most once, in the transaction
 *  @throws idempotency_key_reused, answer_too_large, HandlerFailure; errors of the database */
export async function inOneTransaction<Tx, Request>(
  options: Resolved<Tx, Request>,
  request: KeyedRequest,
  execute: (tx: Tx) => Promise<EndpointAnswer>,
): Promise<Attempt> {
  const { source, sql, ttlMs, leaseMs, stores, headers, answerBytesMax } = options;
  // Clients may wrap the error that rolls back; these are the errors as they were thrown.
  let failed: HandlerFailure | undefined;
  let unstored: EndpointAnswer | undefined;
  try {
    return await source.transaction<Attempt>(async (tx, open) => {
      const on = await openOf(tx, open);
      const claim = await claimKey(on, sql, request, ttlMs, leaseMs);
      if (claim.kind === 'in_flight') return { kind: 'in_flight' };
      if (claim.kind === 'stored') return { kind: 'stored', answer: decodeAnswer(claim.columns, headers) };
      let answer: EndpointAnswer;
      try {
        answer = await execute(tx);
      } catch (thrown) {
        failed = new HandlerFailure(thrown);
        throw failed;
      }
      if (!stores(answer.status)) {
        unstored = answer;
        throw UNSTORED;
      }
      // A handler that ended the transaction itself would store its record apart from its rows.
      await requireOpen(on);
      await storeAnswer(on, sql, request, encodeAnswer(answer, headers, answerBytesMax));
      return { kind: 'executed', answer, stored: true };
    });
  } catch (thrown) {
    if (unstored !== undefined) return { kind: 'executed', answer: unstored, stored: false };
    throw failed ?? thrown;
  }
}
