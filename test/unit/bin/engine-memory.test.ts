/** Memory settings of the engine: the defaults bound the state. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { MEMORY_SETTINGS, memoryOf } from '../../../src/bin/engine/memory.ts';
import { parseSettings } from '../../../src/core/settings.ts';
import { keySharesOf } from '../../../src/engine/durability/spill/budget.ts';
import { KV_BUDGET_MIN_BYTES } from '../../../src/io/rocksdb/port.ts';

const OTHERS = {
  'state-dir': 'state',
  'batch-rows': 16_384,
  'batch-bytes': 8 << 20,
  native: 'auto',
};

/** Memory shares of an engine with these flags; undefined: unbounded memory. */
const sharesOf = (...flags: readonly string[]) => {
  const { values } = parseSettings(MEMORY_SETTINGS, { argv: flags, env: {} });
  return memoryOf({ settings: { ...OTHERS, ...values } }, 0, false);
};

it('an engine without -state spills to disk above the default budget', () => {
  expect(sharesOf()).toEqual(sharesOf('-state=disk', '-mem-budget=1GiB'));
  expect(sharesOf()?.stateBytes).toBeGreaterThan(256 << 20);
  expect(sharesOf('-state=mem')).toBeUndefined();
});

it('a job with text keys has memory for its keys, their store, and its tables and runs at every budget', () => {
  fc.assert(
    fc.property(fc.integer({ min: 16 << 20, max: 2 ** 35 }), (stateBytes) => {
      const { cacheBytes, storeBytes } = keySharesOf(stateBytes);
      expect(storeBytes).toBeGreaterThanOrEqual(KV_BUDGET_MIN_BYTES);
      expect(cacheBytes).toBeGreaterThan(4 << 20);
      expect(stateBytes - storeBytes - cacheBytes).toBeGreaterThan(stateBytes / 7);
    }),
  );
});

it('most of the memory of the state with text keys is cache of keys, as long as the keys may need it', () => {
  const { stateBytes } = sharesOf('-mem-budget=384MiB') as { readonly stateBytes: number };
  expect(keySharesOf(stateBytes).cacheBytes).toBeGreaterThan(stateBytes / 2);
  expect(keySharesOf(64 * stateBytes).cacheBytes).toBe(256 << 20);
});
