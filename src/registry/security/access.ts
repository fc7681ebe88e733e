/** Who asks, what for, and what the answer may show: the interface between the HTTP routes and the gate.
 *
 *  A route asks `authorise` before it touches the registry, with the operation and the qualified subject
 *  (`:.staging:orders-value`; the default context unqualified). What it lists afterwards it filters with `may`.
 */
import type { HttpRequestHead } from '../../io/http/port.ts';

/** `admin` is config and mode, of one subject or of all. */
export const OPERATIONS = ['read', 'write', 'delete', 'admin'] as const;
export type Operation = (typeof OPERATIONS)[number];

export interface Need {
  readonly operation: Operation;
  /** Absent, and no `anyOf`: the registry as a whole. To read it (lists, global config and mode) is allowed to who
   *  has any rule; to change it takes a rule over all subjects of all contexts, `:*:*`. `:.context:` alone is a whole
   *  context, by the same measure: any rule there to read it, one over all its subjects to change it. */
  readonly subject?: string;
  /** One of these is enough: the subjects that use an id, soft-deleted versions included. */
  readonly anyOf?: readonly string[];
}

export type Scheme = 'basic' | 'jwt' | 'mtls';

/** What a request was found to be, and what it may do. */
export interface Access {
  /** `basic:alice`, `jwt:svc-1`, `mtls:…`, `anonymous`. */
  readonly principal: string;
  may(need: Need): boolean;
  /** Whether a list may show this subject. */
  mayRead(subject: string): boolean;
  /** Whether a list may show this context: some rule reaches into it. */
  mayReadContext(context: string): boolean;
}

export interface RequestGate {
  /** Finds out who asks and refuses what they may not. An answer that needs no waiting comes as it is.
   *  @throws unauthenticated (401), forbidden (403), rate_limited (429), auth_unavailable (503); `refusalHeaders` has
   *  the headers of that answer */
  authorise(request: HttpRequestHead, need: Need): Access | Promise<Access>;
  /** A second need of a request that was let in: the subjects a schema refers to, the target of an alias.
   *  @throws unauthenticated, forbidden */
  demand(request: HttpRequestHead, access: Access, need: Need): void;
}

/** The gate of a registry that asks nobody who they are. */
const everyone: Access = {
  principal: 'anonymous',
  may: () => true,
  mayRead: () => true,
  mayReadContext: () => true,
};
export const openGate: RequestGate = { authorise: () => everyone, demand: () => {} };
