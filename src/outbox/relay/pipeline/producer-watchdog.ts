/** Opens another producer where the broker could take a batch and the client does not bring it there.
 *
 *  A client waits for its broker without an end, as it should; but one may wait for a broker that no longer leads. librdkafka takes
 *  the partitions of a topic that was made again for those it knew, and holds their new leaders for old news: their epochs are
 *  lower (confluentinc/librdkafka issue 4898). Whoever asks anew is told the right ones, so a client that knows nothing yet is asked.
 */
import type { Clock } from '../../../core/clock.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { Counter, Metrics } from '../../../core/metrics.ts';
import type { Publishing } from './publisher.ts';
import type { Sender } from './sender.ts';
import type { BrokerSide } from './topic-client.ts';

/** A broker that is only slow gets each batch once more for each producer that was given up on it: soon that is rare. */
const PATIENCE_MS_MAX = 600_000;
/** A client that has just found its broker again needs a moment to bring it what waited. */
const GRACE_MS = 2000;

export interface OverdueOptions {
  readonly publishing: Pick<Publishing, 'oldestFlightMs' | 'publishedSoFar'>;
  readonly sender: Pick<Sender, 'isOpen' | 'renew'>;
  readonly side: Pick<BrokerSide, 'isLed'>;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Logger;
  /** How long a batch may wait; doubles with each producer that brought nothing. */
  readonly patienceMs: number;
}

export class Overdue {
  private readonly options: OverdueOptions;
  private readonly renewed: Counter;
  private patienceMs: number;
  /** When a producer was given up last, and how many rows were published until then. */
  private renewedMs = Number.NEGATIVE_INFINITY;
  private published = 0;
  /** Since when the topic has been seen to have its leaders while a batch is overdue. */
  private ledMs: number | undefined;

  constructor(options: OverdueOptions) {
    this.options = options;
    this.patienceMs = options.patienceMs;
    this.renewed = options.metrics.counter(
      'relay_producers_renewed_total',
      'Producers given up because a batch waited though the topic had its leaders.',
    );
  }

  async look(): Promise<void> {
    const { publishing, sender, clock, log } = this.options;
    if (this.isWell()) this.patienceMs = this.options.patienceMs;
    // What waits for a producer to be opened is no client's fault.
    if (!this.isOverdue() || !sender.isOpen() || !(await this.isLed())) {
      this.ledMs = undefined;
      return;
    }
    const nowMs = clock.monotonicMs();
    this.ledMs ??= nowMs;
    // It may have landed during the question.
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

  /** Rows came through, none waits for long, and that for as long as the last producer was given. Rows alone say nothing: those of
   *  other partitions come through beside those of one that is slow. */
  private isWell(): boolean {
    const { publishing, clock, patienceMs } = this.options;
    return (
      publishing.publishedSoFar() > this.published &&
      publishing.oldestFlightMs() < patienceMs &&
      clock.monotonicMs() - this.renewedMs >= this.patienceMs
    );
  }

  private async isLed(): Promise<boolean> {
    try {
      return await this.options.side.isLed();
    } catch (thrown) {
      if (findMillraceError(thrown) === undefined) throw thrown;
      return false;
    }
  }
}
