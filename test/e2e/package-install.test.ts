/** The package as a user installs it: packed, installed into an empty project, and used there by a
 *  service that is killed. */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { packageRoot } from '../../src/shell/package.ts';
import { installPackage } from './package-kit.ts';
import { survivesKills } from './shipping-kit.ts';

const project = mkdtempSync(join(tmpdir(), 'millrace-installed-'));
afterAll(() => rmSync(project, { recursive: true, force: true }));

beforeAll(() => {
  installPackage(project);
  copyFileSync(join(packageRoot(), 'examples/shipping/shipping.mjs'), join(project, 'shipping.mjs'));
});

it('the command of an installed package prints the build of the project that was packed', () => {
  const version = (root: string): string =>
    execFileSync(process.execPath, [join(root, 'bin', 'millrace'), 'version'], { encoding: 'utf8' });
  expect(version(join(project, 'node_modules', 'millrace'))).toBe(version(packageRoot()));
});

it('a service of an installed package has one effect per event through two SIGKILLs', () =>
  survivesKills('shipping.mjs', project));
