/** Connections and library tables of a service: created by name, migrated, and unreachable when the
 *  database does not answer. */
import { describe, expect, it } from 'vitest';
import { type LogFields, silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { type BrokerDriver, openDrivers, openWake } from '../../src/drivers.ts';
import type { TopicSpec } from '../../src/io/kafka/port.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { append } from '../../src/outbox/append/events.ts';
import { outboxTableSql } from '../../src/outbox/append/table.ts';
import { Inbox } from '../../src/outbox/inbox/once.ts';
import { insertParked, recordDigest, requireDigest } from '../../src/outbox/inbox/parked.ts';
import type { Parked, UnreadRecord } from '../../src/outbox/inbox/port.ts';
import { redriveParked } from '../../src/outbox/inbox/redrive.ts';
import { inboxTableSql, parkedTableSql } from '../../src/outbox/inbox/table.ts';
import { IdleSlots } from '../../src/outbox/relay/idle-slots.ts';
import type { OutboxTable } from '../../src/outbox/relay/store.ts';
import { Service, type ServiceOptions } from '../../src/outbox/service.ts';
import { silentGate } from '../contract/sql-gate.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { realClock, until } from '../wait.ts';
import { idAt, inboxWorld, v4 } from './inbox-kit.ts';
import { lockTable } from './orders-kit.ts';
import { dropSlots } from './wal-kit.ts';

const stack = await sharedStack();
const drivers = await openDrivers();
const PARTS = { outboxTable: 'sent', inbox: 'received', parkedTable: 'aside' };

async function serviceIn(schema: string, over: Partial<ServiceOptions> = {}): Promise<Service> {
  const { brokers, postgres } = stack;
  return Service.open({ ...drivers, name: 'parts', brokers, postgres, schema, log: silentLogger, ...over });
}

const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text));
const parked = (msgId: string | null, value: string, offset = 3n): Parked<UnreadRecord> => ({
  delivery: {
    topic: 't',
    partition: 0,
    offset,
    key: null,
    value: bytes(value),
    timestampMs: 1,
    headers: [['ce_id', bytes(msgId ?? '-')]],
    msgId,
  },
  reason: 'refused',
  detail: 'then',
});
const digestsOf = async (pool: SqlPool): Promise<string[]> =>
  (
    await pool.query<{ hex: string }>(`SELECT encode(digest, 'hex') AS hex FROM aside ORDER BY digest`)
  ).rows.map(({ hex }) => hex);

describe('migrate', () => {
  it('migrate creates the named tables once, and counts the migrations of the service separately', async () => {
    const { schema, pool } = await inboxWorld();
    const service = await serviceIn(schema);
    await service.migrate(['CREATE TABLE own (n int)'], PARTS);
    await service.migrate(['CREATE TABLE own (n int)', 'INSERT INTO own VALUES (1)'], PARTS);
    await service.migrate([], { outboxTable: 'other' });
    const { rows } = await pool.query<{ owner: string; n: number }>(
      'SELECT owner, count(*)::int AS n FROM millrace_migrations GROUP BY owner ORDER BY owner',
    );
    expect(rows).toEqual([
      { owner: 'inbox received', n: 1 },
      { owner: 'outbox other', n: 3 },
      { owner: 'outbox sent', n: 3 },
      { owner: 'parked aside', n: 2 },
      { owner: 'parts', n: 2 },
    ]);
    const { rows: floors } = await pool.query('SELECT FROM received_floor');
    expect(floors).toHaveLength(1);
    await requireDigest(pool, 'aside');
    await expect(service.migrate([], { inbox: 'Not Plain' })).rejects.toMatchObject({
      code: 'bad_table_name',
    });
    await service.close();
  });

  it('migrate accepts tables that a service created before, with their rows, and adds digests to parked records', async () => {
    const { schema, pool } = await inboxWorld();
    const id = idAt(realClock.wallNowMs());
    await pool.query(outboxTableSql('sent') + inboxTableSql('received') + parkedTableSql('aside'));
    await pool.query(
      `INSERT INTO aside (topic, partition, "offset", reason, detail, msg_id, key, value) VALUES
       ('t', 0, 3, 'refused', 'then', $1, NULL, 'mended'), ('t', 0, 4, 'malformed_payload', 'then', NULL, '', NULL)`,
      [id],
    );
    await expect(requireDigest(pool, 'aside')).rejects.toMatchObject({
      code: 'tables_missing',
      next: expect.stringContaining('parkedDigestSql'),
    });
    const service = await serviceIn(schema);
    await service.migrate([], PARTS);
    await service.close();
    const wanted = [recordDigest(null, bytes('mended'), id), recordDigest(bytes(''), null)];
    expect(await digestsOf(pool)).toEqual(wanted.map((one) => Buffer.from(one).toString('hex')).sort());
    // An identical record maps to the existing row.
    await pool.transaction((session) => insertParked(session, 'aside', [parked(id, 'mended')]));
    expect(await digestsOf(pool)).toHaveLength(2);
  });
});

