/** Process that decodes or encodes the records of `bench serde` until it is stopped, as the load of
 *  a profile: `serde-child.js decode|encode REGISTRY_URL`. It sends a message when it is warm. */
import { setImmediate as turn } from 'node:timers/promises';
import { invariant } from '../src/core/errors.ts';
import { SchemaRegistry } from '../src/registry/index.ts';
import { passOf } from './serde/case.ts';
import { casesOf } from './serde/cases.ts';
import { ourSides } from './serde/clients.ts';
import { columnSides } from './serde/columns.ts';
import type { Pass } from './serde/timing.ts';

const RECORDS = 1000;
const WARM_TURNS = 20;

/** Sides of each kind of work, by their names in the bench. */
const SIDES = {
  decode: [
    'columns, all fields',
    'columns, reader schema',
    'deserializeSync',
    'deserializeSync, reader schema',
  ],
  encode: ['serialize, bigint', 'serialize, numbers'],
} as const;

async function passesOf(work: keyof typeof SIDES, url: string): Promise<Pass[]> {
  const registry = new SchemaRegistry({ url });
  const passes: Pass[] = [];
  for (const one of await casesOf(RECORDS, registry)) {
    const sides = { ...(await ourSides(one, registry)), ...columnSides(one) };
    for (const name of SIDES[work]) {
      const side = sides[name];
      if (side !== undefined) passes.push(passOf(one, side));
    }
  }
  return passes;
}

const [work, url] = process.argv.slice(2);
invariant((work === 'decode' || work === 'encode') && url !== undefined, 'decode or encode, and a URL');
const passes = await passesOf(work, url);
process.once('disconnect', () => process.exit(0));
for (let turns = 0; ; turns++) {
  if (turns === WARM_TURNS) process.send?.('warm');
  for (const pass of passes) await pass();
  // The profiler and the end of the process arrive between two turns.
  await turn();
}
