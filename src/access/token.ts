/** Verifies the signature and the claims of a token with jose, and words its errors. */
import { createLocalJWKSet, errors, type JWTPayload, type JWTVerifyOptions, jwtVerify } from 'jose';
import type { Clock } from '../core/clock.ts';
import type { KeySet } from './jwks.ts';
import { BadCredentials } from './refusal.ts';

export interface TokenDemands {
  readonly issuer: string;
  readonly audience: string;
  readonly algorithms: readonly string[];
  readonly leewayMs: number;
  /** Claim that names the principal. */
  readonly nameClaim: string;
  readonly clock: Clock;
}

/** Most keys with the same kid that are tried. */
const CANDIDATES_MAX = 4;

/** Imported keys, cached as long as their set lives. */
const local = new WeakMap<KeySet, ReturnType<typeof createLocalJWKSet>>();

function localOf(set: KeySet): ReturnType<typeof createLocalJWKSet> {
  const known = local.get(set);
  if (known !== undefined) return known;
  const created = createLocalJWKSet(set);
  local.set(set, created);
  return created;
}

/** True if a newer key set could change the result. */
export const isOfUnknownKey = (thrown: unknown): boolean => thrown instanceof errors.JWKSNoMatchingKey;

/** Returns the claims of a valid token. @throws errors that `refused` translates */
export async function verifyToken(token: string, set: KeySet, wanted: TokenDemands): Promise<JWTPayload> {
  const { issuer, audience, algorithms, leewayMs, nameClaim, clock } = wanted;
  const keys = localOf(set);
  const options: JWTVerifyOptions = {
    issuer,
    audience,
    algorithms: [...algorithms],
    clockTolerance: leewayMs / 1000,
    currentDate: new Date(clock.wallNowMs()),
    requiredClaims: ['exp', nameClaim],
  };
  try {
    return (await jwtVerify(token, keys, options)).payload;
  } catch (thrown) {
    if (!(thrown instanceof errors.JWKSMultipleMatchingKeys)) throw thrown;
    let last: unknown = thrown;
    let tried = 0;
    for await (const key of thrown) {
      if (tried++ >= CANDIDATES_MAX) break;
      try {
        return (await jwtVerify(token, key, options)).payload;
      } catch (again) {
        // Claims are checked after the signature was valid, so no other key would change the
        // result.
        if (again instanceof errors.JWTExpired || again instanceof errors.JWTClaimValidationFailed)
          throw again;
        if (!(last instanceof errors.JWSSignatureVerificationFailed)) last = again;
      }
    }
    throw last;
  }
}

/** Translates an error. A library's message is not used, because it may quote the token. */
export function refused(thrown: unknown): unknown {
  if (thrown instanceof BadCredentials) return thrown;
  return new BadCredentials(whyOf(thrown));
}

function whyOf(thrown: unknown): string {
  if (thrown instanceof errors.JWTExpired) return 'the token has expired';
  if (thrown instanceof errors.JWTClaimValidationFailed) {
    const known = ['iss', 'aud', 'nbf', 'iat', 'exp'].includes(thrown.claim);
    if (thrown.claim === 'nbf') return 'the token is not valid yet';
    return known
      ? `the token's claim ${thrown.claim} is not accepted`
      : "one of the token's claims is not accepted";
  }
  if (thrown instanceof errors.JOSEAlgNotAllowed) return "the token's algorithm is not allowed";
  if (thrown instanceof errors.JWKSNoMatchingKey) return 'the token is signed with a key that is not known';
  if (thrown instanceof errors.JWSSignatureVerificationFailed) return "the token's signature is wrong";
  return 'the token is malformed';
}
