/** Look-ups of schemas by id in the client library: warm from its cache, cold over HTTP. */

import { SchemaRegistry } from '../../src/registry/index.ts';
import { type BenchContext, type BenchResult, median, result, seriesOf, takeTurns } from '../harness.ts';
import { ask, registration, smallSchema } from '../registry-server.ts';
import { machineFactor } from '../unit.ts';
import { passNs } from './timing.ts';

const COLD_IDS = 500;
const COLD_IDS_SMOKE = 10;
const WARM_LOOKUPS = 1000;
const WARM_GOAL_US = 1;
/** Limit of the requirements for a cold look-up, p99. */
const COLD_LIMIT_MS = 25;

/** Milliseconds of the first look-up of each id by a new client. */
async function coldMs(url: string, ids: readonly number[]): Promise<number[]> {
  const { client } = new SchemaRegistry({ url });
  const took: number[] = [];
  for (const id of ids) {
    const startMs = performance.now();
    await client.schemaById(id);
    took.push(performance.now() - startMs);
  }
  return took.sort((a, b) => a - b);
}

/** Measures both kinds of look-up. @param url registry that gets the schemas */
export async function lookupResults(context: BenchContext, url: string): Promise<BenchResult[]> {
  context.say('look-ups');
  const count = context.smoke ? COLD_IDS_SMOKE : COLD_IDS;
  const ids: number[] = [];
  for (let number = 0; number < count; number++) {
    const body = registration(smallSchema(`Cold${number}`));
    ids.push(((await ask({ url }, 'POST', `/subjects/cold-${number}/versions`, body)) as { id: number }).id);
  }
  const { client } = new SchemaRegistry({ url });
  const known = ids[0] as number;
  const warm = async (): Promise<void> => {
    for (let turn = 0; turn < WARM_LOOKUPS; turn++) await client.schemaById(known);
  };
  const medians: number[] = [];
  const sides = await takeTurns(
    {
      warm: async () => (await passNs(warm, WARM_LOOKUPS, context.smoke ? 20 : 400)) / 1000,
      cold: async () => {
        const took = await coldMs(url, ids);
        medians.push(median(took));
        return took[Math.floor(took.length * 0.99)] as number;
      },
    },
    context.repeats,
  );
  return [
    result({
      metric: 'warm look-up of a schema id',
      unit: 'us CPU',
      better: 'less',
      ours: sides.warm,
      goal: { onReference: WARM_GOAL_US, factor: machineFactor() },
    }),
    result({ metric: 'cold look-up, p50', unit: 'ms', better: 'less', ours: seriesOf(medians) }),
    result({
      metric: 'cold look-up, p99',
      unit: 'ms',
      better: 'less',
      ours: sides.cold,
      goal: { valueBelow: COLD_LIMIT_MS },
    }),
  ];
}
