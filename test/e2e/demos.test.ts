/** Runs each slice of the demo on the reference implementation: its processes run and its facts
 *  hold. contracts-demo, effects-demo and windows-demo test how each fact fails. */
import { expect, it } from 'vitest';
import { contractsSlice } from '../../src/demo/contracts/slice.ts';
import { effectsSlice } from '../../src/demo/effects/slice.ts';
import type { Fact, Slice } from '../../src/demo/fact.ts';
import { windowsSlice } from '../../src/demo/windows/slice.ts';
import { sliceContext } from '../fixtures/demo.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';

const own = launcher();
const stack = await sharedStack();

async function facts<Run>(slice: Slice<Run>, scale: number): Promise<readonly Fact[]> {
  const context = sliceContext(own, stack, { seed: 11, scale });
  return slice.judge(context, await slice.run(context));
}

const SLICES = [
  { name: 'contracts', holding: 11, run: () => facts(contractsSlice, 0.02) },
  { name: 'effects', holding: 9, run: () => facts(effectsSlice, 0.25) },
  { name: 'windows', holding: 18, run: () => facts(windowsSlice, 0.02) },
] as const;

it.each(SLICES)(
  'every fact of $name holds on the reference implementation',
  async ({ holding, run }) => {
    const found = await run();
    expect(found.filter((fact) => !fact.holds)).toEqual([]);
    expect(found).toHaveLength(holding);
  },
  300_000,
);
