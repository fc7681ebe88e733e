/** The registry and Kafka clients that tests run are pinned by version, named without a download
 *  address, and not part of our own package. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { projectRoot } from './root.ts';

const folder = join(projectRoot, 'test', 'clients');
const read = (path: string): string => readFileSync(join(folder, path), 'utf8');
interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>;
}
interface Lock {
  readonly packages: Readonly<Record<string, { readonly version?: string }>>;
}
/** Folders with a lock file of npm packages. */
const FOLDERS = ['node', 'kafka', 'kafka-confluent'];
const manifestOf = (name: string): Manifest => JSON.parse(read(`${name}/package.json`));
const lockOf = (name: string): Lock => JSON.parse(read(`${name}/package-lock.json`));
const requirements = read('python/requirements.txt').trim().split('\n');

describe('external clients', () => {
  it('the external clients have the promised versions', () => {
    expect(manifestOf('node').dependencies).toMatchObject({
      '@kafkajs/confluent-schema-registry': '3.9.0',
      '@confluentinc/schemaregistry': '1.10.1',
    });
    // The last version of 1.x is the last one for Node.js 20.
    expect(manifestOf('kafka').dependencies).toEqual({ '@platformatic/kafka': '1.35.0', kafkajs: '2.2.4' });
    expect(manifestOf('kafka-confluent').dependencies).toEqual({
      '@confluentinc/kafka-javascript': '1.10.1',
    });
    expect(requirements.filter((line) => line.startsWith('confluent-kafka=='))).toHaveLength(1);
  });

  it('the external clients are locked by version and without a download address', () => {
    for (const folder of FOLDERS) {
      const lock = lockOf(folder);
      expect(JSON.stringify(lock)).not.toMatch(/"resolved"|git\+|github:/);
      for (const [name, version] of Object.entries(manifestOf(folder).dependencies))
        expect(lock.packages[`node_modules/${name}`]?.version, name).toBe(version);
    }
    for (const line of requirements) expect(line).toMatch(/^[\w.-]+==\d[\w.]*$/);
  });

  it('the package depends on no external client', () => {
    const ours = JSON.parse(readFileSync(join(projectRoot, 'package.json'), 'utf8')) as Record<
      string,
      object
    >;
    const names = FOLDERS.flatMap((folder) => Object.keys(manifestOf(folder).dependencies));
    expect(names).toHaveLength(6);
    for (const section of ['dependencies', 'devDependencies', 'optionalDependencies'])
      for (const name of names) expect(Object.keys(ours[section] ?? {})).not.toContain(name);
  });
});
