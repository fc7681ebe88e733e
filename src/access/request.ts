/** The interface between a server's surfaces, HTTP or gRPC, and the gate: the caller, the right it
 *  needs, the access it has.
 *
 *  A surface calls `authorise` before it reads the body or touches the product, with the operation
 *  and the qualified subject (`:.staging:orders-value`; the default context unqualified). A subject
 *  is whatever the service's rules are about: a subject of the registry, or the one resource
 *  `orders`. A list is filtered with `may`.
 */

/** The part of a request that the gate reads. An HTTP request is one. */
export interface Caller {
  /** HTTP method, or `gRPC`; only logged. */
  readonly method: string;
  /** Path, or `/orders.v1.Orders/Create`; only logged. */
  readonly path: string;
  /** All values of a header or metadata entry, in the order they came. */
  header(name: string): readonly string[];
  readonly remoteAddress: string;
  /** The subject of the client's verified certificate. */
  readonly peer?: { readonly subject: string } | undefined;
}

/** `admin` is config and mode, of one subject or of all; a service without those has no use for it.
 */
export const OPERATIONS = ['read', 'write', 'delete', 'admin'] as const;
export type AccessOperation = (typeof OPERATIONS)[number];

export interface Need {
  readonly operation: AccessOperation;
  /** Absent, and no `anyOf`: the registry as a whole. To read it (lists, global config and mode) is
   *  allowed to who has any rule; to change it takes a rule over all subjects of all contexts,
   *  `:*:*`. `:.context:` alone is a whole context, by the same measure: any rule there to read it,
   *  one over all its subjects to change it. */
  readonly subject?: string;
  /** One of these is enough: the subjects that use an id, soft-deleted versions included. */
  readonly anyOf?: readonly string[];
}

export type Scheme = 'basic' | 'jwt' | 'mtls';

/** The principal of a request, and its rights. */
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
  /** Finds out who asks and refuses what they may not. An answer that needs no waiting comes as it
   *  is.
   *  @throws unauthenticated (401), forbidden (403), rate_limited (429), auth_unavailable (503);
   *  `refusalHeaders` has
   *  the headers of that answer */
  authorise(request: Caller, need: Need): Access | Promise<Access>;
  /** A second need of a request that was let in: the subjects a schema refers to, the target of an
   *  alias.
   *  @throws unauthenticated, forbidden */
  demand(request: Caller, access: Access, need: Need): void;
}

/** The gate of a service without access rules. */
const everyone: Access = {
  principal: 'anonymous',
  may: () => true,
  mayRead: () => true,
  mayReadContext: () => true,
};
export const openGate: RequestGate = { authorise: () => everyone, demand: () => {} };
