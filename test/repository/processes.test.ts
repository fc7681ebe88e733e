/** End-to-end tests start commands and servers only through test/fixtures. One module has the flags
 *  that every start needs, the wait for readiness and the clean-up of a command. */
import { describe, expect, it } from 'vitest';
import { FAST_COMMANDS } from '../tiers.ts';
import { read, repositoryFiles } from './root.ts';

/** Commands that run until they are stopped. */
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

/** Patterns of code that waits for a time: a pause or a turn from test/wait.ts, or a timer. */
const WAITS = [
  /import\s*\{[^}]*\b(?:pause|turns?)\b[^}]*\}\s*from '[./]*\/wait\.ts'/,
  /\bset(?:Timeout|Interval|Immediate)\(/,
  /node:timers\/promises/,
];

const SHORT_RUNS = 'has many runs that end by themselves, which would each wait for the start of a process';
const PATH_OF_A_SHELL = 'runs the shell commands of a page, which find the launcher through PATH';

/** Files that may bypass the fixtures, each with the reason. */
const EXCEPTIONS: Readonly<Record<string, string>> = {
  'test/e2e/compat-check.test.ts': SHORT_RUNS,
  'test/e2e/gen.test.ts': SHORT_RUNS,
  'test/e2e/gen-types.test.ts': SHORT_RUNS,
  'test/e2e/reconcile-kit.ts': SHORT_RUNS,
  'test/e2e/reconcile.test.ts': SHORT_RUNS,
  'test/e2e/compat-check-gate.test.ts': PATH_OF_A_SHELL,
  'test/e2e/compat-check-session.test.ts': PATH_OF_A_SHELL,
  'test/e2e/engine-flink.test.ts': PATH_OF_A_SHELL,
  'test/e2e/registry-session.test.ts': PATH_OF_A_SHELL,
  'test/e2e/windows-session.test.ts': PATH_OF_A_SHELL,
  'test/e2e/offline.test.ts': 'runs bin/bootstrap and the launcher in a shell without a network',
  'test/e2e/package-install.test.ts': 'runs the launcher of an installed package',
};

type Texts = ReadonlyMap<string, string>;

const waysOf = (text: string): string[] => Object.keys(WAYS).filter((way) => WAYS[way]?.test(text));

/** Files of test/e2e without an exception that start a process without the fixtures. */
function bypasses(files: Texts): string[] {
  return [...files]
    .filter(([path]) => /^test\/e2e\/.*\.(ts|mjs)$/.test(path) && !(path in EXCEPTIONS))
    .flatMap(([path, text]) => waysOf(text).map((way) => `${path} ${way}`));
}

/** Exceptions for files that bypass nothing, or that do not exist. */
function staleExceptions(files: Texts): string[] {
  return Object.keys(EXCEPTIONS).filter((path) => waysOf(files.get(path) ?? '').length === 0);
}

/** Fixtures that wait for a time. */
function timedFixtures(files: Texts): string[] {
  return [...files]
    .filter(([path, text]) => path.startsWith('test/fixtures/') && WAITS.some((wait) => wait.test(text)))
    .map(([path]) => path);
}

const texts: Texts = new Map(
  repositoryFiles()
    .filter((path) => /^test\/(e2e|fixtures)\/.*\.(ts|mjs)$/.test(path))
    .map((path) => [path, read(path)]),
);

describe('processes of end-to-end tests', () => {
  it('end-to-end tests start commands and servers through test/fixtures', () => {
    expect([...texts.keys()].filter((path) => path.startsWith('test/e2e/')).length).toBeGreaterThan(100);
    expect(bypasses(texts)).toEqual([]);
  });

  it('every exception still bypasses the fixtures', () => {
    expect(staleExceptions(texts)).toEqual([]);
  });

  it('a fixture waits for states and never for a time', () => {
    expect([...texts.keys()].filter((path) => path.startsWith('test/fixtures/')).length).toBeGreaterThan(10);
    expect(timedFixtures(texts)).toEqual([]);
  });

  it('the check knows every command that runs until it is stopped', () => {
    const stopped = Object.keys(FAST_COMMANDS).filter((name) => FAST_COMMANDS[name]?.survives !== undefined);
    expect([...COMMANDS].sort()).toEqual(stopped.sort());
  });
});

const LINES: ReadonlyArray<readonly [way: string, line: string]> = [
  ['starts a process of the launcher', "const one = own.spawn('relay', ['relay', ...flags]);"],
  ...COMMANDS.map(
    (name) => ['runs a long-running command as a tool', `await own.run(['${name}', ...args]);`] as const,
  ),
  ['runs a long-running command as a tool', "await own.run([...['orders', '-migrate'], ...flags]);"],
  ['runs a long-running command as a tool', "await own.run([\n  'engine',\n  ...args,\n]);"],
  ['names the launcher', "spawn(process.execPath, [join(packageRoot(), 'bin', 'millrace'), 'registry']);"],
  ['names the launcher', "new URL('../../bin/millrace', import.meta.url)"],
  ['names the launcher', "env: { PATH: join(packageRoot(), 'bin') }"],
  [
    'runs a command in the process of the test',
    "import { command as orders } from '../../src/bin/orders.ts';",
  ],
  ['starts the servers of a stack', 'const stack = await startStack({ folder });'],
];

describe('planted faults of end-to-end tests', () => {
  it('every pattern of the check has a planted fault', () => {
    expect([...new Set(LINES.map(([way]) => way))].sort()).toEqual(Object.keys(WAYS).sort());
  });

  it.each(LINES)('a test or kit that %s is refused: %s', (way, line) => {
    for (const path of ['test/e2e/planted.test.ts', 'test/e2e/planted-kit.ts', 'test/e2e/planted.worker.mjs'])
      expect(bypasses(new Map([...texts, [path, line]]))).toEqual([`${path} ${way}`]);
    expect(bypasses(new Map([['test/fixtures/planted.ts', line]]))).toEqual([]);
  });

  it.each([
    "const one = await startRelay(own, ['-mode=poll']);",
    "const { code } = await own.run(['reconcile', ...flags]);",
    "import { Registry } from '../../src/registry/index.ts';",
    'const stack = await sharedStack();',
  ])('a test that uses the fixtures or a short command is accepted: %s', (line) => {
    expect(bypasses(new Map([['test/e2e/planted.test.ts', line]]))).toEqual([]);
  });

  it('an exception for a file that bypasses nothing or does not exist is refused', () => {
    for (const path of Object.keys(EXCEPTIONS)) {
      expect(staleExceptions(new Map([...texts, [path, 'await startRegistry(own);']]))).toEqual([path]);
      expect(staleExceptions(new Map([...texts].filter(([other]) => other !== path)))).toEqual([path]);
    }
  });

  it.each([
    "import { pause } from '../wait.ts';",
    "import {\n  pause,\n  until,\n} from '../wait.ts';",
    "import { arrival, turn } from '../wait.ts';",
    "import { turns, until } from '../wait.ts';",
    ...['setTimeout', 'setInterval', 'setImmediate'].map((timer) => `const one = ${timer}(poll, 100);`),
    `import { setTimeout as sleep } from '${['node:timers', 'promises'].join('/')}';`,
  ])('a fixture that waits for a time is refused: %s', (text) => {
    expect(timedFixtures(new Map([...texts, ['test/fixtures/planted.ts', text]]))).toEqual([
      'test/fixtures/planted.ts',
    ]);
  });
});
