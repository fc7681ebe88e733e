/** Whether the database takes what a service writes: what /ready has to know, and what a look at the database does not tell. On a full
 *  disk it answers every question and refuses every new row.
 *
 *  A service's own writes say it, at no cost. Once one was refused for a reason that is no fault of its rows, nobody sends more while
 *  /ready says no; so from there on the checks themselves try, at most every TRIAL_EVERY_MS, until a trial or a write goes well.
 */
import { findMillraceError, type MillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import { outboxError } from '../errors.ts';

const TRIAL_EVERY_MS = 1000;
/** Out of disk, memory or what the server is configured for; read-only; a failing device; tables or rights that are not there. */
const REFUSES_ALL = /^(53|58|25006$|42)/;

export interface WriteCheckOptions {
  /** Writes what the service writes and takes it back; rejects with what the database says. It should need as much room as a batch. */
  readonly trial: () => Promise<void>;
  readonly monotonicMs: () => number;
  readonly log: Logger;
}

export class WriteCheck {
  private readonly options: WriteCheckOptions;
  private refusal: MillraceError | undefined;
  private nextTrialMs = 0;

  constructor(options: WriteCheckOptions) {
    this.options = options;
  }

  /** A write is committed. */
  wrote(): void {
    if (this.refusal === undefined) return;
    this.refusal = undefined;
    this.options.log.info({}, 'the database takes writes again');
  }

  /** A write failed; what it failed with counts where every other write would fail with it, too. */
  failed(thrown: unknown): void {
    const error = findMillraceError(thrown);
    const state = error?.details['sqlstate'];
    if (error?.code !== 'sql_failed' || typeof state !== 'string' || !REFUSES_ALL.test(state)) return;
    if (this.refusal === undefined)
      this.options.log.error(
        { sqlstate: state, error: error.message },
        'the database refuses what is written',
      );
    this.refusal = error;
  }

  /** @throws database_unavailable while the database refuses what is written */
  async check(): Promise<void> {
    const { monotonicMs, trial } = this.options;
    if (this.refusal === undefined) return;
    if (monotonicMs() >= this.nextTrialMs) {
      this.nextTrialMs = monotonicMs() + TRIAL_EVERY_MS;
      try {
        await trial();
        this.wrote();
      } catch (thrown) {
        this.failed(thrown);
      }
    }
    const { refusal } = this;
    if (refusal === undefined) return;
    throw outboxError('database_unavailable', `the database refuses what is written: ${refusal.message}`, {
      next: 'see the log of PostgreSQL; it is tried again until it goes well',
      cause: refusal,
    });
  }
}
