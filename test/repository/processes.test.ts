/** End-to-end tests start commands and servers only through test/fixtures. One module has the flags
 *  that every start needs, the wait for readiness and the clean-up of a command. */
import { describe, expect, it } from 'vitest';
import { read, repositoryFiles } from './root.ts';

const COMMANDS = ['registry', 'orders', 'relay', 'payments', 'engine', 'consumer'];

/** Patterns of code that starts a process without the fixtures. */
const WAYS: Readonly<Record<string, RegExp>> = {
  'starts a process of the launcher': /\.spawn\b/,
  'runs a long-running command as a tool': new RegExp(
    `\\.run\\(\\[\\s*(\\.\\.\\.\\[)?'(${COMMANDS.join('|')})'`,
  ),
  'names the launcher': /bin\/millrace|'bin', 'millrace'|join\(packageRoot\(\), 'bin'\)/,
  'runs a command in the process of the test': /from '[./]*\/src\/bin\//,
  'starts the servers of a stack': /\bstartStack\(/,
};

const SHORT_RUNS = 'has many runs that end by themselves, which would each wait for the start of a process';
const PATH_OF_A_SHELL = 'runs the shell commands of a page, which find the launcher through PATH';

/** Files that may bypass the fixtures, each with the reason. */
const EXCEPTIONS: Readonly<Record<string, string>> = {
  'test/e2e/compat-check.test.ts': SHORT_RUNS,
  'test/e2e/gen.test.ts': SHORT_RUNS,
  'test/e2e/gen-types.test.ts': SHORT_RUNS,
  'test/e2e/reconcile.test.ts': SHORT_RUNS,
  'test/e2e/compat-check-gate.test.ts': PATH_OF_A_SHELL,
  'test/e2e/compat-check-session.test.ts': PATH_OF_A_SHELL,
  'test/e2e/registry-session.test.ts': PATH_OF_A_SHELL,
  'test/e2e/offline.test.ts': 'runs bin/bootstrap and the launcher in a shell without a network',
  'test/e2e/package-install.test.ts': 'runs the launcher of an installed package',
};

const waysOf = (text: string): string[] => Object.keys(WAYS).filter((way) => WAYS[way]?.test(text));

describe('processes of end-to-end tests', () => {
  const files = repositoryFiles();
  const tests = files.filter((path) => /^test\/e2e\/.*\.(ts|mjs)$/.test(path));
  const fixtures = files.filter((path) => path.startsWith('test/fixtures/'));

  it('end-to-end tests start commands and servers through test/fixtures', () => {
    expect(tests.length).toBeGreaterThan(100);
    const around = tests.flatMap((path) => waysOf(read(path)).map((way) => `${path} ${way}`));
    expect(around.filter((line) => !((line.split(' ')[0] as string) in EXCEPTIONS))).toEqual([]);
  });

  it('every exception still bypasses the fixtures', () => {
    expect(Object.keys(EXCEPTIONS).filter((path) => waysOf(read(path)).length === 0)).toEqual([]);
  });

  it.each([
    "const one = own.spawn('relay', ['relay', ...flags]);",
    "await own.run(['engine', ...args]);",
    "await own.run([...['orders', '-migrate'], ...flags]);",
    "spawn(process.execPath, [join(packageRoot(), 'bin', 'millrace'), 'registry']);",
    "new URL('../../bin/millrace', import.meta.url)",
    "import { command as orders } from '../../src/bin/orders.ts';",
    'const stack = await startStack({ folder });',
  ])('the check detects code that bypasses the fixtures: %s', (line) => {
    expect(waysOf(line)).toHaveLength(1);
  });

  it('a fixture waits for states and never for a time', () => {
    expect(fixtures.length).toBeGreaterThan(10);
    expect(
      fixtures.filter((path) => /\b(pause|turns?)\b.*wait\.ts|\bset(Timeout|Interval)\(/.test(read(path))),
    ).toEqual([]);
  });
});
