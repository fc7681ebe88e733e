/** `millrace reconcile` on the tables of a user: an outbox and an inbox of the library, and tables
 *  with other names, types of ids and databases. */
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { append } from '../../src/outbox/append/events.ts';
import { outboxTableSql } from '../../src/outbox/append/table.ts';
import { Inbox } from '../../src/outbox/inbox/once.ts';
import { inboxTableSql } from '../../src/outbox/inbox/table.ts';
import { libraryPair } from '../../src/outbox/reconcile/pairs/config.ts';
import { comparePairs } from '../../src/outbox/reconcile/pairs/run.ts';
import { isTimelessSql, uuidTimeSql } from '../../src/outbox/reconcile/pairs/side.ts';
import { connectPool, ownDatabase } from '../fixtures/database.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { realClock } from '../wait.ts';
import {
  AGE_MS,
  classesOf,
  createTable,
  faultyTables,
  found,
  idAt,
  reconciled,
  store,
} from './reconcile-kit.ts';

const own = launcher();
const { postgres } = await sharedStack();
const schema = `reconcile_pairs_${own.suffix}`;
const weird = `"Weird ""${own.suffix}"`;
let pool: SqlPool;
let other: SqlPool;
let otherUrl: string;

beforeAll(async () => {
  otherUrl = await ownDatabase(postgres, `reconcile_inbox_${own.suffix}`);
  pool = await connectPool(postgres);
  other = await connectPool(otherUrl);
  await pool.query(`CREATE SCHEMA ${schema}; CREATE SCHEMA ${weird}`);
  await pool.query(outboxTableSql(`${schema}.outbox`) + inboxTableSql(`${schema}.inbox`));
});
afterAll(async () => {
  await pool.query(`DROP SCHEMA ${schema} CASCADE; DROP SCHEMA ${weird} CASCADE`);
  await other.close();
  await pool.query(`DROP DATABASE reconcile_inbox_${own.suffix} WITH (FORCE)`);
  await pool.close();
});

const flags = [`-postgres=${postgres}`, '-json'];
const tables = [`-outbox-table=${schema}.outbox`, `-inbox-table=${schema}.inbox`];

describe('an outbox and an inbox of the library', () => {
  const events = (count: number) =>
    Array.from({ length: count }, () => ({
      aggregateId: idAt(Date.UTC(2026, 0, 1)),
      eventType: 'parcel.sent.v1',
      payload: { ok: true },
    }));
  beforeEach(() => pool.query(`TRUNCATE ${schema}.outbox, ${schema}.inbox`));
  const inbox = new Inbox(`${schema}.inbox`);
  const sent = (count: number) => pool.transaction((tx) => append(tx, `${schema}.outbox`, events(count)));
  const processed = (ids: readonly string[]) => pool.transaction((tx) => inbox.claim(tx, ids));
  const published = () => pool.query(`UPDATE ${schema}.outbox SET published_at = now()`);

  it('messages that were processed once hold, and each fault is named with its id', async () => {
    const ids = await sent(50);
    await processed(ids);
    await published();
    const clean = await reconciled([...flags, ...tables]);
    expect(clean.errors).toEqual([]);
    expect(clean.code).toBe(0);
    expect(JSON.parse(clean.stdout)).toMatchObject({
      holds: true,
      pairs: [{ pair: 'outbox_inbox', left: 50, right: 50, matched: 50, extra: 0, comparisons: 1 }],
    });

    const [lost, ghost] = [ids[7] as string, idAt(Date.UTC(2026, 5, 1))];
    await pool.query(`DELETE FROM ${schema}.inbox WHERE msg_id = $1::uuid`, [lost]);
    await processed([ghost]);
    const [pending] = await sent(1);
    await processed([pending as string]);
    const broken = await reconciled([...flags, ...tables, '-settle=0']);
    expect(broken.code).toBe(1);
    expect(found(broken.stdout)).toEqual({
      inbox_without_outbox: [ghost],
      outbox_without_inbox: [lost],
      pending_outbox: [pending],
    });
    const text = await reconciled([`-postgres=${postgres}`, ...tables, '-settle=0', '-ids=0']);
    expect(text.stdout).toContain('  outbox_without_inbox: 1, ');
    expect(text.stdout).toContain('    and 1 more');
    expect(text.stdout).toContain('The invariant is broken');
  });

  it('a message in flight is compared again after the settle window, and one that came late is listed', async () => {
    const [first] = await sent(1);
    await published();
    const waits: number[] = [];
    const [result] = await comparePairs({
      pools: { left: pool, right: pool },
      pairs: [libraryPair(`${schema}.outbox`, `${schema}.inbox`)],
      idsMax: 5,
      settleMs: 600_000,
      lateAfterMs: 1000,
      wait: async (ms) => {
        waits.push(ms);
        await processed([first as string]);
        await pool.query(`UPDATE ${schema}.inbox SET processed_at = now() + interval '30 seconds'`);
        // Messages that begin meanwhile are younger than the comparison.
        await sent(3);
      },
    });
    expect(waits).toHaveLength(1);
    expect(result).toMatchObject({
      holds: true,
      comparisons: 2,
      late: { class: 'late', count: 1, ids: [first] },
    });
  });

  it('messages older than the oldest row of the inbox have expired, unless keep says otherwise', async () => {
    const ids = await sent(3);
    await published();
    await pool.query(
      `UPDATE ${schema}.outbox SET created_at = now() - interval '2 hours' WHERE msg_id = $1::uuid`,
      [ids[0] as string],
    );
    await pool.query(
      `UPDATE ${schema}.outbox SET created_at = now() - interval '10 minutes' WHERE msg_id = $1::uuid`,
      [ids[1] as string],
    );
    await processed([ids[2] as string]);
    await pool.query(`UPDATE ${schema}.inbox SET processed_at = now() - interval '1 hour'`);
    const expired = await reconciled([...flags, ...tables, '-settle=0', '-late-after=0']);
    expect(found(expired.stdout)).toEqual({ outbox_without_inbox: [ids[1]] });
    const path = join(own.dir, 'keep.json');
    const pair = { name: 'kept', outbox: { table: `${schema}.outbox` }, inbox: { table: `${schema}.inbox` } };
    writeFileSync(path, JSON.stringify({ pairs: [{ ...pair, keep: '3h' }] }));
    const kept = await reconciled([...flags, `-pairs=${path}`, '-settle=0']);
    expect(found(kept.stdout)).toEqual({ outbox_without_inbox: [ids[0], ids[1]].sort() });
  });
});

