/** Answers that may be old say so. That something is not there is never said of what may be old: a
 *  client would take it for a fact. */
import type { HttpRequest, HttpResponse, HttpRoute } from '../../io/http/port.ts';
import { registryError } from '../errors.ts';
import { answerOf, type Wire } from './answers.ts';

const WARNING = '110 - "Response is Stale"';

/** Writes are decided by the leader, whatever is known here. */
const isRead = ({ method }: HttpRequest): boolean => method !== 'PUT' && method !== 'DELETE';

function unknown(wire: Wire): HttpResponse {
  const error = registryError('store_timeout', 'it is not known here, and the broker does not tell what is', {
    next: 'see whether the broker runs, then try again',
  });
  return answerOf(error, wire) as HttpResponse;
}

/** @param isStale whether what is known here may be old */
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