describe('parked records', () => {
  it('parked records at one offset with different content are all kept, and each is redriven', async () => {
    const { schema, pool } = await inboxWorld();
    const service = await serviceIn(schema);
    await service.migrate([], { inbox: 'inbox_of_parked', parkedTable: 'aside' });
    await service.close();
    const ids = [v4(), v4(), v4()] as const;
    const records = [
      parked(ids[0], 'one'),
      parked(ids[1], 'other'),
      // Only the id differs from the first record.
      parked(ids[2], 'one'),
      parked(ids[0], 'one'),
    ];
    for (const record of records)
      await pool.transaction((session) => insertParked(session, 'aside', [record]));
    expect(await digestsOf(pool)).toHaveLength(3);
    const handled: string[] = [];
    const options = {
      pool,
      inbox: new Inbox('inbox_of_parked'),
      parkedTable: 'aside',
      reasons: ['refused'],
      log: silentLogger,
    } as const;
    const failingId = ids[1];
    const handle = async (_: unknown, { msgId }: { readonly msgId: string }): Promise<void> => {
      if (msgId === failingId) throw new Error('still broken');
      handled.push(msgId);
    };
    expect(await redriveParked({ ...options, handle })).toEqual({ done: 2, seen: 0, left: 1 });
    expect([...handled].sort()).toEqual([ids[0], ids[2]].sort());
    const { rows } = await pool.query('SELECT msg_id::text AS id, detail FROM aside');
    expect(rows).toEqual([{ id: ids[1], detail: 'still broken' }]);
  });
});

describe('silent database', () => {
  it('a silent database is unreachable after the timeout, and reachable again once it answers', async () => {
    const gate = await silentGate(stack.postgres);
    const { schema, pool } = await inboxWorld();
    const service = await serviceIn(schema, { postgres: gate.url, answerTimeoutMs: 15_000 });
    try {
      await service.pool.query('SELECT 1');
      gate.silence();
      await expect(service.pool.query('SELECT 2')).rejects.toMatchObject({
        code: 'unreachable',
        message: expect.stringContaining('no answer within 15000 ms'),
      });
      gate.speak();
      expect((await service.pool.query('SELECT 3 AS n')).rows).toEqual([{ n: 3 }]);
      // The timeout does not apply to a migration: the migration waits for the lock longer than the
      // statement that times out.
      await service.pool.query('CREATE TABLE shut (n int)');
      const release = await lockTable(pool, 'shut');
      const migrating = service.migrate(['SET LOCAL lock_timeout = 0; ALTER TABLE shut ADD COLUMN more int']);
      migrating.catch(() => {});
      await until('a migration that waits', async () => {
        const { rows } = await pool.query(
          "SELECT FROM pg_locks WHERE relation = 'shut'::regclass AND NOT granted",
        );
        return rows.length > 0;
      });
      await expect(service.pool.query('SELECT FROM shut')).rejects.toMatchObject({ code: 'unreachable' });
      await release();
      await migrating;
    } finally {
      gate.speak();
      await service.close();
      await gate.close();
    }
  });

  it('a silent database times out after 60 s by default', async () => {
    let timeoutMs: number | undefined;
    const sql: typeof pgDriver = {
      ...pgDriver,
      connect: (options) => {
        timeoutMs = options.answerTimeoutMs;
        return pgDriver.connect(options);
      },
    };
    const { schema } = await inboxWorld();
    const service = await serviceIn(schema, { sql });
    await service.close();
    expect(timeoutMs).toBe(60_000);
  });
});

describe('relay in wal mode', () => {
  it('a relay in wal mode follows a replication slot and publishes what was appended', async () => {
    const { schema, pool } = await inboxWorld();
    const metrics = new Metrics();
    const service = await serviceIn(schema, { metrics });
    try {
      await service.migrate([], { outboxTable: 'sent' });
      await service.relay({
        table: 'sent',
        topic: `${schema}.events`,
        mode: 'wal',
        wal: { heartbeatMs: 100 },
        pollIntervalMs: 60_000,
      });
      const active = metrics.gauge('relay_wal_active', '');
      await until('the slot to be read', async () => active.value() === 1 || undefined);
      await service.pool.transaction((tx) =>
        append(tx, 'sent', [{ aggregateId: v4(), eventType: 'made.v1', payload: { n: 1 } }]),
      );
      await until('the row to be marked', async () => {
        const { rowCount } = await pool.query('SELECT FROM sent WHERE published_at IS NOT NULL');
        return rowCount === 1 || undefined;
      });
      expect(metrics.counter('relay_wal_rows_total', '').value()).toBe(1);
      expect(metrics.counter('sweeper_found_total', '').value()).toBe(0);
    } finally {
      await service.close();
      await dropSlots(pool, schema);
    }
  });
});

