/** Opens another producer where the broker could take a batch and the client does not bring it there.
 *
 *  A client waits for its broker without an end, as it should; but one may wait for a broker that no longer leads. librdkafka takes
 *  the partitions of a topic that was made again for those it knew, and holds their new leaders for old news: their epochs are
 *  lower (confluentinc/librdkafka issue 4898). Whoever asks anew is told the right ones, so a client that knows nothing yet is asked.
 */
import { findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { Counter, Metrics } from '../../core/metrics.ts';
import type { BrokerSide } from './broker-side.ts';
import type { Publishing } from './publishing.ts';
import type { Sender } from './sender.ts';

/** A broker that is only slow gets each batch once more for each producer that was given up on it: soon that is rare. */
const PATIENCE_MS_MAX = 600_000;

export interface OverdueOptions {
  readonly publishing: Pick<Publishing, 'oldestFlightMs' | 'publishedSoFar'>;
  readonly sender: Pick<Sender, 'renew'>;
  readonly side: Pick<BrokerSide, 'isLed'>;
  readonly metrics: Metrics;
  readonly log: Logger;
  /** How long a batch may wait; doubles with each producer that brought nothing. */
  readonly patienceMs: number;
}

export class Overdue {
  private readonly options: OverdueOptions;
  private readonly renewed: Counter;
  private patienceMs: number;
  private published = 0;

  constructor(options: OverdueOptions) {
    this.options = options;
    this.patienceMs = options.patienceMs;
    this.renewed = options.metrics.counter(
      'relay_producers_renewed_total',
      'Producers given up because a batch waited though the topic had its leaders.',
    );
  }

  async look(): Promise<void> {
    const { publishing, sender, log } = this.options;
    const published = publishing.publishedSoFar();
    if (published > this.published) this.patienceMs = this.options.patienceMs;
    this.published = published;
    if (publishing.oldestFlightMs() < this.patienceMs || !(await this.isLed())) return;
    // It may have landed during the question.
    const waitedMs = Math.round(publishing.oldestFlightMs());
    if (waitedMs < this.patienceMs) return;
    this.renewed.add();
    this.patienceMs = Math.min(PATIENCE_MS_MAX, 2 * this.patienceMs);
    log.warn(
      { waited_ms: waitedMs },
      'the topic has its leaders and a batch is not acknowledged; opening another producer',
    );
    await sender.renew();
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
