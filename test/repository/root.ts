/** The repository: its folder and its files. */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { packageRoot } from '../../src/shell/package.ts';

/** Folder of package.json. */
export const projectRoot = packageRoot();

/** Folders that builds and runs generate; .gitignore names them all. */
export const GENERATED = ['node_modules', 'dist', 'build', 'prebuilds', '.millrace'] as const;

/** Paths, from the root, of the files that git tracks or would track. On a machine without git: of
 *  all files that are not generated. */
export function repositoryFiles(): string[] {
  const git = spawnSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
    cwd: projectRoot,
    encoding: 'utf8',
  });
  if (git.status === 0)
    return git.stdout.split('\n').filter((path) => path !== '' && existsSync(join(projectRoot, path)));
  const skipped = new Set<string>([...GENERATED, '.git']);
  return readdirSync(projectRoot, { withFileTypes: true })
    .filter((entry) => !skipped.has(entry.name))
    .flatMap((entry) =>
      entry.isFile()
        ? [entry.name]
        : readdirSync(join(projectRoot, entry.name), { recursive: true, withFileTypes: true })
            .filter((inner) => inner.isFile())
            .map((inner) => join(inner.parentPath, inner.name).slice(projectRoot.length + 1)),
    );
}

/** Text of a file by its path from the root. */
export const read = (path: string): string => readFileSync(join(projectRoot, path), 'utf8');

/** A test file and the kits that it imports, by path from the root. */
export function withKits(path: string, found = new Map<string, string>()): ReadonlyMap<string, string> {
  const text = read(path);
  found.set(path, text);
  for (const [, spec] of text.matchAll(/ from '(\.{1,2}\/[^']+)'/g)) {
    const kit = relative(projectRoot, join(projectRoot, dirname(path), spec as string));
    // A source text planted as a fault names files that do not exist.
    if (kit.startsWith('test/') && !found.has(kit) && existsSync(join(projectRoot, kit)))
      withKits(kit, found);
  }
  return found;
}
