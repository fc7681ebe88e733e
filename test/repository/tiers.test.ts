/** The fast tier has a test for every command, and the second pass runs every test that uses the
 *  addon. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  FAST_COMMANDS,
  FULL_ONLY,
  fastEndToEnd,
  OWN_PROCESS,
  PASS_ON_ONLY,
  SECOND_PASS,
  SECOND_PASS_ONLY,
} from '../tiers.ts';
import { projectRoot, read, repositoryFiles, withKits } from './root.ts';

/** Commands that run until they are stopped. */
const LONG_RUNNING = ['consumer', 'engine', 'orders', 'payments', 'registry', 'relay'];

const commands = readdirSync(join(projectRoot, 'src/bin'))
  .filter((name) => name.endsWith('.ts') && name !== 'main.ts')
  .map((name) => name.slice(0, -3));

/** Commands that get the broker or the kernels from src/shell/drivers.ts, directly or in a part of
 *  the command. */
function commandsOnTheAddon(): string[] {
  const importsDrivers = (path: string): boolean =>
    /^import .*\b(brokerDriver|kernels)\b.*shell\/drivers/m.test(read(path));
  return commands.filter((name) => {
    const folder = join(projectRoot, 'src/bin', name);
    const found = existsSync(folder) ? readdirSync(folder, { recursive: true, encoding: 'utf8' }) : [];
    const parts = found.filter((part) => part.endsWith('.ts')).map((part) => `src/bin/${name}/${part}`);
    return [`src/bin/${name}.ts`, ...parts].some(importsDrivers);
  });
}

describe('tiers and passes', () => {
  it('the lists of test files name existing files, each once', () => {
    for (const list of [
      SECOND_PASS,
      SECOND_PASS_ONLY,
      PASS_ON_ONLY,
      FULL_ONLY,
      OWN_PROCESS,
      fastEndToEnd(),
    ]) {
      expect(list.filter((path) => !existsSync(join(projectRoot, path)))).toEqual([]);
      expect(new Set(list).size).toBe(list.length);
    }
    expect(SECOND_PASS_ONLY.filter((path) => !SECOND_PASS.includes(path))).toEqual([]);
  });

  it('the fast tier has an end-to-end test for every command, and a SIGKILL test for each long-running command', () => {
    expect(Object.keys(FAST_COMMANDS).sort()).toEqual([...commands].sort());
    const killed = Object.keys(FAST_COMMANDS).filter((name) => FAST_COMMANDS[name]?.survives !== undefined);
    expect(killed.sort()).toEqual(LONG_RUNNING);
    for (const name of LONG_RUNNING)
      expect(read(FAST_COMMANDS[name]?.survives as string), name).toContain('SIGKILL');
  });

  it('the second pass runs every command that uses the addon on the reference implementation', () => {
    const onTheAddon = commandsOnTheAddon();
    expect(onTheAddon).toEqual(
      expect.arrayContaining(['consumer', 'engine', 'payments', 'producer', 'registry', 'relay']),
    );
    const second = SECOND_PASS.flatMap((path) => [...withKits(path).values()]).join('\n');
    const isRun = (name: string): boolean =>
      second.includes(`'${name}'`) || second.includes(`/bin/${name}.ts'`);
    expect(onTheAddon.filter((name) => !isRun(name))).toEqual([]);
  });

  it('a file that replaces a module or counts steps has a process of its own', () => {
    const files = repositoryFiles().filter((path) =>
      /^test\/(conformance|differential|property|unit)\//.test(path),
    );
    expect(files.filter((path) => /\bvi\.(mock|doMock)\(|'(?:\.\.\/)+steps\.ts'/.test(read(path)))).toEqual(
      OWN_PROCESS,
    );
  });

  it('every test file that obeys MILLRACE_NATIVE runs in both passes', () => {
    const obeys = (path: string): boolean =>
      [...withKits(path).values()].some((text) => text.includes("process.env['MILLRACE_NATIVE']"));
    const files = repositoryFiles().filter((path) => /^test\/.*\.test\.ts$/.test(path));
    expect(files.length).toBeGreaterThan(100);
    const known = new Set([...SECOND_PASS, ...PASS_ON_ONLY]);
    const self = 'test/repository/tiers.test.ts';
    expect(files.filter((path) => path !== self && obeys(path) && !known.has(path))).toEqual([]);
  });
});
