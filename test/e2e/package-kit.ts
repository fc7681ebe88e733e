/** The package as a user installs it: packed, and installed into an empty project. */
import { execFileSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { packageRoot } from '../../src/shell/package.ts';

const npm = (cwd: string, ...args: readonly string[]): string =>
  execFileSync('npm', [...args], { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

/** Packs Millrace into this empty folder. Returns the name of the file. */
function pack(project: string): string {
  npm(packageRoot(), 'pack', '--silent', '--pack-destination', project);
  return readdirSync(project).find((name) => name.endsWith('.tgz')) as string;
}

/** Makes a link, and the folders above it, unless the path exists. */
export function link(from: string, to: string): void {
  if (existsSync(to)) return;
  mkdirSync(dirname(to), { recursive: true });
  symlinkSync(from, to);
}

/** Packs Millrace and unpacks it into the node_modules of this empty folder. The packages that it
 *  depends on are links to those of the repository: npm would take minutes to install them. */
export function unpackPackage(project: string): void {
  const modules = join(project, 'node_modules');
  const unpacked = join(modules, 'millrace');
  const tarball = pack(project);
  mkdirSync(unpacked, { recursive: true });
  execFileSync('tar', ['-xzf', join(project, tarball), '-C', unpacked, '--strip-components=1']);
  const { dependencies, bin } = JSON.parse(readFileSync(join(unpacked, 'package.json'), 'utf8')) as {
    readonly dependencies: Readonly<Record<string, string>>;
    readonly bin: Readonly<Record<string, string>>;
  };
  for (const name of Object.keys(dependencies))
    link(join(packageRoot(), 'node_modules', name), join(modules, name));
  for (const [name, path] of Object.entries(bin)) link(join(unpacked, path), join(modules, '.bin', name));
}

/** Packs Millrace and installs the package into this empty folder. */
export function installPackage(project: string): void {
  const tarball = pack(project);
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
