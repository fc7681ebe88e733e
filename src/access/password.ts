/** Password file with lines `user:scrypt$N$r$p$salt$hash`, salt and hash in base64 (N, r and p as
 *  in RFC 7914).
 *  Invariants: (1) A line that needs more memory or work than COST_MAX is refused, so a file cannot
 *  stall its reader. (2) Hashes are compared in constant time. (3) A check of an unknown user costs
 *  as much as that of a known user. */
// biome-ignore lint/style/noRestrictedImports: a salt is secret randomness.
import { randomBytes, type ScryptOptions, scrypt, timingSafeEqual } from 'node:crypto';
import { coreError } from '../core/errors.ts';

export const PASSWORDS_BYTES_MAX = 4 << 20;
export const PASSWORD_BYTES_MAX = 1024;

interface Cost {
  readonly N: number;
  readonly r: number;
  readonly p: number;
}

export interface Hashed extends Cost {
  readonly salt: Uint8Array;
  readonly hash: Uint8Array;
}

/** Costs 32 MiB and tens of milliseconds per guess. */
const DEFAULT_COST: Cost = { N: 2 ** 15, r: 8, p: 1 };
const COST_MIN_N = 2 ** 14;
const COST_MAX = { memoryBytes: 128 << 20, p: 16 };
const SALT_BYTES = 16;
const HASH_BYTES = 32;

function derive(password: Uint8Array, salt: Uint8Array, bytes: number, { N, r, p }: Cost): Promise<Buffer> {
  const options: ScryptOptions = { N, r, p, maxmem: 256 * N * r + 256 * r * p };
  return new Promise((resolve, reject) => {
    scrypt(password, salt, bytes, options, (error, key) => (error === null ? resolve(key) : reject(error)));
  });
}

/** Returns the part of a line after `user:`. */
export async function hashPassword(password: string, cost: Cost = DEFAULT_COST): Promise<string> {
  const salt = randomBytes(SALT_BYTES);
  const hash = await derive(Buffer.from(password, 'utf8'), salt, HASH_BYTES, cost);
  return `scrypt$${cost.N}$${cost.r}$${cost.p}$${salt.toString('base64')}$${hash.toString('base64')}`;
}

export async function passwordMatches(password: string, hashed: Hashed): Promise<boolean> {
  const derived = await derive(Buffer.from(password, 'utf8'), hashed.salt, hashed.hash.length, hashed);
  return timingSafeEqual(derived, hashed.hash);
}

/** Returns a random hash, with which the password of an unknown user is compared. No password
 *  matches it except by chance. */
export function unknownUserHash(): Hashed {
  return { ...DEFAULT_COST, salt: randomBytes(SALT_BYTES), hash: randomBytes(HASH_BYTES) };
}

function base64(text: string, min: number, max: number): Uint8Array | undefined {
  if (!/^[A-Za-z0-9+/]+={0,2}$/u.test(text)) return undefined;
  const bytes = Buffer.from(text, 'base64');
  return bytes.length >= min && bytes.length <= max ? bytes : undefined;
}

/** Parses a hash; undefined: malformed, too cheap or too costly. */
export function parseHashed(text: string): Hashed | undefined {
  const match = /^scrypt\$(\d{1,9})\$(\d{1,4})\$(\d{1,4})\$([^$]*)\$([^$]*)$/u.exec(text);
  if (match === null) return undefined;
  const [N, r, p] = [Number(match[1]), Number(match[2]), Number(match[3])];
  const salt = base64(match[4] as string, 8, 64);
  const hash = base64(match[5] as string, 32, 64);
  const sound =
    (N & (N - 1)) === 0 &&
    N >= COST_MIN_N &&
    r >= 1 &&
    p >= 1 &&
    p <= COST_MAX.p &&
    128 * N * r <= COST_MAX.memoryBytes;
  return sound && salt !== undefined && hash !== undefined ? { N, r, p, salt, hash } : undefined;
}

/** User name that is valid in the file, in a header and in a log line. */
export const PASSWORD_USER = /^[^\p{Cc}:]{1,256}$/u;

/** Parses a password file. @throws bad_file with the number of the line, never with its text */
export function parsePasswords(text: string, where: string): ReadonlyMap<string, Hashed> {
  const users = new Map<string, Hashed>();
  text.split(/\r?\n/u).forEach((line, index) => {
    if (line.trim() === '' || line.startsWith('#')) return;
    const bad = (why: string, next: string): Error =>
      coreError('bad_file', `${where}:${index + 1}: ${why}`, { next });
    const colon = line.indexOf(':');
    const user = line.slice(0, colon);
    if (colon < 0 || !PASSWORD_USER.test(user)) {
      throw bad('the line does not begin with user:', 'make lines with millrace registry hash-password');
    }
    const hashed = parseHashed(line.slice(colon + 1).trim());
    if (hashed === undefined) {
      throw bad(
        `the hash of ${user} is malformed, or its cost is outside the limits`,
        'make it with millrace registry hash-password; N is a power of two from 16384, memory at most 128 MiB',
      );
    }
    if (users.has(user)) throw bad(`${user} has two lines`, 'remove one of the lines');
    users.set(user, hashed);
  });
  return users;
}
