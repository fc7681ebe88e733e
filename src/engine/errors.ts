/** Errors of the window engine, with their exit codes and HTTP statuses. */
import { type ErrorTable, EXIT, errorRow, errorsOf } from '../core/errors.ts';

export const ENGINE_ERRORS = {
  bad_setting: errorRow('invalid'),
  /** A job file has a mistake; the message names file, line and column. */
  bad_job: errorRow('invalid'),
  bad_account: errorRow('invalid'),
  bad_range: errorRow('invalid'),
  /** A query of an engine with several windows names none of them. */
  window_required: errorRow('invalid'),
  unknown_window: errorRow('not_found'),
  /** The state of one window is asked of an engine with several. */
  several_windows: errorRow('invalid', { exit: EXIT.usage }),
  /** A query over all keys visits too many windows. */
  range_too_wide: errorRow('invalid'),
  too_many_streams: errorRow('unavailable'),
  restoring: errorRow('unavailable'),
  topic_missing: errorRow('not_found', { exit: EXIT.usage }),
  source_failed: errorRow('unavailable'),
  /** A field of the records has a type that the job cannot read as key, time or value. */
  unsupported_field: errorRow('invalid'),
  no_valid_events: errorRow('corrupt'),
  oversize_record: errorRow('corrupt'),
  offsets_gone: errorRow('corrupt'),
  job_changed: errorRow('conflict', { exit: EXIT.usage }),
  topic_changed: errorRow('conflict', { exit: EXIT.usage }),
  state_corrupt: errorRow('corrupt'),
  state_locked: errorRow('fenced'),
  savepoint_missing: errorRow('not_found', { exit: EXIT.usage }),
  savepoint_exists: errorRow('conflict', { exit: EXIT.usage }),
  savepoint_damaged: errorRow('corrupt'),
  /** The engine holds as many checkpoints for readers as it can. */
  savepoint_busy: errorRow('unavailable', { http: 429, grpc: 8 }),
  /** The running engine does not make or send the savepoint. */
  savepoint_failed: errorRow('unavailable'),
  /** Another process has taken over the job of a checkpoint store. */
  store_fenced: errorRow('fenced'),
  late_waiting: errorRow('conflict', { exit: EXIT.usage }),
  late_failed: errorRow('unavailable'),
  late_refused: errorRow('invalid'),
  dedup_full: errorRow('invalid'),
  late_not_kept: errorRow('not_found'),
  quarantine_waiting: errorRow('conflict', { exit: EXIT.usage }),
  quarantine_failed: errorRow('unavailable'),
  quarantine_refused: errorRow('invalid'),
  sink_missing: errorRow('invalid'),
  sink_failed: errorRow('unavailable'),
  sink_foreign: errorRow('corrupt'),
  /** Flink SQL has no equal of a setting, and no rewrite carries it. */
  flink_unsupported: errorRow('invalid'),
  /** The SQL gateway or the REST interface of Flink does not answer. */
  flink_unreachable: errorRow('unavailable'),
  /** Flink refuses a statement or a request. */
  flink_refused: errorRow('conflict'),
  flink_job_missing: errorRow('not_found'),
  /** The registry refuses the schema of the results, or the sink a column or a result. */
  sink_refused: errorRow('conflict', { exit: EXIT.usage }),
} as const satisfies ErrorTable;

export const engineError = errorsOf(ENGINE_ERRORS);

/** The topic was recreated: the offsets and the state belong to records that no longer exist. */
export const topicChanged = (topic: string, was: string, is: string): Error =>
  engineError(
    'topic_changed',
    `topic ${topic} was deleted and recreated: the state belongs to topic id ${was}, the topic now has id ${is}`,
    {
      next: 'to compute the new topic, give an empty -state-dir (and an empty sink to drop the old results)',
    },
  );
