/** Partitions of the outbox on a real database: migration, creation and removal, while writers and
 *  markers run. */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { migrate, requireColumn } from '../../src/outbox/database/migrations.ts';
import {
  asMaintainer,
  dropMarked,
  makeAhead,
  outboxPartitions,
  sweepDefault,
} from '../../src/outbox/orders/write/partitions.ts';
import { gate } from '../contract/http-harness.ts';
import { pause, until } from '../wait.ts';
import { ALL, emptySchema, options, put } from './orders-outbox-kit.ts';

/** Migrations after the first release. */
const NEWER = ['partitions and settings', 'key ttl', 'record columns'];

const ids = async (pool: SqlPool): Promise<bigint[]> =>
  (await pool.query<{ id: bigint }>('SELECT id FROM outbox ORDER BY id')).rows.map(({ id }) => id);

describe('partition migration', () => {
  it('the migration takes over a table with rows without copying them, and continues its ids', async () => {
    const { schema, pool } = await emptySchema();
    await migrate(pool, schema, 'orders', ALL.slice(0, 1));
    await pool.query(put(500));
    await pool.query('UPDATE outbox SET published_at = now() WHERE id % 3 = 0');
    const state = 'SELECT count(*) AS n, count(published_at) AS marked, max(id) AS last FROM outbox';
    const before = (await pool.query(state)).rows;
    const file = async (table: string): Promise<unknown> =>
      (
        await pool.query('SELECT relfilenode FROM pg_class WHERE oid = to_regclass($1)', [
          `${schema}.${table}`,
        ])
      ).rows;
    const node = await file('outbox');
    await expect(requireColumn(pool, schema, 'outbox', 'traceparent', 'orders')).rejects.toMatchObject({
      code: 'tables_missing',
    });

    expect(await migrate(pool, schema, 'orders', ALL)).toEqual(NEWER);
    await requireColumn(pool, schema, 'outbox', 'traceparent', 'orders');
    expect((await pool.query(state)).rows).toEqual(before);
    expect(await file('outbox_p0')).toEqual(node);
    await pool.query(put(1));
    expect((await ids(pool)).at(-1)).toBe(501n);
    expect((await outboxPartitions(pool, schema)).map((one) => [one.name, one.from, one.to])).toEqual([
      ['outbox_p0', undefined, 1_000_000n],
      ['outbox_default', undefined, undefined],
    ]);
    // The sequence belongs to the partitioned table, which remains.
    await pool.query('UPDATE outbox SET published_at = now()');
    await pool.query('DROP TABLE outbox_p0');
    await pool.query(put(1));
    expect(await ids(pool)).toEqual([502n]);
  });

  it('the migration runs while others write: no writer fails and no row is lost', async () => {
    const { schema, pool } = await emptySchema();
    await migrate(pool, schema, 'orders', ALL.slice(0, 1));
    let isDone = false;
    let written = 0;
    const writers = Array.from({ length: 4 }, async () => {
      while (!isDone) {
        await pool.query(put(3));
        written += 3;
      }
    });
    await until('written rows', () => written > 100);
    await Promise.all([migrate(pool, schema, 'orders', ALL), migrate(pool, schema, 'orders', ALL)]);
    const at = written;
    await until('rows written after the migration', () => written > at + 100);
    isDone = true;
    await Promise.all(writers);
    const all = await ids(pool);
    expect(all).toEqual(Array.from({ length: written }, (_, i) => BigInt(i + 1)));
  });

  it('a failed migration leaves no changes, and can be applied afterwards', async () => {
    const { schema, pool } = await emptySchema();
    await migrate(pool, schema, 'orders', ALL.slice(0, 1));
    await pool.query('CREATE TABLE outbox_default (x int)');
    await expect(migrate(pool, schema, 'orders', ALL)).rejects.toMatchObject({ code: 'sql_failed' });
    await pool.query(put(1));
    expect(await outboxPartitions(pool, schema)).toEqual([]);
    await pool.query('DROP TABLE outbox_default');
    expect(await migrate(pool, schema, 'orders', ALL)).toEqual(NEWER);
    expect(await ids(pool)).toEqual([1n]);
  });

  it('the migrated tables accept only legal order statuses, and rows by hand with the specified columns', async () => {
    const { schema, pool } = await emptySchema();
    await migrate(pool, schema, 'orders', ALL);
    const order = (status: string): Promise<unknown> =>
      pool.query(
        'INSERT INTO orders (order_id, account_id, amount_cents, status) VALUES (gen_random_uuid(), 1, 1, $1)',
        [status],
      );
    for (const status of ['created', 'paid', 'payment_failed', 'cancelled']) await order(status);
    await expect(order('lost')).rejects.toMatchObject({ details: { sqlstate: '23514' } });
    await pool.query(put(1));
  });
});

