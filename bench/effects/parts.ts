/** The parts of a bench of the effects, in one world. */
import { coreError } from '../../src/core/errors.ts';
import { nearest } from '../../src/core/settings.ts';
import type { BenchContext, BenchResult } from '../harness.ts';
import { openWorld, type World } from './world.ts';

export type Part = (world: World) => Promise<readonly BenchResult[]>;

/** Runs the parts that are asked for, in their order. A run that is told to end gives what it has.
 *  @throws bad_value for a part that is not there */
export async function openParts(
  context: BenchContext,
  parts: Readonly<Record<string, Part>>,
): Promise<readonly BenchResult[]> {
  const names = Object.keys(parts);
  const stranger = context.only?.find((name) => !Object.hasOwn(parts, name));
  if (stranger !== undefined) {
    throw coreError('bad_value', `-only=${stranger} is no part of this bench`, {
      next: `did you mean ${nearest(stranger, names) ?? names.join(', ')}?`,
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
