/** Rules of the repository that no other tool checks, over every file that git tracks or would
 *  track. */
import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { projectRoot, repositoryFiles } from './root.ts';

const LINES_MAX = 800;
const FILES_MAX = 15;

const files = repositoryFiles();
/** Written by generators: our own, and that of Prisma. */
const GENERATED = /\.gen\.(ts|h)$|^test\/clients\/prisma\/generated\//;
const source = files.filter((path) => /\.(ts|mjs|cjs|cc|h)$/.test(path) && !GENERATED.test(path));
const text = (path: string): string => readFileSync(join(projectRoot, path), 'utf8');
const self = 'test/repository/tidy.test.ts';

describe('source files', () => {
  it('the check finds the source files at all', () => {
    expect(source.length).toBeGreaterThan(50);
  });

  it(`every file has at most ${LINES_MAX} lines`, () => {
    expect(
      source
        .map((path) => ({ path, lines: text(path).split('\n').length - 1 }))
        .filter(({ lines }) => lines > LINES_MAX),
    ).toEqual([]);
  });

  it(`no folder of src or native has more than ${FILES_MAX} source files, except the folder with one file for each command`, () => {
    const counts = new Map<string, number>();
    for (const path of source.filter((file) => /^(src|native)\//.test(file)))
      counts.set(dirname(path), (counts.get(dirname(path)) ?? 0) + 1);
    counts.delete('src/bin');
    expect([...counts].filter(([, count]) => count > FILES_MAX)).toEqual([]);
  });

  it('no file of src or native repeats the name of its folder', () => {
    const repeats = (path: string): boolean => {
      const folder = basename(dirname(path));
      const name = basename(path).replace(/\.\w+$/, '');
      return name === folder || name.startsWith(`${folder}-`) || name.startsWith(`${folder}_`);
    };
    expect(source.filter((path) => /^(src|native)\//.test(path) && repeats(path))).toEqual([]);
  });

  it('no file contains a reminder such as TODO or FIXME', () => {
    expect(source.filter((path) => path !== self && /\b(TODO|FIXME|XXX|HACK)\b/.test(text(path)))).toEqual(
      [],
    );
  });

  it('no test file skips a test', () => {
    const skipping = /\b(it|test|describe)\.(skip|todo|only|fails|skipIf|runIf)\b/;
    expect(
      source.filter(
        (path) =>
          path.startsWith('test/') &&
          !path.startsWith('test/repository/fixtures/') &&
          path !== self &&
          skipping.test(text(path)),
      ),
    ).toEqual([]);
  });

  it('only test/wait.ts waits or reads the clock', () => {
    const timed =
      /\bset(Timeout|Interval)\(|node:timers\/promises|\b(Date|performance)\.now\b|\bpg_sleep\b|\bcpuMs\b|\bcpuUsage\b|\bhrtime\b/;
    const found = source
      .filter((path) => /^test\/.*\.ts$/.test(path) && path !== self && path !== 'test/wait.ts')
      // This file measures CPU time.
      .filter((path) => path !== 'test/unit/bench/effects.test.ts')
      .filter((path) => timed.test(text(path)));
    expect(found).toEqual([]);
  });

  it('no program that a test starts reads the clock', () => {
    const clock =
      /\b(Date|performance)\.now\b|\bhrtime\b|\bnew Date\(\)|\bcpuUsage\b|\bAbortSignal\.timeout\b/;
    const programs = source.filter((path) => /^test\/.*\.mjs$/.test(path));
    expect(programs.length).toBeGreaterThan(10);
    expect(programs.filter((path) => clock.test(text(path)))).toEqual([]);
  });

  it('no file names a package registry by host or a path of one machine', () => {
    const hosts =
      /registry\.npmjs\.org|registry\.yarnpkg|repo1?\.maven\.(apache\.)?org|deb\.debian\.org|pypi\.org|static\.crates\.io|proxy\.golang\.org/;
    const paths = /\/(root|home\/\w+|work)\/\w/;
    const readable = files.filter((path) => path !== self && !/\.(png|svg|gz)$/.test(path));
    expect(readable.filter((path) => hosts.test(text(path)))).toEqual([]);
    expect(readable.filter((path) => paths.test(text(path)))).toEqual([]);
  });
});

describe('module boundaries', () => {
  it('only one folder includes node_api.h, one rdkafka.h and one rocksdb/c.h', () => {
    const native = source.filter((path) => path.startsWith('native/'));
    const including = (header: string): string[] =>
      native.filter((path) => new RegExp(`#include\\s*[<"]([\\w/]*/)?${header}[>"]`).test(text(path)));
    expect(including('node_api\\.h').filter((path) => !path.startsWith('native/binding/'))).toEqual([]);
    expect(including('rdkafka\\.h').filter((path) => !path.startsWith('native/broker/'))).toEqual([]);
    const store = native.filter((path) => /#include\s*[<"]rocksdb\//.test(text(path)));
    expect(store.length).toBeGreaterThan(0);
    expect(store.filter((path) => !path.startsWith('native/state/'))).toEqual([]);
  });

  it('only bin, drivers and the devstack read the environment, and core reads no clock', () => {
    const pure = source.filter((path) =>
      /^src\/(core|addon|formats|serde|registry|outbox|engine|gen|sim)\//.test(path),
    );
    expect(pure.filter((path) => /process\.env\b/.test(text(path)))).toEqual([]);
    const core = pure.filter((path) => path.startsWith('src/core/'));
    expect(core.filter((path) => /from 'node:/.test(text(path)))).toEqual([]);
    expect(core.filter((path) => /Math\.random|Date\.now|new Date\(\)/.test(text(path)))).toEqual([]);
  });
});
