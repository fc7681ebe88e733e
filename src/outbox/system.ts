/** Defaults of `append` and `idempotency`: this machine's clock and randomness. No other file of
 *  the product binds them; all other code gets its clock and randomness from its caller. */
import type { Random, Timers } from '../core/clock.ts';
import { systemClock, systemRandom } from '../io/clock/system.ts';
import { UuidV7 } from './ids.ts';

/** Generates the msg_ids of events that a service appends. */
export const systemIds = new UuidV7(systemClock, systemRandom);

/** Clock and randomness of idempotent endpoints that are given none. */
export const systemTimers: Timers = systemClock;
export const systemRandomness: Random = systemRandom;
