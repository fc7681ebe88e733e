/** How answers and errors are written: the one error shape, the headers, and the two generations of
 *  bodies. */
import { STATUS_CODES } from 'node:http';
import { refusalHeaders } from '../../access/refusal.ts';
import { findMillraceError, type MillraceError } from '../../core/errors.ts';
import type { HttpFallbacks, HttpResponse } from '../../io/http/port.ts';
import { REGISTRY_CONTENT_TYPE } from './media.ts';

/** The generation of the existing registries that the bodies follow. 7: up to 7.9; 8: from 8.1;
 *  own: as 7, and every schema names its type, also AVRO. */
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

/** A body that is complete already: the text of a schema, or JSON made before. */
export class Ready {
  readonly body: string | Uint8Array;
  /** Where it is not the negotiated one. */
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

/** A client that does not find both properties treats the answer as foreign. */
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

/** error_code of a row, by generation. */
export function numberOf(error: Pick<MillraceError, 'code' | 'row'>, wire: Wire): number {
  if (error.code === 'incompatible' && wire === 8) return 40901;
  return error.row.number ?? error.row.http;
}

/** The answer to something thrown, or undefined for what is no answer but a failure of ours. */
export function answerOf(thrown: unknown, wire: Wire, type?: string): HttpResponse | undefined {
  const error = findMillraceError(thrown);
  if (error === undefined || (error.row.http >= 500 && error.row.number === undefined)) return undefined;
  const made = errorAnswer(error.row.http, numberOf(error, wire), error.message, type);
  const more = refusalHeaders(error);
  return Object.keys(more).length === 0 ? made : { ...made, headers: { ...made.headers, ...more } };
}

/** What the server answers by itself, in the registry's error shape.
 *  @param bodyBytesMax of a request's body, for the message that says so */
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
