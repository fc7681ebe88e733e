/** Files of each tier and of each pass. vitest.config.ts reads this module;
 *  test/repository/tiers.test.ts checks it.
 *
 *  Tiers: `npm test` runs the fast tier, `npm run test:all` the full tier. A file of both tiers
 *  marks the tests that only the full tier runs (test/tier.ts). The full tier ends with the tier
 *  `runtime` on other versions of Node.js.
 *  Passes: the first pass runs on the C++ addon, the second pass (MILLRACE_NATIVE=off) on the
 *  TypeScript reference implementation.
 */

export interface CommandTests {
  /** End-to-end test of the command on real servers. */
  readonly works: string;
  /** Test that kills the command with SIGKILL; only for a command that runs until it is stopped. */
  readonly survives?: string;
}

/** End-to-end tests of the fast tier, by command. Every other file of test/e2e is in the full tier
 *  alone. */
export const FAST_COMMANDS: Readonly<Record<string, CommandTests>> = {
  bench: { works: 'test/e2e/inbox-bench.test.ts' },
  chaos: { works: 'test/e2e/chaos.test.ts' },
  'compat-check': { works: 'test/e2e/compat-check.test.ts' },
  consumer: { works: 'test/e2e/contracts.test.ts', survives: 'test/e2e/contracts.test.ts' },
  demo: { works: 'test/e2e/effects-demo.test.ts' },
  doctor: { works: 'test/e2e/devstack.test.ts' },
  down: { works: 'test/e2e/devstack.test.ts' },
  effects: { works: 'test/e2e/effects.test.ts' },
  engine: { works: 'test/e2e/engine.test.ts', survives: 'test/e2e/engine.test.ts' },
  gen: { works: 'test/e2e/gen.test.ts' },
  load: { works: 'test/e2e/load.test.ts' },
  orders: { works: 'test/e2e/orders.test.ts', survives: 'test/e2e/orders-faults.test.ts' },
  payments: { works: 'test/e2e/payments.test.ts', survives: 'test/e2e/payments.test.ts' },
  producer: { works: 'test/e2e/contracts.test.ts' },
  reconcile: { works: 'test/e2e/reconcile.test.ts' },
  registry: { works: 'test/e2e/contracts.test.ts', survives: 'test/e2e/contracts.test.ts' },
  relay: { works: 'test/e2e/relay.test.ts', survives: 'test/e2e/relay.test.ts' },
  rollout: { works: 'test/e2e/rollout.test.ts' },
  slo: { works: 'test/e2e/slo.test.ts' },
  topic: { works: 'test/e2e/topic.test.ts' },
  up: { works: 'test/e2e/devstack.test.ts' },
};

/** End-to-end tests of the fast tier that belong to no command: a user's service with the library,
 *  and a SIGKILL of that service. */
const FAST_LIBRARY: readonly string[] = [
  'test/e2e/library-shipping.test.ts',
  'test/e2e/registry-columns.test.ts',
  'test/e2e/registry-library.test.ts',
];

/** Long tests outside test/e2e that only the full tier runs: benches in smoke mode, sanitizer
 *  builds, leaks, mutants, faults planted in the import rules, stalls, and long random searches. */
export const FULL_ONLY: readonly string[] = [
  'test/repository/imports.test.ts',
  'test/repository/stall.test.ts',
  'test/property/effects-planted-faults.test.ts',
  'test/property/registry-planted-faults.test.ts',
  'test/seam/leak.test.ts',
  'test/seam/sanitizers.test.ts',
  'test/unit/bench/compatibility.test.ts',
  'test/unit/bench/http.test.ts',
  'test/unit/bench/engine.test.ts',
  'test/windows/engines.test.ts',
  'test/windows/oracles.test.ts',
];

/** Test that the full tier runs on other versions of Node.js besides the fast tier. */
const PACKAGE_TEST = 'test/e2e/package-install.test.ts';

/** Every file of test/e2e that the fast tier runs. */
export function fastEndToEnd(): readonly string[] {
  const files = Object.values(FAST_COMMANDS).flatMap(({ works, survives }) => [works, survives ?? works]);
  return [...new Set([...files, ...FAST_LIBRARY])].sort();
}

/** Files of the second pass: tests that use the addon in the first pass use the reference
 *  implementation in the second, from the kernels and the broker driver to each command that uses
 *  them. All other tests run in the first pass only: tests that never use the addon, tests of the
 *  addon itself, and tests of faults in servers and machines. */
export const SECOND_PASS: readonly string[] = [
  'test/e2e/chaos.test.ts',
  'test/e2e/contracts.test.ts',
  'test/e2e/demos.test.ts',
  'test/e2e/engine.test.ts',
  'test/e2e/gen.test.ts',
  'test/e2e/kafka-security.test.ts',
  'test/e2e/payments.test.ts',
  'test/e2e/registry-clients-serde.test.ts',
  'test/e2e/registry-columns.test.ts',
  'test/e2e/registry-kafka.test.ts',
  'test/e2e/registry-kafka-log.test.ts',
  'test/e2e/relay.test.ts',
  'test/e2e/rollout.test.ts',
  'test/e2e/topic.test.ts',
  'test/property/gen.test.ts',
  'test/property/registry-replay.test.ts',
  'test/unit/gen/command.test.ts',
  'test/unit/gen/events.test.ts',
  'test/unit/shell/broker-settings.test.ts',
  'test/unit/shell/drivers.test.ts',
];

