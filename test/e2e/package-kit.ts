/** The package as a user installs it: packed, and installed into an empty project. */
import { execFileSync } from 'node:child_process';
import { cpSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../src/shell/package.ts';

const npm = (cwd: string, ...args: readonly string[]): string =>
  execFileSync('npm', [...args], { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

/** Packs Millrace and installs the package into this empty folder. */
export function installPackage(project: string): void {
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
}
