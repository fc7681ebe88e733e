/** What the two passes of `npm test` run, and in which order. vitest.config.ts reads it; test/house/passes.test.ts says what
 *  must be in it. */

/** Files of the second pass (MILLRACE_NATIVE=off): whatever meets the addon in the first meets its TypeScript twins here, from
 *  the kernels and the broker driver up to each command that uses them. Everything else would be the same again, and runs in the
 *  first pass alone: what never meets the addon, what judges it, and what servers and machines can do to a command. */
export const SECOND_PASS: readonly string[] = [
  'test/e2e/contracts.test.ts',
  'test/e2e/demos.test.ts',
  'test/e2e/engine.test.ts',
  'test/e2e/gen.test.ts',
  'test/e2e/payments.test.ts',
  'test/e2e/registry-clients-serde.test.ts',
  'test/e2e/registry-kafka.test.ts',
  'test/e2e/registry-kafka-log.test.ts',
  'test/e2e/relay.test.ts',
  'test/e2e/topic.test.ts',
  'test/property/gen.test.ts',
  'test/unit/gen-command.test.ts',
  'test/unit/gen-events.test.ts',
  'test/unit/shell/drivers.test.ts',
];

/** In the first pass the files that break the demo's facts one by one run its slices, too. */
export const SECOND_PASS_ONLY: readonly string[] = ['test/e2e/demos.test.ts'];

/** Files that hand MILLRACE_NATIVE on and have nothing of their own to show with it: benches, and what another file shows. */
export const HAND_ON_ONLY: readonly string[] = [
  'test/e2e/compat-check-gate.test.ts',
  'test/e2e/engine-bench.test.ts',
  'test/e2e/engine-soak-bench.test.ts',
  'test/e2e/inbox-bench.test.ts',
  'test/e2e/orders-bench.test.ts',
  'test/e2e/registry-bench.test.ts',
  'test/e2e/registry-kafka-restart.test.ts',
  'test/e2e/relay-bench.test.ts',
];

/** The files that take longest begin: started late, one of them would be alone in the end. */
export const LONGEST_FIRST: readonly string[] = [
  'test/e2e/relay-flags.test.ts',
  'test/e2e/relay-faults.test.ts',
  'test/e2e/crash.test.ts',
  'test/e2e/engine-crash.test.ts',
  'test/e2e/engine-group.test.ts',
  'test/e2e/payments.test.ts',
  'test/e2e/relay-bench.test.ts',
  'test/e2e/engine-bench.test.ts',
  'test/e2e/broker-node.test.ts',
  'test/e2e/devstack.test.ts',
  'test/e2e/broker-native.test.ts',
  'test/e2e/orders-bench.test.ts',
  'test/e2e/broker-restart.test.ts',
  'test/e2e/contracts-demo.test.ts',
  'test/e2e/demos.test.ts',
  'test/e2e/contracts.test.ts',
  'test/e2e/payments-parked.test.ts',
  'test/e2e/payments-ready.test.ts',
  'test/e2e/payments-rebalance.test.ts',
  'test/e2e/relay-shared.test.ts',
  'test/e2e/devstack-cluster.test.ts',
  'test/e2e/effects-demo.test.ts',
  'test/contract/http-uws.test.ts',
  'test/contract/http-wire.test.ts',
  'test/contract/http-node.test.ts',
  'test/differential/http-wire.test.ts',
  'test/e2e/wal-relay.test.ts',
  'test/e2e/slo-outbox.test.ts',
  'test/e2e/registry-kafka.test.ts',
  'test/e2e/registry-kafka-restart.test.ts',
  'test/e2e/wal-source.test.ts',
  'test/e2e/slo.test.ts',
  'test/e2e/windows-demo.test.ts',
  'test/e2e/orders-process.test.ts',
  'test/e2e/orders-grpc.test.ts',
  'test/e2e/orders-grpc-faults.test.ts',
  'test/e2e/inbox-bench.test.ts',
  'test/e2e/engine.test.ts',
];
