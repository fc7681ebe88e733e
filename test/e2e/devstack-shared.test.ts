import pg from 'pg';
import { expect, it } from 'vitest';
import { askBroker } from '../../src/devstack/kafka/wire.ts';
import { sharedStack } from '../fixtures/stack.ts';

const stack = await sharedStack();

it('the shared stack has a broker that answers under its own address', async () => {
  const [host, port] = stack.brokers.split(':');
  const view = await askBroker(host as string, Number(port), 60_000);
  expect(view?.brokers).toEqual([{ id: 1, host: '127.0.0.1', port: Number(port) }]);
  expect(view?.clusterId).toMatch(/^[\w-]{22}$/);
});

it('the shared stack has a database that accepts writes and can be decoded', async () => {
  const client = new pg.Client({ connectionString: stack.postgres });
  await client.connect();
  try {
    const { rows } = await client.query(
      "select current_setting('wal_level') as wal, current_setting('server_version_num')::int as version",
    );
    expect(rows[0].wal).toBe('logical');
    expect(rows[0].version).toBeGreaterThanOrEqual(180_000);
  } finally {
    await client.end();
  }
});

it('every caller gets the same shared stack', async () => {
  expect(await sharedStack()).toEqual(stack);
});
