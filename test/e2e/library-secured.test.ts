/** The library of an installed package on a broker with TLS, SCRAM and access control lists, and on
 *  a PostgreSQL with TLS: the outbox service, which is killed, and the parts of the engine. */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Stack } from '../../src/devstack/stack.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { allow } from '../fixtures/acl.ts';
import { startOwned } from '../fixtures/own-stack.ts';
import { installPackage } from './package-kit.ts';
import { survivesKills } from './shipping-kit.ts';

const project = mkdtempSync(join(tmpdir(), 'millrace-secured-'));
let stack: Stack;
let env: { readonly MILLRACE_BROKER_CONFIG: string };

beforeAll(async () => {
  installPackage(project);
  stack = await startOwned(undefined, undefined, 'sasl_ssl', 'ssl');
  env = { MILLRACE_BROKER_CONFIG: stack.clients?.client as string };
  const every = { name: '*', pattern: 'literal', user: 'client', operation: 'all' } as const;
  await allow(
    stack.folder,
    (['topic', 'group', 'transactionalId'] as const).map((resource) => ({ resource, ...every })),
  );
});
afterAll(async () => {
  await stack?.close();
  rmSync(project, { recursive: true, force: true });
});

it('a service of an installed package has one effect per event through two SIGKILLs', async () => {
  copyFileSync(join(packageRoot(), 'examples/shipping/shipping.mjs'), join(project, 'shipping.mjs'));
  await survivesKills('shipping.mjs', project, { ...stack, env });
});

it('the parts of the engine reach the broker: source, group and sink', () => {
  const script = fileURLToPath(new URL('./library-secured.engine.mjs', import.meta.url));
  copyFileSync(script, join(project, 'engine.mjs'));
  const stdout = execFileSync(process.execPath, ['engine.mjs'], {
    ...{ cwd: project, env: { ...process.env, ...env }, encoding: 'utf8' },
  });
  expect(JSON.parse(stdout)).toEqual({ bounds: [{ low: 0, high: 3 }], rows: 3, whole: true, sink: 'kafka' });
});
