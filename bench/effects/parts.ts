/** Runs the parts of an effects benchmark in one environment. */
import type { BenchContext, BenchResult } from '../harness.ts';
import { selectParts } from '../parts.ts';
import { openWorld, type World } from './world.ts';

export type Part = (world: World) => Promise<readonly BenchResult[]>;

/** Runs the selected parts in order. An interrupted run returns the results so far.
 *  @throws bad_value for an unknown part */
export async function openParts(
  context: BenchContext,
  parts: Readonly<Record<string, Part>>,
): Promise<readonly BenchResult[]> {
  const names = selectParts(context.only, Object.keys(parts));
  const world = await openWorld(context);
  const results: BenchResult[] = [];
  try {
    for (const name of names) {
      if (context.drain.aborted) continue;
      context.say(`part ${name}`);
      try {
        results.push(...(await (parts[name] as Part)(world)));
      } catch (thrown) {
        if (!context.drain.aborted) throw thrown;
      }
    }
  } finally {
    await world.close();
  }
  return results;
}
