/** Whether a member is one: a broker answers it, and the group has it.
 *
 *  The group's word comes with rebalances. Between two assignments a member stays one; it is none from the start on until it is let in,
 *  and from the moment its session is lost until it is let in again. Brokers are asked when somebody wants to know; one that does not
 *  answer at once may be behind a commit that waits for a rebalance, so only a longer silence counts.
 */
import { afterAwake } from '../../core/awake.ts';
import type { Timers } from '../../core/clock.ts';
import type { BatchConsumer, BrokerEvent, Rebalance } from '../../io/kafka/port.ts';

/** How long a broker that is asked may take. */
const ANSWER_MS = 1000;
/** How long who wants to know waits for an answer. */
const WAIT_MS = 1500;
/** After this long without a sign of a broker it counts as away. */
const SILENCE_MS = 3000;

export class Presence {
  private readonly clock: Timers;
  private isIn = false;
  /** Why the group does not let it in, where it says so. */
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
    // What a broker refuses is told by one of its own codes; negative ones are the client's.
    if (code > 0 && !retriable && topic === undefined) this.refusal = message;
  }

  async whyNot(client: Pick<BatchConsumer, 'reach'>): Promise<string | undefined> {
    let known = (): void => {};
    const late = new Promise<void>((resolve) => {
      known = afterAwake(this.clock, WAIT_MS, resolve);
    });
    await Promise.race([this.ask(client), late]);
    // A question that was under way while this process stood still is given up right after, whoever answered it.
    if (this.isSilent()) await Promise.race([this.ask(client), late]);
    known();
    if (this.isSilent()) return this.silence;
    if (this.isIn) return undefined;
    return `not a member of the consumer group: ${this.refusal ?? 'it has not let this one in yet'}`;
  }

  private isSilent(): boolean {
    return this.clock.monotonicMs() - this.heardMs > SILENCE_MS;
  }

  /** One question at a time. */
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
