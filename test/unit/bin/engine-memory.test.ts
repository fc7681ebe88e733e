/** Memory settings of the engine: the defaults bound the state. */
import { expect, it } from 'vitest';
import { MEMORY_SETTINGS, memoryOf } from '../../../src/bin/engine/memory.ts';
import { parseSettings } from '../../../src/core/settings.ts';

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
