/** Checks package.json, the lockfile and the compiled client library. */
import { execFile, spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it } from 'vitest';
import { isFull } from '../tier.ts';
import { GENERATED, projectRoot, repositoryFiles } from './root.ts';

const manifest = JSON.parse(readFileSync(join(projectRoot, 'package.json'), 'utf8'));
const lock = JSON.parse(readFileSync(join(projectRoot, 'package-lock.json'), 'utf8'));
/** Greatest output of `npm pack --json`, which has about 150 bytes a file. */
const PACK_LIST_BYTES_MAX = 16 << 20;
const sections = ['dependencies', 'devDependencies', 'optionalDependencies'] as const;

describe('package.json', () => {
  it('package.json is ESM for Node 20.19 and never lets npm build the addon by itself', () => {
    expect(manifest.type).toBe('module');
    expect(manifest.engines.node).toBe('>=20.19');
    expect(manifest.gypfile).toBe(false);
    expect(manifest.scripts.install).toBeUndefined();
    expect(manifest.scripts.postinstall).toBeUndefined();
  });

  it('package.json pins every dependency to one version from the registry', () => {
    for (const section of sections) {
      for (const [name, range] of Object.entries<string>(manifest[section] ?? {})) {
        expect(range, name).toMatch(/^(npm:@?[\w./-]+@)?\d+\.\d+\.\d+[\w.-]*$/);
      }
    }
  });

  it('every lock file names the optional packages of every platform, without which npm refuses it', () => {
    const paths = repositoryFiles().filter((path) => path.endsWith('package-lock.json'));
    expect(paths.length).toBeGreaterThan(4);
    for (const path of paths) {
      const { packages } = JSON.parse(readFileSync(join(projectRoot, path), 'utf8')) as {
        readonly packages: Readonly<Record<string, { readonly optionalDependencies?: object }>>;
      };
      const locked = new Set(Object.keys(packages).map((key) => key.replace(/.*node_modules\//, '')));
      const optional = Object.values(packages).flatMap((entry) =>
        Object.keys(entry.optionalDependencies ?? {}),
      );
      expect(
        optional.filter((name) => !locked.has(name)),
        path,
      ).toEqual([]);
    }
  });

  it('package.json decides for each package with an install script whether the script may run', () => {
    const withScripts = Object.entries<{ hasInstallScript?: boolean }>(lock.packages)
      .filter(([path, entry]) => path !== '' && entry.hasInstallScript === true)
      .map(([path]) => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length))
      .filter((name) => name !== 'fsevents');
    // libpq has a binding.gyp and no install script, but npm compiles it all the same. npm 12
    // ignores names with a version.
    expect(Object.keys(manifest.allowScripts).sort()).toEqual([...new Set([...withScripts, 'libpq'])].sort());
    expect(manifest.allowScripts['node-rdkafka']).toBe(true);
    expect(manifest.allowScripts['libpq']).toBe(true);
  });

  it('the package contains every SQL and proto file, and no file of the documentation site', () => {
    const listed = spawnSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
      cwd: projectRoot,
      encoding: 'utf8',
      maxBuffer: PACK_LIST_BYTES_MAX,
    });
    const [{ files }] = JSON.parse(listed.stdout) as [{ files: readonly { readonly path: string }[] }];
    expect(files.filter(({ path }) => path.startsWith('docs/site/'))).toEqual([]);
    const needed = repositoryFiles().filter((path) => /^src\/.*\.(sql|proto)$/.test(path));
    expect(needed.length).toBeGreaterThan(5);
    expect(needed.filter((path) => !files.some((file) => file.path === path))).toEqual([]);
  });

  it('a tree without dist or without the addon is not packed, and the error names the command that builds both', () => {
    const tree = mkdtempSync(join(tmpdir(), 'millrace-pack-'));
    const put = (path: string, from?: string): void => {
      mkdirSync(dirname(join(tree, path)), { recursive: true });
      if (from === undefined) writeFileSync(join(tree, path), '');
      else copyFileSync(join(projectRoot, from), join(tree, path));
    };
    const pack = (native: string): { readonly status: number | null; readonly stderr: string } => {
      const env = { ...process.env, MILLRACE_NATIVE: native };
      return spawnSync('npm', ['pack', '--dry-run'], { cwd: tree, encoding: 'utf8', env });
    };
    for (const path of ['package.json', 'tools/prepack.mjs']) put(path, path);
    const refused = (what: string) => ({
      status: 1,
      stderr: expect.stringContaining(
        `error: the package would lack ${what}, which no clone has; run bin/bootstrap first`,
      ),
    });
    expect(pack('auto')).toMatchObject(refused('dist/ and prebuilds/'));
    put('dist/src/bin/main.js');
    expect(pack('auto')).toMatchObject(refused('prebuilds/'));
    expect(pack('off')).toMatchObject({ status: 0 });
    put('prebuilds/linux-x64-glibc/millrace.node');
    expect(pack('auto')).toMatchObject({ status: 0 });
    rmSync(tree, { recursive: true });
  });

  it('the package ships the launcher and exports one entry point per product', () => {
    expect(existsSync(join(projectRoot, manifest.bin.millrace))).toBe(true);
    for (const target of Object.values<string | { default: string }>(manifest.exports)) {
      const path = typeof target === 'string' ? target : target.default;
      expect(existsSync(join(projectRoot, path)), path).toBe(true);
    }
  });
});

