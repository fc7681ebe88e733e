/** Health check: tests if the database accepts writes. A read is no test: on a full disk the
 *  database answers every query and refuses every new row.
 *
 *  The writes of the service are the check, at no extra cost. After a refusal that every write
 *  would meet, /ready fails and clients stop sending. From then on, each check runs a trial write,
 *  at most every TRIAL_EVERY_MS, until a trial or a write succeeds.
 */
import { findMillraceError, type MillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import { refusedState } from '../../io/postgres/sql/port.ts';
import { outboxError } from '../errors.ts';

const TRIAL_EVERY_MS = 1000;
/** SQLSTATEs that every write would meet: out of disk, memory or configured limits (53); read-only
 *  (25006); a failing device (58); missing tables or privileges (42). */
const REFUSES_ALL = /^(53|58|25006$|42)/;

export interface WriteCheckOptions {
  /** Writes what the service writes and rolls it back; rejects with the error of the database. It
   *  should need as much space as a batch. */
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

  /** Records a committed write. */
  wrote(): void {
    if (this.refusal === undefined) return;
    this.refusal = undefined;
    this.options.log.info({}, 'the database accepts writes again');
  }

  /** Records a failed write; errors that concern only its own rows are ignored. */
  failed(thrown: unknown): void {
    const error = findMillraceError(thrown);
    const state = refusedState(error);
    if (error === undefined || state === undefined || !REFUSES_ALL.test(state)) return;
    if (this.refusal === undefined)
      this.options.log.error({ sqlstate: state, error: error.message }, 'the database refuses writes');
    this.refusal = error;
  }

  /** Fails while the database refuses writes. @throws database_unavailable */
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
    throw outboxError('database_unavailable', `the database refuses writes: ${refusal.message}`, {
      next: 'see the log of PostgreSQL; a trial write is repeated until it succeeds',
      cause: refusal,
    });
  }
}
