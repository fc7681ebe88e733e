/** Offset commits of a node-rdkafka consumer. Their results are events that arrive with reads and
 *  name the committed offsets. */
import type { KafkaConsumer, LibrdKafkaError } from 'node-rdkafka';
import { ERR, errorOfEvent, thrownEvent } from '../errors.ts';
import type { BrokerEvent, TopicPartitionOffset } from '../port.ts';

/** Client with the method that node-rdkafka's types omit. */
type Client = KafkaConsumer & {
  commit(offsets: ReadonlyArray<{ topic: string; partition: number; offset: number }>): unknown;
};

interface Waiting {
  readonly key: string;
  settle(error: Pick<LibrdKafkaError, 'code'> | undefined): void;
}

const IDLE_READ_MS_MAX = 8;

const keyOf = (
  offsets: ReadonlyArray<{ topic: string; partition: number; offset: bigint | number }>,
): string =>
  offsets
    .map((at) => `${at.partition}@${at.topic}=${at.offset}`)
    .sort()
    .join();

export class Commits {
  private readonly client: Client;
  private readonly read: () => Promise<void>;
  private waiting: Waiting[] = [];
  /** Commits that timed out here and are still in flight in librdkafka. */
  private abandoned = 0;
  private pumping = false;

  /** @param read makes the client emit pending events */
  constructor(client: KafkaConsumer, read: () => Promise<void>) {
    this.client = client as Client;
    this.read = read;
    client.on('offset.commit', (error, offsets) => {
      const key = keyOf(offsets);
      const at = this.waiting.findIndex((entry) => entry.key === key);
      if (at >= 0) this.waiting.splice(at, 1)[0]?.settle(error);
      else this.abandoned = Math.max(0, this.abandoned - 1);
    });
  }

  /** True while librdkafka waits for the result of an abandoned commit. */
  get hasAbandoned(): boolean {
    return this.abandoned > 0;
  }

  /** Sends one commit; returns the broker's refusal, a timeout event, or undefined when it is done.
   */
  async once(offsets: readonly TopicPartitionOffset[], timeoutMs: number): Promise<BrokerEvent | undefined> {
    const list = offsets.map((at) => ({
      topic: at.topic,
      partition: at.partition,
      offset: Number(at.offset),
    }));
    const answer = new Promise<Parameters<Waiting['settle']>[0]>((resolve) => {
      const waiting: Waiting = {
        key: keyOf(list),
        settle: (error) => {
          clearTimeout(timer);
          resolve(error);
        },
      };
      const timer = setTimeout(() => {
        this.waiting = this.waiting.filter((entry) => entry !== waiting);
        this.abandoned++;
        resolve({ code: ERR.TIMED_OUT });
      }, timeoutMs);
      this.waiting.push(waiting);
    });
    try {
      this.client.commit(list);
    } catch (thrown) {
      this.waiting.pop()?.settle(undefined);
      throw errorOfEvent('commit', thrownEvent(thrown));
    }
    void this.pump();
    const error = await answer;
    return error === undefined ? undefined : thrownEvent(error);
  }

  /** Ends all waits: the client is closing. */
  end(): void {
    for (const waiting of this.waiting.splice(0)) {
      this.abandoned++;
      waiting.settle({ code: ERR.DESTROY });
    }
  }

  /** Reads while a result is awaited: results arrive with reads only. */
  private async pump(): Promise<void> {
    if (this.pumping) return;
    this.pumping = true;
    try {
      for (let idleMs = 1; this.waiting.length > 0; idleMs = Math.min(idleMs * 2, IDLE_READ_MS_MAX)) {
        await this.read();
        await new Promise((resolve) => setTimeout(resolve, idleMs));
      }
    } finally {
      this.pumping = false;
    }
  }
}
