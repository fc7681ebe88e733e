/** Test files that still wait or read the clock by themselves. Convert one to test/wait.ts or to a virtual clock, and remove it here. */
export const STILL_TIMED: readonly string[] = [
  'test/e2e/consumer-rebalance.test.ts',
  'test/e2e/library-service.test.ts',
  'test/e2e/orders-grpc-faults.test.ts',
  'test/e2e/orders-grpc-hostile.test.ts',
  'test/e2e/orders-partitions.test.ts',
  'test/e2e/orders-process.test.ts',
  'test/e2e/orders-writes.test.ts',
  'test/e2e/payments-flags.test.ts',
  'test/e2e/payments-ready.test.ts',
  'test/e2e/registry-kafka-control.ts',
  'test/e2e/registry-kafka.test.ts',
  'test/e2e/relay-flags.test.ts',
];
