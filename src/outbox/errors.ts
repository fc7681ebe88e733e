/** Everything the effects product refuses or fails at, one row each. */
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
  /** Shed before any work was done. */
  overloaded: errorRow('unavailable', { http: 429, grpc: 8 }),
  database_unavailable: errorRow('unavailable'),
  /** No outcome within the service's deadline; the order may exist, and the same key finds out. */
  deadline_passed: errorRow('unavailable', { http: 504, grpc: 4 }),
  /** The tables a command needs are not there. */
  tables_missing: errorRow('unavailable'),
  /** A table lacks a column, a type or a privilege that the work on it needs. */
  table_unusable: errorRow('invalid'),
  /** Relays of one outbox that would share it in different numbers of shards, or publish it to
   *  different topics. */
  lease_mismatch: errorRow('conflict', { exit: EXIT.usage }),
  /** A migration under this number was applied with another text. */
  migration_changed: errorRow('conflict', { exit: EXIT.usage }),
  /** A record that can never become a charge; it is parked under `reason`. */
  poison_record: errorRow('corrupt', { reason: 'malformed_payload' }),
  ttl_below_horizon: errorRow('invalid'),
  /** A table name that would need quoting, or is too long for the names made from it. */
  bad_table_name: errorRow('invalid'),
  /** An option of the library that is unknown, missing or without effect beside the others. */
  bad_option: errorRow('invalid'),
  bad_message_id: errorRow('invalid'),
  /** A width (-inbox-width) that cuts the remembered time into too many tables. */
  too_many_partitions: errorRow('invalid'),
  /** What `append` was given cannot be an outbox row. */
  bad_event: errorRow('invalid'),
  /** A row and its effect would commit apart. */
  not_in_transaction: errorRow('invalid'),
  topic_missing: errorRow('unavailable'),
  /** Who would redeliver cannot be asked; nothing expires meanwhile. */
  horizon_unknown: errorRow('unavailable'),
  /** The database and this process live in different times; nothing expires until they do not. */
  clocks_disagree: errorRow('unavailable'),
  /** A message of the replication stream that is not what pgoutput sends for an outbox table. */
  wal_undecodable: errorRow('corrupt'),
  /** The server cannot decode its log for us: settings, rights, or no slot left. */
  wal_not_possible: errorRow('unavailable'),
  /** A slot or publication of that name serves something else. */
  slot_taken: errorRow('conflict', { exit: EXIT.usage }),
  /** Another relay owns the outbox, and with it the memory of the slot. */
  slot_claimed: errorRow('unavailable'),
} as const satisfies ErrorTable;

export const outboxError = errorsOf(OUTBOX_ERRORS);
