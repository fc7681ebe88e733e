/** How the gate ends where it has no answer: with codes of its own, so that a pipeline can tell a
 *  schema that breaks readers from one that is no schema and from a subject that is not there yet.
 */
import { type ErrorTable, errorRow, errorsOf } from '../../core/errors.ts';

export const GATE_EXIT = { unknownSubject: 4, unparsable: 5 } as const;

export const GATE_ERRORS = {
  gate_unknown_subject: errorRow('not_found', { exit: GATE_EXIT.unknownSubject }),
  gate_unparsable: errorRow('invalid', { exit: GATE_EXIT.unparsable }),
} as const satisfies ErrorTable;

export const gateError = errorsOf(GATE_ERRORS);
