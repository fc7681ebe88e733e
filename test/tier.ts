/** The tier that this run is in, for files that have tests of both.
 *
 *  `npm test` is the fast tier: static checks, unit, property, differential, contract and conformance tests, and for each
 *  command one end-to-end test and, where it runs long, one with SIGKILL. `npm run test:all` is the full tier. A run of
 *  vitest by itself is in the full tier.
 */
import { describe, it } from 'vitest';

const isFull = process.env['MILLRACE_TEST_TIER'] !== 'fast';

const registerNothing = Object.assign(() => {}, { each: () => () => {} });

/** `it` for a test that only the full tier runs. */
export const itFull = (isFull ? it : registerNothing) as typeof it;

/** `describe` for tests that only the full tier runs. */
export const describeFull = (isFull ? describe : registerNothing) as typeof describe;
