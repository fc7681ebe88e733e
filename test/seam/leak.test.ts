/** Memory after many cycles of calls, errors and handles, each in a process of its own. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { addonPath } from './kit.ts';

/** What the allocators may keep; a leak of 1 KiB a cycle would exceed it. */
const GROWN_BYTES_MAX = 8 << 20;

it.each([
  ['calls', 10_000],
  ['errors', 10_000],
  ['handles', 10_000],
  ['windows', 10_000],
] as const)('the %s leave no memory behind after %i cycles', (name, cycles) => {
  const script = fileURLToPath(new URL('./leak.mjs', import.meta.url));
  // What an allocator keeps varies from run to run; a leak is in each of them.
  let grown = Number.POSITIVE_INFINITY;
  for (let tries = 0; tries < 3 && grown >= GROWN_BYTES_MAX; tries++) {
    const run = spawnSync(process.execPath, ['--expose-gc', script, addonPath, name, String(cycles)], {
      encoding: 'utf8',
    });
    expect(run.stderr).toBe('');
    expect(run.status).toBe(0);
    grown = Math.min(grown, JSON.parse(run.stdout).grown);
  }
  expect(grown).toBeLessThan(GROWN_BYTES_MAX);
});
