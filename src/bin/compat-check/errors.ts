/** Exit codes of the gate for runs without a verdict. A pipeline can tell a schema that breaks
 *  readers from an unparsable file and from a subject that does not exist yet. */
import { type ErrorTable, errorRow, errorsOf } from '../../core/errors.ts';

export const GATE_EXIT = { unknownSubject: 4, unparsable: 5 } as const;

export const GATE_ERRORS = {
  gate_unknown_subject: errorRow('not_found', { exit: GATE_EXIT.unknownSubject }),
  gate_unparsable: errorRow('invalid', { exit: GATE_EXIT.unparsable }),
} as const satisfies ErrorTable;

export const gateError = errorsOf(GATE_ERRORS);
