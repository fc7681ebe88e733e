/** The second pass is short and leaves nothing out: every command, kernel and driver that meets the addon is in it. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { HAND_ON_ONLY, LONGEST_FIRST, SECOND_PASS, SECOND_PASS_ONLY } from '../passes.ts';
import { projectRoot, read, repositoryFiles, withKits } from './root.ts';

/** Names of the commands that ask src/bin/shell/drivers.ts for the broker or the kernels, or a part of which does. */
function commandsOnTheAddon(): string[] {
  const asks = (path: string): boolean =>
    /^import .*\b(brokerDriver|kernels)\b.*shell\/drivers/m.test(read(path));
  return readdirSync(join(projectRoot, 'src/bin'))
    .filter((name) => name.endsWith('.ts') && name !== 'main.ts')
    .map((name) => name.slice(0, -3))
    .filter((name) => {
      const folder = join(projectRoot, 'src/bin', name);
      const parts = existsSync(folder) ? readdirSync(folder).map((part) => `src/bin/${name}/${part}`) : [];
      return [`src/bin/${name}.ts`, ...parts].some(asks);
    });
}

describe('the passes', () => {
  it('name files that are there, each once', () => {
    for (const list of [SECOND_PASS, SECOND_PASS_ONLY, HAND_ON_ONLY, LONGEST_FIRST]) {
      expect(list.filter((path) => !existsSync(join(projectRoot, path)))).toEqual([]);
      expect(new Set(list).size).toBe(list.length);
    }
    expect(SECOND_PASS_ONLY.filter((path) => !SECOND_PASS.includes(path))).toEqual([]);
  });

  it('run every command that meets the addon on its twins, too', () => {
    const commands = commandsOnTheAddon();
    expect(commands).toEqual(
      expect.arrayContaining(['consumer', 'engine', 'payments', 'producer', 'registry', 'relay']),
    );
    const second = SECOND_PASS.flatMap((path) => [...withKits(path).values()]).join('\n');
    const isRun = (name: string): boolean =>
      second.includes(`'${name}'`) || second.includes(`/bin/${name}.ts'`);
    expect(commands.filter((name) => !isRun(name))).toEqual([]);
  });

  it('run every file that does as MILLRACE_NATIVE says in both', () => {
    const follows = (path: string): boolean =>
      [...withKits(path).values()].some((text) => text.includes("process.env['MILLRACE_NATIVE']"));
    const files = repositoryFiles().filter((path) => /^test\/.*\.test\.ts$/.test(path));
    expect(files.length).toBeGreaterThan(100);
    const known = new Set([...SECOND_PASS, ...HAND_ON_ONLY]);
    const self = 'test/house/passes.test.ts';
    expect(files.filter((path) => path !== self && follows(path) && !known.has(path))).toEqual([]);
  });
});
