/** Profiles of real processes under load, by V8's own profiler, which runs wherever Node.js does. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { profile } from '../../tools/profile.ts';
import { sharedStack } from '../fixtures/stack.ts';

const into = mkdtempSync(join(tmpdir(), 'profiles-'));
afterAll(() => rmSync(into, { recursive: true, force: true }));

/** Six events each: more than half a second of the engine's work. */
const ENGINE_ROWS = 400_000;

it('the profiler draws where orders, the relay and the engine spend their time', async () => {
  const { brokers, postgres } = await sharedStack();
  const place = ['-with=v8', `-into=${into}`, `-brokers=${brokers}`, `-postgres=${postgres}`];
  const before = process.env['NODE_OPTIONS'];
  await profile(['orders', 'relay-poll', '-seconds=1', '-rate=1000', '-rows=60000', ...place]);
  // The engine reads while the profiler is still being asked to begin: it needs more to read than that usually takes.
  await profile(['engine-firing', `-rows=${ENGINE_ROWS}`, ...place]);
  expect(process.env['NODE_OPTIONS']).toBe(before);
  expect(readdirSync(into).sort()).toEqual(['engine-firing.svg', 'orders.svg', 'relay-poll.svg']);
  for (const [name, product] of [
    ['orders', 'src/outbox/orders/'],
    ['relay-poll', 'src/outbox/relay/'],
    ['engine-firing', 'src/engine/'],
  ] as const) {
    const svg = readFileSync(join(into, `${name}.svg`), 'utf8');
    expect(svg).toContain(product);
    expect(svg).toMatch(/\d+ samples at 499 Hz: JavaScript [1-9]\d*%/);
    // Nothing of the machine that drew it.
    expect(svg).not.toMatch(/file:|node_modules\//);
  }
});

it('the profiler refuses an unknown profile or tool before anything is started', async () => {
  await expect(profile(['order'])).rejects.toThrow('there is no profile order');
  await expect(profile(['orders', '-with=eyes'])).rejects.toThrow('-with=eyes is no profiler');
});
