/** `append` in a service's own transaction, through either client, and the tables that services
 *  create for themselves. */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import type { OutboxEvent } from '../../src/outbox/append/event.ts';
import { append, EVENTS_MAX, lockAggregates } from '../../src/outbox/append/events.ts';
import { outboxRecordSql, outboxTableSql } from '../../src/outbox/append/table.ts';
import { migrationsOf } from '../../src/outbox/database/migration-files.ts';
import { migrate } from '../../src/outbox/database/migrations.ts';
import { inboxWorld, settledOrBlocked } from './inbox-kit.ts';

const world = await inboxWorld();
await world.pool.query(outboxTableSql('parcels'));
await world.pool.query('CREATE TABLE parcel (id uuid PRIMARY KEY, moves int NOT NULL DEFAULT 0)');

const event = (over: Partial<OutboxEvent> = {}): OutboxEvent => ({
  aggregateId: randomUUID(),
  eventType: 'parcel.moved.v1',
  payload: { weight: 7 },
  ...over,
});
const rowsOf = async (ids: readonly string[]) =>
  (
    await world.pool.query<{ id: bigint; msg_id: string; payload: Uint8Array; traceparent: string | null }>(
      'SELECT id, msg_id::text AS msg_id, payload, traceparent FROM parcels WHERE msg_id = ANY ($1::uuid[]) ORDER BY id',
      [[...ids]],
    )
  ).rows;
const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('utf8');

