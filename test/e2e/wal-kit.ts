/** Test kit: a WAL source on a real slot, whose pipeline publishes into an array and marks in the
 *  table. Slot, stream and sweep are real; the array replaces the broker. */

import { randomBytes, randomUUID } from 'node:crypto';
import { afterEach } from 'vitest';
import type { Logger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { pgReplicationDriver } from '../../src/io/postgres/replication/pg.ts';
import type { SqlPool, SqlSession } from '../../src/io/postgres/sql/port.ts';
import { withSettings } from '../../src/outbox/database/connection.ts';
import { migrate } from '../../src/outbox/database/migrations.ts';
import type { Delivered, Pipeline } from '../../src/outbox/relay/pipeline/contract.ts';
import type { OutboxRow } from '../../src/outbox/relay/store.ts';
import { WalSource, type WalSourceOptions } from '../../src/outbox/relay/wal/source.ts';
import { migrationsOf } from '../../src/shell/migrations.ts';
import { connectPool, createTables } from '../fixtures/database.ts';
import { pause, realClock, until } from '../wait.ts';

export interface LogLine {
  readonly level: string;
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** Pipeline that publishes immediately and marks soon after. */
export class ListPipeline implements Pipeline {
  readonly published: OutboxRow[] = [];
  largest = 0;
  /** Rows are accepted only while this is true. */
  open = true;
  /** Keys whose rows are refused. */
  readonly refused = new Set<string>();
  private readonly pool: SqlPool;
  private readonly table: string;
  private readonly inFlightIds = new Set<bigint>();
  private tail: Promise<void> = Promise.resolve();

  constructor(pool: SqlPool, table: string) {
    this.pool = pool;
    this.table = table;
  }

  async deliver(rows: readonly OutboxRow[]): Promise<Delivered> {
    const left = rows.filter((row) => this.refused.has(row.aggregateId)).map((row) => row.id);
    const fresh = rows.filter((row) => !this.inFlightIds.has(row.id) && !this.refused.has(row.aggregateId));
    for (const row of fresh) this.inFlightIds.add(row.id);
    this.largest = Math.max(this.largest, this.inFlightIds.size);
    await until('an open pipeline', () => this.open);
    this.published.push(...fresh);
    const marked = this.tail.then(() => this.mark(fresh.map((row) => row.id)));
    this.tail = marked;
    return { published: fresh.length, left, known: rows.length - left.length - fresh.length, marked };
  }
  owns = (): boolean => true;
  isInFlight = (id: bigint): boolean => this.inFlightIds.has(id);
  inFlight = (): number => this.inFlightIds.size;
  async room(): Promise<void> {
    await until('room for rows', () => this.inFlightIds.size < 5000);
  }
  async idle(): Promise<void> {
    await until('the marks of all rows', () => this.inFlightIds.size === 0);
  }

  /** Marks rows, and retries those that match no row: a commit is decoded before it is visible. */
  private async mark(ids: readonly bigint[]): Promise<void> {
    let rest = ids;
    while (rest.length > 0) {
      const { rows } = await this.pool
        .query<{ id: bigint }>(
          `UPDATE ${this.table} SET published_at = coalesce(published_at, now()) WHERE id = ANY($1::bigint[]) RETURNING id`,
          [rest],
        )
        .catch(() => ({ rows: [] }));
      const done = new Set(rows.map(({ id }) => id));
      rest = rest.filter((id) => !done.has(id));
      if (rest.length > 0) await pause(10);
    }
    for (const id of ids) this.inFlightIds.delete(id);
  }
}

export interface Running {
  readonly pipeline: ListPipeline;
  readonly metrics: Metrics;
  readonly log: LogLine[];
  /** Settles with the result of run(). */
  readonly ended: Promise<void>;
  value(metric: string, label?: string): number;
  setOwner(owns: boolean): void;
  stop(): Promise<void>;
}

export interface WalWorld {
  readonly schema: string;
  readonly pool: SqlPool;
  readonly slot: () => Promise<string>;
  start(
    over?: Partial<WalSourceOptions> & {
      readonly owns?: boolean;
      readonly url?: string;
      readonly exitWhenDrained?: boolean;
      /** Pool of the source; default: that of the world. */
      readonly pool?: SqlPool;
    },
  ): Running;
  insert(aggregate: string, session?: SqlSession): Promise<bigint>;
  pending(): Promise<number>;
  /** Applies the missing migrations of the tables. */
  migrateOrders(): Promise<void>;
  drained(): Promise<true>;
}

export interface WorldOptions {
  /** URL for another role. */
  readonly at?: string;
  /** Existing schema with its tables. */
  readonly schema?: string;
  /** Number of the orders' migrations to apply; absent: all. */
  readonly migrations?: number;
}

const SHARDS = 4;
const EVERY = Array.from({ length: SHARDS }, (_, shard) => shard);

/** Creates worlds for the WAL tests.
 *  @param cleanUp false for a server that ends with the test */
export function walKit(postgres: string, cleanUp = true) {
  const suffix = randomBytes(4).toString('hex');
  const schemas: Array<{ readonly schema: string; readonly pool: SqlPool }> = [];
  const running: Running[] = [];
  let count = 0;

  // A server has few slots, so none outlives its test.
  afterEach(async () => {
    await Promise.all(running.splice(0).map((one) => one.stop()));
    for (const { schema, pool } of schemas.splice(0)) {
      if (cleanUp) {
        await dropSlots(pool, schema);
        await pool.query(`DROP SCHEMA ${schema} CASCADE`);
      }
      await pool.close();
    }
  });

  return {
    async world(options: WorldOptions = {}): Promise<WalWorld> {
      const { at = postgres, schema: known, migrations } = options;
      const schema = known ?? `wal_${suffix}_${count++}`;
      const pool = await connectPool(at, { schema, connections: 8, name: 'wal test' });
      schemas.push({ schema, pool });
      if (known === undefined) {
        await migrate(pool, schema, 'orders', migrationsOf('orders').slice(0, migrations));
        await createTables(pool, schema, 'relay');
      }
      const pending = async (): Promise<number> => {
        const { rows } = await pool.query<{ n: bigint }>(
          'SELECT count(*) AS n FROM outbox WHERE published_at IS NULL',
        );
        return Number(rows[0]?.n);
      };
      return {
        schema,
        pool,
        slot: async () => {
          const { rows } = await pool.query<{ slot_name: string }>('SELECT slot_name FROM relay_slots');
          return rows[0]?.slot_name ?? '';
        },
        start(over = {}) {
          const one = start(pool, withSettings(over.url ?? at, { schema }), over);
          running.push(one);
          return one;
        },
        async insert(aggregate, session = pool) {
          const { rows } = await session.query<{ id: bigint }>(
            `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload) VALUES ($1::uuid, $2::uuid, 'order.created.v1', '{}') RETURNING id`,
            [aggregate, randomUUID()],
          );
          return rows[0]?.id as bigint;
        },
        pending,
        async migrateOrders() {
          await createTables(pool, schema, 'orders');
        },
        drained: () =>
          until('an empty outbox', async () => ((await pending()) === 0 ? true : undefined), 60_000),
      };
    },
  };
}

/** Terminates the readers of the slots, and drops the slots and publications of a schema. */
export async function dropSlots(pool: SqlPool, schema: string): Promise<void> {
  const like = [`millrace\\_${schema}\\_%`];
  await pool.query(
    'SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name LIKE $1 AND active',
    like,
  );
  await until('dropped slots', async () => {
    await pool.query(
      'SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE $1',
      like,
    );
    return true;
  });
  const { rows } = await pool.query<{ pubname: string }>(
    'SELECT pubname::text FROM pg_publication WHERE pubname LIKE $1',
    like,
  );
  for (const { pubname } of rows) await pool.query(`DROP PUBLICATION IF EXISTS ${pubname}`);
}

function start(pool: SqlPool, url: string, over: Parameters<WalWorld['start']>[0] = {}): Running {
  const { owns = true, exitWhenDrained = false, pool: own = pool, ...options } = over;
  const pipeline = new ListPipeline(pool, 'outbox');
  const metrics = new Metrics();
  const log: LogLine[] = [];
  const write = (level: string) => (fields: Readonly<Record<string, unknown>>, message: string) => {
    log.push({ level, message, fields });
  };
  const logger: Logger = {
    debug: write('debug'),
    info: write('info'),
    warn: write('warn'),
    error: write('error'),
    child: () => logger,
  };
  const stop = new AbortController();
  const stopped = new Promise<void>((resolve) => stop.signal.addEventListener('abort', () => resolve()));
  const sleep = (ms: number): Promise<void> => Promise.race([pause(ms), stopped]);
  const ownership = { owner: owns, changes: 1 };
  const source = new WalSource(
    {
      pool: own,
      table: 'outbox',
      pipeline,
      ownership: {
        shards: SHARDS,
        owned: () => (ownership.owner ? EVERY : []),
        generation: () => ownership.changes,
      },
      metrics,
      log: logger,
      clock: realClock,
      sleep,
      sleepUntilWoken: sleep,
      drain: stop.signal,
      bytesMax: 8 << 20,
      crashAt: () => {},
      exitWhenDrained,
    },
    {
      driver: pgReplicationDriver,
      names: {},
      connectTimeoutMs: 5000,
      heartbeatMs: 200,
      auditMs: 300,
      messageBytesMax: 1 << 26,
      ...options,
      url,
    },
  );
  const ended = source.run();
  ended.catch(() => {});
  return {
    pipeline,
    metrics,
    log,
    ended,
    value(metric, label) {
      const found = metrics.snapshot().find(({ name }) => name === metric);
      return (
        found?.samples.find(({ labels }) => label === undefined || Object.values(labels).includes(label))
          ?.value ?? 0
      );
    },
    setOwner(next) {
      ownership.owner = next;
      ownership.changes++;
    },
    async stop() {
      stop.abort();
      await ended.catch(() => {});
    },
  };
}
