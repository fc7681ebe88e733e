/** Errors of the embedded stack. What any command can meet (busy port, wrong server) stands in the
 *  core table. */
import { EXIT, errorRow, errorsOf } from '../core/errors.ts';

export const DEVSTACK_ERRORS = {
  /** A program or a package that the stack runs on is not there. */
  missing_tool: errorRow('unavailable'),
  /** Maven could not bring the broker's jars. */
  fetch_failed: errorRow('unavailable'),
  /** A server ended, or did not answer, while it was starting. */
  server_failed: errorRow('unavailable'),
  /** Another process is starting or stopping the stack of this folder. */
  stack_locked: errorRow('unavailable'),
  /** The folder holds something that no version of this stack wrote. */
  strange_folder: errorRow('invalid'),
  interrupted: errorRow('unavailable', { exit: EXIT.interrupted }),
} as const;

export const stackError = errorsOf(DEVSTACK_ERRORS);
