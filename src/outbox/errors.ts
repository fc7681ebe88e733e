/** Error codes of the outbox, orders, relay, inbox, payments and reconcile, one row each. */
import { type ErrorTable, EXIT, errorRow, errorsOf } from '../core/errors.ts';

export const OUTBOX_ERRORS = {
  bad_idempotency_key: errorRow('invalid'),
  bad_body: errorRow('invalid'),
  body_too_large: errorRow('invalid', { http: 413 }),
  not_acceptable: errorRow('invalid', { http: 406 }),
  unsupported_media_type: errorRow('invalid', { http: 415 }),
  value_out_of_range: errorRow('invalid', { http: 422 }),
  /** Final: the same key with another request. ALREADY_EXISTS, because ABORTED would invite a
   *  retry. */
  idempotency_key_reused: errorRow('conflict'),
  order_not_found: errorRow('not_found'),
  /** Another request with this key has not finished within the wait. */
  in_flight: errorRow('unavailable'),
  /** The answer of an idempotent endpoint exceeds the stored size; its transaction was rolled back.
   *  */
  answer_too_large: errorRow('internal'),
  /** Another process resumed a request with recovery points after the lease of this one. */
  request_taken_over: errorRow('fenced'),
  /** Shed before any work was done. */
  overloaded: errorRow('unavailable', { http: 429, grpc: 8 }),
  database_unavailable: errorRow('unavailable'),
  /** No outcome within the service's deadline; the order may exist, and the same key finds out. */
  deadline_passed: errorRow('unavailable', { http: 504, grpc: 4 }),
  /** The tables that a command needs do not exist. */
  tables_missing: errorRow('unavailable'),
  /** A table lacks a column, a type or a privilege that the work on it needs. */
  table_unusable: errorRow('invalid'),
  /** Relays of one outbox disagree on the number of shards or on the topic. */
  lease_mismatch: errorRow('conflict', { exit: EXIT.usage }),
  /** A migration under this number was applied with another text. */
  migration_changed: errorRow('conflict', { exit: EXIT.usage }),
  /** A record that can never become a charge; it is parked with this reason. */
  poison_record: errorRow('corrupt', { reason: 'malformed_payload' }),
  ttl_below_horizon: errorRow('invalid'),
  /** A table name that would need quoting, or is too long for the names made from it. */
  bad_table_name: errorRow('invalid'),
  /** An option of the library is unknown, missing, or without effect in this combination. */
  bad_option: errorRow('invalid'),
  bad_message_id: errorRow('invalid'),
  /** The width (-inbox-width) divides the retention into too many partitions. */
  too_many_partitions: errorRow('invalid'),
  /** An argument of `append` cannot become an outbox row. */
  bad_event: errorRow('invalid'),
  /** An argument of `effect` cannot become a row. */
  bad_effect: errorRow('invalid'),
  /** Thrown by a handler: the third party will never do it. */
  effect_refused: errorRow('conflict'),
  /** Thrown by a handler: the third party did nothing. */
  effect_not_done: errorRow('unavailable'),
  /** The row and its effect would not commit in one transaction. */
  not_in_transaction: errorRow('invalid'),
  topic_missing: errorRow('unavailable'),
  /** The redelivery horizon cannot be computed because a source does not answer; nothing expires
   *  meanwhile. */
  horizon_unknown: errorRow('unavailable'),
  /** The clocks of the database and this process differ too much; nothing expires until they agree.
   */
  clocks_disagree: errorRow('unavailable'),
  /** A replication message that pgoutput does not send for an outbox table. */
  wal_undecodable: errorRow('corrupt'),
  /** The server cannot decode its log for the relay: settings, privileges, or no free slot. */
  wal_not_possible: errorRow('unavailable'),
  /** A slot or publication of that name has another purpose. */
  slot_taken: errorRow('conflict', { exit: EXIT.usage }),
  /** Another relay owns the outbox and its replication slot. */
  slot_claimed: errorRow('unavailable'),
} as const satisfies ErrorTable;

export const outboxError = errorsOf(OUTBOX_ERRORS);
