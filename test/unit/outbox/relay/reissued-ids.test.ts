/** Ids that the database gives out again after it lost transactions: a row is known by its id and
 *  its msg_id, and a further connection is the sign of a loss. */
import { describe, expect, it } from 'vitest';
import type { Timers } from '../../../../src/core/clock.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import type { SqlPool } from '../../../../src/io/postgres/sql/port.ts';
import { InFlight } from '../../../../src/outbox/relay/pipeline/in-flight.ts';
import { Marker } from '../../../../src/outbox/relay/pipeline/marker.ts';
import { DoubtfulRows } from '../../../../src/outbox/relay/poll/doubtful-rows.ts';
import { RestartDetector } from '../../../../src/outbox/relay/poll/restart-detector.ts';
import { describeOutbox, type OutboxRow } from '../../../../src/outbox/relay/store.ts';
import { VirtualClock } from '../../../../src/sim/clock.ts';
import { OutboxDatabase } from '../../../property/relay-world/database.ts';
import { SimProcess } from '../../../property/relay-world/process.ts';
import { until } from '../../../wait.ts';

const SHARDS = 4;
const row = (id: bigint, message: number): OutboxRow => ({
  id,
  aggregateId: '00000000-0000-4000-8000-000000000001',
  msgId: `01930000-0000-7000-8000-00000000000${message}`,
  eventType: 't',
  payload: Buffer.from('{}'),
  createdAt: new Date(0),
});

async function scene() {
  const database = new OutboxDatabase({
    nowMs: () => 0,
    after: () => () => {},
    delay: async () => {},
    isLost: () => false,
    onMark: () => {},
    onStatement: () => {},
    hasSequence: true,
  });
  let connections = 0;
  const pool: SqlPool = await database.driver(new SimProcess(new VirtualClock())).connect({
    url: 'postgres://simulated',
    connectionsMax: 1,
    applicationName: 'reissued',
    connectTimeoutMs: 1,
    onConnect: () => {
      connections++;
    },
  });
  const insert = (one: OutboxRow): void => {
    database.rows.insert(one);
    database.rows.show(one.id);
  };
  return { database, pool, insert, connections: () => connections };
}

/** Clock whose timers fire immediately, and which is late for nothing. */
const immediate: Timers = {
  wallNowMs: () => 0,
  monotonicMs: () => 0,
  after: (_, run) => {
    queueMicrotask(run);
    return () => {};
  },
  every: () => () => {},
};

describe('rows in flight', () => {
  it('a row with the id of a row in flight and another msg_id is a row of its own', () => {
    const inFlight = new InFlight(SHARDS, { rows: 2, bytes: 1_000_000 });
    const [lost, reissued] = [row(7n, 1), row(7n, 2)];
    inFlight.add(lost, 0);
    expect([inFlight.has(lost), inFlight.has(reissued), inFlight.hasId(7n)]).toEqual([true, false, true]);
    inFlight.add(reissued, 1);
    expect([inFlight.has(lost), inFlight.has(reissued), inFlight.size]).toEqual([true, true, 2]);
    inFlight.remove(lost, 0);
    expect([inFlight.has(lost), inFlight.has(reissued), inFlight.hasId(7n)]).toEqual([false, true, true]);
    expect([inFlight.isShardIdle(0), inFlight.isShardIdle(1)]).toEqual([true, false]);
    // The outcome of a row that is not in flight changes nothing.
    inFlight.remove(lost, 0);
    inFlight.remove(reissued, 1);
    expect([inFlight.size, inFlight.bytes, inFlight.hasId(7n)]).toEqual([0, 0, false]);
  });
});

describe('reissued ids', () => {
  it('the mark of a lost row does not mark the row that got its id, and ends without a wait', async () => {
    const { database, pool, insert } = await scene();
    database.leases.set(0, { owner: 'me', epoch: 1n, topic: null, transactional_id: null, unfenced: [] });
    const [lost, beside, reissued] = [row(7n, 1), row(8n, 3), row(7n, 2)];
    insert(reissued);
    insert(beside);
    const done: string[] = [];
    const metrics = new Metrics();
    const marker = new Marker({
      pool,
      table: await describeOutbox(pool, 'outbox'),
      metrics,
      log: silentLogger,
      clock: immediate,
      rowsMax: 10,
      withinMs: 1,
      missingAfterMs: 30_000,
      crashAt: () => {},
    });
    marker.onDone = (one) => done.push(one.row.msgId);
    for (const one of [lost, beside]) marker.add({ row: one, shard: 0, epoch: 1n });
    await until('both outcomes', () => (done.length === 2 ? true : undefined));
    expect(database.rows.pending.map(({ msgId }) => msgId)).toEqual([reissued.msgId]);
    expect(metrics.counter('relay_marks_missing_total', '').value()).toBe(1);
    marker.add({ row: reissued, shard: 0, epoch: 1n });
    await until('the mark of the row', () => (done.length === 3 ? true : undefined));
    expect(database.rows.pending).toEqual([]);
  });
});

describe('doubtful rows', () => {
  it('a row is doubtful until the table shows it or no unsettled read has it, and its id as long as any of its rows is', () => {
    const doubtful = new DoubtfulRows();
    const [lost, shown, again] = [row(7n, 1), row(8n, 2), row(7n, 3)];
    for (const one of [lost, shown, again]) doubtful.add(one);
    doubtful.remove(shown);
    doubtful.remove(row(7n, 4));
    expect([doubtful.has(7n), doubtful.has(8n), doubtful.size]).toEqual([true, false, 1]);
    // Another read has the row in flight.
    doubtful.settled([lost], [[lost, shown]]);
    doubtful.settled([again], []);
    expect(doubtful.has(7n)).toBe(true);
    doubtful.settled([lost, shown], []);
    expect([doubtful.has(7n), doubtful.size]).toEqual([false, 0]);
  });
});

describe('restart detector', () => {
  it('a further connection is a loss unless a session from before still exists', async () => {
    const { database, pool, connections } = await scene();
    let extra = 0;
    const detector = new RestartDetector(pool, () => connections() + extra);
    // Before the first check every answer is doubtful.
    expect([detector.isDue(), await detector.mayHaveLost(), detector.isDue()]).toEqual([true, true, false]);
    expect(await detector.mayHaveLost()).toBe(false);
    extra++;
    expect([detector.isDue(), await detector.mayHaveLost(), detector.isDue()]).toEqual([true, false, false]);
    database.crash([]);
    // The next statement opens a connection.
    await pool.query('SET LOCAL x');
    expect([detector.isDue(), await detector.mayHaveLost(), detector.isDue()]).toEqual([true, true, false]);
  });

  it('a connection that is opened by the check itself makes another check due', async () => {
    const { database, pool, connections } = await scene();
    const detector = new RestartDetector(pool, connections);
    await detector.mayHaveLost();
    database.crash([]);
    expect(detector.isDue()).toBe(false);
    await pool.query('SET LOCAL x');
    database.crash([]);
    // This check reaches the second server.
    expect(await detector.mayHaveLost()).toBe(true);
    expect([detector.isDue(), await detector.mayHaveLost(), detector.isDue()]).toEqual([true, false, false]);
  });

  it('no check is due while the number of connections is not known', async () => {
    const { pool } = await scene();
    const detector = new RestartDetector(pool);
    expect([detector.isDue(), await detector.mayHaveLost()]).toEqual([false, false]);
  });
});
