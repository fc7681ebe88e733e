/** The public keys that tokens are signed with, from a file or an address.
 *
 *  Invariants: (1) the last keys that were read stay in force while the address does not answer;
 *  (2) the address is asked at most once in RETRY_MS, whoever asks and for whatever key, and one
 *  request at a time; (3) nothing but public signature keys is ever taken from a set.
 */
import type { JSONWebKeySet, JWK } from 'jose';
import type { Clock } from '../core/clock.ts';
import { coreError } from '../core/errors.ts';
import type { Logger } from '../core/log.ts';
import { authUnavailable } from './refusal.ts';

export const JWKS_BYTES_MAX = 1 << 20;
const KEYS_MAX = 1000;
/** How old the keys of an address get before they are asked for again. */
const FRESH_MS = 5 * 60_000;
const RETRY_MS = 10_000;

/** Public signature keys. Two of them are never the same set. */
export type KeySet = JSONWebKeySet;

export interface KeySource {
  /** @throws auth_unavailable when no keys were ever read */
  keys(): Promise<KeySet>;
  /** Asks for newer ones, because a token names a key that is not here. The same set when there are
   *  none. */
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

/** Keys of a file that is watched elsewhere. */
export function fileKeys(current: () => KeySet): KeySource {
  return { keys: () => Promise.resolve(current()), newer: () => Promise.resolve(current()) };
}

export interface RemoteKeysOptions {
  readonly url: string;
  /** The whole body as text. @throws for any answer but 200, a slow one, or one over JWKS_BYTES_MAX
   */
  readonly get: (url: string) => Promise<string>;
  readonly clock: Clock;
  readonly log: Logger;
  /** After other keys were read. */
  readonly onChange: () => void;
}

export class RemoteKeys implements KeySource {
  private readonly options: RemoteKeysOptions;
  private current: KeySet | undefined;
  private text: string | undefined;
  private readMs = Number.NEGATIVE_INFINITY;
  private triedMs = Number.NEGATIVE_INFINITY;
  private underWay: Promise<void> | undefined;
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
      // Nobody waits for it: the keys at hand serve until the answer is there.
      void this.refresh();
    }
    return this.current;
  }

  async newer(than: KeySet): Promise<KeySet> {
    if (this.current === than) await this.refresh();
    return this.current ?? than;
  }

  /** Settles when an attempt ended or none is due; never throws. */
  refresh(): Promise<void> {
    if (this.underWay !== undefined) return this.underWay;
    const nowMs = this.options.clock.monotonicMs();
    if (nowMs - this.triedMs < RETRY_MS) return Promise.resolve();
    this.triedMs = nowMs;
    this.underWay = this.fetch().finally(() => {
      this.underWay = undefined;
    });
    return this.underWay;
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
      const kept = this.current === undefined ? 'there are none yet' : 'the last ones stay in force';
      log.error({ url, error: (thrown as Error).message }, `token keys could not be read; ${kept}`);
    }
  }
}
