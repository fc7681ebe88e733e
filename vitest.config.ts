import { defineConfig } from 'vitest/config';

/** Judge the addon itself, the repository, the servers or code that never meets the addon: the same in both passes, so
 *  they run in the first alone. */
const FIRST_PASS_ONLY = [
  'test/seam/**',
  'test/differential/**',
  'test/house/**',
  'test/e2e/broker-{native,handles,restart,bench}.test.ts',
  'test/e2e/devstack*.test.ts',
  'test/e2e/offline.test.ts',
  'test/e2e/{crash,reconcile,reconcile-kept}.test.ts',
  'test/e2e/payments-{foreign,parked,rebalance}.test.ts',
  'test/e2e/{docker-metrics,orders-grpc-clients,orders-grpc-faults,orders-grpc-hostile}.test.ts',
  'test/e2e/{orders,relay,inbox}-bench.test.ts',
  'test/e2e/{http-load,profile}.test.ts',
  'test/e2e/relay-{faults,shared,source}.test.ts',
  'test/contract/wake.test.ts',
  'test/unit/outbox-relay.test.ts',
  'test/e2e/registry-{bench,clients,clients-access}.test.ts',
  'test/e2e/compat-check*.test.ts',
  'test/e2e/{http-backends,registry-security,registry-security-settings}.test.ts',
  'test/contract/{http*,grpc-driver}.test.ts',
  'test/unit/http/**',
  'test/unit/orders-http.test.ts',
  'test/e2e/orders-http.test.ts',
  'test/conformance/registry-http*.test.ts',
  'test/{unit,property,e2e}/wal-*.test.ts',
  'test/unit/orders-{batch-control,maintenance,replay-cache,verdict}.test.ts',
  'test/unit/{outbox-payments-outage,inbox-settle}.test.ts',
  'test/e2e/orders-{process,writes,restart,partitions,maintenance}.test.ts',
  'test/e2e/{load,slo,registry-kafka-restart}.test.ts',
  'test/unit/bench/{compatibility,http}.test.ts',
  'test/property/{registry-*,orders-grpc-messages}.test.ts',
  'test/{unit,property,e2e}/inbox.test.ts',
  'test/e2e/{inbox-race,inbox-keeper,library,library-shipping,library-consumer}.test.ts',
  'test/{unit,e2e}/slo-outbox.test.ts',
  'test/unit/registry-!(flow).test.ts',
];

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: process.env['MILLRACE_NATIVE'] === 'off' ? FIRST_PASS_ONLY : [],
    setupFiles: ['test/setup.ts'],
    globalSetup: ['test/e2e/global-setup.ts'],
    pool: 'forks',
    // Broker, database and the processes under test share the cores with the tests.
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
