/** Public keys that verify tokens, from a file or an https address.
 *  Invariants: (1) The keys that were read last stay valid while the address does not answer. (2)
 *  The address is requested at most once in RETRY_MS, with one request in flight, whatever key a
 *  token names. (3) Only public signature keys are accepted from a set. */
import type { JSONWebKeySet, JWK } from 'jose';
import type { Clock } from '../core/clock.ts';
import { coreError } from '../core/errors.ts';
import type { Logger } from '../core/log.ts';
import { authUnavailable } from './refusal.ts';

export const JWKS_BYTES_MAX = 1 << 20;
const KEYS_MAX = 1000;
/** Age in ms from which the keys of an address are refreshed. */
const FRESH_MS = 5 * 60_000;
const RETRY_MS = 10_000;

/** Public signature keys. Each parse returns a new object, so a set is identified by reference. */
export type KeySet = JSONWebKeySet;

export interface KeySource {
  /** Returns the current keys. @throws auth_unavailable if no keys were ever read */
  keys(): Promise<KeySet>;
  /** Refreshes the keys, because a token names a key that is not in `than`. Returns `than` if there
   *  is no newer set. */
  newer(than: KeySet): Promise<KeySet>;
}

/** @throws bad_file */
export function parseKeySet(text: string, where: string): KeySet {
  const bad = (why: string, cause?: unknown): Error =>
    coreError('bad_file', `${where} ${why}`, { next: 'give a JSON Web Key Set with public keys', cause });
  let document: { readonly keys?: unknown };
  try {
    document = JSON.parse(text) as { readonly keys?: unknown };
  } catch (cause) {
    throw bad('is not JSON', cause);
  }
  const keys: unknown = (document as { readonly keys?: unknown } | null)?.keys;
  if (!Array.isArray(keys)) throw bad('has no list of keys');
  if (keys.length > KEYS_MAX) throw bad(`has ${keys.length} keys, over the limit of ${KEYS_MAX}`);
  const usable = keys.filter(isPublicKey);
  if (usable.length === 0) throw bad('has no public key for signatures');
  return { keys: usable };
}

function isPublicKey(key: unknown): key is JWK {
  if (typeof key !== 'object' || key === null) return false;
  const { kty, use } = key as Readonly<Record<string, unknown>>;
  const isPublic = !('d' in key) && !('k' in key) && !('priv' in key);
  return typeof kty === 'string' && kty !== 'oct' && isPublic && (use === undefined || use === 'sig');
}

/** Keys of a file; the caller watches the file. */
export function fileKeys(current: () => KeySet): KeySource {
  return { keys: () => Promise.resolve(current()), newer: () => Promise.resolve(current()) };
}

export interface RemoteKeysOptions {
  readonly url: string;
  /** Returns the whole body as text. @throws unless the answer is a 200 in time and within
   *  JWKS_BYTES_MAX */
  readonly get: (url: string) => Promise<string>;
  readonly clock: Clock;
  readonly log: Logger;
  /** Called after different keys were read. */
  readonly onChange: () => void;
}

export class RemoteKeys implements KeySource {
  private readonly options: RemoteKeysOptions;
  private current: KeySet | undefined;
  private text: string | undefined;
  private readMs = Number.NEGATIVE_INFINITY;
  private triedMs = Number.NEGATIVE_INFINITY;
  private inFlight: Promise<void> | undefined;
  private failing = false;

  constructor(options: RemoteKeysOptions) {
    this.options = options;
  }

  async keys(): Promise<KeySet> {
    if (this.current === undefined) {
      await this.refresh();
      if (this.current === undefined) {
        const seconds = (this.triedMs + RETRY_MS - this.options.clock.monotonicMs()) / 1000;
        throw authUnavailable('the keys that tokens are signed with could not be read yet', seconds);
      }
    } else if (this.options.clock.monotonicMs() - this.readMs >= FRESH_MS) {
      // Refreshes in the background: the current keys are used until the answer arrives.
      void this.refresh();
    }
    return this.current;
  }

  async newer(than: KeySet): Promise<KeySet> {
    if (this.current === than) await this.refresh();
    return this.current ?? than;
  }

  /** Resolves when an attempt ended, or immediately if none is due; never rejects. */
  refresh(): Promise<void> {
    if (this.inFlight !== undefined) return this.inFlight;
    const nowMs = this.options.clock.monotonicMs();
    if (nowMs - this.triedMs < RETRY_MS) return Promise.resolve();
    this.triedMs = nowMs;
    this.inFlight = this.fetch().finally(() => {
      this.inFlight = undefined;
    });
    return this.inFlight;
  }

  private async fetch(): Promise<void> {
    const { url, get, log, clock } = this.options;
    try {
      const text = await get(url);
      const changed = text !== this.text;
      if (changed) {
        this.current = parseKeySet(text, url);
        this.text = text;
        this.options.onChange();
      }
      this.readMs = clock.monotonicMs();
      if (changed || this.failing) log.info({ url }, 'token keys read');
      this.failing = false;
    } catch (thrown) {
      this.failing = true;
      const consequence =
        this.current === undefined ? 'there are no keys yet' : 'the last keys stay in force';
      log.error({ url, error: (thrown as Error).message }, `token keys could not be read; ${consequence}`);
    }
  }
}
