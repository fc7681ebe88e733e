/** Basic credentials (RFC 7617) against a file of hashed passwords.
 *  A check deliberately costs tens of milliseconds of a thread. So its result is cached, and at
 *  most CHECKS_MAX checks run at the same time: the store's disk work shares those threads. */
import type { Clock } from '../core/clock.ts';
import {
  type Hashed,
  PASSWORD_BYTES_MAX,
  PASSWORD_USER,
  passwordMatches,
  unknownUserHash,
} from './password.ts';
import { authUnavailable, BadCredentials } from './refusal.ts';
import type { CredentialCheck } from './request.ts';
import { Verified } from './verified.ts';

const ACCEPTED_FOR_MS = 60_000;
/** A client that repeats a wrong password causes one check in this time. */
const REFUSED_FOR_MS = 10_000;
const CHECKS_MAX = 2;
const WAITING_MAX = 64;
const HEADER_CHARS_MAX = 4096;
const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export interface BasicOptions {
  readonly users: () => ReadonlyMap<string, Hashed>;
  readonly clock: Clock;
}

export class BasicScheme {
  private readonly options: BasicOptions;
  private readonly verified: Verified<boolean>;
  private readonly inFlight = new Map<string, Promise<boolean>>();
  private readonly unknownUser = unknownUserHash();
  private readonly waiting: Array<() => void> = [];
  private running = 0;
  /** Incremented when the file changes: the result of a check that began earlier must not be
   *  cached. */
  private generation = 0;

  constructor(options: BasicOptions) {
    this.options = options;
    this.verified = new Verified(options.clock);
  }

  /** Drops all cached results. Call it after the file was read again. */
  forget(): void {
    this.generation++;
    this.verified.clear();
    this.inFlight.clear();
  }

  /** Returns the user's name if the result is cached, else the check of the password. Requests with
   *  the same credentials share one hash, so only the first holds a guess.
   *  @throws BadCredentials */
  identify(encoded: string): string | CredentialCheck {
    const { user, password } = parseBasic(encoded);
    const digest = this.verified.digest(`${user}:${password}`);
    const known = this.verified.get(digest);
    if (known !== undefined) return this.verdict(user, known);
    return {
      holdsGuess: !this.inFlight.has(digest),
      run: async () => {
        let check = this.inFlight.get(digest);
        if (check === undefined) {
          check = this.check(user, password, digest).finally(() => this.inFlight.delete(digest));
          this.inFlight.set(digest, check);
        }
        return this.verdict(user, await check);
      },
    };
  }

  private verdict(user: string, matches: boolean): string {
    if (matches) return user;
    throw new BadCredentials('wrong user or password', this.options.users().has(user) ? user : undefined);
  }

  private async check(user: string, password: string, digest: string): Promise<boolean> {
    await this.acquireSlot();
    try {
      const { generation } = this;
      const known = this.options.users().get(user);
      const matches = (await passwordMatches(password, known ?? this.unknownUser)) && known !== undefined;
      if (generation === this.generation)
        this.verified.set(digest, matches, matches ? ACCEPTED_FOR_MS : REFUSED_FOR_MS);
      return matches;
    } finally {
      this.running--;
      this.waiting.shift()?.();
    }
  }

  /** Waits for a free slot of CHECKS_MAX. @throws auth_unavailable */
  private async acquireSlot(): Promise<void> {
    if (this.running >= CHECKS_MAX) {
      if (this.waiting.length >= WAITING_MAX)
        throw authUnavailable('too many passwords wait to be checked', 1);
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    }
    this.running++;
  }
}

/** @throws BadCredentials */
function parseBasic(encoded: string): { readonly user: string; readonly password: string } {
  const malformed = (): BadCredentials => new BadCredentials('the Basic credentials are malformed');
  if (encoded.length > HEADER_CHARS_MAX || !/^[A-Za-z0-9+/]+={0,2}$/u.test(encoded)) throw malformed();
  let text: string;
  try {
    text = UTF8.decode(Buffer.from(encoded, 'base64'));
  } catch {
    throw malformed();
  }
  const colon = text.indexOf(':');
  const user = text.slice(0, Math.max(0, colon));
  const password = text.slice(colon + 1);
  if (!PASSWORD_USER.test(user) || Buffer.byteLength(password) > PASSWORD_BYTES_MAX) throw malformed();
  return { user, password };
}
