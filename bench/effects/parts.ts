/** Runs the parts of an effects benchmark in one environment. */
import { coreError } from '../../src/core/errors.ts';
import { nearest } from '../../src/core/settings.ts';
import type { BenchContext, BenchResult } from '../harness.ts';
import { openWorld, type World } from './world.ts';

export type Part = (world: World) => Promise<readonly BenchResult[]>;

/** Runs the selected parts in order. An interrupted run returns the results so far.
 *  @throws bad_value for an unknown part */
export async function openParts(
  context: BenchContext,
  parts: Readonly<Record<string, Part>>,
): Promise<readonly BenchResult[]> {
  const names = Object.keys(parts);
  const unknown = context.only?.find((name) => !Object.hasOwn(parts, name));
  if (unknown !== undefined) {
    throw coreError('bad_value', `-only=${unknown} is not a part of this benchmark`, {
      next: `did you mean ${nearest(unknown, names) ?? names.join(', ')}?`,
    });
  }
  const world = await openWorld(context);
  const results: BenchResult[] = [];
  try {
    for (const name of names) {
      if (context.drain.aborted || context.only?.includes(name) === false) continue;
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