describe('partitions', () => {
  it('partitions exist before the ids reach them, however many processes create them', async () => {
    const { schema, pool } = await emptySchema();
    await migrate(pool, schema, 'orders', ALL);
    await pool.query("SELECT setval('outbox_id_seq', 999990)");
    const made = (
      await Promise.all(Array.from({ length: 4 }, () => makeAhead(options(pool, schema))))
    ).flat();
    // A process that finds another one at work leaves the work to it, so run once more.
    made.push(...(await makeAhead(options(pool, schema))));
    expect(made.sort()).toEqual(['outbox_p1000000', 'outbox_p1001000']);
    await pool.query(put(2000));
    const { rows } = await pool.query<{ name: string; n: bigint }>(
      'SELECT tableoid::regclass::text AS name, count(*) AS n FROM outbox GROUP BY 1 ORDER BY 1',
    );
    expect(rows).toEqual([
      { name: 'outbox_p0', n: 9n },
      { name: 'outbox_p1000000', n: 1000n },
      { name: 'outbox_p1001000', n: 991n },
    ]);
    const { rows: set } = await pool.query<{ options: string[] }>(
      "SELECT reloptions AS options FROM pg_class WHERE oid = to_regclass('outbox_p1000000')",
    );
    expect(String(set[0]?.options)).toMatch(/fillfactor=70.*autovacuum_vacuum_threshold=20000/);
  });

  it('new partitions start after the ids that went to the default partition', async () => {
    const { schema, pool } = await emptySchema();
    await migrate(pool, schema, 'orders', ALL);
    await pool.query("SELECT setval('outbox_id_seq', 1000000)");
    await pool.query(put(50));
    const made = await makeAhead(options(pool, schema));
    expect(made[0]).toBe('outbox_p1002000');
    await pool.query(put(2500));
    expect((await ids(pool)).length).toBe(2550);
    const { rows } = await pool.query<{ n: bigint }>('SELECT count(*) AS n FROM outbox_default');
    expect(rows).toEqual([{ n: 1999n }]);
    // Rows in the default partition are deleted once they are marked and old. The default partition
    // itself stays.
    await pool.query('UPDATE outbox SET published_at = now() WHERE id <= 1001500');
    expect(await sweepDefault(options(pool, schema, { retentionMs: 3_600_000 }))).toBe(0);
    const swept = [];
    for (let i = 0; i < 3; i++) swept.push(await sweepDefault(options(pool, schema)));
    expect(swept).toEqual([1000, 500, 0]);
    expect((await ids(pool))[0]).toBe(1_001_501n);
  });

  it('partitions are dropped when the ids have left them and every row is marked and old', async () => {
    const { schema, pool } = await emptySchema();
    await migrate(pool, schema, 'orders', ALL);
    await pool.query("SELECT setval('outbox_id_seq', 999999)");
    await makeAhead(options(pool, schema));
    await pool.query(put(1500));
    const drop = (over: object = {}) => dropMarked(options(pool, schema, over));
    // An empty partition that no id can reach any more counts as marked.
    expect(await drop()).toEqual(['outbox_p0']);
    await pool.query('UPDATE outbox SET published_at = now() WHERE id <> 1000500');
    expect(await drop()).toEqual([]);
    await pool.query('UPDATE outbox SET published_at = now()');
    expect(await drop({ retentionMs: 3_600_000 })).toEqual([]);
    expect(await drop()).toEqual(['outbox_p1000000']);
    expect((await ids(pool))[0]).toBe(1_001_000n);
    // A row that a slow transaction inserts late is still accepted.
    await pool.query(
      `INSERT INTO outbox (id, aggregate_id, msg_id, event_type, payload) VALUES (1000123, gen_random_uuid(), gen_random_uuid(), 'x', '')`,
    );
    expect((await ids(pool))[0]).toBe(1_000_123n);
  });

  it('partitions are kept for the retention after the last mark, however old their rows are', async () => {
    const { schema, pool } = await emptySchema();
    await migrate(pool, schema, 'orders', ALL);
    await pool.query("SELECT setval('outbox_id_seq', 999999)");
    await makeAhead(options(pool, schema));
    const hour = options(pool, schema, { retentionMs: 3_600_000 });
    await pool.query(put(1500));
    await pool.query(
      "UPDATE outbox SET created_at = now() - interval '1 day', published_at = now() - interval '2 hours'",
    );
    // The row with the latest mark does not have the highest id.
    await pool.query('UPDATE outbox SET published_at = now() WHERE id = 1000500');
    expect(await dropMarked(hour)).toEqual(['outbox_p0']);
    await pool.query("UPDATE outbox SET published_at = now() - interval '2 hours'");
    expect(await dropMarked(hour)).toEqual(['outbox_p1000000']);
  });

  it('partitions are released when the process that works on them is suspended', async () => {
    const { schema, pool } = await emptySchema();
    await migrate(pool, schema, 'orders', ALL);
    let awake = gate();
    let stopped: Promise<string | undefined>;
    let holds = false;
    do {
      const locked = gate();
      awake = gate();
      stopped = asMaintainer({ pool, schema, idleMs: 10_000 }, async (session) => {
        await session.query(`LOCK TABLE ONLY ${schema}.outbox IN ACCESS EXCLUSIVE MODE`);
        holds = true;
        locked.open();
        await awake.opened;
        await session.query('SELECT 1');
      }).then(
        () => undefined,
        (thrown: { code?: string }) => thrown.code,
      );
      // If this test stalled for too long, the server ended the session before it had the lock.
      await Promise.race([locked.opened, stopped]);
      if (!holds) expect(await stopped).toBe('unreachable');
    } while (!holds);
    await pool.query(put(1));
    expect(await makeAhead(options(pool, schema, { ahead: 0 }))).toEqual([]);
    awake.open();
    expect(await stopped).toBe('unreachable');
  });

  it('partitions stay when a row becomes visible between the check and the lock', async () => {
    const { schema, pool } = await emptySchema();
    await migrate(pool, schema, 'orders', ALL);
    await pool.query("SELECT setval('outbox_id_seq', 2000000)");
    let waited = 0;
    for (let id = 100; waited < 3; id++) {
      let commit: () => void = () => {};
      let written: () => void = () => {};
      const inserted = new Promise<void>((resolve) => {
        written = resolve;
      });
      const writer = pool.transaction(async (session) => {
        await session.query(
          "INSERT INTO outbox (id, aggregate_id, msg_id, event_type, payload) VALUES ($1, gen_random_uuid(), gen_random_uuid(), 'x', '')",
          [id],
        );
        written();
        await new Promise<void>((resolve) => {
          commit = resolve;
        });
      });
      await inserted;
      // The drop sees no unmarked row and waits for the writer.
      const dropping = dropMarked(options(pool, schema)).catch(
        (thrown: { details?: { sqlstate?: string } }) => {
          expect(thrown.details?.sqlstate).toBe('55P03');
          return undefined;
        },
      );
      let waits = false;
      let isDone = false;
      void dropping.then(() => {
        isDone = true;
      });
      while (!waits && !isDone) {
        const { rows } = await pool.query(
          "SELECT FROM pg_locks WHERE relation = to_regclass($1) AND mode = 'AccessExclusiveLock' AND NOT granted",
          [`${schema}.outbox`],
        );
        waits = rows.length > 0;
      }
      commit();
      await writer;
      const dropped = await dropping;
      if (dropped !== undefined) {
        expect([waits, dropped]).toEqual([true, []]);
        waited++;
      }
      const { rows } = await pool.query<{ n: bigint }>('SELECT count(*) AS n FROM outbox WHERE id = $1', [
        id,
      ]);
      expect(rows).toEqual([{ n: 1n }]);
      await pool.query('UPDATE outbox SET published_at = now()');
    }
    expect(await dropMarked(options(pool, schema))).toEqual(['outbox_p0']);
  });

  it('partitions with an unmarked row are never dropped while writers insert late rows and markers run', async () => {
    const { schema, pool } = await emptySchema();
    await migrate(pool, schema, 'orders', ALL);
    await pool.query("SELECT setval('outbox_id_seq', 999999)");
    const world = options(pool, schema, { partitionRows: 40, ahead: 3 });
    await makeAhead(world);
    const put = new Set<string>();
    const marked = new Set<string>();
    let isDone = false;
    let written = false;
    const dropped: string[] = [];
    // Draws ids early and inserts them late, sometimes into partitions that all other writers have
    // left.
    const writer = async (): Promise<void> => {
      while (!isDone) {
        const { rows } = await pool.query<{ id: bigint }>(
          "SELECT nextval('outbox_id_seq') AS id FROM generate_series(1, 5)",
        );
        for (const { id } of rows) {
          if (Math.random() < 0.3) await pause(Math.random() * 30);
          await pool.query(
            `INSERT INTO outbox (id, aggregate_id, msg_id, event_type, payload) VALUES ($1, gen_random_uuid(), gen_random_uuid(), 'x', '')`,
            [id],
          );
          put.add(String(id));
        }
      }
    };
    // Acts as a relay: reads pending rows, and marks exactly those it read.
    const marker = async (): Promise<void> => {
      for (;;) {
        const ending = written;
        const { rows } = await pool.query<{ id: bigint }>(
          'SELECT id FROM outbox WHERE published_at IS NULL ORDER BY id LIMIT 50',
        );
        const seen = rows.map(({ id }) => id);
        if (seen.length === 0 && ending) return;
        await pause(Math.random() * 5);
        await pool.query('UPDATE outbox SET published_at = now() WHERE id = ANY($1::bigint[])', [seen]);
        for (const id of seen) marked.add(String(id));
      }
    };
    const dropper = async (): Promise<void> => {
      while (!isDone) {
        for (const work of [makeAhead, dropMarked]) {
          const names = await work(world).catch((thrown: { details?: { sqlstate?: string } }) => {
            // A row entered the range first, or a lock was busy: the next turn retries.
            if (!/^(55P03|23514|40P01)$/.test(thrown.details?.sqlstate ?? '')) throw thrown;
            return [];
          });
          if (work === dropMarked) dropped.push(...names);
        }
        await pause(1);
      }
    };
    const writers = [writer(), writer(), writer()];
    const working = Promise.all([...writers, dropper(), dropper()]);
    const marking = marker();
    // No worker ends before `isDone` is set, so the first failure ends this wait immediately.
    await Promise.race([working, marking, until('dropped partitions', () => dropped.length > 15)]).finally(
      () => {
        isDone = true;
      },
    );
    await working;
    written = true;
    await marking;
    expect([...put].filter((id) => !marked.has(id))).toEqual([]);
    expect(new Set(dropped).size).toBe(dropped.length);
  });
});

