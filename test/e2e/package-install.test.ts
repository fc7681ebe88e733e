/** The package as a user installs it: packed, installed into an empty project, and used there by a
 *  service that is killed. */
import { execFileSync } from 'node:child_process';
import { copyFileSync, cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { packageRoot } from '../../src/shell/package.ts';
import { survivesKills } from './shipping-kit.ts';

const project = mkdtempSync(join(tmpdir(), 'millrace-installed-'));
afterAll(() => rmSync(project, { recursive: true, force: true }));

const npm = (cwd: string, ...args: readonly string[]): string =>
  execFileSync('npm', [...args], { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

beforeAll(() => {
  npm(packageRoot(), 'pack', '--silent', '--pack-destination', project);
  const tarball = readdirSync(project).find((name) => name.endsWith('.tgz')) as string;
  writeFileSync(join(project, 'package.json'), '{ "private": true, "type": "module" }\n');
  // Reuses the native builds of bin/bootstrap: the same versions, and minutes of compilation less.
  npm(
    project,
    'install',
    '--ignore-scripts',
    '--omit=optional',
    '--no-audit',
    '--no-fund',
    '--silent',
    `./${tarball}`,
  );
  for (const name of ['node-rdkafka', 'libpq'])
    cpSync(join(packageRoot(), 'node_modules', name, 'build'), join(project, 'node_modules', name, 'build'), {
      recursive: true,
      verbatimSymlinks: true,
    });
  copyFileSync(join(packageRoot(), 'examples/shipping/shipping.mjs'), join(project, 'shipping.mjs'));
});

it('the command of an installed package prints the build of the project that was packed', () => {
  const version = (root: string): string =>
    execFileSync(process.execPath, [join(root, 'bin', 'millrace'), 'version'], { encoding: 'utf8' });
  expect(version(join(project, 'node_modules', 'millrace'))).toBe(version(packageRoot()));
});

it('a service of an installed package has one effect per event through two SIGKILLs', () =>
  survivesKills('shipping.mjs', project));
