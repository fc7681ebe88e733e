/** What a service asks of the group for its consumers. */
import { describe, expect, it } from 'vitest';
import { coreError } from '../../src/core/errors.ts';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { Service, type ServiceOptions } from '../../src/outbox/index.ts';

/** The session timeout that the broker client of a consumer is made with. */
async function sessionOf(more: { readonly sessionTimeoutMs?: number }): Promise<unknown> {
  const pool = {
    query: async () => ({ rows: [{ present: true, at: 'x' }], rowCount: 1 }),
    close: async () => {},
  };
  let made: (properties: unknown) => void = () => {};
  const properties = new Promise<unknown>((resolve) => {
    made = resolve;
  });
  const service = await Service.open({
    name: 'shop',
    brokers: 'nowhere:1',
    postgres: 'postgres://me@nowhere/shop',
    schema: 'shop',
    sql: { name: 'fake', connect: async () => pool },
    broker: {
      consumer: async (options: { readonly properties: unknown }) => {
        made(options.properties);
        throw coreError('unreachable', 'nobody is there');
      },
    },
    clock: { wallNowMs: () => 0, monotonicMs: () => 0 },
    metrics: new Metrics(),
    log: silentLogger,
  } as unknown as ServiceOptions);
  service.consume({ topic: 't', inbox: 'inbox', parkedTable: 'parked', handle: async () => {}, ...more });
  const seen = await properties;
  await service.close().catch(() => {});
  return seen;
}

describe('the session of a service in its group', () => {
  it('is as long as that of payments, or as the service says', async () => {
    expect(await sessionOf({})).toEqual({ 'session.timeout.ms': 10_000 });
    expect(await sessionOf({ sessionTimeoutMs: 45_000 })).toEqual({ 'session.timeout.ms': 45_000 });
  });
});
