/** Profiles of real processes under load by V8's own profiler, which runs on every platform of
 *  Node.js. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { profile } from '../../tools/profile.ts';
import { sharedStack } from '../fixtures/stack.ts';

const into = mkdtempSync(join(tmpdir(), 'profiles-'));
afterAll(() => rmSync(into, { recursive: true, force: true }));

/** Number of rows, with six events each: more than half a second of work for the engine. */
const ENGINE_ROWS = 400_000;

/** True if a profile of V8 has samples of code below this folder. */
function samplesIn(path: string, folder: string): boolean {
  const { nodes, samples } = JSON.parse(readFileSync(path, 'utf8')) as {
    readonly nodes: ReadonlyArray<{ readonly id: number; readonly callFrame: { readonly url: string } }>;
    readonly samples: readonly number[];
  };
  const own = new Set(nodes.filter(({ callFrame }) => callFrame.url.includes(folder)).map(({ id }) => id));
  return samples.some((id) => own.has(id));
}

it('the profiler records where orders, the relay and the engine spend their time', async () => {
  const { brokers, postgres } = await sharedStack();
  const place = ['-with=v8', `-into=${into}`, `-brokers=${brokers}`, `-postgres=${postgres}`];
  const before = process.env['NODE_OPTIONS'];
  await profile(['orders', 'relay-poll', '-seconds=1', '-rate=1000', '-rows=60000', ...place]);
  // The engine reads from its start on; this many rows keep it busy until the profiler runs.
  await profile(['engine-firing', `-rows=${ENGINE_ROWS}`, ...place]);
  expect(process.env['NODE_OPTIONS']).toBe(before);
  expect(readdirSync(into).sort()).toEqual([
    'engine-firing.cpuprofile',
    'orders.cpuprofile',
    'relay-poll.cpuprofile',
  ]);
  for (const [name, product] of [
    ['orders', 'src/outbox/orders/'],
    ['relay-poll', 'src/outbox/relay/'],
    ['engine-firing', 'src/engine/'],
  ] as const) {
    expect(samplesIn(join(into, `${name}.cpuprofile`), product)).toBe(true);
  }
});

it('the profiler records where decoding and encoding of records spend their time, without servers', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'profiles-'));
  try {
    await profile(['serde-decode', 'serde-encode', '-seconds=1', '-with=v8', `-into=${folder}`]);
    expect(readdirSync(folder).sort()).toEqual(['serde-decode.cpuprofile', 'serde-encode.cpuprofile']);
    for (const name of readdirSync(folder)) expect(samplesIn(join(folder, name), 'src/formats/')).toBe(true);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

it('the profiler refuses an unknown profile or tool before anything is started', async () => {
  await expect(profile(['order'])).rejects.toThrow('there is no profile order');
  await expect(profile(['orders', '-with=eyes'])).rejects.toThrow('-with=eyes is not a profiler');
});
