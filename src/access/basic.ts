/** Basic credentials (RFC 7617) against a file of hashed passwords.
 *
 *  A check costs tens of milliseconds of a thread on purpose, so its answer is kept for a while,
 *  and only CHECKS_MAX run at once: the store's own disk work shares those threads.
 */
import type { Clock } from '../core/clock.ts';
import { type Hashed, nobody, PASSWORD_BYTES_MAX, PASSWORD_USER, passwordMatches } from './password.ts';
import { authUnavailable, BadCredentials } from './refusal.ts';
import { Verified } from './verified.ts';

const ACCEPTED_FOR_MS = 60_000;
/** A wrong password that a client repeats costs one check in this time. */
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
  private readonly underWay = new Map<string, Promise<boolean>>();
  private readonly stranger = nobody();
  private readonly waiting: Array<() => void> = [];
  private running = 0;
  /** Rises when the file changes: a check that began before says nothing about what is in it after.
   */
  private generation = 0;

  constructor(options: BasicOptions) {
    this.options = options;
    this.verified = new Verified(options.clock);
  }

  /** After the file was read again. */
  forget(): void {
    this.generation++;
    this.verified.clear();
    this.underWay.clear();
  }

  /** The user's name where the answer is known, else a function that finds it out.
   *  @throws BadCredentials */
  identify(encoded: string): string | (() => Promise<string>) {
    const { user, password } = parseBasic(encoded);
    const digest = this.verified.digest(`${user}:${password}`);
    const known = this.verified.get(digest);
    if (known !== undefined) return this.verdict(user, known);
    return async () => {
      let check = this.underWay.get(digest);
      if (check === undefined) {
        check = this.check(user, password, digest).finally(() => this.underWay.delete(digest));
        this.underWay.set(digest, check);
      }
      return this.verdict(user, await check);
    };
  }

  private verdict(user: string, matches: boolean): string {
    if (matches) return user;
    throw new BadCredentials('wrong user or password', this.options.users().has(user) ? user : undefined);
  }

  private async check(user: string, password: string, digest: string): Promise<boolean> {
    await this.turn();
    try {
      const { generation } = this;
      const known = this.options.users().get(user);
      const matches = (await passwordMatches(password, known ?? this.stranger)) && known !== undefined;
      if (generation === this.generation)
        this.verified.set(digest, matches, matches ? ACCEPTED_FOR_MS : REFUSED_FOR_MS);
      return matches;
    } finally {
      this.running--;
      this.waiting.shift()?.();
    }
  }

  /** @throws auth_unavailable */
  private async turn(): Promise<void> {
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
