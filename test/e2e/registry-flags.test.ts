/** Flags of `millrace registry` that reach the registry behind the command: the dialect that
 *  decides about new texts, and the instances to which writes under access rules may go. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { Instance, leaderOf, recordSchema } from './registry-kafka-kit.ts';

const own = launcher();
const { brokers } = await sharedStack();

it.each([
  ['7', 200],
  ['8', 422],
])('a registry with -wire=%s answers a misfit default with %i', async (wire, status) => {
  const process = startRegistry(own, ['-store=memory', `-wire=${wire}`], `wire-${wire}`);
  const registry = await new Instance(process).ready();
  const schema = JSON.stringify({
    type: 'record',
    name: 'R',
    fields: [{ name: 'a', type: 'int', default: 'x' }],
  });
  expect(await registry.ask('POST', '/subjects/misfit/versions', { schema })).toMatchObject({ status });
});

it('a registry with access rules forwards a write only to an instance that -forward-to lists', async () => {
  const rules = join(own.dir, 'rules');
  writeFileSync(rules, 'anonymous  read,write  *\n');
  const start = (name: string, more: readonly string[]): Promise<Instance> => {
    const flags = [`-store=kafka:${brokers}`, `-schemas-topic=schemas-flags-${own.suffix}`];
    return new Instance(startRegistry(own, [...flags, `-auth-rules=${rules}`, ...more], name)).ready();
  };
  const first = await start('first', []);
  expect(await first.register('orders', recordSchema('First'))).toBeDefined();
  const [unlisted, listed] = await Promise.all([
    start('unlisted', []),
    start('listed', ['-forward-to=http://127.0.0.1:*']),
  ]);
  expect(leaderOf([first, unlisted, listed]), 'the first instance still leads').toBe(first);
  const body = { schema: recordSchema('Second') };
  const refused = await unlisted.ask('POST', '/subjects/orders-2/versions', body);
  expect(refused).toMatchObject({
    status: 503,
    body: { message: expect.stringContaining('was not forwarded to the leader') },
  });
  expect(await listed.ask('POST', '/subjects/orders-2/versions', body)).toMatchObject({ status: 200 });
  expect(await first.read('/subjects')).toMatchObject({ body: ['orders', 'orders-2'] });
});
