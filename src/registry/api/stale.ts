/** Marks answers that may be stale with a Warning header. A 404 from stale data becomes an error,
 *  because clients would treat it as a fact. */
import type { HttpRequest, HttpResponse, HttpRoute } from '../../io/http/port.ts';
import { registryError } from '../errors.ts';
import { answerOf, type Wire } from './answers.ts';

const WARNING = '110 - "Response is Stale"';

/** The leader decides writes, so this instance's data does not matter for them. */
const isRead = ({ method }: HttpRequest): boolean => method !== 'PUT' && method !== 'DELETE';

function unknown(wire: Wire): HttpResponse {
  const error = registryError(
    'store_timeout',
    'this instance did not find it, but its data may be stale because the broker does not answer',
    {
      next: 'check that the broker runs, then try again',
    },
  );
  return answerOf(error, wire) as HttpResponse;
}

/** @param isStale returns true if this instance's data may be stale */
export function warnOfStale(
  routes: readonly HttpRoute[],
  isStale: () => boolean,
  wire: Wire,
): readonly HttpRoute[] {
  const mark = (request: HttpRequest, response: HttpResponse): HttpResponse => {
    if (!isStale() || !isRead(request)) return response;
    if (response.status === 404) return unknown(wire);
    return response.status >= 400
      ? response
      : { ...response, headers: { ...response.headers, warning: WARNING } };
  };
  return routes.map((route) => ({
    ...route,
    handler: (request) => {
      const response = route.handler(request);
      return response instanceof Promise
        ? response.then((given) => mark(request, given))
        : mark(request, response);
    },
  }));
}
