// The test runner, called after bin/bootstrap: runs the static checks, the tests of a tier with the
// native addon, then the tests that touch the addon with the TypeScript reference implementation
// (test/tiers.ts). The last line is `N passed, N failed`. A skipped test and a pass without tests
// count as failures.
//
//   node tools/test.mjs [-tier=fast|full|runtime] [-pass=native|reference] [-report=NAME]
//     [-- vitest arguments]
//
// `npm test` runs the fast tier, `npm run test:all` the full tier. The full tier also runs the tier
// `runtime` on other Node.js versions (tools/runtimes.mjs): the fast tier and the package test,
// without the static checks, which depend only on the sources.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runChecks } from './check.mjs';
import { clientsDir, kafkaClientsDirs } from './clients.mjs';
import { oracleCommand } from './oracles.mjs';
import { runRuntimes } from './runtimes.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const option = (name) => process.argv.find((arg) => arg.startsWith(`-${name}=`))?.slice(name.length + 2);
const tier = option('tier') ?? 'fast';
if (!['fast', 'full', 'runtime'].includes(tier)) {
  process.stderr.write(`test: -tier=${tier} is none of fast, full, runtime\n`);
  process.exit(2);
}
const only = option('pass');
const label = option('report') ?? 'test';
const cut = process.argv.indexOf('--');
const vitestArguments = cut < 0 ? [] : process.argv.slice(cut + 1);

function runPass(name, native) {
  const reportPath = join(root, '.millrace', `${label}-${name}.json`);
  mkdirSync(dirname(reportPath), { recursive: true });
  rmSync(reportPath, { force: true });
  process.stderr.write(`\n== ${tier} tier, ${name} pass: MILLRACE_NATIVE=${native}\n`);
  const started = Date.now();
  const result = spawnSync(
    process.execPath,
    [
      join(root, 'node_modules/vitest/vitest.mjs'),
      'run',
      '--reporter=default',
      '--reporter=json',
      `--outputFile.json=${reportPath}`,
      ...vitestArguments,
    ],
    {
      cwd: root,
      stdio: ['ignore', 2, 2],
      env: {
        // A fixed seed makes a failure reproducible; `random` explores.
        MILLRACE_TEST_SEED: '1',
        ...process.env,
        ...(process.stderr.isTTY ? {} : { NO_COLOR: '1' }),
        MILLRACE_NATIVE: native,
        MILLRACE_TEST_TIER: tier,
      },
    },
  );
  const report = (() => {
    try {
      return JSON.parse(readFileSync(reportPath, 'utf8'));
    } catch {
      return {
        numPassedTests: 0,
        numFailedTests: 0,
        numPendingTests: 0,
        numTodoTests: 0,
        numFailedTestSuites: 1,
        testResults: [],
      };
    }
  })();
  let failed = report.numFailedTests;
  const complain = (line) => {
    failed++;
    process.stderr.write(`${name} pass: ${line}\n`);
  };
  // A file that fails to load has no test results to count.
  for (const file of report.testResults) {
    if (file.status === 'failed' && file.assertionResults.every((test) => test.status !== 'failed'))
      complain(`${file.name} failed to run: ${file.message}`);
  }
  const skipped = report.numPendingTests + report.numTodoTests;
  if (skipped > 0) complain(`${skipped} tests were skipped`);
  if (report.numPassedTests === 0 && failed === 0) complain('no test ran');
  if (result.status !== 0 && failed === 0)
    complain(`the test runner ended with ${result.status ?? result.signal}`);
  process.stderr.write(
    `${tier} tier, ${name} pass: ${report.numPassedTests} passed, ${failed} failed in ${((Date.now() - started) / 1000).toFixed(0)} s\n`,
  );
  return { passed: report.numPassedTests, failed };
}

// Downloads happen before the first test, so that later runs need no network. If a download fails,
// the tests that need it fail with the same message.
const say = (line) => process.stderr.write(`${line}\n`);
const fetches =
  tier === 'full'
    ? [clientsDir, kafkaClientsDirs, (log) => oracleCommand('AvroOracle', log)]
    : [(log) => oracleCommand('AvroOracle', log)];
for (const fetchOne of only === undefined ? fetches : []) {
  try {
    fetchOne(say);
  } catch (thrown) {
    say(thrown.message);
  }
}
const tallies = [];
if (only === undefined && tier !== 'runtime') {
  process.stderr.write(`== ${tier} tier, static checks\n`);
  tallies.push(await runChecks());
}
if (only === undefined || only === 'native') tallies.push(runPass('native', 'on'));
if (only === undefined || only === 'reference') tallies.push(runPass('reference', 'off'));
if (only === undefined && tier === 'full') tallies.push(runRuntimes());
const passed = tallies.reduce((sum, tally) => sum + tally.passed, 0);
const failed = tallies.reduce((sum, tally) => sum + tally.failed, 0);
process.stdout.write(`${passed} passed, ${failed} failed\n`);
process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
