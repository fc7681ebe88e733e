/** The package as a user installs it: packed, installed into an empty project, and used there by a
 *  service that is killed. */
import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
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

it('an installed package resolves each entry point, and its adapters load no database client', () => {
  const { exports } = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as {
    readonly exports: Readonly<Record<string, unknown>>;
  };
  const entries = Object.keys(exports).filter((name) => !name.endsWith('.json'));
  expect(entries).toEqual(
    expect.arrayContaining(['./outbox', './outbox/adapters', './outbox/nestjs', './outbox/testing']),
  );
  const script = `for (const name of ${JSON.stringify(entries)})
    console.log(name, Object.keys(await import('millrace' + name.slice(1))).length > 0);`;
  const printed = execFileSync(process.execPath, ['--input-type=module', '-e', script], {
    cwd: project,
    encoding: 'utf8',
  });
  expect(printed).toBe(entries.map((name) => `${name} true\n`).join(''));
  for (const client of [
    'drizzle-orm',
    'knex',
    'kysely',
    'postgres',
    'sequelize',
    'typeorm',
    '@prisma',
    '@nestjs',
    'rxjs',
  ])
    expect(existsSync(join(project, 'node_modules', client)), client).toBe(false);
});

it('a service of an installed package has one effect per event through two SIGKILLs', () =>
  survivesKills('shipping.mjs', project));
