/** Log lines and counters about the content of a log and about failed writes, with limited log
 *  volume.
 */
import type { Clock } from '../../core/clock.ts';
import type { Logger } from '../../core/log.ts';
import { isLevel } from '../compatibility/modes.ts';
import type { LogRecord } from './log.ts';
import type { StoreRecord } from './state/records.ts';

/** Number of unread records that get a line of their own, and of key characters in a line. */
const UNREAD_LINES_MAX = 20;
const KEY_CHARS_MAX = 200;
/** Minimum time between two lines about consecutive failed writes. */
const FAILURE_LINE_MS = 10_000;

export class Notices {
  private readonly store: string;
  private readonly logger: Logger;
  private readonly clock: Clock;
  private readonly levels = new Set<string>();
  private records = 0;
  private lineAt = Number.NEGATIVE_INFINITY;
  private unsaid = 0;
  /** Number of records that have no effect here. */
  unread = 0;
  /** Number of failed appends, and whether the last append failed. */
  failures = 0;
  failing = false;

  constructor(store: string, logger: Logger, clock: Clock) {
    this.store = store;
    this.logger = logger;
    this.clock = clock;
  }

  /** Call once for each record, so that a line can name the record's position in the log. */
  count(): void {
    this.records++;
  }

  unreadRecord({ key }: LogRecord, why: string): void {
    if (++this.unread > UNREAD_LINES_MAX) return;
    const text = Buffer.from(key.subarray(0, 4 * KEY_CHARS_MAX))
      .toString('utf8')
      .slice(0, KEY_CHARS_MAX);
    const last = this.unread === UNREAD_LINES_MAX ? '; further ones are only counted' : '';
    this.logger.warn(
      { store: this.store, record: this.records, key: text, why },
      `a record of the log is kept and has no effect here${last}`,
    );
  }

  /** Reports, once, a compatibility level of another registry that is unknown here and therefore
   *  ignored.
   */
  record(record: StoreRecord): void {
    if (record.kind !== 'config') return;
    const level = record.value?.compatibilityLevel;
    if (level === undefined || isLevel(level) || this.levels.has(level)) return;
    if (this.levels.size < UNREAD_LINES_MAX) this.levels.add(level);
    else return;
    this.logger.warn(
      { store: this.store, subject: record.subject, compatibilityLevel: level.slice(0, KEY_CHARS_MAX) },
      'a compatibility level of the log is unknown and ignored; the inherited level is in force',
    );
  }

  appended(): void {
    if (!this.failing) return;
    this.failing = false;
    this.logger.info({ store: this.store, failures: this.failures }, 'writes succeed again');
  }

  appendFailed(thrown: unknown): void {
    this.failures++;
    this.unsaid++;
    const now = this.clock.monotonicMs();
    if (this.failing && now - this.lineAt < FAILURE_LINE_MS) return;
    this.failing = true;
    this.lineAt = now;
    const cause = thrown instanceof Error ? thrown.cause : undefined;
    this.logger.warn(
      {
        store: this.store,
        error: String(thrown),
        ...(cause === undefined ? {} : { cause: String(cause) }),
        failures: this.unsaid,
      },
      'a write failed; its requests were refused',
    );
    this.unsaid = 0;
  }
}
