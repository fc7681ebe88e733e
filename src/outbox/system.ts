/** Default of `append` for callers that name no ids: this machine's clock and randomness. The only
 *  file of the product that binds them; everything else takes its clock and randomness from whoever
 *  opens it.
 */
import { systemClock, systemRandom } from '../io/clock/system.ts';
import { UuidV7 } from './ids.ts';

/** Mints the msg_ids of events that a service appends. */
export const systemIds = new UuidV7(systemClock, systemRandom);
