/** Claims on a real database: each id of any version is claimed once, within the caller's
 *  transaction, with any number of concurrent callers. */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { migrate } from '../../src/outbox/database/migrations.ts';
import { Inbox, once } from '../../src/outbox/inbox/once.ts';
import { dropPartitions } from '../../src/outbox/inbox/retention/partitions.ts';
import { inboxTableSql } from '../../src/outbox/inbox/table.ts';
import { migrationsOf } from '../../src/shell/migrations.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { realClock } from '../wait.ts';
import { gated, HOUR_MS, idAt, inboxWorld, settledOrBlocked, T0, v4 } from './inbox-kit.ts';

const world = await inboxWorld(24);
const inbox = new Inbox();
const claim = (ids: readonly string[]) => world.pool.transaction((session) => inbox.claim(session, ids));
const rowsOf = async (ids: readonly string[]): Promise<number> =>
  (await world.pool.query('SELECT FROM inbox WHERE msg_id = ANY ($1::uuid[])', [[...ids]])).rowCount;
const codeOf = async (work: Promise<unknown>): Promise<string | undefined> =>
  work.then(
    () => undefined,
    (thrown) => findMillraceError(thrown)?.code ?? String(thrown),
  );

const NIL = '00000000-0000-0000-0000-000000000000';
const MAX = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

describe('ids of every version', () => {
  const ids = [
    idAt(T0 + 1),
    idAt(T0 + 25 * HOUR_MS),
    idAt(0),
    idAt(Date.UTC(2100, 0, 1)),
    ...['1', '4', '6', '8'].flatMap((version) => [idAt(T0 + 2, version), idAt(2 ** 47, version)]),
    v4(),
    NIL,
    MAX,
  ];

  it('ids of every version are unseen once, then seen', async () => {
    const first = await claim(ids);
    expect([...first.unseen].sort()).toEqual([...ids].sort());
    expect(first.seen.size + first.undecidable.size).toBe(0);
    const again = await claim([...ids, ...ids]);
    expect([...again.seen].sort()).toEqual([...ids].sort());
    expect(again.unseen.size + again.undecidable.size).toBe(0);
    expect(await rowsOf(ids)).toBe(ids.length);
  });

  it('UUIDv7 ids are stored by their time, and other ids where they sort', async () => {
    const { rows } = await world.pool.query<{ id: string; part: string }>(
      'SELECT msg_id::text AS id, tableoid::regclass::text AS part FROM inbox WHERE msg_id = ANY ($1::uuid[])',
      [ids],
    );
    const part = new Map(rows.map((row) => [row.id, row.part]));
    expect(part.get(ids[0] as string)).toBe('inbox_20260601_000000');
    expect(part.get(ids[1] as string)).toBe('inbox_default');
    expect(part.get(ids[2] as string)).toBe('inbox_low');
    expect(part.get(ids[3] as string)).toBe('inbox_high');
    expect([part.get(NIL), part.get(MAX)]).toEqual(['inbox_low', 'inbox_high']);
  });
});

describe('refused claims', () => {
  it.each([
    ['an upper-case id', [idAt(T0).toUpperCase()]],
    ['a text that is no UUID', [v4(), `x'; DROP TABLE inbox; --`]],
    ['an id with braces', [`{${v4()}}`]],
    ['a number', [7 as unknown as string]],
    ['null', [null as unknown as string]],
    ['too many ids', Array.from({ length: 100_001 }, () => NIL)],
  ])('a claim refuses %s before it writes', async (_, ids) => {
    expect(await codeOf(claim(ids))).toBe('bad_message_id');
  });

  it('a claim refuses a connection without an open transaction', async () => {
    const client = await world.client();
    const id = v4();
    expect(await codeOf(inbox.claim(client, [id]))).toBe('not_in_transaction');
    expect(await codeOf(inbox.claim(world.pool, [id]))).toBe('not_in_transaction');
    expect(await rowsOf([id])).toBe(0);
  });

  it.each([
    'Inbox',
    'inbox; DROP TABLE charges',
    '"inbox"',
    'a.b.c',
    'in box',
    '',
    'x'.repeat(41),
    "inbox'",
    'inbox\n',
  ])('an inbox refuses the table name %j', (name) => {
    expect(() => new Inbox(name)).toThrowError(expect.objectContaining({ code: 'bad_table_name' }));
    expect(() => inboxTableSql(name)).toThrowError(expect.objectContaining({ code: 'bad_table_name' }));
  });
});

