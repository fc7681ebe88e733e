/** The external registry clients that tests run are pinned by version, named without a download
 *  address, and not part of our own package. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { projectRoot } from './root.ts';

const folder = join(projectRoot, 'test', 'clients');
const read = (path: string): string => readFileSync(join(folder, path), 'utf8');
const manifest = JSON.parse(read('node/package.json')) as { readonly dependencies: Record<string, string> };
const lock = JSON.parse(read('node/package-lock.json')) as {
  readonly packages: Record<string, { readonly version?: string; readonly resolved?: string }>;
};
const requirements = read('python/requirements.txt').trim().split('\n');

describe('external registry clients', () => {
  it('the external clients have the promised versions', () => {
    expect(manifest.dependencies).toMatchObject({
      '@kafkajs/confluent-schema-registry': '3.9.0',
      '@confluentinc/schemaregistry': '1.10.1',
    });
    expect(requirements.filter((line) => line.startsWith('confluent-kafka=='))).toHaveLength(1);
  });

  it('the external clients are locked by version and without a download address', () => {
    expect(JSON.stringify(lock)).not.toMatch(/"resolved"|git\+|github:/);
    for (const [name, version] of Object.entries(manifest.dependencies))
      expect(lock.packages[`node_modules/${name}`]?.version, name).toBe(version);
    for (const line of requirements) expect(line).toMatch(/^[\w.-]+==\d[\w.]*$/);
  });

  it('the package depends on no external registry client', () => {
    const ours = JSON.parse(readFileSync(join(projectRoot, 'package.json'), 'utf8')) as Record<
      string,
      object
    >;
    for (const section of ['dependencies', 'devDependencies', 'optionalDependencies'])
      for (const name of Object.keys(manifest.dependencies))
        expect(Object.keys(ours[section] ?? {})).not.toContain(name);
  });
});
