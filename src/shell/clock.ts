/** Exports the real clock and randomness. */
export { systemClock, systemRandom } from '../drivers.ts';
