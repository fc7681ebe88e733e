/** Watchdog of the producer: recreates it when the topic has leaders and a batch is still overdue.
 *
 *  A producer waits for its broker without limit, as it should, but it may wait for a former
 *  leader. librdkafka treats the partitions of a recreated topic as the ones it knew, and ignores
 *  their new leaders because their epochs are lower (confluentinc/librdkafka issue 4898). A new
 *  client gets the right metadata, so the watchdog asks one.
 */
import type { Clock } from '../../../core/clock.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { Counter, Metrics } from '../../../core/metrics.ts';
import type { Publisher } from './publisher.ts';
import type { Sender } from './sender.ts';
import type { TopicClient } from './topic-client.ts';

/** Each recreation sends a batch to a slow broker once more, so the patience doubles up to this. */
const PATIENCE_MS_MAX = 600_000;
/** Time that a reconnected client gets to send its waiting batches. */
const GRACE_MS = 2000;

export interface ProducerWatchdogOptions {
  readonly publishing: Pick<Publisher, 'oldestFlightMs' | 'publishedSoFar'>;
  readonly sender: Pick<Sender, 'isOpen' | 'renew'>;
  readonly topicClient: Pick<TopicClient, 'isLed'>;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Logger;
  /** Time that a batch may wait; doubles with each producer that delivered no batch. */
  readonly patienceMs: number;
}

export class ProducerWatchdog {
  private readonly options: ProducerWatchdogOptions;
  private readonly renewed: Counter;
  private patienceMs: number;
  /** Time of the last recreation, and rows published until then. */
  private renewedMs = Number.NEGATIVE_INFINITY;
  private published = 0;
  /** Time since which the topic has had leaders while a batch was overdue. */
  private ledMs: number | undefined;

  constructor(options: ProducerWatchdogOptions) {
    this.options = options;
    this.patienceMs = options.patienceMs;
    this.renewed = options.metrics.counter(
      'relay_producers_renewed_total',
      'Producers closed because a batch waited while the topic had its leaders.',
    );
  }

  async poll(): Promise<void> {
    const { publishing, sender, clock, log } = this.options;
    if (this.hasRecovered()) this.patienceMs = this.options.patienceMs;
    // A batch that waits for a producer to open is not overdue.
    if (!this.isOverdue() || !sender.isOpen() || !(await this.isLed())) {
      this.ledMs = undefined;
      return;
    }
    const nowMs = clock.monotonicMs();
    this.ledMs ??= nowMs;
    // The batch may have been acknowledged during the query.
    if (nowMs - this.ledMs < GRACE_MS || !this.isOverdue()) return;
    this.ledMs = undefined;
    this.renewedMs = nowMs;
    this.published = publishing.publishedSoFar();
    this.renewed.add();
    this.patienceMs = Math.min(PATIENCE_MS_MAX, 2 * this.patienceMs);
    log.warn(
      { waited_ms: Math.round(publishing.oldestFlightMs()) },
      'the topic has its leaders and a batch is not acknowledged; opening another producer',
    );
    await sender.renew();
  }

  private isOverdue(): boolean {
    return this.options.publishing.oldestFlightMs() >= this.patienceMs;
  }

  /** True when rows were published and none was overdue for as long as the last producer was given.
   *  Published rows alone prove nothing: rows of other partitions pass beside a slow one. */
  private hasRecovered(): boolean {
    const { publishing, clock, patienceMs } = this.options;
    return (
      publishing.publishedSoFar() > this.published &&
      publishing.oldestFlightMs() < patienceMs &&
      clock.monotonicMs() - this.renewedMs >= this.patienceMs
    );
  }

  private async isLed(): Promise<boolean> {
    try {
      return await this.options.topicClient.isLed();
    } catch (thrown) {
      if (findMillraceError(thrown) === undefined) throw thrown;
      return false;
    }
  }
}
