/** Builds answers: headers, bodies in each wire generation, and errors in the registry's one error
 *  shape. */
import { STATUS_CODES } from 'node:http';
import { refusalHeaders } from '../../access/refusal.ts';
import { findMillraceError, type MillraceError } from '../../core/errors.ts';
import type { HttpFallbacks, HttpResponse } from '../../io/http/port.ts';
import { REGISTRY_CONTENT_TYPE } from './media.ts';

/** Generation of the existing registries that the bodies follow. 7: up to 7.9; 8: from 8.1; own: as
 *  7, but every schema names its type, AVRO too. */
export const WIRES = ['own', 7, 8] as const;
export type Wire = (typeof WIRES)[number];

const CACHE_CONTROL = 'no-cache, no-store, must-revalidate';
const headersByType = new Map<string, Readonly<Record<string, string>>>();

function headersOf(type: string): Readonly<Record<string, string>> {
  let headers = headersByType.get(type);
  if (headers === undefined) {
    headers = Object.freeze({ 'cache-control': CACHE_CONTROL, 'content-type': type });
    headersByType.set(type, headers);
  }
  return headers;
}

/** A complete body: the text of a schema, or JSON that was serialised before. */
export class Ready {
  readonly body: string | Uint8Array;
  /** Content type of the body; undefined: the negotiated type. */
  readonly type: string | undefined;
  constructor(body: string | Uint8Array, type?: string) {
    this.body = body;
    this.type = type;
  }
}

export function answer(value: unknown, type: string): HttpResponse {
  if (value instanceof Ready)
    return { status: 200, headers: headersOf(value.type ?? type), body: value.body };
  return { status: 200, headers: headersOf(type), body: JSON.stringify(value) };
}

/** A client treats an answer that lacks either property as foreign. */
function errorAnswer(
  status: number,
  number: number,
  message: string,
  type: string = REGISTRY_CONTENT_TYPE,
): HttpResponse {
  return {
    status,
    headers: headersOf(type),
    body: JSON.stringify({ error_code: number, message }),
  };
}

/** Returns the `error_code` of an error in a wire generation. */
export function numberOf(error: Pick<MillraceError, 'code' | 'row'>, wire: Wire): number {
  if (error.code === 'incompatible' && wire === 8) return 40901;
  return error.row.number ?? error.row.http;
}

/** Builds the answer to a thrown error; undefined for an internal failure, which has no answer
 *  here. */
export function answerOf(thrown: unknown, wire: Wire, type?: string): HttpResponse | undefined {
  const error = findMillraceError(thrown);
  if (error === undefined || (error.row.http >= 500 && error.row.number === undefined)) return undefined;
  const made = errorAnswer(error.row.http, numberOf(error, wire), error.message, type);
  const more = refusalHeaders(error);
  return Object.keys(more).length === 0 ? made : { ...made, headers: { ...made.headers, ...more } };
}

/** Builds the answers that the HTTP server gives without a route, in the registry's error shape.
 *  @param bodyBytesMax limit of a request body in bytes, named in the message of a 413 */
export function registryFallbacks(bodyBytesMax: number): HttpFallbacks {
  return {
    error(status, _request, detail) {
      const why =
        status === 413
          ? `: the request body is over the limit -body-max=${bodyBytesMax}`
          : detail === undefined
            ? ''
            : `: ${detail}`;
      const message = `HTTP ${status} ${STATUS_CODES[status] ?? 'Error'}${why}`;
      return errorAnswer(status, status === 500 ? 50001 : status, message);
    },
  };
}
