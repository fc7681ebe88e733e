/** The seed of every property. `npm test` fixes it, so that its answer belongs to the commit and not to the run; a
 *  run of vitest alone explores with a new seed each time and prints the one that failed. */
import fc from 'fast-check';

const seed = process.env['MILLRACE_TEST_SEED'];
if (seed !== undefined && seed !== 'random') {
  if (!/^-?\d{1,9}$/.test(seed))
    throw new Error(`MILLRACE_TEST_SEED=${seed} is not a whole number or "random"`);
  fc.configureGlobal({ seed: Number(seed) });
}
