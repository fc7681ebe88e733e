/** Seed of every property. `npm test` fixes it, so its result depends on the commit and not on the
 *  run. A run of vitest alone uses a new seed each time and prints a failing seed. */
import fc from 'fast-check';
import { beforeEach } from 'vitest';
import { noteTest } from './worker-ends.ts';

const seed = process.env['MILLRACE_TEST_SEED'];
if (seed !== undefined && seed !== 'random') {
  if (!/^-?\d{1,9}$/.test(seed))
    throw new Error(`MILLRACE_TEST_SEED=${seed} is not a whole number or "random"`);
  fc.configureGlobal({ seed: Number(seed) });
}

beforeEach(({ task }) => noteTest(`${task.file.name} > ${task.name}`));
