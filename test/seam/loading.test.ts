/** Tests how the addon is found and loaded, which addons are refused, and that MILLRACE_NATIVE=off
 *  never loads it. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { chooseNative, findAddon, loadAddon, loadKernels } from '../../src/addon/load.ts';
import { ADDON_ABI } from '../../src/addon/raw.ts';
import { loadStateAddon } from '../../src/addon/state.ts';
import { LAYOUT_FINGERPRINT } from '../../src/core/layout/layouts.gen.ts';
import { projectRoot } from '../repository/root.ts';
import { addonPath, includeFolder, raw } from './kit.ts';

const scratch = mkdtempSync(join(tmpdir(), 'millrace-seam-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

function buildTestAddon(name: string, defines: readonly string[]): string {
  const path = join(scratch, `${name}.node`);
  const args = ['-shared', '-fPIC', '-x', 'c', `-I${includeFolder()}`, '-DNAPI_VERSION=9', ...defines];
  const source = join(projectRoot, 'test', 'seam', 'foreign.c');
  const built = spawnSync(process.env['CXX'] ?? 'c++', [...args, source, '-o', path], { encoding: 'utf8' });
  expect(built.stderr).toBe('');
  return path;
}

/** Output of a binutils tool about the addon. */
const inspect = (tool: string, ...args: readonly string[]): string =>
  spawnSync(tool, [...args, addonPath], { encoding: 'utf8' }).stdout;

const code = (expected: string) => expect.objectContaining({ name: 'MillraceError', code: expected });