/** Service of a user, which the test compiles and runs. */
const SERVICE = `
import { Metrics, openMetricsPage, registerMetrics } from 'millrace/drivers';
import * as engine from 'millrace/engine';
import { append, type OutboxEvent, Service } from 'millrace/outbox';
import { type KnexTransaction, knexTransaction } from 'millrace/outbox/adapters';
import { type AdapterHarness, adapterContract } from 'millrace/outbox/testing';
import * as registry from 'millrace/registry';

interface Place { readonly lat: number; readonly lon?: number }
interface Moved { readonly parcel: string; readonly at: Place; readonly tags: readonly string[] }

const payload: Moved = { parcel: 'p', at: { lat: 1 }, tags: [] };
const event: OutboxEvent = { aggregateId: '01890a5d-ac96-774b-bcce-b302099a8057', eventType: 'moved.v1', payload };

async function main(): Promise<void> {
  const appended: unknown[] = [];
  const tx = { query: async (...all: unknown[]) => { appended.push(all); return { rows: [{ open: 'true' }] }; } };
  await append(tx, 'sent', [event]);
  const trx: KnexTransaction = { raw: (text: string, bindings: unknown[]) => tx.query(text, bindings) };
  await append(knexTransaction(trx), 'sent', [event]);
  const harness: AdapterHarness = {
    transaction: (work) => work(knexTransaction(trx)),
    outside: async (work) => { await work(tx); },
    observer: tx,
  };
  console.log(adapterContract(harness).cases.length > 20);
  const metrics = new Metrics();
  metrics.counter('moves_total', 'Moves.').add(3);
  const page = await openMetricsPage(metrics);
  console.log(page.contentType);
  console.log(await page.text());
  const client = new registry.SchemaRegistry({ url: 'http://127.0.0.1:9' });
  const decoder: registry.RecordColumnDecoder<Moved> = client.columnDecoder<Moved>({ fields: ['parcel'] });
  const records: registry.ColumnRecords<Moved> = await decoder.decode([null]);
  const moved: Moved | null = records.row(0);
  const groups: readonly registry.WriterRecords<Moved>[] = await decoder.decodeByWriter([]);
  const encoder: registry.RecordColumnEncoder = client.columnEncoder({ topic: 'moves', version: 'latest' });
  const schema: registry.Serializer<Moved> = client.serializer<Moved>({ topic: 'moves', version: 'latest' });
  const chosen: OutboxEvent[] = [
    { aggregateId: 'parcel 7', eventType: 'moved.v1', schema, value: payload, headers: { a: 'b' }, topic: 'moves' },
    { aggregateId: 'parcel 7', eventType: 'moved.v1', payload, cloudEvent: { source: '/a' }, partitionKey: 'k' },
  ];
  console.log(typeof registerMetrics, chosen.length);
  console.log(records.stateOf(0), moved, groups.length, typeof encoder.encode);
  console.log(typeof Service.open, Object.keys(engine).length > 0, Object.keys(registry).length > 0, appended.length);
}
void main();
`;
const run = promisify(execFile);

