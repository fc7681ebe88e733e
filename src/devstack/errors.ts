/** Errors of the embedded stack. Errors that any command can raise (busy port, wrong server) are in
 *  the core table. */
import { errorRow, errorsOf } from '../core/errors.ts';

export const DEVSTACK_ERRORS = {
  /** A program or package that the stack needs is not installed. */
  missing_tool: errorRow('unavailable'),
  /** Maven could not download the broker's jars. */
  fetch_failed: errorRow('unavailable'),
  /** A server ended or did not answer while it was starting. */
  server_failed: errorRow('unavailable'),
  /** Another process is starting or stopping the stack of this folder. */
  stack_locked: errorRow('unavailable'),
  /** The folder holds files that no version of the stack wrote. */
  strange_folder: errorRow('invalid'),
} as const;

export const stackError = errorsOf(DEVSTACK_ERRORS);
