/** Checks the topic beside the reading: for partitions that it was given, and that it is still the
 *  same one. */
import { findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { EventSource } from './events.ts';

export class PartitionWatch {
  private readonly source: Pick<EventSource, 'added'>;
  private readonly intervalMs: number;
  private readonly log: Logger;
  private nextLook: number | undefined;
  private isLooking = false;
  private found: readonly number[] = [];
  private failure: unknown;

  /** `intervalMs` 0: never looks. */
  constructor(source: PartitionWatch['source'], intervalMs: number, log: Logger) {
    this.source = source;
    this.intervalMs = intervalMs;
    this.log = log;
  }

  /** First offsets of the partitions that were found; the caller starts to read them. `now`:
   *  monotonic.
   *  @throws topic_changed */
  due(now: number): readonly number[] {
    if (this.failure !== undefined) throw this.failure;
    const { found } = this;
    this.found = [];
    this.nextLook ??= now + this.intervalMs;
    // What was found is not among those that are read yet.
    const isFree = found.length === 0 && !this.isLooking;
    if (this.intervalMs > 0 && now >= this.nextLook && isFree) {
      this.nextLook = now + this.intervalMs;
      this.isLooking = true;
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
      this.isLooking = false;
    }
  }
}
