/** The real clock. */
export { systemClock } from '../../drivers.ts';
