/** Each partition is created or dropped in its own transaction: a committed change counts, whether
 *  or not the next one fails. */
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { type SqlPool, type SqlRow, type SqlSession, sqlError } from '../../../src/io/postgres/sql/port.ts';
import { inboxNames } from '../../../src/outbox/inbox/names.ts';
import { InboxKeeper } from '../../../src/outbox/inbox/retention/keeper.ts';
import { Maintenance } from '../../../src/outbox/orders/write/maintenance.ts';

const busy = () =>
  sqlError('sql_failed', 'canceling statement due to lock timeout', { details: { sqlstate: '55P03' } });

/** Answers a statement by a part of its text; the first match counts. */
function poolOf(answers: ReadonlyArray<readonly [string, (text: string) => readonly SqlRow[]]>): SqlPool {
  const session = {
    query: async (text: string) => {
      const rows = answers.find(([part]) => text.includes(part))?.[1](text) ?? [];
      return { rows, rowCount: rows.length };
    },
  } as unknown as SqlSession;
  return {
    ...session,
    transaction: (work: (session: SqlSession) => Promise<unknown>) => work(session),
  } as unknown as SqlPool;
}

/** Succeeds `times` times, then fails. */
function only(times: number): () => readonly SqlRow[] {
  let left = times;
  return () => {
    if (left-- === 0) throw busy();
    return [];
  };
}

const totals = (metrics: Metrics, name: string): number =>
  metrics
    .snapshot()
    .find((one) => one.name === name)
    ?.samples.reduce((sum, one) => sum + (one.value ?? 0), 0) ?? Number.NaN;

function recorder() {
  const said: unknown[] = [];
  const say = (fields: unknown): void => void said.push(fields);
  return { said, log: { ...silentLogger, info: say, debug: say } };
}

describe('outbox maintenance', () => {
  it('the maintenance counts and reports the partitions changed before a lock was unavailable', async () => {
    const range = (from: number) => ({
      name: `outbox_p${from}`,
      bound: `FOR VALUES FROM ('${from}') TO ('${from + 10}')`,
    });
    const there = [0, 10, 20].map(range);
    const attach = only(2);
    const pool = poolOf([
      ['pg_try_advisory_xact_lock', () => [{ mine: true }]],
      ['outbox_id_seq', () => [{ last: 35n }]],
      ['EXISTS', () => [{ unmarked: false, recent: false }]],
      ['DROP TABLE', only(1)],
      [
        'ATTACH PARTITION',
        (text) => {
          attach();
          const from = Number(/FROM \((\d+)\)/.exec(text)?.[1]);
          there.push(range(from));
          return [];
        },
      ],
      ['pg_inherits', () => there],
    ]);
    const metrics = new Metrics();
    const { said, log } = recorder();
    const maintenance = new Maintenance({
      pool,
      schema: 's',
      partitionRows: 10,
      ahead: 5,
      retentionMs: 0,
      keyTtl: { ms: () => 1000, refresh: async () => {} },
      intervalMs: 5,
      metrics,
      log,
      monotonicMs: () => 0,
      sleep: async () => {},
      drain: new AbortController().signal,
    });
    await maintenance.turn();
    expect(totals(metrics, 'orders_maintenance_errors_total')).toBe(2);
    expect([
      totals(metrics, 'orders_outbox_partitions_made_total'),
      totals(metrics, 'orders_outbox_partitions_dropped_total'),
    ]).toEqual([2, 1]);
    expect(JSON.stringify(said)).toContain('outbox_p0');
    expect(JSON.stringify(said)).toContain('outbox_p60');
  });
});

describe('inbox keeper', () => {
  it('the keeper counts and reports the partitions created before a lock was unavailable', async () => {
    const pool = poolOf([
      ['floor::text', () => [{ floor: '00000000-0000-0000-0000-000000000000' }]],
      ['pg_inherits', () => [{ name: 'inbox_rest', bounds: 'DEFAULT' }]],
      ['count(*)', () => [{ n: 3n }]],
      ['relnamespace', () => [{ schema: 's' }]],
      ['ATTACH PARTITION', only(2)],
    ]);
    const metrics = new Metrics();
    const { said, log } = recorder();
    const keeper = new InboxKeeper({
      pool,
      names: inboxNames('inbox'),
      sources: {
        databaseNowMs: async () => Date.UTC(2026, 0, 2),
        processNowMs: () => Date.UTC(2026, 0, 2),
        // Nothing expires while the topic cannot be read.
        topic: async () => {
          throw sqlError('sql_failed', 'away');
        },
      },
      ttlMs: 5 * 3_600_000,
      parts: { relayOutageMs: 0, consumerOutageMs: 0, clockSkewMs: 0 },
      unsafe: false,
      widthMs: 3_600_000,
      aheadMs: 3_600_000,
      everyMs: 5,
      metrics,
      log,
      drain: new AbortController().signal,
      sleep: async () => {},
    });
    expect((await keeper.turn()).partitionsMade).toBe(2);
    expect([
      totals(metrics, 'inbox_partitions_made_total'),
      totals(metrics, 'inbox_moved_keys_total'),
    ]).toEqual([2, 6]);
    expect(said).toContainEqual(expect.objectContaining({ inbox: 'inbox', partitions: 2, movedRows: 6 }));
  });
});
