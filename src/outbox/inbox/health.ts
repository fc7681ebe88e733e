/** Health: is this consumer connected, and a member of its group?
 *
 *  Rebalances tell the state of the membership. It begins with the first assignment and ends when
 *  the session is lost; between two assignments it lasts. A health query also asks a broker. The
 *  broker's answer can wait behind a commit that waits for a rebalance, so only a longer silence
 *  counts as unhealthy.
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
  private isIn = false;
  /** Reason that the group gave for refusing this member. */
  private refusal: string | undefined;
  private heardMs = Number.NEGATIVE_INFINITY;
  private asking: Promise<void> | undefined;
  private silence = 'no broker answers';

  constructor(clock: Timers) {
    this.clock = clock;
  }

  /** A broker answered. */
  heard(): void {
    this.heardMs = this.clock.monotonicMs();
  }

  moved(kind: Rebalance['kind']): void {
    if (kind === 'assigned') {
      this.isIn = true;
      this.refusal = undefined;
      this.heard();
    } else if (kind === 'lost') this.isIn = false;
  }

  note({ code, message, retriable, topic }: BrokerEvent): void {
    // Positive codes are the broker's own; negative ones come from the client library.
    if (code > 0 && !retriable && topic === undefined) this.refusal = message;
  }

  async unhealthyReason(client: Pick<BatchConsumer, 'reach'>): Promise<string | undefined> {
    let known = (): void => {};
    const late = new Promise<void>((resolve) => {
      known = afterAwake(this.clock, WAIT_MS, resolve);
    });
    await Promise.race([this.ask(client), late]);
    // A query in flight during a suspension times out right after it, although the broker answered.
    if (this.isSilent()) await Promise.race([this.ask(client), late]);
    known();
    if (this.isSilent()) return this.silence;
    if (this.isIn) return undefined;
    return `not a member of the consumer group: ${this.refusal ?? 'it has not let this one in yet'}`;
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
          this.silence = thrown instanceof Error ? thrown.message : String(thrown);
        },
      )
      .finally(() => {
        this.asking = undefined;
      });
    return this.asking;
  }
}
