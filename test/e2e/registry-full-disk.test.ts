/** A registry whose store takes no more: reads and readiness go on, writes are refused and said to be. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { freePort } from '../../src/devstack/ports.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { until } from '../wait.ts';
import { scrape } from './scrape.ts';

/** KiB that a file of this process may have. */
const FILE_KIB_MAX = 300;
const TYPE = { 'content-type': 'application/vnd.schemaregistry.v1+json' };

it('a registry on a full disk stays ready for reads while writes fail, and reports that it is not writable', {
  timeout: 300_000,
}, async () => {
  const dir = mkdtempSync(join(tmpdir(), 'registry-full-'));
  const base = `http://127.0.0.1:${await freePort()}`;
  const registry = spawn(
    'bash',
    [
      '-c',
      `ulimit -f ${FILE_KIB_MAX}; exec "$0" "$@"`,
      join(packageRoot(), 'bin', 'millrace'),
      'registry',
      `-store=file:${join(dir, 'store')}`,
      `-listen=${new URL(base).host}`,
    ],
    { stdio: 'ignore', env: { ...process.env, MILLRACE_LOG_LEVEL: 'error' } },
  );
  const ended = once(registry, 'exit');
  const status = async (path: string): Promise<number> =>
    fetch(base + path).then(
      (answer) => answer.status,
      () => 0,
    );
  const register = async (n: number): Promise<number> => {
    const schema = JSON.stringify({ type: 'record', name: `R${n}`, doc: 'x'.repeat(200_000), fields: [] });
    const request = { method: 'POST', headers: TYPE, body: JSON.stringify({ schema }) };
    return (await fetch(`${base}/subjects/s${n}/versions`, request)).status;
  };
  try {
    await until('a ready registry', async () => ((await status('/ready')) === 200 ? true : undefined));
    expect([await register(1), await register(2), await register(3)]).toEqual([200, 500, 500]);
    expect(await status('/ready')).toBe(200);
    expect(await status('/schemas/ids/1')).toBe(200);
    const metrics = await scrape(base);
    expect(metrics).toMatch(/^registry_is_writable 0$/m);
  } finally {
    registry.kill('SIGTERM');
    await ended;
    rmSync(dir, { recursive: true, force: true });
  }
});
