/** Interface between a server's surfaces (HTTP or gRPC) and access control: caller, needed right,
 *  granted access.
 *  A surface calls `authorise` before it reads the body, with the operation and the qualified
 *  subject (`:.staging:orders-value`; unqualified in the default context). A subject is the
 *  resource that the service's rules name: a subject of the registry, or the single resource
 *  `orders`. `may` filters lists. */

/** Part of a request that access control reads. An HTTP request implements it. */
export interface Caller {
  /** HTTP method, or `gRPC`; only logged. */
  readonly method: string;
  /** Path, or `/orders.v1.Orders/Create`; only logged. */
  readonly path: string;
  /** Returns all values of a header or metadata entry, in order of arrival. */
  header(name: string): readonly string[];
  readonly remoteAddress: string;
  /** Subject of the client's verified certificate. */
  readonly peer?: { readonly subject: string } | undefined;
}

/** `admin`: change configs and modes; unused by a service without those. */
export const OPERATIONS = ['read', 'write', 'delete', 'admin'] as const;
export type AccessOperation = (typeof OPERATIONS)[number];

export interface Need {
  readonly operation: AccessOperation;
  /** Subject that the operation concerns. Absent, without `anyOf`: the registry as a whole. Reading
   *  that (lists, global config and mode) needs any rule; changing it needs a rule over all
   *  subjects of all contexts, `:*:*`. `:.context:` is a whole context: reading it needs any rule
   *  in the context, changing it a rule over all its subjects. */
  readonly subject?: string;
  /** Alternatives: a right to one of these subjects is enough. They are the subjects that use an
   *  id, soft-deleted versions included. */
  readonly anyOf?: readonly string[];
}

export type Scheme = 'basic' | 'jwt' | 'mtls';

/** Check of credentials that takes time. */
export interface CredentialCheck {
  /** True if the check is dear: it holds a token of the address's bucket of wrong guesses until it
   *  ends. */
  readonly holdsGuess: boolean;
  /** Resolves to the principal's name. @throws BadCredentials; auth_unavailable */
  readonly run: () => Promise<string>;
}

/** Principal of a request with its rights. */
export interface Access {
  /** `basic:alice`, `jwt:svc-1`, `mtls:…`, `anonymous`. */
  readonly principal: string;
  may(need: Need): boolean;
  /** True if a list may show this subject. */
  mayRead(subject: string): boolean;
  /** True if a list may show this context: a rule applies to it. */
  mayReadContext(context: string): boolean;
}

export interface RequestGate {
  /** Authenticates the caller and checks its right. Returns synchronously if no check has to wait.
   *  @throws unauthenticated (401), forbidden (403), rate_limited (429), auth_unavailable (503);
   *  `refusalHeaders` returns the headers of that answer */
  authorise(request: Caller, need: Need): Access | Promise<Access>;
  /** Checks a further right of an admitted request: to the subjects that a schema refers to, or to
   *  the target of an alias.
   *  @throws unauthenticated, forbidden */
  demand(request: Caller, access: Access, need: Need): void;
}

/** Gate of a service without access rules. */
const everyone: Access = {
  principal: 'anonymous',
  may: () => true,
  mayRead: () => true,
  mayReadContext: () => true,
};
export const openGate: RequestGate = { authorise: () => everyone, demand: () => {} };
