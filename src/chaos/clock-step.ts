/** Names that a chaos run and the shim that steps the clock of a service share. */

/** Step of the clock in ms; negative: back. */
export const CLOCK_STEP_VARIABLE = 'MILLRACE_CHAOS_CLOCK_STEP_MS';
/** Message of the line that the shim writes on stderr for each step. */
export const CLOCK_STEP_LINE = 'chaos stepped the clock';

/** Number of steps in a log. */
export const stepsIn = (log: string): number => log.split(CLOCK_STEP_LINE).length - 1;
