/** Memory after many cycles of calls, errors and handles, each case in its own process. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { addonPath } from './kit.ts';

/** Memory that the allocators may keep. A leak of 1 KiB per cycle would exceed it. */
const GROWN_BYTES_MAX = 8 << 20;

it.each([
  ['calls', 10_000],
  ['errors', 10_000],
  ['handles', 10_000],
  ['windows', 10_000],
] as const)('the %s leave no memory behind after %i cycles', (name, cycles) => {
  const script = fileURLToPath(new URL('./leak.mjs', import.meta.url));
  // The memory that an allocator keeps varies from run to run; a leak appears in every run.
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
