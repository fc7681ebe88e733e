/** The lint rule in biome.json keeps raw time and randomness out of the products. These tests plant
 *  each forbidden use and expect a finding. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { projectRoot, read } from './root.ts';

interface Override {
  readonly includes: string[];
  readonly plugins?: readonly string[];
}
interface BiomeConfig {
  readonly overrides: readonly Override[];
}

const PLUGIN = 'tools/lint/raw-time.grit';
const FINDING = /^. (\S+?):(\d+):\d+: (?:plugin|lint\/style\/noRestricted(?:Globals|Imports)): /gm;

const tree = mkdtempSync(join(tmpdir(), 'millrace-raw-time-'));
afterAll(() => rmSync(tree, { recursive: true, force: true }));

const config = JSON.parse(read('biome.json')) as BiomeConfig;
const rule = config.overrides.find(({ plugins }) => plugins?.includes(`./${PLUGIN}`)) as Override;

/** Lines that the rule refuses in a tree of these files, by file. */
function refused(files: Readonly<Record<string, string>>): ReadonlyMap<string, readonly number[]> {
  rmSync(join(tree, 'src'), { recursive: true, force: true });
  const put = (path: string, text: string): void => {
    mkdirSync(dirname(join(tree, path)), { recursive: true });
    writeFileSync(join(tree, path), text);
  };
  for (const [path, text] of Object.entries(files)) put(path, text);
  const strict = structuredClone(config) as BiomeConfig & Record<string, unknown>;
  strict['vcs'] = { enabled: false };
  put('biome.json', JSON.stringify(strict));
  cpSync(join(projectRoot, PLUGIN), join(tree, PLUGIN));
  rmSync(join(tree, 'node_modules'), { force: true });
  symlinkSync(join(projectRoot, 'node_modules'), join(tree, 'node_modules'));
  const { stdout, stderr } = spawnSync(
    join(projectRoot, 'node_modules/.bin/biome'),
    ['lint', '--colors=off', '--reporter=concise', '--max-diagnostics=1000', 'src'],
    { cwd: tree, encoding: 'utf8' },
  );
  expect(`${stdout}${stderr}`).toContain(`Checked ${Object.keys(files).length} file`);
  const found = new Map<string, number[]>();
  for (const [, path, line] of `${stdout}${stderr}`.matchAll(FINDING)) {
    const lines = found.get(path as string) ?? [];
    if (!lines.includes(Number(line))) lines.push(Number(line));
    found.set(path as string, lines);
  }
  for (const lines of found.values()) lines.sort((a, b) => a - b);
  return found;
}

describe('the lint rule against raw time and randomness', () => {
  const planted = read('test/repository/fixtures/raw-time.txt');
  const clean = read('test/repository/fixtures/raw-time-clean.txt');

  it('the lint rule refuses each planted use in each product and below, and no time that is handed in', () => {
    const folders = ['core', 'access', 'engine', 'gen', 'outbox', 'registry'];
    const files = folders.flatMap((folder) => [
      [`src/${folder}/planted.ts`, planted],
      // In core, other rules also refuse modules of Node.js and `Date` itself.
      ...(folder === 'core' ? [] : [[`src/${folder}/clean.ts`, clean]]),
    ]);
    const found = refused(Object.fromEntries(files));
    const uses = planted.split('\n').flatMap((line, i) => (/imports =|^$/.test(line) ? [] : [i + 1]));
    expect(Object.fromEntries(found)).toEqual(
      Object.fromEntries(folders.map((folder) => [`src/${folder}/planted.ts`, uses])),
    );
  });

  it('the lint rule against raw time exempts no file', () => {
    expect(rule.includes.filter((path) => path.startsWith('!'))).toEqual([]);
  });
});
