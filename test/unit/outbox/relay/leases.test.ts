/** Fencing of owners that went silent: no shard is published before, whatever answer is lost and
 *  whichever relay ends. */
import { describe, expect, it } from 'vitest';
import { coreError } from '../../../../src/core/errors.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import { type SqlPool, sqlError } from '../../../../src/io/postgres/sql/port.ts';
import { Leases } from '../../../../src/outbox/relay/leases.ts';
import { VirtualClock } from '../../../../src/sim/clock.ts';
import { OutboxDatabase } from '../../../property/relay-world/database.ts';
import { SimProcess } from '../../../property/relay-world/process.ts';

const LEASE_MS = 10_000;

async function scene() {
  let nowMs = 0;
  const database = new OutboxDatabase({
    nowMs: () => nowMs,
    // No session idles within its transaction.
    after: () => () => {},
    delay: async () => {},
    isLost: () => false,
    onMark: () => {},
    onStatement: () => {},
    hasSequence: true,
  });
  const pool = await database.driver(new SimProcess(new VirtualClock())).connect({
    url: 'postgres://simulated',
    connectionsMax: 1,
    applicationName: 'leases',
    connectTimeoutMs: 1,
  });
  /** Ids in the order in which they were fenced. */
  const fenced: string[] = [];
  const broker = { isAway: false };
  const fence = async (ids: readonly string[]): Promise<void> => {
    if (broker.isAway) throw coreError('unreachable', 'no broker');
    fenced.push(...ids);
  };
  const relayOf = (relay: string, on: SqlPool = pool, shards = 2): Leases =>
    new Leases({
      pool: on,
      outbox: 'public.outbox',
      shards,
      topic: 'events',
      relay,
      mode: 'poll',
      exclusive: false,
      leaseMs: LEASE_MS,
      clock: { wallNowMs: () => nowMs, monotonicMs: () => nowMs },
      log: silentLogger,
      transactionalId: `id-${relay}`,
      fence,
    });
  /** Pool that loses the answer to the first COMMIT. */
  const losing = (): SqlPool => {
    let isFirst = true;
    return {
      ...pool,
      transaction: async (work) => {
        const value = await pool.transaction(work);
        if (!isFirst) return value;
        isFirst = false;
        throw sqlError('commit_unknown', 'no answer to COMMIT');
      },
    };
  };
  const heartbeat = (leases: Leases): Promise<void> => leases.heartbeat(() => true);
  const pass = (): void => {
    nowMs += 2 * LEASE_MS;
  };
  return { relayOf, pool, losing, heartbeat, pass, fenced, broker };
}

describe('fencing of silent owners', () => {
  it('a silent owner is fenced although the COMMIT of the takeover got no answer', async () => {
    const { relayOf, losing, heartbeat, pass, fenced } = await scene();
    await heartbeat(relayOf('a'));
    pass();
    const taking = relayOf('b', losing());
    await expect(heartbeat(taking)).rejects.toThrow('no answer to COMMIT');
    expect(taking.owned()).toEqual([]);
    await heartbeat(taking);
    expect([taking.owned(), fenced]).toEqual([[0, 1], ['id-a']]);
    await heartbeat(taking);
    expect(fenced).toEqual(['id-a']);
  });

  it('a silent owner is fenced by a later owner if the relay that took its shards ended before', async () => {
    const { relayOf, heartbeat, pass, fenced, broker } = await scene();
    await heartbeat(relayOf('a'));
    pass();
    broker.isAway = true;
    const ended = relayOf('b');
    await expect(heartbeat(ended)).rejects.toThrow('no broker');
    pass();
    broker.isAway = false;
    const later = relayOf('c');
    await heartbeat(later);
    expect([later.owned(), fenced]).toEqual([
      [0, 1],
      ['id-a', 'id-b'],
    ]);
  });

  it('shards that were released before their silent owner was fenced are fenced by the next owner', async () => {
    const { relayOf, heartbeat, pass, fenced, broker } = await scene();
    await heartbeat(relayOf('a'));
    pass();
    broker.isAway = true;
    const leaving = relayOf('b');
    await expect(heartbeat(leaving)).rejects.toThrow('no broker');
    await leaving.leave();
    broker.isAway = false;
    await heartbeat(relayOf('c'));
    expect(fenced).toEqual(['id-a']);
  });

  it('silent owners of shards that no longer exist are fenced too', async () => {
    const { relayOf, pool, heartbeat, pass, fenced } = await scene();
    const [first, second] = [relayOf('a'), relayOf('b')];
    await heartbeat(first);
    await heartbeat(second);
    // The first relay sees that it has too many shards, and releases one, which the second takes.
    for (const one of [first, first, second]) await heartbeat(one);
    expect([first.owned(), second.owned()]).toEqual([[0], [1]]);
    pass();
    const only = relayOf('c', pool, 1);
    await heartbeat(only);
    expect([only.owned(), [...fenced].sort()]).toEqual([[0], ['id-a', 'id-b']]);
  });

  it('a relay that takes its own shards back fences the other owner and not itself', async () => {
    const { relayOf, heartbeat, pass, fenced, broker } = await scene();
    const first = relayOf('a');
    await heartbeat(first);
    pass();
    broker.isAway = true;
    await expect(heartbeat(relayOf('b'))).rejects.toThrow('no broker');
    pass();
    broker.isAway = false;
    await heartbeat(first);
    expect([first.owned(), fenced]).toEqual([[0, 1], ['id-b']]);
    await heartbeat(first);
    expect(fenced).toEqual(['id-b']);
  });
});