describe('once', () => {
  it('the once function commits the effect with its row, through a client of the pg package', async () => {
    const client = await world.client();
    const id = idAt(T0 + 77);
    let calls = 0;
    const effect = async (): Promise<number> => ++calls;
    for (const expected of [{ kind: 'done', value: 1 }, { kind: 'seen' }]) {
      await client.query('BEGIN');
      expect(await once(client, id, effect)).toEqual(expected);
      await client.query('COMMIT');
    }
    expect(calls).toBe(1);
  });

  it('the once function leaves no row when the transaction rolls back', async () => {
    const client = await world.client();
    const id = v4();
    await client.query('BEGIN');
    await once(client, id, async () => {});
    await client.query('ROLLBACK');
    expect(await rowsOf([id])).toBe(0);
  });

  it('the once function aborts the transaction of an effect that throws, even for a caller who commits', async () => {
    const client = await world.client();
    const id = v4();
    await client.query('BEGIN');
    await expect(once(client, id, () => Promise.reject(new Error('no stock')))).rejects.toThrow('no stock');
    expect((await client.query('COMMIT')).command).toBe('ROLLBACK');
    expect(await rowsOf([id])).toBe(0);
  });

  it('the once function accepts a table of any name and schema', async () => {
    await world.pool.query(inboxTableSql('parcels_seen'));
    const table = `${world.schema}.parcels_seen`;
    const id = v4();
    const run = (): Promise<string> =>
      world.pool.transaction(async (session) => (await once(session, id, async () => {}, table)).kind);
    expect([await run(), await run()]).toEqual(['done', 'seen']);
    expect(await rowsOf([id])).toBe(0);
  });
});

describe('concurrent transactions with the same ids', () => {
  it.each([
    ['commits', 'seen'],
    ['rolls back', 'unseen'],
  ] as const)(
    'a first transaction that %s makes the second transaction find the ids %s',
    async (end, expected) => {
      const ids = [idAt(T0 + 5), v4(), idAt(T0 + 90 * HOUR_MS)];
      const first = await world.client();
      await first.query('BEGIN');
      expect((await inbox.claim(first, ids)).unseen.size).toBe(3);
      let isDone = false;
      const second = claim([...ids].reverse()).finally(() => {
        isDone = true;
      });
      expect(await settledOrBlocked(world, () => isDone)).toBe('blocked');
      await first.query(end === 'commits' ? 'COMMIT' : 'ROLLBACK');
      const found = await second;
      expect((expected === 'seen' ? found.seen : found.unseen).size).toBe(3);
    },
  );

  it('two transactions with the same ids never deadlock, and apply each id once', async () => {
    const ids = Array.from({ length: 400 }, (_, i) => (i % 3 === 0 ? v4() : idAt(T0 + i)));
    const effects = new Map<string, number>();
    const worker = async (seed: number): Promise<void> => {
      for (let turn = 0; turn < 8; turn++) {
        const mine = ids.filter((_, i) => (i * 7 + turn * 13 + seed) % 3 !== 0);
        // In opposite orders, so that unsorted claims would wait for each other.
        if (seed % 2 === 1) mine.reverse();
        const done = await world.pool.transaction((session) => inbox.claim(session, mine));
        for (const id of done.unseen) effects.set(id, (effects.get(id) ?? 0) + 1);
      }
    };
    await Promise.all([worker(0), worker(1), worker(2), worker(3)]);
    expect([...effects.values()].filter((count) => count !== 1)).toEqual([]);
    expect(effects.size).toBe(ids.length);
  });
});