describe('polling relay', () => {
  it('failure of a service resolves after its relay has drained the outbox and ended', async () => {
    const { schema, pool } = await inboxWorld();
    const service = await serviceIn(schema);
    try {
      await service.migrate([], { outboxTable: 'sent' });
      await service.pool.transaction((tx) =>
        append(tx, 'sent', [{ aggregateId: v4(), eventType: 'made.v1', payload: { n: 1 } }]),
      );
      await service.relay({ table: 'sent', topic: `${schema}.events`, exitWhenDrained: true });
      await service.failure();
      const { rowCount } = await pool.query('SELECT FROM sent WHERE published_at IS NOT NULL');
      expect(rowCount).toBe(1);
    } finally {
      await service.close();
    }
  });

  it('a polling relay warns of an abandoned WAL slot, and reports its retained bytes until the slot is dropped', async () => {
    const { schema, pool } = await inboxWorld();
    const settings = { table: 'sent', topic: `${schema}.events` };
    const former = await serviceIn(schema);
    await former.migrate([], { outboxTable: 'sent' });
    await former.relay({ ...settings, mode: 'wal' });
    const slots = () =>
      pool.query<{ slot: string }>(
        'SELECT slot_name::text AS slot FROM pg_replication_slots WHERE slot_name LIKE $1 AND NOT active',
        [`millrace\\_${schema}\\_%`],
      );
    await until('a slot', async () => {
      const { rowCount } = await pool.query('SELECT FROM relay_slots WHERE confirmed_lsn > $1::pg_lsn', [
        '0/0',
      ]);
      return rowCount === 1 || undefined;
    });
    await former.close();
    const slot = await until('an idle slot', async () => (await slots()).rows[0]?.slot);
    const metrics = new Metrics();
    const warnings: LogFields[] = [];
    const log = { ...silentLogger, warn: (fields: LogFields) => void warnings.push(fields) };
    const service = await serviceIn(schema, { metrics, log });
    try {
      await service.relay(settings);
      const warning = await until('a warning', async () =>
        warnings.find((fields) => fields['slot'] === slot),
      );
      expect(warning['drop']).toBe(`SELECT pg_drop_replication_slot('${slot}')`);
      const retained = metrics.gauge('relay_idle_slot_retained_bytes', '', ['slot']);
      expect(warning['retained_bytes']).toBe(retained.value(retained.series(slot)));
      // Another outbox that shares the relay tables does not own the slot.
      await pool.query(outboxTableSql('other'));
      const other: OutboxTable = {
        name: 'other',
        fullName: `${schema}.other`,
        hasTraceparent: true,
        hasRecordColumns: false,
        sequence: undefined,
      };
      const check = (table: OutboxTable) =>
        new IdleSlots(pool, table, drivers.clock, metrics, silentLogger).check();
      expect(await check(other)).toEqual([]);
      const own = { ...other, name: 'sent', fullName: `${schema}.sent` };
      expect(await check(own)).toEqual([{ slot, retained: expect.any(Number) as number }]);
      const watch = new IdleSlots(pool, own, drivers.clock, metrics, silentLogger);
      await watch.check();
      await dropSlots(pool, schema);
      expect(await watch.check()).toEqual([]);
      expect(retained.value(retained.series(slot))).toBe(0);
    } finally {
      await service.close();
      await dropSlots(pool, schema);
    }
  });
});

