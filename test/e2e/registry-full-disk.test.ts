/** A registry whose store cannot grow: reads and readiness continue, writes fail, and a metric
 *  reports it. */
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { scrape } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';

const own = launcher();
/** Largest size of a file of this process, in KiB. */
const FILE_KIB_MAX = 300;
const TYPE = { 'content-type': 'application/vnd.schemaregistry.v1+json' };

it('a registry on a full disk stays ready for reads while writes fail, and reports that it is not writable', {
  timeout: 300_000,
}, async () => {
  const flags = [`-store=file:${join(own.dir, 'store')}`, '-log-level=error'];
  const registry = startRegistry(own, flags, 'full', { fileKibMax: FILE_KIB_MAX });
  const base = `http://${await registry.ready()}`;
  const status = async (path: string): Promise<number> => (await fetch(base + path)).status;
  const register = async (n: number): Promise<number> => {
    const schema = JSON.stringify({ type: 'record', name: `R${n}`, doc: 'x'.repeat(200_000), fields: [] });
    const request = { method: 'POST', headers: TYPE, body: JSON.stringify({ schema }) };
    return (await fetch(`${base}/subjects/s${n}/versions`, request)).status;
  };
  expect([await register(1), await register(2), await register(3)]).toEqual([200, 500, 500]);
  expect(await status('/ready')).toBe(200);
  expect(await status('/schemas/ids/1')).toBe(200);
  expect(await scrape(base)).toMatch(/^registry_is_writable 0$/m);
});
