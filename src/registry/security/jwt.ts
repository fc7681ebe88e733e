/** Bearer tokens: JSON Web Tokens (RFC 7519) signed by a key of the set, checked by the rules of RFC 8725.
 *
 *  Invariants: (1) the algorithm is one of the allowed asymmetric ones, whatever the token says; (2) a key comes from
 *  the configured set alone, never from the token's header; (3) issuer, audience and an end are demanded of every
 *  token; (4) an accepted token is believed for a while, never past its end, and only while the keys are the same.
 */
import { errors, type JWTVerifyOptions, type JWTVerifyResult, jwtVerify } from 'jose';
import type { Clock } from '../../core/clock.ts';
import { coreError } from '../../core/errors.ts';
import type { KeySet, KeySource } from './jwks.ts';
import { BadCredentials } from './refusal.ts';
import { Verified } from './verified.ts';

const ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
] as const;

const TOKEN_CHARS_MAX = 8192;
const NAME_CHARS_MAX = 256;
const ACCEPTED_FOR_MS = 60_000;
/** Keys of a set that share one kid and are tried in turn. */
const CANDIDATES_MAX = 4;

export interface JwtOptions {
  readonly keys: KeySource;
  readonly issuer: string;
  readonly audience: string;
  readonly algorithms: readonly string[];
  readonly leewayMs: number;
  /** The claim that names the principal. */
  readonly nameClaim: string;
  readonly clock: Clock;
}

/** @throws bad_value for what cannot be allowed */
export function checkAlgorithms(algorithms: readonly string[]): void {
  const stranger = algorithms.find((one) => !(ALGORITHMS as readonly string[]).includes(one));
  if (algorithms.length === 0 || stranger !== undefined) {
    throw coreError('bad_value', `-auth-jwt-algorithms=${algorithms.join()} cannot be allowed`, {
      next: `choose from ${ALGORITHMS.join(', ')}: a shared secret or none at all proves nothing here`,
    });
  }
}

export class JwtScheme {
  private readonly options: JwtOptions;
  private readonly verified: Verified<string>;

  constructor(options: JwtOptions) {
    checkAlgorithms(options.algorithms);
    this.options = options;
    this.verified = new Verified(options.clock);
  }

  /** After the keys changed. */
  forget(): void {
    this.verified.clear();
  }

  /** The principal's name where the answer is known, else a function that finds it out.
   *  @throws BadCredentials */
  identify(token: string): string | (() => Promise<string>) {
    if (token.length > TOKEN_CHARS_MAX) throw new BadCredentials('the token is too long');
    if (!/^[\w-]+\.[\w-]+\.[\w-]+$/u.test(token)) throw new BadCredentials('the token is malformed');
    const digest = this.verified.digest(token);
    return this.verified.get(digest) ?? (() => this.check(token, digest));
  }

  private async check(token: string, digest: string): Promise<string> {
    const { keys, clock, leewayMs, nameClaim } = this.options;
    let set = await keys.keys();
    let result: JWTVerifyResult;
    try {
      result = await this.verify(token, set);
    } catch (thrown) {
      if (!(thrown instanceof errors.JWKSNoMatchingKey)) throw refused(thrown);
      const newer = await keys.newer(set);
      if (newer === set) throw refused(thrown);
      set = newer;
      result = await this.verify(token, set).catch((again: unknown) => {
        throw refused(again);
      });
    }
    const name = result.payload[nameClaim];
    if (typeof name !== 'string' || !/^[^\p{Cc}]+$/u.test(name) || name.length > NAME_CHARS_MAX) {
      throw new BadCredentials(`the token's claim ${nameClaim} names nobody`);
    }
    const leftMs = (result.payload.exp as number) * 1000 + leewayMs - clock.wallNowMs();
    if ((await keys.keys()) === set) this.verified.set(digest, name, Math.min(ACCEPTED_FOR_MS, leftMs));
    return name;
  }

  private async verify(token: string, set: KeySet): Promise<JWTVerifyResult> {
    const { issuer, audience, algorithms, leewayMs, nameClaim, clock } = this.options;
    const options: JWTVerifyOptions = {
      issuer,
      audience,
      algorithms: [...algorithms],
      clockTolerance: leewayMs / 1000,
      currentDate: new Date(clock.wallNowMs()),
      requiredClaims: ['exp', nameClaim],
    };
    try {
      return await jwtVerify(token, set, options);
    } catch (thrown) {
      if (!(thrown instanceof errors.JWKSMultipleMatchingKeys)) throw thrown;
      let last: unknown = thrown;
      let tried = 0;
      for await (const key of thrown) {
        if (tried++ >= CANDIDATES_MAX) break;
        try {
          return await jwtVerify(token, key, options);
        } catch (again) {
          // Claims are looked at when the signature is right: no other key would change them.
          if (again instanceof errors.JWTExpired || again instanceof errors.JWTClaimValidationFailed)
            throw again;
          if (!(last instanceof errors.JWSSignatureVerificationFailed)) last = again;
        }
      }
      throw last;
    }
  }
}

/** Says what is wrong with a token in words of ours: a library's text may quote it. */
function refused(thrown: unknown): unknown {
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