/** Files whose second pass belongs to the full tier alone: in the fast tier, one command of each
 *  product runs on the reference implementation. */
const SECOND_PASS_FULL: readonly string[] = [
  'test/e2e/chaos.test.ts',
  'test/e2e/gen.test.ts',
  'test/e2e/payments.test.ts',
  'test/e2e/rollout.test.ts',
  'test/e2e/topic.test.ts',
];

/** Files that only the second pass runs. In the first pass, the files that falsify the facts of the
 *  demo one by one run the demo too. */
export const SECOND_PASS_ONLY: readonly string[] = ['test/e2e/demos.test.ts'];

/** Files that pass MILLRACE_NATIVE to a command but prove nothing more in the second pass: benches,
 *  and files whose proof another file has. */
export const PASS_ON_ONLY: readonly string[] = [
  'test/e2e/chaos-bench.test.ts',
  'test/e2e/compat-check-gate.test.ts',
  'test/e2e/contracts-bench.test.ts',
  'test/e2e/contracts-faults.test.ts',
  'test/e2e/engine-bench.test.ts',
  'test/e2e/engine-peers-bench.test.ts',
  'test/e2e/engine-shards-bench.test.ts',
  'test/e2e/engine-soak-bench.test.ts',
  'test/e2e/fetch-bench.test.ts',
  'test/e2e/idempotency-bench.test.ts',
  'test/e2e/inbox-bench.test.ts',
  'test/e2e/orders-bench.test.ts',
  'test/e2e/reconcile-bench.test.ts',
  'test/e2e/registry-bench.test.ts',
  'test/e2e/registry-flags.test.ts',
  'test/e2e/registry-kafka-restart.test.ts',
  'test/e2e/relay-bench.test.ts',
  'test/e2e/replay-bench.test.ts',
  'test/e2e/rollout-bench.test.ts',
  'test/e2e/sweep-bench.test.ts',
  'test/e2e/volume-bench.test.ts',
];

/** Folders whose test files share the process of a worker: separate processes would spend a third
 *  of their CPU time on loading the same modules. */
const SHARED_FOLDERS: readonly string[] = ['conformance', 'differential', 'property', 'unit'];
const OWN_FOLDERS: readonly string[] = ['clients', 'contract', 'repository', 'seam', 'windows'];

/** Files of these folders that need their own process: they replace a module of Node.js, or count
 *  steps of functions that no earlier file may have compiled (test/steps.ts). */
export const OWN_PROCESS: readonly string[] = [
  'test/property/registry-avro-decoder.test.ts',
  'test/unit/access/gate.test.ts',
  'test/unit/access/rules.test.ts',
  'test/unit/core/lru-map.test.ts',
  'test/unit/formats/avro/decoder-bytes.test.ts',
  'test/unit/formats/avro/decoder.test.ts',
  'test/unit/formats/avro/hostile.test.ts',
  'test/unit/formats/protobuf/decoder-hostile.test.ts',
  'test/unit/formats/protobuf/hostile.test.ts',
  'test/unit/io/kafka/forbidden-group.test.ts',
  'test/unit/io/new-folders.test.ts',
  'test/unit/registry/proof/avro-witness.test.ts',
  'test/unit/registry/proof/proto-witness.test.ts',
];

export interface Selection {
  readonly include: string[];
  readonly exclude: string[];
}

function sharesProcess(path: string): boolean {
  return SHARED_FOLDERS.includes(path.split('/')[1] ?? '') && !OWN_PROCESS.includes(path);
}

/** Files that vitest includes and excludes in one pass of one tier, by the process that runs them.
 */
export function selection(
  tier: 'fast' | 'full' | 'runtime',
  pass: 'native' | 'reference',
): { readonly shared: Selection; readonly own: Selection } {
  const fast = fastEndToEnd();
  const isFast = (path: string): boolean =>
    path.startsWith('test/e2e/') ? fast.includes(path) : !FULL_ONLY.includes(path);
  if (pass === 'reference') {
    const files = SECOND_PASS.filter(
      (path) => tier === 'full' || (isFast(path) && !SECOND_PASS_FULL.includes(path)),
    );
    return {
      shared: { include: files.filter(sharesProcess), exclude: [] },
      own: { include: files.filter((path) => !sharesProcess(path)), exclude: [] },
    };
  }
  const filesOf = (folders: readonly string[]): string => `test/{${folders.join(',')}}/**/*.test.ts`;
  const endToEnd =
    tier === 'full' ? ['test/e2e/**/*.test.ts'] : [...fast, ...(tier === 'runtime' ? [PACKAGE_TEST] : [])];
  const left = tier === 'full' ? SECOND_PASS_ONLY : FULL_ONLY;
  return {
    shared: { include: [filesOf(SHARED_FOLDERS)], exclude: [...left, ...OWN_PROCESS] },
    own: { include: [filesOf(OWN_FOLDERS), ...OWN_PROCESS, ...endToEnd], exclude: [...left] },
  };
}
