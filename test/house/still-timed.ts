/** Test files that still wait or read the clock by themselves. Convert one to test/wait.ts or to a virtual clock, and remove it here. */
export const STILL_TIMED: readonly string[] = [
  'test/clients/kit.ts',
  'test/e2e/engine-group.test.ts',
  'test/e2e/load-flags.test.ts',
  'test/e2e/silence.ts',
  'test/unit/devstack.test.ts',
  'test/unit/gen-command.test.ts',
];
