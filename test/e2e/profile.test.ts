/** Profiles of real processes under load, by V8's own profiler, which runs wherever Node.js does. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { profile } from '../../tools/profile.ts';
import { sharedStack } from './stack.ts';

const into = mkdtempSync(join(tmpdir(), 'profiles-'));
afterAll(() => rmSync(into, { recursive: true, force: true }));

it('draws what orders and the relay spend their time on', { timeout: 120_000 }, async () => {
  const { brokers, postgres } = await sharedStack();
  const place = [`-into=${into}`, `-brokers=${brokers}`, `-postgres=${postgres}`];
  const before = process.env['NODE_OPTIONS'];
  await profile(['orders', 'relay-poll', '-with=v8', '-seconds=1', '-rate=1000', '-rows=20000', ...place]);
  expect(process.env['NODE_OPTIONS']).toBe(before);
  expect(readdirSync(into).sort()).toEqual(['orders.svg', 'relay-poll.svg']);
  for (const [name, product] of [
    ['orders', 'src/outbox/orders/'],
    ['relay-poll', 'src/outbox/relay/'],
  ] as const) {
    const svg = readFileSync(join(into, `${name}.svg`), 'utf8');
    expect(svg).toContain(product);
    expect(svg).toMatch(/\d+ samples at 499 Hz: JavaScript [1-9]\d*%/);
    // Nothing of the machine that drew it.
    expect(svg).not.toMatch(/file:|node_modules\//);
  }
});

it('refuses what it does not know, before anything is started', async () => {
  await expect(profile(['order'])).rejects.toThrow('there is no profile order');
  await expect(profile(['orders', '-with=eyes'])).rejects.toThrow('-with=eyes is no profiler');
});