describe('addon loading', () => {
  it('the addon reports the layouts and the ABI of these sources', () => {
    const addon = loadAddon();
    expect(addon.layoutFingerprint).toBe(LAYOUT_FINGERPRINT);
    expect(addon.abi).toBe(ADDON_ABI);
    expect(loadAddon()).toBe(addon);
  });

  it('the addon exports what raw.ts declares, in that order', () => {
    const declared = ['raw.ts', 'broker-functions.ts'].flatMap((file) => {
      const text = readFileSync(join(projectRoot, 'src', 'addon', file), 'utf8');
      const bodies = text.matchAll(/interface \w+(?: extends [^{]+)? \{\n(.*?)^\}/gms);
      return [...bodies].flatMap(([, body]) =>
        [...(body as string).matchAll(/^ {2}(?:readonly )?(\w+)[(:]/gm)].map(([, name]) => name as string),
      );
    });
    expect(Object.keys(raw)).toEqual(declared);
  });

  it('the addon shows the process its two entry points and finds its library by relative paths', () => {
    const dynamic = inspect('readelf', '-dW');
    expect(dynamic).toMatch(/\(NEEDED\) .*\[librdkafka\.so\.1\]/);
    const runpath = /\(R(?:UN)?PATH\) .*\[(.*)\]/.exec(dynamic)?.[1] ?? '';
    expect(runpath.split(':')).toEqual([
      '$ORIGIN/../../node_modules/node-rdkafka/build/deps',
      '$ORIGIN/../../../node-rdkafka/build/deps',
    ]);
    const symbols = inspect('nm', '-D', '--defined-only');
    const shown = symbols
      .trim()
      .split('\n')
      .map((line) => line.split(' ').at(-1));
    expect(shown.sort()).toEqual(['napi_register_module_v1', 'node_api_module_get_api_version_v1']);
  });

  it.each([
    ['other layouts', [`-DLAYOUT=${LAYOUT_FINGERPRINT ^ 1}`, `-DABI=${ADDON_ABI}`]],
    ['another ABI', [`-DLAYOUT=${LAYOUT_FINGERPRINT}u`, `-DABI=${ADDON_ABI + 1}`]],
    ['no identity', []],
  ])('the loader refuses an addon with %s, and the message states what to do', (name, defines) => {
    const path = buildTestAddon(name.replaceAll(' ', '-'), defines);
    expect(() => loadAddon(path)).toThrow(code('addon_mismatch'));
    expect(() => loadAddon(path)).toThrow(
      expect.objectContaining({ next: expect.stringContaining('build:native') }),
    );
  });

  it('the loader accepts the test addon with the right identity, so the refusals have the stated reason', () => {
    const path = buildTestAddon('same-identity', [`-DLAYOUT=${LAYOUT_FINGERPRINT}u`, `-DABI=${ADDON_ABI}`]);
    expect(loadAddon(path).layoutFingerprint).toBe(LAYOUT_FINGERPRINT);
  });

  it('the loader refuses an addon that is missing or no addon at all', () => {
    expect(() => loadAddon(join(scratch, 'nowhere.node'))).toThrow(code('addon_missing'));
    cpSync(join(projectRoot, 'LICENSE'), join(scratch, 'text.node'));
    expect(() => loadAddon(join(scratch, 'text.node'))).toThrow(code('addon_missing'));
  });

  it('the error about a missing addon names the folder and the script that build it', () => {
    const next = expect.stringContaining(`\`cd ${projectRoot} && npm run build:native\``);
    for (const load of [loadAddon, loadStateAddon])
      expect(() => load(null)).toThrow(expect.objectContaining({ code: 'addon_missing', next }));
  });

  it('the loader searches for the addon in prebuilds first, then in build/Release', () => {
    const root = mkdtempSync(join(scratch, 'root-'));
    expect(findAddon(root)).toBeNull();
    const built = join(root, 'build', 'Release', 'millrace.node');
    mkdirSync(dirname(built), { recursive: true });
    cpSync(addonPath, built);
    expect(findAddon(root)).toBe(built);
    const foreign = join(root, 'prebuilds', 'plan9-mips-unknown', 'millrace.node');
    mkdirSync(dirname(foreign), { recursive: true });
    cpSync(addonPath, foreign);
    expect(findAddon(root)).toBe(built);
    // An addon of another C library does not load, so it counts as missing.
    const name = dirname(addonPath).split('/').at(-1) as string;
    const machine = `${process.platform}-${process.arch}`;
    const otherLibc = name.endsWith('-glibc') ? 'musl' : 'glibc';
    const unloadable = join(root, 'prebuilds', `${machine}-${otherLibc}`, 'millrace.node');
    mkdirSync(dirname(unloadable), { recursive: true });
    cpSync(addonPath, unloadable);
    expect(findAddon(root)).toBe(built);
    const installed = join(root, 'prebuilds', name, 'millrace.node');
    mkdirSync(dirname(installed), { recursive: true });
    cpSync(addonPath, installed);
    expect(findAddon(root)).toBe(installed);
  });
});

describe('MILLRACE_NATIVE', () => {
  it('MILLRACE_NATIVE=on requires the addon, off ignores it, and an unset value uses the addon where it was built', () => {
    expect(chooseNative('on', null)).toMatchObject({ mode: 'native', warn: false });
    expect(chooseNative('off', addonPath)).toMatchObject({ mode: 'reference', warn: false });
    for (const silent of [undefined, '', 'auto']) {
      expect(chooseNative(silent, addonPath)).toMatchObject({ mode: 'native', warn: false });
      const fallen = chooseNative(silent, null);
      expect(fallen).toMatchObject({ mode: 'reference', warn: true });
      expect(fallen.reason).toContain('npm run build:native');
    }
    for (const wrong of ['ON', 'true', '1', 'no'])
      expect(() => chooseNative(wrong, addonPath)).toThrow(code('bad_value'));
  });

  it('the loaded kernels name their implementation', () => {
    expect(loadKernels('native').name).toBe('native');
    expect(loadKernels('reference').name).toBe('reference');
  });
});

interface Ran {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** Addons and client libraries that were mapped when the process ended. */
  readonly mapped: readonly string[];
}

function runMapped(root: string, args: readonly string[], native: string): Ran {
  const env = { ...process.env, MILLRACE_NATIVE: native, NODE_OPTIONS: '' };
  const maps = fileURLToPath(new URL('./maps.cjs', import.meta.url));
  const { status, stdout, stderr } = spawnSync(process.execPath, ['--require', maps, ...args], {
    cwd: root,
    env,
    encoding: 'utf8',
    timeout: 120_000,
  });
  const line = /^mapped=(.*)$/m.exec(stderr)?.[1];
  return { status, stdout, stderr, mapped: line === undefined ? ['unknown'] : JSON.parse(line) };
}

describe('addon in a process', () => {
  it.each([
    join('prebuilds', dirname(addonPath).split('/').at(-1) as string, 'millrace.node'),
    join('build', 'Release', 'millrace.node'),
  ])('a process with node-rdkafka and %s has one copy of the client library', (path) => {
    const script = `
      const addon = require(${JSON.stringify(join(projectRoot, path))});
      const client = require('node-rdkafka');
      if (client.librdkafkaVersion !== addon.brokerLibrary()[0]) throw new Error('two versions');
    `;
    for (const text of [script, `require('node-rdkafka');${script}`]) {
      const ran = runMapped(projectRoot, ['-e', text], 'on');
      expect(ran.status, ran.stderr).toBe(0);
      expect(ran.mapped.filter((one) => one.endsWith('millrace.node'))).toEqual([join(projectRoot, path)]);
      const libraries = ran.mapped.filter((one) => /librdkafka\.so/.test(one));
      expect(libraries).toEqual([expect.stringMatching(/node-rdkafka\/build\/deps\/librdkafka\.so\.1$/)]);
    }
  });

  /** Copies the built project to another folder, without an addon. */
  function withoutAddon(): string {
    const root = mkdtempSync(join(scratch, 'project-'));
    for (const part of ['bin', join('dist', 'src'), 'package.json'])
      cpSync(join(projectRoot, part), join(root, part), { recursive: true });
    symlinkSync(join(projectRoot, 'node_modules'), join(root, 'node_modules'));
    return root;
  }
  const gen = ['bin/millrace', 'gen', '-kind=events', '-count=500', '-seed=7', '-out=-', '-log-level=info'];

  it('a process with MILLRACE_NATIVE=off never maps the addon and writes the same bytes without the file', () => {
    const on = runMapped(projectRoot, gen, 'on');
    expect(on.status, on.stderr).toBe(0);
    expect(on.mapped).toContain(addonPath);
    expect(on.stdout.length).toBeGreaterThan(1000);

    const off = runMapped(projectRoot, gen, 'off');
    expect([off.status, off.mapped.filter((path) => path.endsWith('millrace.node'))]).toEqual([0, []]);
    expect(off.stdout).toBe(on.stdout);

    const root = withoutAddon();
    const gone = runMapped(root, gen, 'off');
    expect([gone.status, gone.mapped.filter((path) => path.endsWith('millrace.node'))]).toEqual([0, []]);
    expect(gone.stdout).toBe(on.stdout);
  });

  /** Manifest of the folder in which an error tells to build the addon. */
  function buildFolderOf(message: string): unknown {
    const folder = /`cd (\S+) && npm run build:native`/.exec(message)?.[1] ?? 'nowhere';
    return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  }

  it('a process with MILLRACE_NATIVE=on and no addon file ends with one clear line', () => {
    const gone = runMapped(withoutAddon(), gen, 'on');
    expect(gone.status).toBe(3);
    expect(gone.stdout).toBe('');
    expect(gone.stderr).toMatch(/native addon is not built.*npm run build:native/);
    expect(buildFolderOf(gone.stderr)).toHaveProperty('scripts.build:native');
    expect(gone.stderr).not.toMatch(/^\s+at /m);
  });
});
