/** Headers of the answers the gate causes. A refusal carries its own in the error's details. */
import { type ErrorOptions, findMillraceError } from '../core/errors.ts';

type Headers = Readonly<Record<string, string>>;

const HEADERS = 'headers';
const NONE: Headers = {};

/** Error details that `refusalHeaders` finds again. */
export function withHeaders(headers: Headers): Required<Pick<ErrorOptions, 'details'>> {
  return { details: { [HEADERS]: headers } };
}

/** `www-authenticate` of a 401, `retry-after` of a 429 or 503; nothing for any other error. */
export function refusalHeaders(thrown: unknown): Headers {
  return (findMillraceError(thrown)?.details[HEADERS] as Headers | undefined) ?? NONE;
}
