/** Checks the topic beside the reading: for added partitions, and that its id has not changed. */
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

  /** @param intervalMs 0: never checks */
  constructor(source: PartitionWatch['source'], intervalMs: number, log: Logger) {
    this.source = source;
    this.intervalMs = intervalMs;
    this.log = log;
  }

  /** Returns the first offsets of added partitions; the caller starts to read them. `now`:
   *  monotonic. @throws topic_changed */
  due(now: number): readonly number[] {
    if (this.failure !== undefined) throw this.failure;
    const { found } = this;
    this.found = [];
    this.nextCheck ??= now + this.intervalMs;
    // A found partition is not read yet, so it would be found again.
    const isFree = found.length === 0 && !this.isChecking;
    if (this.intervalMs > 0 && now >= this.nextCheck && isFree) {
      this.nextCheck = now + this.intervalMs;
      this.isChecking = true;
      void this.look();
    }
    return found;
  }

  private async look(): Promise<void> {
    try {
      this.found = await this.source.added();
    } catch (thrown) {
      if (findMillraceError(thrown)?.code === 'topic_changed') this.failure = thrown;
      this.log.info({ error: String(thrown) }, 'the topic could not be asked for its partitions');
    } finally {
      this.isChecking = false;
    }
  }
}