describe('topic of a relay', () => {
  /** Driver that notes the topics that its clients create. */
  const noting = (asked: TopicSpec[]): BrokerDriver => ({
    ...drivers.broker,
    admin: async (options) => {
      const admin = await drivers.broker.admin(options);
      const create = admin.createTopics.bind(admin);
      admin.createTopics = (specs) => {
        asked.push(...specs);
        return create(specs);
      };
      return admin;
    },
  });

  it('a relay creates its topic with three replicas, or one for each broker, unless the service sets otherwise', async () => {
    const { schema } = await inboxWorld();
    const asked: TopicSpec[] = [];
    const service = await serviceIn(schema, { broker: noting(asked) });
    try {
      for (const outboxTable of ['sent', 'other', 'last']) await service.migrate([], { outboxTable });
      await service.relay({ table: 'sent', topic: `${schema}.sent` });
      const createTopic = { partitions: 2, replicationFactor: 1 };
      await service.relay({ table: 'other', topic: `${schema}.other`, createTopic });
      const config = expect.objectContaining({ 'retention.ms': '86400000' });
      expect(asked).toEqual([
        { topic: `${schema}.sent`, partitions: 4, replicationFactor: 0, config },
        { topic: `${schema}.other`, ...createTopic, config },
      ]);
      await expect(
        service.relay({ table: 'last', topic: `${schema}.last`, createTopic: false }),
      ).rejects.toThrow(`the topic ${schema}.last does not exist`);
      expect(asked).toHaveLength(2);
    } finally {
      await service.close();
    }
  });
});

describe('waker', () => {
  it('a waker lets the relay publish a commit hours before its next poll', async () => {
    const { schema, pool } = await inboxWorld();
    const metrics = new Metrics();
    const service = await serviceIn(schema, { metrics, wake: await openWake() });
    try {
      await service.migrate([], { outboxTable: 'sent' });
      await service.relay({ table: 'sent', topic: `${schema}.events`, pollIntervalMs: 4 * 3_600_000 });
      const waker = await service.waker('sent');
      await service.pool.transaction((tx) =>
        append(tx, 'sent', [{ aggregateId: v4(), eventType: 'made.v1', payload: { n: 1 } }]),
      );
      waker.wake();
      await until('the row to be marked', async () => {
        const { rowCount } = await pool.query('SELECT FROM sent WHERE published_at IS NOT NULL');
        return rowCount === 1 || undefined;
      });
      expect(metrics.counter('relay_wakes_total', '').value()).toBeGreaterThan(0);
      await expect(service.waker('absent')).rejects.toMatchObject({ code: 'tables_missing' });
    } finally {
      await service.close();
    }
  });
});

describe('payload that is not JSON', () => {
  const insert = (pool: SqlPool, key: string, payload: string) =>
    pool.query(
      `INSERT INTO sent (aggregate_id, msg_id, event_type, payload) VALUES ($1::uuid, gen_random_uuid(), 'made.v1', $2::bytea)`,
      [key, bytes(payload)],
    );

  it('the outbox table refuses a payload that is not JSON, for every writer', async () => {
    const { schema, pool } = await inboxWorld();
    const service = await serviceIn(schema);
    await service.migrate([], { outboxTable: 'sent' });
    await service.close();
    await insert(pool, v4(), '{"n": "\\u0000 é"}');
    for (const payload of ['', 'n=1', '{"n":1', '\ufeff{}'])
      await expect(insert(pool, v4(), payload), payload).rejects.toMatchObject({ code: 'sql_failed' });
  });

  it('the relay makes a row whose payload is not JSON a dead letter, and publishes the later rows of its key', async () => {
    const { schema, pool } = await inboxWorld();
    await pool.query(outboxTableSql('sent'));
    const [broken, other] = [v4(), v4()];
    for (const [key, payload] of [
      [broken, '1'],
      [broken, '{"n":1},"msg_id":"forged"'],
      [broken, '2'],
      [other, '3'],
    ] as const)
      await insert(pool, key, payload);
    const metrics = new Metrics();
    const service = await serviceIn(schema, { metrics });
    try {
      await service.relay({ table: 'sent', topic: `${schema}.events`, rescanMs: 100 });
      await until('no pending row', async () => {
        const { rowCount } = await pool.query('SELECT FROM sent WHERE published_at IS NULL');
        return rowCount === 0 || undefined;
      });
      const { rows } = await pool.query(
        `SELECT outbox, aggregate_id::text AS key, convert_from(payload, 'UTF8') AS payload, reason FROM relay_dead_letters`,
      );
      expect(rows).toEqual([
        {
          outbox: `${schema}.sent`,
          key: broken,
          payload: '{"n":1},"msg_id":"forged"',
          reason: 'payload_not_json',
        },
      ]);
      expect(metrics.counter('relay_published_total', '').value()).toBe(3);
      // Once repaired and pending again, the row is published like any other row.
      await pool.query(`UPDATE sent SET payload = '{"n":1}', published_at = NULL WHERE id = 2`);
      await until('no pending row', async () => {
        const { rowCount } = await pool.query('SELECT FROM sent WHERE published_at IS NULL');
        return rowCount === 0 || undefined;
      });
      expect(metrics.counter('relay_published_total', '').value()).toBe(4);
    } finally {
      await service.close();
    }
  });
});
