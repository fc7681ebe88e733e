/** Test kit: real registry processes on one topic, and an independent reader that verifies the
 *  topic. */
import { expect } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import type { BrokerDriver } from '../../src/io/kafka/port.ts';
import { allOf, readUntil } from '../contract/broker-world.ts';
import type { Launcher, Running } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { until } from '../wait.ts';

const driver: BrokerDriver =
  process.env['MILLRACE_NATIVE'] === 'off'
    ? (await import('../../src/io/kafka/node-rdkafka/driver.ts')).nodeRdkafkaDriver
    : (await import('../../src/io/kafka/librdkafka.ts')).librdkafkaDriver;

const REQUEST_MS_MAX = 200_000;

export interface Answer {
  readonly status: number;
  readonly body: unknown;
  /** True if the answer itself reports that it may be stale. */
  readonly isStale: boolean;
}

export class Instance {
  readonly process: Running;
  url = '';

  constructor(process: Running) {
    this.process = process;
  }

  log(): string {
    return this.process.log();
  }

  /** Returns the entries of its log; other lines are left out. */
  lines(): Array<{ readonly time: number; readonly msg: string }> {
    return this.log()
      .split('\n')
      .filter((line) => line.startsWith('{') && line.endsWith('}'))
      .map((line) => JSON.parse(line) as { readonly time: string; readonly msg: string })
      .map(({ time, msg }) => ({ time: Date.parse(time), msg }));
  }

  /** Returns how often it became the leader. */
  terms(): number {
    return this.log().split('this instance leads:').length - 1;
  }

  async ready(): Promise<this> {
    this.url = `http://${await this.process.ready()}`;
    return this;
  }

  async ask(
    method: string,
    path: string,
    body?: unknown,
    timeoutMs: number = REQUEST_MS_MAX,
  ): Promise<Answer> {
    const response = await fetch(this.url + path, {
      method,
      headers: { 'content-type': 'application/vnd.schemaregistry.v1+json' },
      signal: AbortSignal.timeout(timeoutMs),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const answer = (await response.json()) as { readonly error_code?: number };
    const isStale = response.headers.has('warning') || answer.error_code === 50002;
    return { status: response.status, body: answer, isStale };
  }

  /** Returns the first answer that is not marked as stale: a broker may be silent for a while. */
  read(path: string): Promise<Answer> {
    return until('an answer that is not stale', async () => {
      const answer = await this.ask('GET', path);
      return !answer.isStale && answer;
    });
  }

  /** Returns the id, or undefined if the registry did not acknowledge the registration. */
  async register(subject: string, schema: string, timeoutMs?: number): Promise<number | undefined> {
    const path = `/subjects/${encodeURIComponent(subject)}/versions`;
    const answer = await this.ask('POST', path, { schema }, timeoutMs).catch((thrown) => String(thrown));
    const isAcknowledged = typeof answer !== 'string' && answer.status === 200;
    return isAcknowledged ? (answer.body as { id: number }).id : undefined;
  }
}

export function startInstance(launch: Launcher, brokers: string, topic: string, name: string): Instance {
  const flags = [`-store=kafka:${brokers}`, `-schemas-topic=${topic}`];
  return new Instance(startRegistry(launch, flags, name));
}

export async function startInstances(
  launch: Launcher,
  brokers: string,
  topic: string,
  count: number,
): Promise<Instance[]> {
  const all = Array.from({ length: count }, (_, i) => startInstance(launch, brokers, topic, `r${i}`));
  return Promise.all(all.map((one) => one.ready()));
}

/** Returns the instance that became the leader last. */
export function leaderOf(instances: readonly Instance[]): Instance {
  const last = (one: Instance): number =>
    one.lines().findLast(({ msg }) => msg.startsWith('this instance leads:'))?.time ?? 0;
  const [first, ...rest] = instances;
  return rest.reduce((best, one) => (last(one) > last(best) ? one : best), first as Instance);
}

export const recordSchema = (name: string): string =>
  JSON.stringify({ type: 'record', name, fields: [{ name: 'f', type: 'int' }] });

export interface StoredVersion {
  readonly subject: string;
  readonly version: number;
  readonly id: number;
  readonly schema: string;
}

interface Row {
  readonly key: string;
  readonly value: string | null;
}

async function rowsOf(
  brokers: string,
  topic: string,
  isolation: 'committed' | 'uncommitted',
): Promise<Row[]> {
  const consumer = await driver.consumer({
    brokers,
    clientId: 'onlooker',
    connectTimeoutMs: 60_000,
    isolation,
    partitionEof: true,
  });
  try {
    const { high } = await consumer.watermarkOffsets({ topic, partition: 0 }, 60_000);
    await consumer.assign(allOf(topic, 1));
    const into = RecordBatch.create(5000, 1 << 23);
    const { rows } = await readUntil(consumer, (so) => so.ends.some(({ offset }) => offset >= high), {
      into,
    });
    return rows.map(({ key, value }) => ({ key: key as string, value }));
  } finally {
    await consumer.close();
  }
}

/** Reads the topic without the registry's code and verifies its invariants: a version never changes
 *  its schema, an id has one schema, versions are dense, and a reader of uncommitted rows ends with
 *  the same state. Returns the stored versions. */
export async function verifyTopic(brokers: string, topic: string): Promise<StoredVersion[]> {
  const committed = await rowsOf(brokers, topic, 'committed');
  const uncommitted = await rowsOf(brokers, topic, 'uncommitted');
  const latest = (rows: readonly Row[]): Map<string, string | null> => {
    const found = new Map<string, string | null>();
    for (const { key, value } of rows) found.set(key, value);
    return found;
  };
  const live = (rows: readonly Row[]) =>
    Object.fromEntries([...latest(rows)].filter(([, value]) => value !== null).sort());
  expect(live(uncommitted)).toEqual(live(committed));
  const schemaOfId = new Map<number, string>();
  const versions = new Map<string, string>();
  const stored = new Map<string, StoredVersion>();
  for (const { key, value } of committed) {
    if (value === null || !key.startsWith('{"keytype":"SCHEMA"')) continue;
    const { subject, version, id, schema } = JSON.parse(value) as StoredVersion;
    expect(schemaOfId.get(id) ?? schema, `id ${id} was given twice`).toBe(schema);
    schemaOfId.set(id, schema);
    expect(versions.get(key) ?? schema, `${key} was written twice`).toBe(schema);
    versions.set(key, schema);
    stored.set(key, { subject, version, id, schema });
  }
  const idOfSchema = new Map<string, number>();
  for (const [id, schema] of schemaOfId) {
    expect(idOfSchema.has(schema), `${schema} has two ids`).toBe(false);
    idOfSchema.set(schema, id);
  }
  const counts = new Map<string, number[]>();
  for (const { subject, version } of stored.values())
    counts.set(subject, [...(counts.get(subject) ?? []), version]);
  for (const [subject, found] of counts) {
    const dense = found.map((_, i) => i + 1);
    expect(
      found.sort((a, b) => a - b),
      subject,
    ).toEqual(dense);
  }
  return [...stored.values()];
}

/** Asserts that the topic has every acknowledged registration, with its acknowledged id. */
export function expectStored(
  stored: readonly StoredVersion[],
  acknowledged: ReadonlyArray<{ readonly subject: string; readonly schema: string; readonly id: number }>,
): void {
  const found = new Map(stored.map(({ subject, schema, id }) => [`${subject} ${schema}`, id]));
  const lost = acknowledged.filter(({ subject, schema, id }) => found.get(`${subject} ${schema}`) !== id);
  expect(lost).toEqual([]);
}