describe('append', () => {
  it('append adds the events in order and returns their ids, through both clients', async () => {
    const events = Array.from({ length: 500 }, (_, i) => event({ payload: { i } }));
    const client = await world.client();
    await client.query('BEGIN');
    const ofPg = await append(client, 'parcels', events);
    await client.query('COMMIT');
    const ofOurs = await world.pool.transaction((session) =>
      append(session, `${world.schema}.parcels`, events),
    );
    for (const ids of [ofPg, ofOurs]) {
      const rows = await rowsOf(ids);
      expect(rows.map((row) => row.msg_id)).toEqual(ids);
      expect(rows.map((row) => text(row.payload))).toEqual(events.map((_, i) => `{"i":${i}}`));
      expect([...ids].sort()).toEqual(ids);
      expect(ids.every((id) => id[14] === '7')).toBe(true);
    }
  });

  it('append keeps payload bytes unchanged, and every kind of JSON value', async () => {
    const payloads = [
      Buffer.from('{"b": 1,  "a":9007199254740993}'),
      new Uint8Array(Buffer.from(' "ключ" ')),
      null,
      true,
      -1.5,
      'a "text"\n\u0000\ud800',
      [1, [2, { three: undefined }]],
    ];
    const ids = await world.pool.transaction((session) =>
      append(
        session,
        'parcels',
        payloads.map((payload) => event({ payload })),
      ),
    );
    expect((await rowsOf(ids)).map((row) => text(row.payload))).toEqual([
      '{"b": 1,  "a":9007199254740993}',
      ' "ключ" ',
      'null',
      'true',
      '-1.5',
      '"a \\"text\\"\\n\\u0000\\ud800"',
      '[1,[2,{}]]',
    ]);
  });

  it('append keeps a traceparent beside events without one, and accepts a table without that column', async () => {
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const ids = await world.pool.transaction((session) =>
      append(session, 'parcels', [event(), event({ traceparent }), event()]),
    );
    expect((await rowsOf(ids)).map((row) => row.traceparent)).toEqual([null, traceparent, null]);
    await world.pool.query(
      `CREATE TABLE by_hand (id bigserial PRIMARY KEY, aggregate_id uuid NOT NULL, msg_id uuid NOT NULL, event_type text NOT NULL,
         payload bytea NOT NULL, published_at timestamptz, created_at timestamptz NOT NULL DEFAULT now())`,
    );
    await world.pool.transaction((session) => append(session, 'by_hand', [event()]));
    expect((await world.pool.query('SELECT FROM by_hand')).rowCount).toBe(1);
  });

  it('append rolls back with its transaction', async () => {
    const client = await world.client();
    await client.query('BEGIN');
    const ids = await append(client, 'parcels', [event()]);
    await client.query('ROLLBACK');
    expect(await rowsOf(ids)).toEqual([]);
  });

  it('append of no events writes nothing', async () => {
    expect(await world.pool.transaction((session) => append(session, 'parcels', []))).toEqual([]);
  });

  const circle: Record<string, unknown> = {};
  circle['self'] = circle;
  const bad: ReadonlyArray<readonly [string, unknown]> = [
    ['a value that is not an array', {}],
    ['too many events', Array.from({ length: EVENTS_MAX + 1 }, () => event())],
    ['an event that is not an object', [null]],
    ['an aggregate with a NUL', [event({ aggregateId: "x'; DROP TABLE parcels; --\u0000" })]],
    ['a missing aggregate', [{ eventType: 'a', payload: 1 }]],
    ['an empty event type', [event({ eventType: '' })]],
    ['an event type with a space', [event({ eventType: 'a b' })]],
    ['an event type with a NUL', [event({ eventType: 'a\u0000' })]],
    ['a long event type', [event({ eventType: 'x'.repeat(201) })]],
    ['an undefined payload', [{ aggregateId: randomUUID(), eventType: 'a', payload: undefined }]],
    ['a function as payload', [{ ...event(), payload: () => 1 }]],
    ['a bigint in the payload', [{ ...event(), payload: { n: 1n } }]],
    ['a payload with NaN', [{ ...event(), payload: { n: Number.NaN } }]],
    ['a payload that JSON cannot represent', [{ ...event(), payload: { n: new Map([[1, 2]]) } }]],
    ['a circular payload', [{ ...event(), payload: circle }]],
    ['bytes that are not JSON', [event({ payload: Buffer.from('{"a":') })]],
    ['bytes that are not UTF-8', [event({ payload: Buffer.from([0x22, 0xff, 0x22]) })]],
    ['a payload that exceeds the record limit', [event({ payload: 'x'.repeat(900_001) })]],
    ['a traceparent of zeros', [event({ traceparent: `00-${'0'.repeat(32)}-b7ad6b7169203331-01` })]],
    ['a traceparent in capitals', [event({ traceparent: `00-${'A'.repeat(32)}-b7ad6b7169203331-01` })]],
  ];

  it.each(bad)(
    'append refuses invalid events before it writes, and the transaction continues: %s',
    async (_, events) => {
      const before = (await world.pool.query('SELECT FROM parcels')).rowCount;
      await world.pool.transaction(async (session) => {
        const code = await append(session, 'parcels', events as OutboxEvent[]).then(
          () => 'accepted',
          (thrown) => findMillraceError(thrown)?.code,
        );
        expect(code).toBe('bad_event');
        await session.query('SELECT 1');
      });
      const after = (await world.pool.query('SELECT FROM parcels')).rowCount;
      expect(after).toBe(before);
    },
  );

  it.each([
    'parcels; DROP TABLE parcels',
    'Parcels',
    'a.b.c',
    '',
    'parcels--',
    "p'",
    'p"q"',
    '1p',
    'p\u0000',
  ])('append refuses the table name %j', async (table) => {
    const refused = expect.objectContaining({ code: 'bad_table_name' });
    expect(() => outboxTableSql(table)).toThrowError(refused);
    await world.pool.transaction(async (session) => {
      await expect(append(session, table, [event()])).rejects.toEqual(refused);
      await expect(lockAggregates(session, table, [randomUUID()])).rejects.toEqual(refused);
    });
  });

  it('append refuses a connection without a transaction', async () => {
    const client = await world.client();
    const refused = expect.objectContaining({ code: 'not_in_transaction' });
    await expect(append(client, 'parcels', [event()])).rejects.toEqual(refused);
    await expect(append(world.pool, 'parcels', [event()])).rejects.toEqual(refused);
  });
});