describe('tables of a user', () => {
  const path = join(own.dir, 'pairs.json');
  const uuids = Array.from({ length: 200 }, (_, n) =>
    n % 3 === 0 ? idAt(realClock.wallNowMs() - AGE_MS + n) : randomUUID(),
  );
  const kinds = [
    ['uuid', 'uuid', (n: number) => uuids[n] as string],
    ['Int', 'bigint', (n: number) => String(n * 7 - 60)],
    ['Text', 'text', (n: number) => `é;'"${n}`],
  ] as const;

  it.each(kinds)(
    'the classes of ids of kind %s equal those of an oracle, in one database and in two',
    async (kind, type, idOf) => {
      const outbox = `${weird}."Out ""${kind}"`;
      const inbox = `${weird}."In ""${kind}"`;
      await createTable(pool, outbox, type);
      await createTable(pool, inbox, type);
      await other.query(`CREATE SCHEMA IF NOT EXISTS ${weird}`);
      await createTable(other, inbox, type);
      const columns = { id: '"Msg Id"', time: '"At"', value: '"Cents"' };
      writeFileSync(
        path,
        JSON.stringify({
          pairs: [
            {
              name: 'shop',
              outbox: { table: outbox, ...columns, state: '"Sent"' },
              inbox: { table: inbox, ...columns },
              keep: '24h',
            },
          ],
        }),
      );
      await fc.assert(
        fc.asyncProperty(faultyTables(idOf), fc.boolean(), fc.boolean(), async (rows, isTwo, hasRange) => {
          const right = isTwo ? other : pool;
          await store(pool, right, rows, { outbox, inbox });
          const { code, stdout, errors } = await reconciled([
            ...flags,
            `-pairs=${path}`,
            ...(isTwo ? [`-inbox-postgres=${otherUrl}`] : []),
            ...(hasRange ? ['-settle=1ms', '-from=2026-01-01T00:00:00Z'] : ['-settle=0']),
          ]);
          const expected = classesOf(rows);
          expect(errors).toEqual([]);
          expect(found(stdout)).toEqual(expected);
          expect(code).toBe(Object.keys(expected).length === 0 ? 0 : 1);
        }),
        { numRuns: 15 },
      );
    },
    300_000,
  );

  it('a message that stands twice on both sides is found, though the digests are equal', async () => {
    const [outbox, inbox] = [`${schema}.twice_out`, `${schema}.twice_in`];
    for (const table of [outbox, inbox]) await createTable(pool, table, 'uuid');
    // Ids whose time is that of their rows: no row may be late, so nothing else leads to a merge.
    const ids = [1, 2, 3].map((n) => idAt(realClock.wallNowMs() - AGE_MS + n));
    const twice = ids[1] as string;
    for (const table of [outbox, inbox])
      for (const id of [...ids, twice])
        await pool.query(
          `INSERT INTO ${table} SELECT $1::uuid, ${uuidTimeSql('$1::uuid', 160_000)}, now(), 5`,
          [id],
        );
    const columns = { id: '"Msg Id"', time: '"At"', value: '"Cents"' };
    const pair = {
      name: 'twice',
      outbox: { table: outbox, ...columns },
      inbox: { table: inbox, ...columns },
    };
    writeFileSync(path, JSON.stringify({ pairs: [{ ...pair, keep: '24h' }] }));
    const doubled = await reconciled([...flags, `-pairs=${path}`, '-settle=0']);
    expect(doubled.errors).toEqual([]);
    expect(found(doubled.stdout)).toEqual({ double_inbox: [twice], double_outbox: [twice] });
    expect(doubled.code).toBe(1);
    for (const table of [outbox, inbox])
      await pool.query(`DELETE FROM ${table} WHERE ctid = (SELECT max(ctid) FROM ${table})`);
    await pool.query(`CREATE UNIQUE INDEX ON ${inbox} ("Msg Id")`);
    const clean = await reconciled([...flags, `-pairs=${path}`, '-settle=0']);
    expect([clean.errors, found(clean.stdout), clean.code]).toEqual([[], {}, 0]);
  });

  it('a table, column or type that cannot be compared is one error that names it', async () => {
    await pool.query(
      `CREATE TABLE ${schema}.odd (id uuid, name text, at timestamptz, plain timestamp, cents numeric)`,
    );
    const outbox = { table: `${schema}.odd`, id: 'id', time: 'at' };
    const cases = [
      [{ ...outbox, table: `${schema}.none` }, /no table .*none/, 3],
      [{ ...outbox, id: 'msg' }, /has no column msg/, 2],
      [{ ...outbox, time: 'plain' }, /times of type timestamp/, 2],
      [{ ...outbox, id: 'cents' }, /ids of type numeric/, 2],
      [{ ...outbox, id: 'name' }, /the ids of pair shop are text .* and uuid/, 2],
      [{ ...outbox, value: 'cents' }, /values of type numeric/, 2],
      [{ ...outbox, order: 'name' }, /ordered by a column of type text/, 2],
      [{ ...outbox, table: 'odd; DROP TABLE x' }, /is not the name of a table/, 2],
    ] as const;
    for (const [side, message, exit] of cases) {
      writeFileSync(
        path,
        JSON.stringify({ pairs: [{ name: 'shop', outbox: side, inbox: { table: `${schema}.inbox` } }] }),
      );
      const { code, errors } = await reconciled([...flags, `-pairs=${path}`]);
      expect(errors).toHaveLength(1);
      expect(errors[0]).toMatch(message);
      expect(code, errors[0]).toBe(exit);
    }
    const missing = await reconciled([...flags, `-pairs=${join(own.dir, 'none.json')}`]);
    expect(missing.code).toBe(2);
    expect(missing.errors.join()).toContain('cannot read the pairs');
  });
});

it('the time in an id is read alike by the functions of PostgreSQL 17 and by those of older servers', async () => {
  const ids = [
    ...Array.from({ length: 20 }, (_, n) => idAt(n * 86_400_000 * 777 + n)),
    randomUUID(),
    randomUUID(),
  ];
  const { rows } = await pool.query(
    `SELECT id::text AS id FROM unnest($1::uuid[]) AS id
     WHERE ${uuidTimeSql('id', 150_000)} IS DISTINCT FROM ${uuidTimeSql('id', 180_000)}
       OR (${isTimelessSql('id', 150_000)}) IS DISTINCT FROM (${isTimelessSql('id', 180_000)})
       OR (${isTimelessSql('id', 180_000)}) = (${uuidTimeSql('id', 180_000)} IS NOT NULL)`,
    [ids],
  );
  expect(rows).toEqual([]);
});
