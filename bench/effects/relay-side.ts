/** Sides of the relay bench: programs that move rows from a database to a topic (our relay in its
 *  modes, or a peer), behind one interface. */

import { migrate } from '../../src/outbox/database/migrations.ts';
import { migrationsOf } from '../../src/shell/migrations.ts';
import type { Database, World } from './world.ts';

/** A running side. */
export interface RunningSide {
  /** Its processes, children included. */
  readonly pids: readonly number[];
  stop(): Promise<void>;
}

export interface RelaySide {
  readonly name: string;
  /** Number of rows that the side moves in a reasonable time; the lower of it and the requested
   *  number is used. */
  readonly rowsMax: number;
  /** Highest steady rate that the side is asked to sustain, in rows per second. */
  readonly rateMax: number;
  /** Creates what the side needs before the first row: tables, slots. */
  prepare(database: Database, topic: string): Promise<void>;
  /** SQL that writes `n` rows in one transaction, each with its order. The record of a row has the
   *  order's id as its key. */
  insert(n: string): string;
  start(database: Database, topic: string): Promise<RunningSide>;
  /** Number of rows that are published and not marked; absent if the side does not mark rows. */
  pending?(database: Database): Promise<number>;
}

const PAYLOAD_BYTES = 256;

/** Padded payload, so that every side carries the same bytes. */
export const PAYLOAD = `rpad('{"order_id":"' || id || '","account_id":1,"amount_cents":1,"pad":"', ${PAYLOAD_BYTES - 2}, 'x') || '"}'`;

/** SQL that writes orders and their rows of `into`, in one statement. */
export const withOrders = (n: string, into: string): string =>
  `WITH made AS MATERIALIZED (SELECT gen_random_uuid() AS id FROM generate_series(1, ${n})),
   o AS (INSERT INTO orders (order_id, account_id, amount_cents, status) SELECT id, 1, 1, 'created' FROM made)
   ${into}`;

export const intoOutbox = (n: string): string =>
  withOrders(
    n,
    `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload)
     SELECT id, gen_random_uuid(), 'order.created.v1', convert_to(${PAYLOAD}, 'UTF8') FROM made`,
  );

/** Creates Millrace's tables, as the orders service does. */
async function ourTables(database: Database): Promise<void> {
  await migrate(database.pool, 'public', 'orders', migrationsOf('orders'));
}

/** Side of our relay. */
export function ourRelay(world: World, mode: 'poll' | 'wal', flags: readonly string[] = []): RelaySide {
  const start = async (database: Database, topic: string): Promise<RunningSide> => {
    const child = await world.start('relay', [
      'relay',
      `-postgres=${database.url}`,
      `-brokers=${world.brokers}`,
      `-topic=${topic}`,
      `-relay=${mode}`,
      '-migrate',
      '-listen=127.0.0.1:0',
      ...flags,
    ]);
    return { pids: [child.process.pid], stop: () => child.stop() };
  };
  return {
    name: `millrace relay -relay=${mode}`,
    rowsMax: Number.POSITIVE_INFINITY,
    rateMax: Number.POSITIVE_INFINITY,
    async prepare(database, topic) {
      await ourTables(database);
      // The slot must exist before the rows that the stream is to deliver.
      const first = await start(database, topic);
      await first.stop();
    },
    insert: intoOutbox,
    start,
    async pending({ pool }) {
      const { rows } = await pool.query<{ readonly n: bigint }>(
        'SELECT count(*) AS n FROM outbox WHERE published_at IS NULL',
      );
      return Number(rows[0]?.n);
    },
  };
}
