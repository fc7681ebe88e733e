/** The group session that a service requests for its consumers, the end of its parts, and the
 *  options that it refuses. */
import { describe, expect, it, vi } from 'vitest';
import { coreError, type MillraceError } from '../../../src/core/errors.ts';
import { silentLogger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { RELAY_DEFAULTS } from '../../../src/outbox/defaults.ts';
import { outboxError } from '../../../src/outbox/errors.ts';
import { paymentsMetrics } from '../../../src/outbox/payments/metrics.ts';
import { Relay, type RelayOptions } from '../../../src/outbox/relay/instance.ts';
import { Service, type ServiceOptions, type ServiceRelay } from '../../../src/outbox/service.ts';
import { SeededRandom, VirtualClock } from '../../../src/sim/clock.ts';
import { logLines } from '../access/access-kit.ts';

const POOL = {
  query: async () => ({ rows: [{ present: true, at: 'x' }], rowCount: 1 }),
  close: async () => {},
};
const options = (more: object = {}): ServiceOptions =>
  ({
    name: 'shop',
    brokers: 'nowhere:1',
    postgres: 'postgres://me@nowhere/shop',
    schema: 'shop',
    sql: { name: 'fake', connect: async () => POOL },
    broker: {},
    clock: new VirtualClock(),
    random: new SeededRandom(1),
    metrics: new Metrics(),
    log: silentLogger,
    ...more,
  }) as unknown as ServiceOptions;

/** Session timeout with which the broker client of a consumer is created. */
async function sessionOf(more: { readonly sessionTimeoutMs?: number }): Promise<unknown> {
  let made: (properties: unknown) => void = () => {};
  const properties = new Promise<unknown>((resolve) => {
    made = resolve;
  });
  const consumer = async ({ properties: given }: { readonly properties: unknown }) => {
    made(given);
    throw coreError('unreachable', 'no broker answers');
  };
  const service = await Service.open(options({ broker: { consumer } }));
  service.consume({ topic: 't', inbox: 'inbox', parkedTable: 'parked', handle: async () => {}, ...more });
  const seen = await properties;
  await service.close().catch(() => {});
  return seen;
}

describe('session of a service', () => {
  it('the session timeout of a service is the default of payments, or the value that the service sets', async () => {
    expect(await sessionOf({})).toEqual({ 'session.timeout.ms': 10_000 });
    expect(await sessionOf({ sessionTimeoutMs: 45_000 })).toEqual({ 'session.timeout.ms': 45_000 });
  });
});

describe('end of a part', () => {
  it('a part that ends with an error is logged, and failure rejects also for a part that started later', async () => {
    const missing = async (): Promise<never> => {
      throw outboxError('tables_missing', 'there is no table effects', { next: 'create it' });
    };
    const pool = { ...POOL, query: missing, transaction: missing };
    const log = logLines();
    const service = await Service.open(options({ log, sql: { name: 'fake', connect: async () => pool } }));
    const failure = service.failure();
    service.effects({ effectsTable: 'effects', handlers: {} });
    await expect(failure).rejects.toMatchObject({ code: 'tables_missing' });
    expect(log.lines).toEqual([
      {
        level: 'error',
        message: 'a part of the service ended with an error and is not started again',
        fields: {
          service: 'shop',
          part: 'effects',
          table: 'effects',
          error: 'there is no table effects; create it [tables_missing]',
        },
      },
    ]);
    await expect(service.close()).rejects.toMatchObject({ code: 'tables_missing' });
  });

  it('failure resolves when a service without a failed part is closed', async () => {
    const service = await Service.open(options());
    const failure = service.failure();
    await service.close();
    await expect(failure).resolves.toBeUndefined();
  });

  it('failure resolves when all parts have ended without an error, and covers a part that starts afterwards', async () => {
    const ends: Array<{ resolve(): void; reject(why: Error): void }> = [];
    const ending = () => new Promise<void>((resolve, reject) => void ends.push({ resolve, reject }));
    const mocks = [
      vi.spyOn(Relay.prototype, 'open').mockResolvedValue(undefined),
      vi.spyOn(Relay.prototype, 'run').mockImplementation(ending),
    ];
    try {
      const service = await Service.open(options());
      const settings = { table: 'outbox', topic: 'events', exitWhenDrained: true };
      let isOver = false;
      const failure = service.failure().then(() => {
        isOver = true;
      });
      await service.relay(settings);
      await service.relay(settings);
      ends[0]?.resolve();
      await new Promise(setImmediate);
      expect(isOver).toBe(false);
      ends[1]?.resolve();
      await failure;
      await service.failure();
      await service.relay(settings);
      const later = service.failure();
      ends[2]?.reject(new Error('the broker refused the relay'));
      await expect(later).rejects.toThrow('the broker refused the relay');
      await expect(service.close()).rejects.toThrow('the broker refused the relay');
    } finally {
      for (const mock of mocks) mock.mockRestore();
    }
  });

  it('failure resolves when the service is closed, even if a connection cannot be closed', async () => {
    const close = async (): Promise<never> => {
      throw coreError('unreachable', 'the database does not answer');
    };
    const connect = async () => ({ ...POOL, close });
    const service = await Service.open(options({ sql: { name: 'fake', connect } }));
    const failure = service.failure();
    await expect(service.close()).rejects.toMatchObject({ code: 'unreachable' });
    await expect(failure).resolves.toBeUndefined();
  });
});

describe('parked records', () => {
  it('a consumer counts 0 parked records of each reason from its start, so that an alert sees the first', async () => {
    const metrics = new Metrics();
    const service = await Service.open(options({ metrics }));
    service.consume({ topic: 't', inbox: 'inbox', parkedTable: 'parked', handle: async () => {} });
    const zero = ['malformed_payload', 'refused', 'undecidable'].map((reason) => ({
      labels: { reason },
      value: 0,
    }));
    expect(metrics.counter('inbox_parked_total', '', ['reason']).snapshot().samples).toEqual(zero);
    await service.close().catch(() => {});
    expect(paymentsMetrics(new Metrics()).parked.snapshot().samples).toEqual(zero);
  });
});

describe('service options', () => {
  const base = { table: 'outbox', topic: 'events' };
  const refused = async (settings: object, more: object = {}): Promise<string> => {
    const service = await Service.open(options(more));
    try {
      await service.relay({ ...base, ...settings } as ServiceRelay);
    } catch (thrown) {
      expect(thrown).toMatchObject({ code: 'bad_option' });
      return (thrown as MillraceError).toLine();
    } finally {
      await service.close();
    }
    throw new Error('the options were not refused');
  };

  it('a relay in wal mode without a replication driver is refused and never polls', async () => {
    const why = await refused({ mode: 'wal' });
    expect(why).toContain('needs the driver `replication`');
    expect(why).toContain('openReplication()');
  });

  it.each([
    [{ mode: 'WAL' }, 'a relay has no mode "WAL"'],
    [{ polInterval: 5 }, 'Service.relay has no option polInterval'],
    [{ wal: { heartbeatMs: 100 } }, 'have no effect without mode: wal'],
    [{ mode: 'wal', wal: { slot: 'mine' } }, 'wal of Service.relay has no option slot'],
    [{ createTopic: { replicas: 3 } }, 'createTopic of Service.relay has no option replicas'],
    [
      { createTopic: { partitions: 0 } },
      'createTopic.partitions of Service.relay is 0, not an integer from 1',
    ],
    [
      { createTopic: { retentionMs: '1d' } },
      'createTopic.retentionMs of Service.relay is 1d, not an integer',
    ],
  ])('a relay with %j is refused', async (settings, why) => {
    expect(await refused(settings, { replication: {} })).toContain(why);
  });

  it('a relay in wal mode that is constructed without a source is refused', () => {
    const settings = { ...RELAY_DEFAULTS, ...base, mode: 'wal', name: 'r', source: '/r' };
    expect(() => new Relay({ ...options(), settings } as unknown as RelayOptions)).toThrow(
      'needs makeSource',
    );
  });

  it('a waker of a service without a wake driver is refused', async () => {
    const service = await Service.open(options());
    await expect(service.waker('outbox')).rejects.toMatchObject({
      code: 'bad_option',
      next: expect.stringContaining('openWake()'),
    });
    await service.close();
  });

  it('an unknown option of the service or of a consumer is refused', async () => {
    await expect(Service.open(options({ broker_url: 'x' }))).rejects.toMatchObject({ code: 'bad_option' });
    const service = await Service.open(options());
    const consumer = {
      topic: 't',
      inbox: 'inbox',
      parkedTable: 'parked',
      handle: async () => {},
      retries: 3,
    };
    expect(() => service.consume(consumer)).toThrow('Service.consume has no option retries');
    await service.close();
  });
});
