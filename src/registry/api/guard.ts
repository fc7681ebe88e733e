/** Who may do what: the step between a matched route and its handler.
 *
 *  The routes say what they need, a guard says whether the caller has it. Without a guard everything is open.
 */
import type { HttpRequest } from '../../io/http/port.ts';

/** write: register. delete: versions and subjects. admin: levels and modes. Everything else reads. */
export type RouteOperation = 'read' | 'write' | 'delete' | 'admin';

export interface RouteNeed {
  readonly operation: RouteOperation;
  /** subject: the one of `subject`. many: the handler leaves out what the caller may not read. registry: a setting of
   *  the whole registry or of a context. public: nothing of what is stored. */
  readonly about: 'subject' | 'many' | 'registry' | 'public';
  /** With its context where that is not the default one: `:.staging:orders-value`, or `:.staging:` for a context's
   *  own setting. */
  readonly subject: string | undefined;
  /** Pattern of the route, for logs. */
  readonly route: string;
}

export interface RouteCaller {
  /** For the log of writes. */
  readonly name: string;
  /** True: `may('read', …)` holds for every subject, so nothing has to be filtered. */
  readonly readsAll: boolean;
  may(operation: RouteOperation, subject: string): boolean;
}

/** Settles with the caller. Returns the caller itself, not a promise, where nothing has to be waited for.
 *  @throws a MillraceError whose row has http 401, 403 or 429; its `details.headers`, names and values, are sent with
 *  the answer (`www-authenticate`, `retry-after`) */
export type RouteGuard = (request: HttpRequest, need: RouteNeed) => RouteCaller | Promise<RouteCaller>;

/** The caller where there is no guard. */
export const EVERYBODY: RouteCaller = { name: '', readsAll: true, may: () => true };
