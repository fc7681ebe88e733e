/** Offsets of a topic and of its groups, read by plain clients that are members of no group: the
 *  measure of the load that does not depend on what the processes count. */
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../src/core/errors.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchConsumer, TopicPartition } from '../../src/io/kafka/port.ts';
import type { LagSample } from './flat.ts';

const OFFSETS_MS_MAX = 10_000;
const POLL_MS = 200;

export interface OffsetsOptions {
  readonly brokers: string;
  readonly properties: Readonly<Record<string, string>>;
  readonly topic: string;
  readonly partitions: number;
  readonly groups: readonly string[];
}

interface Offsets {
  readonly ends: readonly number[];
  /** Committed offsets of each group, by partition; 0 without one. */
  readonly committed: readonly (readonly number[])[];
}

const total = (values: readonly number[]): number => values.reduce((sum, one) => sum + one, 0);

export class TopicOffsets {
  private readonly partitions: readonly TopicPartition[];
  private readonly groups: readonly BatchConsumer[];

  private constructor(partitions: readonly TopicPartition[], groups: readonly BatchConsumer[]) {
    this.partitions = partitions;
    this.groups = groups;
  }

  static async open(options: OffsetsOptions): Promise<TopicOffsets> {
    const { brokers, properties, topic } = options;
    const groups: BatchConsumer[] = [];
    for (const group of options.groups)
      groups.push(await nodeRdkafkaDriver.consumer({ brokers, properties, clientId: 'bench', group }));
    const partitions = Array.from({ length: options.partitions }, (_, partition) => ({ topic, partition }));
    return new TopicOffsets(partitions, groups);
  }

  async close(): Promise<void> {
    await Promise.all(this.groups.map((one) => one.close()));
  }

  private async read(): Promise<Offsets> {
    const [first] = this.groups;
    if (first === undefined) throw coreError('internal', 'the load has no consumer group');
    // The committed offsets first: a lag is then never below the true one.
    const committed = await Promise.all(
      this.groups.map(async (group) =>
        (await group.committed(this.partitions)).map(({ offset }) => Math.max(0, Number(offset))),
      ),
    );
    const ends = await Promise.all(
      this.partitions.map(async (at) => Number((await first.watermarkOffsets(at, OFFSETS_MS_MAX)).high)),
    );
    return { ends, committed };
  }

  /** @param startMs time of `performance.now()` at which the measurement started */
  async sample(startMs: number): Promise<LagSample> {
    const atMs = performance.now() - startMs;
    const { ends, committed } = await this.read();
    return { atMs, written: total(ends), read: committed.map(total) };
  }

  /** Waits until each group has committed a record of each partition. @throws timeout */
  untilAllRead(timeoutMs: number, signal: AbortSignal): Promise<void> {
    return this.until('each group to read each partition', timeoutMs, signal, ({ committed }) =>
      committed.every((group) => group.every((offset) => offset > 0)),
    );
  }

  /** Waits until each group has committed the ends of the topic. @throws timeout */
  untilCaughtUp(timeoutMs: number, signal: AbortSignal): Promise<void> {
    return this.until('the groups to read to the end', timeoutMs, signal, ({ ends, committed }) =>
      committed.every((group) => group.every((offset, at) => offset >= (ends[at] as number))),
    );
  }

  private async until(
    what: string,
    timeoutMs: number,
    signal: AbortSignal,
    holds: (offsets: Offsets) => boolean,
  ): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    while (!holds(await this.read())) {
      signal.throwIfAborted();
      if (performance.now() > deadline)
        throw coreError('timeout', `timed out after ${Math.round(timeoutMs / 1000)} s waiting for ${what}`);
      await sleep(POLL_MS);
    }
  }
}