describe('ordering rule', () => {
  it.each(['the row', 'lockAggregates'] as const)(
    'the later writer of an aggregate locked by %s has the higher id and becomes visible later',
    async (by) => {
      const aggregateId = randomUUID();
      await world.pool.query('INSERT INTO parcel (id) VALUES ($1)', [aggregateId]);
      const [first, second] = [await world.client(), await world.client()];
      const lock = (client: typeof first) =>
        by === 'the row'
          ? client.query('SELECT FROM parcel WHERE id = $1 FOR UPDATE', [aggregateId])
          : lockAggregates(client, 'parcels', [aggregateId, aggregateId.toUpperCase()]);
      await first.query('BEGIN');
      await lock(first);
      let isDone = false;
      const late = (async () => {
        await second.query('BEGIN');
        await lock(second);
        const ids = await append(second, 'parcels', [event({ aggregateId })]);
        await second.query('COMMIT');
        isDone = true;
        return ids;
      })();
      expect(await settledOrBlocked(world, () => isDone)).toBe('blocked');
      const early = await append(first, 'parcels', [event({ aggregateId })]);
      await first.query('COMMIT');
      const rows = await rowsOf([...(await late), ...early]);
      expect(rows.map((row) => row.msg_id)).toEqual([...early, ...(await late)]);
    },
  );

  it('lockAggregates takes the same lock whether the table is named with its schema or without', async () => {
    const aggregateId = randomUUID();
    const [first, second] = [await world.client(), await world.client()];
    await first.query('BEGIN');
    await lockAggregates(first, 'parcels', [aggregateId]);
    let isDone = false;
    const late = (async () => {
      await second.query('BEGIN');
      await lockAggregates(second, `${world.schema}.parcels`, [aggregateId]);
      isDone = true;
      await second.query('COMMIT');
    })();
    expect(await settledOrBlocked(world, () => isDone)).toBe('blocked');
    await first.query('COMMIT');
    await late;
  });

  it('lockAggregates locks many aggregates from two sides without a deadlock', async () => {
    const ids = Array.from({ length: 200 }, () => randomUUID());
    const run = (order: readonly string[]) =>
      world.pool.transaction((session) => lockAggregates(session, 'parcels', order));
    for (let turn = 0; turn < 5; turn++) await Promise.all([run(ids), run([...ids].reverse()), run(ids)]);
  });
});

describe('outboxTableSql', () => {
  /** Returns columns with types and defaults, indexes and storage options, without the names of
   *  tables and indexes. */
  async function shape(pool: SqlPool, schema: string, columnsOf: string, leaf: string) {
    const columns = await pool.query<{ name: string }>(
      `SELECT attname AS name, format_type(atttypid, atttypmod) AS type, attnotnull AS required,
         CASE WHEN pg_get_expr(adbin, adrelid) LIKE 'nextval(%' THEN 'a sequence' ELSE pg_get_expr(adbin, adrelid) END AS default_value
       FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
       WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attname`,
      [`${schema}.${columnsOf}`],
    );
    const indexes = await pool.query<{ keys: string; predicate: string | null }>(
      `SELECT indisprimary AS is_primary, indisunique AS is_unique, pg_get_expr(indpred, indrelid) AS predicate,
         (SELECT string_agg(attname, ',' ORDER BY attnum) FROM pg_attribute WHERE attrelid = indexrelid) AS keys
       FROM pg_index WHERE indrelid = to_regclass($1) ORDER BY indisprimary, keys`,
      [`${schema}.${leaf}`],
    );
    const storage = await pool.query<{ options: string[] }>(
      'SELECT reloptions AS options FROM pg_class WHERE oid = to_regclass($1)',
      [`${schema}.${leaf}`],
    );
    return {
      columns: columns.rows,
      indexes: indexes.rows,
      storage: [...(storage.rows[0]?.options ?? [])].sort(),
    };
  }

  it('outboxTableSql and outboxRecordSql create the same table as orders -migrate, except for the partitions', async () => {
    const other = await inboxWorld();
    await migrate(other.pool, other.schema, 'orders', migrationsOf('orders'));
    const ofOrders = await shape(other.pool, other.schema, 'outbox', 'outbox_default');
    await world.pool.query(outboxTableSql('letters'));
    await world.pool.query(outboxRecordSql('letters'));
    const own = await shape(world.pool, world.schema, 'letters', 'letters');
    expect(own).toEqual(ofOrders);
    expect(own.columns).toHaveLength(13);
    expect(own.indexes).toHaveLength(2);
  });

  it('outboxTableSql refuses a name that leaves no room for suffixes', () => {
    expect(() => outboxTableSql('x'.repeat(51))).toThrowError(
      expect.objectContaining({ code: 'bad_table_name' }),
    );
  });
});