describe('dropped hour', () => {
  const hourMs = T0 + 20 * HOUR_MS;
  const seen = idAt(hourMs + 1);
  const neverSeen = idAt(hourMs + 2);
  const other = idAt(hourMs + 3, '4');
  const wrongVariant = `${idAt(hourMs + 4).slice(0, 19)}c${idAt(hourMs + 4).slice(20)}`;
  const younger = idAt(hourMs + HOUR_MS);
  const ancient = idAt(0);

  it('a dropped hour makes its UUIDv7 ids undecidable, and no other id', async () => {
    await claim([seen, other, wrongVariant]);
    const dropped = await world.pool.transaction((session) =>
      dropPartitions(session, inbox.names, hourMs + HOUR_MS),
    );
    expect(dropped.movedRows).toBeGreaterThanOrEqual(2);
    for (let more = 1; more > 0; ) {
      more = (
        await world.pool.transaction((session) => dropPartitions(session, inbox.names, hourMs + HOUR_MS))
      ).partitions;
    }
    const found = await claim([seen, neverSeen, other, wrongVariant, younger, ancient]);
    expect([...found.undecidable].sort()).toEqual([seen, neverSeen, ancient].sort());
    expect([...found.seen].sort()).toEqual([other, wrongVariant].sort());
    expect([...found.unseen]).toEqual([younger]);
    expect(await rowsOf([seen, neverSeen])).toBe(0);
  });

  it('an inbox without a floor reports the ids of a dropped hour as unseen', async () => {
    const unsafe = inbox.withoutFloor();
    const found = await world.pool.transaction((session) => unsafe.claim(session, [seen]));
    expect([...found.unseen]).toEqual([seen]);
  });

  it('the once function reports an id of a dropped hour as undecidable, and does not call the effect', async () => {
    const run = world.pool.transaction((session) =>
      once(session, neverSeen, () => Promise.reject(new Error('called'))),
    );
    expect(await run).toEqual({ kind: 'undecidable' });
  });

  it('a claim of ids in existing hours does not read the floor', async () => {
    const texts: string[] = [];
    await world.pool.transaction((session) =>
      inbox.claim(
        gated(session, async (_, text) => void texts.push(text)),
        [idAt(hourMs + 2 * HOUR_MS), v4()],
      ),
    );
    expect(texts).toHaveLength(1);
  });
});

describe('lost floor', () => {
  it('a floor that lost its row is an error, never a floor of zero', async () => {
    const other = await inboxWorld();
    await other.pool.query('DELETE FROM inbox_floor');
    const late = other.pool.transaction((session) => inbox.claim(session, [idAt(T0)]));
    expect(await codeOf(late)).toBe('tables_missing');
  });
});

describe('migration of payments', () => {
  const sql = migrationsOf('payments');

  it('the migration of payments creates an inbox as inboxTableSql does', () => {
    const text = readFileSync(join(packageRoot(), 'src/outbox/payments/sql/0002-inbox-by-time.sql'), 'utf8');
    expect(text).toContain(inboxTableSql('inbox'));
  });

  it('the migration of payments keeps every row of an unpartitioned inbox', async () => {
    const { pool, schema } = await inboxWorld(0, 'another');
    await migrate(pool, schema, 'payments', sql.slice(0, 1));
    const now = realClock.wallNowMs();
    const ids = [
      ...Array.from({ length: 300 }, (_, i) => idAt(now - i * 60_000)),
      ...Array.from({ length: 300 }, () => randomUUID()),
      idAt(now - 400 * 24 * HOUR_MS),
      idAt(now, '4'),
      NIL,
      MAX,
    ];
    await pool.query(
      `INSERT INTO inbox (msg_id, processed_at) SELECT id, '2026-03-04 05:06:07.891Z' FROM unnest($1::uuid[]) AS given(id)`,
      [ids],
    );
    await migrate(pool, schema, 'payments', sql);
    const { rows } = await pool.query<{ id: string }>(
      `SELECT msg_id::text AS id FROM inbox WHERE processed_at = '2026-03-04 05:06:07.891Z' ORDER BY 1`,
    );
    expect(rows.map((row) => row.id)).toEqual([...ids].sort());
    const { rows: strays } = await pool.query<{ id: string }>(
      `SELECT msg_id::text AS id FROM inbox WHERE tableoid = 'inbox_default'::regclass AND msg_id = ANY ($1::uuid[])`,
      [ids.slice(0, 300)],
    );
    expect(strays).toEqual([]);
    const found = await pool.transaction((session) => inbox.claim(session, ids));
    expect(found.seen.size).toBe(ids.length);
  });

  it('a row can be inserted by hand with only the columns of the requirements', async () => {
    await world.pool.query('INSERT INTO inbox (msg_id) VALUES ($1)', [v4()]);
  });
});
