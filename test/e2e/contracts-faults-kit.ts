/** Fleet of the fault tests: producers and consumers under load, the lines that consumers wrote,
 *  and the comparison with the topic as a plain client reads it. */

import { writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { logicalOrder } from '../../src/gen/order.ts';
import { orderSchema } from '../../src/gen/order-versions.ts';
import { startConsumer } from '../fixtures/consumer.ts';
import { pageOf, sumOf } from '../fixtures/metrics.ts';
import { type PlainRecord, plainOffsets, plainRecords } from '../fixtures/plain-client.ts';
import type { Launcher, Running } from '../fixtures/process.ts';
import { startProducer } from '../fixtures/producer.ts';
import { until } from '../wait.ts';

export const PARTITIONS = 4;
/** Records a second of one producer. */
const RATE = 400;

export interface Line {
  readonly partition: number;
  readonly offset: number;
  readonly value: { readonly order_id: string };
}

const placeOf = ({ partition, offset }: Pick<Line, 'partition' | 'offset'>): string =>
  `${partition}/${offset}`;

/** Lines of one process of a group. */
export interface GroupRun {
  readonly lines: readonly Line[];
  /** Offsets that the group had committed when the process started. */
  readonly from: readonly number[];
}

export interface Place {
  readonly brokers: string;
  readonly registry: string;
  readonly topic: string;
}

export class FaultFleet {
  readonly topic: string;
  private readonly own: Launcher;
  private readonly place: Place;

  constructor(own: Launcher, place: Place) {
    this.own = own;
    this.place = place;
    this.topic = place.topic;
  }

  /** The same fleet with another address of the registry. */
  at(registry: string): FaultFleet {
    return new FaultFleet(this.own, { ...this.place, registry });
  }

  private flags(): readonly string[] {
    const { brokers, registry, topic } = this.place;
    return [
      `-brokers=${brokers}`,
      `-registry=${registry}`,
      `-topic=${topic}`,
      `-subject=${topic}-value`,
      '-format=avro',
      `-partitions=${PARTITIONS}`,
      '-connect-timeout=60s',
    ];
  }

  /** Flags of a producer whose records name it. Its seed decides its order ids. */
  producing(name: string, seed: number, version: 1 | 2 | 3, ...more: readonly string[]): readonly string[] {
    const schema = join(this.own.dir, `order-${version}.avsc`);
    writeFileSync(schema, orderSchema(version, 'avro'));
    return [
      ...this.flags(),
      `-schema=${schema}`,
      `-seed=${seed}`,
      `-producer-name=${name}`,
      `-rate=${RATE}`,
      '-instances=2',
      '-json',
      ...more,
    ];
  }

  producer(name: string, seed: number, version: 1 | 2 | 3 = 1): Running {
    return startProducer(this.own, this.producing(name, seed, version), name);
  }

  /** Starts a process of a group that writes its lines to the file of its name. */
  consumer(name: string, group: string, ...more: readonly string[]): Running {
    const flags = [
      ...this.flags(),
      `-group=${this.topic}-${group}`,
      `-out=file:${this.path(name)}`,
      '-batch-rows=100',
      '-json',
      ...more,
    ];
    return startConsumer(this.own, flags, name);
  }

  async lines(name: string): Promise<readonly Line[]> {
    const text = await readFile(this.path(name), 'utf8').catch(() => '');
    // A killed process may have left a part of its last line.
    return text
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Line);
  }

  private path(name: string): string {
    return join(this.own.dir, `${this.topic}-${name}.jsonl`);
  }

  /** Every record of the topic, or of another one. */
  records(topic = this.topic): Promise<readonly PlainRecord[]> {
    return plainRecords(this.place.brokers, topic);
  }

  async committed(group: string): Promise<readonly number[]> {
    return (await this.offsets(group)).committed;
  }

  private offsets(group: string): ReturnType<typeof plainOffsets> {
    return plainOffsets(this.place.brokers, `${this.topic}-${group}`, this.topic, PARTITIONS);
  }

  /** Waits until a group has committed the end of each partition. */
  async caughtUp(group: string): Promise<void> {
    await until(`the commit of the ends by ${group}`, async () => {
      const { ends, committed } = await this.offsets(group);
      return ends.every((end, partition) => committed[partition] === end);
    });
  }
}

/** Records of a producer that the broker has acknowledged. */
export async function acknowledged(producer: Running): Promise<number> {
  return sumOf(await pageOf(await producer.ready()), 'produced_records_total');
}

/** Waits until a producer has this many acknowledgements more than now. */
export async function produces(producer: Running, more: number): Promise<void> {
  const wanted = (await acknowledged(producer)) + more;
  await until(
    `${more} further records of ${producer.name}`,
    async () => (await acknowledged(producer)) >= wanted,
  );
}

/** Ends a producer and returns the number of records that it reports. */
export async function producedBy(producer: Running): Promise<number> {
  await producer.drain();
  return (JSON.parse(producer.stdout()) as { readonly records: number }).records;
}

/** Checks that the topic has exactly the first `count` orders of a producer's seed, once each. */
export function expectExactly(
  records: readonly PlainRecord[],
  name: string,
  seed: number,
  count: number,
): void {
  const keys = records.filter(({ headers }) => headers.get('producer') === name).map(({ key }) => key);
  expect(keys.length, name).toBe(count);
  const wanted = Array.from({ length: count }, (_, index) => logicalOrder(seed, index).order_id);
  expect(new Set(keys), name).toEqual(new Set(wanted));
}

/** Checks the lines of the processes of a group, in the order of their starts: together they have
 *  each record of the topic, each process has a record at most once, and a later process has no
 *  record that was committed before it started. */
export function expectDelivered(records: readonly PlainRecord[], runs: readonly GroupRun[]): void {
  const keys = new Map(records.map((record) => [placeOf(record), record.key]));
  const delivered = new Set<string>();
  for (const { lines, from } of runs) {
    const own = new Set<string>();
    for (const line of lines) {
      const place = placeOf(line);
      expect(own.has(place), `${place} twice in one process`).toBe(false);
      own.add(place);
      expect(line.value.order_id, place).toBe(keys.get(place));
      expect(line.offset, `${place} was committed`).toBeGreaterThanOrEqual(from[line.partition] ?? 0);
    }
    for (const place of own) delivered.add(place);
  }
  expect(delivered.size).toBe(keys.size);
}
