/** Test kit of a service's records: a schema with a service, and the records of its topics. */
import { randomBytes } from 'node:crypto';
import { afterAll } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { type Logger, silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { openBroker, openDrivers } from '../../src/drivers.ts';
import { OFFSET_BEGINNING } from '../../src/io/kafka/port.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { Service, type ServiceOptions } from '../../src/outbox/service.ts';
import { connectPool } from '../fixtures/database.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const PARTITIONS = 4;

export interface PublishedRecord {
  readonly partition: number;
  readonly key: string;
  readonly value: Buffer;
  readonly headers: Readonly<Record<string, Buffer>>;
  /** Header as text. */
  text(name: string): string | undefined;
}

/** Reads all records of a topic that the relay created, partition by partition. */
export async function recordsOf(topic: string): Promise<readonly PublishedRecord[]> {
  const { brokers } = await sharedStack();
  const consumer = await (await openBroker()).consumer({
    brokers,
    clientId: 'rows-test',
    connectTimeoutMs: 60_000,
    partitionEof: true,
  });
  const found: PublishedRecord[] = [];
  const ids = new Set<string>();
  try {
    await consumer.assign(
      Array.from({ length: PARTITIONS }, (_, partition) => ({ topic, partition, offset: OFFSET_BEGINNING })),
    );
    const batch = RecordBatch.create(1000, 8 << 20);
    const ended = new Set<number>();
    while (ended.size < PARTITIONS) {
      const { rowCount, ends } = await consumer.consume(batch, 500);
      for (let i = 0; i < rowCount; i++) {
        const headers = Object.fromEntries(
          batch.headers(i).map(([name, value]) => [name, Buffer.from(value ?? [])]),
        );
        const id = headers['ce_id']?.toString();
        if (id !== undefined && ids.has(id)) continue;
        if (id !== undefined) ids.add(id);
        found.push({
          partition: batch.columns.partition[i] as number,
          key: Buffer.from(batch.key(i) ?? []).toString(),
          value: Buffer.from(batch.value(i) ?? []),
          headers,
          text: (name) => headers[name]?.toString(),
        });
      }
      for (const end of ends) ended.add(end.partition);
    }
  } finally {
    await consumer.close();
  }
  return found;
}

export interface RowsWorld {
  readonly schema: string;
  readonly topic: string;
  readonly pool: SqlPool;
  readonly metrics: Metrics;
  open(over?: Partial<ServiceOptions>): Promise<Service>;
  /** Waits until no row of the outbox is pending. */
  drained(table?: string): Promise<true>;
}

/** Creates a schema; its services are closed after the file, unless the test closes them. */
export async function rowsWorld(postgres?: string, log: Logger = silentLogger): Promise<RowsWorld> {
  const stack = await sharedStack();
  const url = postgres ?? stack.postgres;
  const schema = `rows_${randomBytes(5).toString('hex')}`;
  const pool = await connectPool(url, { schema, connections: 4 });
  await pool.query(`CREATE SCHEMA ${schema}`);
  const metrics = new Metrics();
  const drivers = await openDrivers();
  afterAll(async () => {
    await pool.query(`DROP SCHEMA ${schema} CASCADE`);
    await pool.close();
  });
  return {
    schema,
    topic: `${schema}.events`,
    pool,
    metrics,
    open: (over = {}) =>
      Service.open({
        ...drivers,
        name: schema,
        brokers: stack.brokers,
        postgres: url,
        schema,
        metrics,
        log,
        ...over,
      }),
    drained: (table = 'sent') =>
      until('no pending row', async () => {
        const { rowCount } = await pool.query(`SELECT FROM ${table} WHERE published_at IS NULL`);
        return rowCount === 0 || undefined;
      }),
  };
}
