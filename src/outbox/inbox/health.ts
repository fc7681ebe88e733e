/** Health: is this consumer connected and a member of its group?
 *
 *  Membership begins with the first assignment and ends when the session is lost; a rebalance in
 *  between does not end it. A health query also sends a request to a broker. The answer can queue
 *  behind an offset commit that waits for a rebalance, so only a silence of SILENCE_MS counts as
 *  unhealthy.
 */
import { afterAwake } from '../../core/awake.ts';
import type { Timers } from '../../core/clock.ts';
import type { BatchConsumer, BrokerEvent, Rebalance } from '../../io/kafka/port.ts';

/** Timeout of one request to a broker. */
const ANSWER_MS = 1000;
/** Timeout of a health query. */
const WAIT_MS = 1500;
/** Silence after which the broker counts as unreachable. */
const SILENCE_MS = 3000;

export class MemberHealth {
  private readonly clock: Timers;
  private isMember = false;
  /** Error with which the group refused this member. */
  private refusal: string | undefined;
  private heardMs = Number.NEGATIVE_INFINITY;
  private asking: Promise<void> | undefined;
  private silenceReason = 'no broker answers';

  constructor(clock: Timers) {
    this.clock = clock;
  }

  /** Records that a broker answered. */
  heard(): void {
    this.heardMs = this.clock.monotonicMs();
  }

  moved(kind: Rebalance['kind']): void {
    if (kind === 'assigned') {
      this.isMember = true;
      this.refusal = undefined;
      this.heard();
    } else if (kind === 'lost') this.isMember = false;
  }

  note({ code, message, retriable, topic }: BrokerEvent): void {
    // Positive codes are the broker's own; negative ones come from the client library.
    if (code > 0 && !retriable && topic === undefined) this.refusal = message;
  }

  async unhealthyReason(client: Pick<BatchConsumer, 'reach'>): Promise<string | undefined> {
    let cancelTimeout = (): void => {};
    const timeout = new Promise<void>((resolve) => {
      cancelTimeout = afterAwake(this.clock, WAIT_MS, resolve);
    });
    await Promise.race([this.ask(client), timeout]);
    // A query in flight while this process was suspended times out right after it, although the
    // broker answered: ask again.
    if (this.isSilent()) await Promise.race([this.ask(client), timeout]);
    cancelTimeout();
    if (this.isSilent()) return this.silenceReason;
    if (this.isMember) return undefined;
    return `not a member of the consumer group: ${this.refusal ?? 'no partitions were assigned yet'}`;
  }

  private isSilent(): boolean {
    return this.clock.monotonicMs() - this.heardMs > SILENCE_MS;
  }

  /** Sends at most one request at a time. */
  private ask(client: Pick<BatchConsumer, 'reach'>): Promise<void> {
    this.asking ??= client
      .reach(ANSWER_MS)
      .then(
        () => this.heard(),
        (thrown: unknown) => {
          this.silenceReason = thrown instanceof Error ? thrown.message : String(thrown);
        },
      )
      .finally(() => {
        this.asking = undefined;
      });
    return this.asking;
  }
}