describe('query plans', () => {
  interface Node {
    readonly 'Node Type': string;
    readonly 'Relation Name'?: string;
    readonly 'Index Name'?: string;
    readonly Plans?: readonly Node[];
    readonly 'Subplans Removed'?: number;
  }
  const nodes = (node: Node): Node[] => [node, ...(node.Plans ?? []).flatMap(nodes)];
  it('query plans use the partial indexes without a sort for pending rows, and mark in one partition', async () => {
    const { schema, pool } = await emptySchema();
    await migrate(pool, schema, 'orders', ALL);
    await pool.query("SELECT setval('outbox_id_seq', 999999)");
    await makeAhead(options(pool, schema));
    await pool.query(put(2500));
    await pool.query('UPDATE outbox SET published_at = now() WHERE id < 1001500');
    await pool.query('VACUUM ANALYZE outbox');
    const plan = async (
      mode: string,
      text: string,
      params: readonly (bigint | readonly bigint[])[],
    ): Promise<Node[]> =>
      pool.transaction(async (session) => {
        await session.query(`SET LOCAL plan_cache_mode = ${mode}`);
        const name = `p${randomUUID().replaceAll('-', '')}`;
        await session.query(`PREPARE ${name} AS ${text}`);
        const given = params
          .map((one) => (typeof one === 'bigint' ? String(one) : `'{${one.join(',')}}'`))
          .join(',');
        const { rows } = await session.query<Record<string, string>>(
          `EXPLAIN (FORMAT json) EXECUTE ${name}(${given})`,
        );
        return nodes((JSON.parse(rows[0]?.['QUERY PLAN'] as string) as [{ Plan: Node }])[0].Plan);
      });
    const SCAN =
      'SELECT id, payload FROM outbox WHERE published_at IS NULL AND id >= $1 ORDER BY id LIMIT 100';
    for (const mode of ['force_custom_plan', 'force_generic_plan']) {
      const all = await plan(mode, SCAN, [1_001_200n]);
      const types = all.map((node) => node['Node Type']);
      expect(types.some((type) => /Sort/.test(type))).toBe(false);
      const scans = all.filter((node) => node['Relation Name'] !== undefined);
      expect(scans.length).toBeGreaterThan(0);
      for (const scan of scans.filter((one) => one['Relation Name'] === 'outbox_p1001000'))
        expect([scan['Node Type'], scan['Index Name']]).toEqual(['Index Scan', 'outbox_p1001000_id_idx']);
      // Partitions below the floor are not scanned.
      expect(scans.map((scan) => scan['Relation Name'])).not.toContain('outbox_p1000000');
    }
    const marks = await plan(
      'force_custom_plan',
      'UPDATE outbox SET published_at = now() WHERE id = ANY($1::bigint[]) AND published_at IS NULL',
      [[1_001_600n, 1_001_700n]],
    );
    const touched = new Set(marks.flatMap((node) => node['Relation Name'] ?? []));
    expect(touched).toEqual(new Set(['outbox', 'outbox_p1001000']));
  });
});