describe('TypeScript service', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-types-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, 'node_modules', '@types'), { recursive: true });
  symlinkSync(projectRoot, join(folder, 'node_modules', 'millrace'));
  symlinkSync(join(projectRoot, 'node_modules/@types/node'), join(folder, 'node_modules/@types/node'));

  const ways = [
    ['commonjs', 'node16', 'node16', 'typescript'],
    ['commonjs', 'nodenext', 'nodenext', 'typescript-native'],
    ['commonjs', 'commonjs', 'bundler', 'typescript-native'],
    ['module', 'node16', 'node16', 'typescript-native'],
  ];
  it.each(isFull ? ways : ways.slice(0, 2))(
    'a service of type %s compiles with module %s, including payloads declared as interfaces, and serves its metrics',
    async (type, module, resolution, compiler) => {
      const own = join(folder, `${type}-${module}`);
      mkdirSync(own);
      writeFileSync(join(own, 'package.json'), JSON.stringify({ type }));
      writeFileSync(join(own, 'service.ts'), SERVICE);
      const flags = ['--strict', '--exactOptionalPropertyTypes', '--target', 'es2022', '--types', 'node'];
      const compiled = await run(
        process.execPath,
        [
          join(projectRoot, 'node_modules', compiler, 'bin/tsc'),
          ...flags,
          ...['--module', module, '--moduleResolution', resolution, '--outDir', own, join(own, 'service.ts')],
        ],
        { cwd: folder },
      ).catch((thrown: { stdout: string }) => thrown);
      expect(compiled.stdout).toBe('');
      const { stdout } = await run(process.execPath, [join(own, 'service.js')]);
      expect(stdout).toContain('text/plain; version=0.0.4');
      expect(stdout).toContain('\nmoves_total 3\n');
      expect(stdout).toMatch(/\nprocess_cpu_seconds_total \d/);
      expect(stdout).toMatch(/^true\n/);
      expect(stdout).toContain('\nfunction 2\nnull null 0 function\n');
      expect(stdout).toContain('\nfunction true true 2\n');
    },
    120_000,
  );
});

describe('package-lock.json', () => {
  it('package-lock.json names no registry host and no git source', () => {
    const text = JSON.stringify(lock);
    expect(text).not.toMatch(/"resolved"/);
    expect(text).not.toMatch(/git\+|github:/);
  });
});

describe('librdkafka', () => {
  it('librdkafka was compiled with everything that a cluster may require of a client', () => {
    const kafka = createRequire(import.meta.url)('node-rdkafka') as { features: readonly string[] };
    expect(kafka.features).toEqual(expect.arrayContaining(['ssl', 'zstd', 'lz4', 'sasl']));
  });
});

describe('git', () => {
  it('git tracks no file that a build generates', () => {
    const ignored = readFileSync(join(projectRoot, '.gitignore'), 'utf8').split('\n');
    expect(ignored).toEqual(expect.arrayContaining(GENERATED.map((name) => `${name}/`)));
    const generated = new RegExp(`^(${GENERATED.map((name) => name.replace('.', '\\.')).join('|')})/`);
    expect(repositoryFiles().filter((path) => generated.test(path))).toEqual([]);
  });
});
