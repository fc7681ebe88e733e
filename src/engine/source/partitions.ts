/** Checks the topic periodically, concurrently with the reading: for added partitions, and that it
 *  was not recreated. */
import { findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { EventSource } from './events.ts';

export class PartitionWatch {
  private readonly source: Pick<EventSource, 'added'>;
  private readonly intervalMs: number;
  private readonly log: Logger;
  private nextCheck: number | undefined;
  private isChecking = false;
  private found: readonly number[] = [];
  private failure: unknown;

  /** `intervalMs` 0: never checks. */
  constructor(source: PartitionWatch['source'], intervalMs: number, log: Logger) {
    this.source = source;
    this.intervalMs = intervalMs;
    this.log = log;
  }

  /** First offsets of the partitions that were found; the caller starts to read them. `now`:
   *  monotonic ms.
   *  @throws topic_changed */
  due(now: number): readonly number[] {
    if (this.failure !== undefined) throw this.failure;
    const { found } = this;
    this.found = [];
    this.nextCheck ??= now + this.intervalMs;
    // Partitions in `found` are not being read yet, so another check would find them again.
    const isFree = found.length === 0 && !this.isChecking;
    if (this.intervalMs > 0 && now >= this.nextCheck && isFree) {
      this.nextCheck = now + this.intervalMs;
      this.isChecking = true;
      void this.check();
    }
    return found;
  }

  private async check(): Promise<void> {
    try {
      this.found = await this.source.added();
    } catch (thrown) {
      if (findMillraceError(thrown)?.code === 'topic_changed') this.failure = thrown;
      this.log.info({ error: String(thrown) }, 'partition check failed; it is retried');
    } finally {
      this.isChecking = false;
    }
  }
}
