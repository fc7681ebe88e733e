/** Interceptor of NestJS, on express or fastify. It imports neither NestJS nor rxjs. */
import type { EndpointCore } from '../core.ts';
import type { ResponseLike } from './capture.ts';
import { type IncomingLike, serveHttp } from './http.ts';

/** Observer and observable of rxjs, as far as the interceptor uses them. */
interface ObserverLike {
  next(value: unknown): void;
  error(error: unknown): void;
  complete(): void;
}
interface Subscribable {
  subscribe(observer: ObserverLike): unknown;
}
type ObservableClass<O> = new (subscribe: (observer: ObserverLike) => void) => O;

export interface ExecutionContextLike {
  switchToHttp(): {
    // biome-ignore lint/suspicious/noExplicitAny: the request of the platform
    getRequest(): any;
    // biome-ignore lint/suspicious/noExplicitAny: the response of the platform
    getResponse(): any;
  };
}

/** Interceptor instance for `@UseInterceptors`. */
export interface NestInterceptorLike {
  intercept<O extends Subscribable>(context: ExecutionContextLike, next: { handle(): O }): Promise<O>;
}

/** Returns the interceptor. NestJS writes the answer of the handler into the captured response; its
 *  exception filters answer errors of the handler, after the rollback. */
export function nestInterceptor<Context extends object, Request extends object>(
  core: EndpointCore<Context, Request>,
): NestInterceptorLike {
  return {
    intercept: (context, next) =>
      // After a replay or a refusal the promise stays pending: the answer is sent, and a result
      // would make NestJS answer again.
      new Promise((resolve, reject) => {
        const http = context.switchToHttp();
        const request = http.getRequest() as Request & { readonly raw?: IncomingLike };
        const response = http.getResponse() as ResponseLike & { readonly raw?: ResponseLike };
        const exchange = {
          request: request as Request,
          raw: request.raw ?? (request as unknown as IncomingLike),
          res: response.raw ?? response,
          mayRead: false,
        };
        const invoke = (): Promise<void> => handled(next.handle(), resolve);
        serveHttp(core, exchange, invoke).then((result) => {
          if (!result.answered) reject(result.thrown);
        }, reject);
      }),
  };
}

/** Runs the handler. Gives its last value to NestJS, which then writes the response.
 *  @returns settles when the handler has returned */
function handled<O extends Subscribable>(source: O, give: (result: O) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    let last: unknown;
    source.subscribe({
      next: (value) => {
        last = value;
      },
      error: reject,
      complete: () => {
        const Observable = source.constructor as ObservableClass<O>;
        give(
          new Observable((observer) => {
            observer.next(last);
            observer.complete();
          }),
        );
        resolve();
      },
    });
  });
}
