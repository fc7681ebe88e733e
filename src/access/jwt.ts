/** Bearer tokens: JSON Web Tokens (RFC 7519) signed by a key of the configured set, checked by the
 *  rules of RFC 8725.
 *  Invariants: (1) The algorithm is one of the allowed asymmetric algorithms, whatever the token
 *  says. (2) Keys come only from the configured set, never from the token's header. (3) Every token
 *  must have an issuer, an audience and an expiry. (4) An accepted token is cached, but never past
 *  its expiry, and only while the keys are the same. */
import type { JWTPayload } from 'jose';
import { coreError } from '../core/errors.ts';
import type { KeySource } from './jwks.ts';
import { BadCredentials } from './refusal.ts';
import type { CredentialCheck } from './request.ts';
import type { TokenDemands } from './token.ts';
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

export interface JwtOptions extends TokenDemands {
  readonly keys: KeySource;
}

/** Checks that all algorithms are asymmetric. @throws bad_value */
export function checkAlgorithms(algorithms: readonly string[]): void {
  const rejected = algorithms.find((name) => !(ALGORITHMS as readonly string[]).includes(name));
  if (algorithms.length === 0 || rejected !== undefined) {
    throw coreError('bad_value', `-auth-jwt-algorithms=${algorithms.join()} cannot be allowed`, {
      next: `choose from ${ALGORITHMS.join(', ')}: a shared secret, or no signature, does not identify the issuer`,
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

  /** Drops all cached results. Call it after the keys changed. */
  forget(): void {
    this.verified.clear();
  }

  /** Returns the principal's name if the token is cached, else the check of the token. It costs
   *  little and may wait for the keys, so it holds no guess.
   *  @throws BadCredentials */
  identify(token: string): string | CredentialCheck {
    if (token.length > TOKEN_CHARS_MAX) throw new BadCredentials('the token is too long');
    if (!/^[\w-]+\.[\w-]+\.[\w-]+$/u.test(token)) throw new BadCredentials('the token is malformed');
    const digest = this.verified.digest(token);
    return this.verified.get(digest) ?? { holdsGuess: false, run: () => this.check(token, digest) };
  }

  private async check(token: string, digest: string): Promise<string> {
    const { keys, clock, leewayMs, nameClaim } = this.options;
    // Loaded with the first token, so that a service without tokens starts faster.
    const { isOfUnknownKey, refused, verifyToken } = await import('./token.ts');
    let set = await keys.keys();
    let payload: JWTPayload;
    try {
      payload = await verifyToken(token, set, this.options);
    } catch (thrown) {
      if (!isOfUnknownKey(thrown)) throw refused(thrown);
      const newer = await keys.newer(set);
      if (newer === set) throw refused(thrown);
      set = newer;
      payload = await verifyToken(token, set, this.options).catch((again: unknown) => {
        throw refused(again);
      });
    }
    const name = payload[nameClaim];
    if (typeof name !== 'string' || !/^[^\p{Cc}]+$/u.test(name) || name.length > NAME_CHARS_MAX) {
      throw new BadCredentials(`the token's claim ${nameClaim} is not the name of a principal`);
    }
    const leftMs = (payload.exp as number) * 1000 + leewayMs - clock.wallNowMs();
    if ((await keys.keys()) === set) this.verified.set(digest, name, Math.min(ACCEPTED_FOR_MS, leftMs));
    return name;
  }
}
