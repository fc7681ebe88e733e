/** Example services: each pins the versions with which its test runs it, and shows its own code. */
import { describe, expect, it } from 'vitest';
import { EXAMPLES } from '../e2e/example-services-kit.ts';
import { read, repositoryFiles } from './root.ts';

interface Manifest {
  readonly version: string;
  readonly engines: Readonly<Record<string, string>>;
  readonly scripts: Readonly<Record<string, string>>;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}
const manifest = (path: string): Manifest => JSON.parse(read(path)) as Manifest;
const ours = manifest('package.json');
const tested: Readonly<Record<string, string>> = {
  ...manifest('test/clients/kafka/package.json').dependencies,
  ...ours.dependencies,
  ...ours.devDependencies,
  millrace: ours.version,
};

describe('example services', () => {
  it('every folder with a package.json is an example that a test runs', () => {
    const folders = repositoryFiles().flatMap(
      (path) => /^examples\/([^/]+)\/package\.json$/.exec(path)?.[1] ?? [],
    );
    expect(folders.sort()).toEqual([...EXAMPLES].sort());
  });

  it.each(EXAMPLES)('the example %s pins the versions that the test runs, on the same Node.js', (name) => {
    const { dependencies, devDependencies = {}, engines } = manifest(`examples/${name}/package.json`);
    expect(engines).toEqual(ours.engines);
    const pinned = { ...dependencies, ...devDependencies };
    const expected = Object.fromEntries(Object.keys(pinned).map((one) => [one, tested[one]]));
    expect(pinned).toEqual(expected);
  });

  it.each(EXAMPLES)('the README of %s uses every script of its package.json', (name) => {
    const page = read(`examples/${name}/README.md`);
    for (const script of Object.keys(manifest(`examples/${name}/package.json`).scripts))
      expect(page, script).toContain(`npm run ${script}`);
  });
});
