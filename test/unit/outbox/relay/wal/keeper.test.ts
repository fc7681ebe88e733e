/** Background work of a running stream continues while some of it waits for the broker. */
import { describe, expect, it } from 'vitest';
import { Metrics } from '../../../../../src/core/metrics.ts';
import { outboxError } from '../../../../../src/outbox/errors.ts';
import { WalKeeper, type WalKeeperOptions } from '../../../../../src/outbox/relay/wal/keeper.ts';
import { walMetrics } from '../../../../../src/outbox/relay/wal/metrics.ts';
import { turn } from '../../../../wait.ts';

const STATE = {
  activePid: 1,
  walStatus: 'reserved',
  safeWalBytes: undefined,
  confirmed: 0n,
  retainedBytes: 0,
  invalidation: null,
  currentLsn: 0n,
};

function scene(over: { readonly redeliver?: () => Promise<void>; readonly audit?: () => Promise<void> }) {
  const done = { heartbeats: 0, reads: 0, confirmed: [] as bigint[], turns: 0, audits: 0 };
  const time = { ms: 0 };
  const progress = { confirmed: 0n, commits: 0, unconfirmed: 0 };
  const options = {
    slot: {
      heartbeat: async () => {
        done.heartbeats++;
      },
      readState: async () => {
        done.reads++;
        return STATE;
      },
      isPublished: async () => true,
      allow: async () => {},
    },
    rows: { sight: async () => ({ ids: [], lsn: '0/0' }) },
    feed: { progress, resumeIfRoom: () => {} },
    stream: { confirm: (lsn: bigint) => done.confirmed.push(lsn) },
    metrics: walMetrics(new Metrics()),
    parking: {
      highest: () => null,
      redeliver: () => {
        done.turns++;
        return over.redeliver?.() ?? Promise.resolve();
      },
    },
    sweeper: {
      waits: false,
      reset: () => {},
      audit: () => {
        done.audits++;
        return over.audit?.() ?? Promise.resolve();
      },
    },
    clock: { wallNowMs: () => 0, monotonicMs: () => time.ms },
    heartbeatMs: 1000,
    auditMs: 1000,
    onStatus: () => {},
  };
  const keeper = new WalKeeper(options as unknown as WalKeeperOptions);
  const seconds = async (count: number): Promise<void> => {
    for (let i = 0; i < count; i++) {
      time.ms += 1000;
      progress.confirmed += 10n;
      progress.commits++;
      await keeper.keep();
      await turn();
    }
  };
  return { keeper, done, seconds };
}

describe('WAL keeper', () => {
  it('the keeper advances and watches the slot while parked rows and the audit wait for a silent broker', async () => {
    let answer = (): void => {};
    const waits = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const { keeper, done, seconds } = scene({ redeliver: () => waits, audit: () => waits });
    await seconds(10);
    expect(done).toMatchObject({ heartbeats: 10, reads: 10, turns: 1, audits: 1 });
    expect(done.confirmed.at(-1)).toBe(100n);
    expect(await keeper.isDrained()).toBe(false);
    answer();
    await keeper.settled();
    await seconds(4);
    expect(done.turns).toBeGreaterThan(1);
    expect(done.audits).toBeGreaterThan(1);
  });

  it('the keeper reports the errors of parked rows and of the audit', async () => {
    const { seconds } = scene({
      redeliver: () => Promise.reject(outboxError('database_unavailable', 'gone')),
    });
    await expect(seconds(3)).rejects.toMatchObject({ code: 'database_unavailable' });
  });
});
