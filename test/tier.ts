/** Tier of this run, for files with tests of both tiers.
 *
 *  `npm test` is the fast tier: static checks, unit, property, differential, contract and
 *  conformance tests. It has one end-to-end test for each command and, for a command that runs
 *  long, a test with SIGKILL. `npm run test:all` is the full tier. A run of vitest by itself is in
 *  the full tier.
 */
import { describe, it } from 'vitest';

/** True in the full tier. Use it to make a test longer, never to weaken its proof. */
export const isFull = !['fast', 'runtime'].includes(process.env['MILLRACE_TEST_TIER'] ?? '');

const registerNone = Object.assign(() => {}, { each: () => () => {} });
const registerNothing = Object.assign(() => {}, { each: () => () => {}, concurrent: registerNone });

/** `it` for a test that only the full tier runs. */
export const itFull = (isFull ? it : registerNothing) as typeof it;

/** `describe` for tests that only the full tier runs. */
export const describeFull = (isFull ? describe : registerNothing) as typeof describe;

/** Number of runs of a property: all in the full tier, a tenth in the fast tier. */
export const runs = (full: number): number => (isFull ? full : Math.ceil(full / 10));
