/** Copy-on-write map: a fork sees the base and its own changes, and the base sees them after
 *  `merge`.
 *
 *  Values are immutable: a change sets another value under the same key.
 */

export interface Table<K, V> {
  get(key: K): V | undefined;
  has(key: K): boolean;
  set(key: K, value: V): void;
  delete(key: K): void;
  /** Entries in no defined order. */
  entries(): IterableIterator<readonly [K, V]>;
}

export class BaseTable<K, V> implements Table<K, V> {
  private readonly map = new Map<K, V>();

  get(key: K): V | undefined {
    return this.map.get(key);
  }
  has(key: K): boolean {
    return this.map.has(key);
  }
  set(key: K, value: V): void {
    this.map.set(key, value);
  }
  delete(key: K): void {
    this.map.delete(key);
  }
  entries(): IterableIterator<readonly [K, V]> {
    return this.map.entries();
  }
}

/** Marks a deleted key. */
const GONE = Symbol('gone');

export class ForkTable<K, V> implements Table<K, V> {
  private readonly base: Table<K, V>;
  /** Created with the first change: most forks change one or two of their tables. */
  private changes: Map<K, V | typeof GONE> | undefined;

  constructor(base: Table<K, V>) {
    this.base = base;
  }

  get(key: K): V | undefined {
    const own = this.changes?.get(key);
    if (own === undefined) return this.base.get(key);
    return own === GONE ? undefined : (own as V);
  }
  has(key: K): boolean {
    const own = this.changes?.get(key);
    return own === undefined ? this.base.has(key) : own !== GONE;
  }
  set(key: K, value: V): void {
    this.changes ??= new Map();
    this.changes.set(key, value);
  }
  delete(key: K): void {
    this.changes ??= new Map();
    this.changes.set(key, GONE);
  }
  *entries(): IterableIterator<readonly [K, V]> {
    const changes = this.changes;
    for (const entry of this.base.entries()) if (changes === undefined || !changes.has(entry[0])) yield entry;
    if (changes === undefined) return;
    for (const [key, value] of changes) if (value !== GONE) yield [key, value as V];
  }

  /** Applies the changes of this fork to the base. */
  merge(): void {
    if (this.changes === undefined) return;
    for (const [key, value] of this.changes) {
      if (value === GONE) this.base.delete(key);
      else this.base.set(key, value as V);
    }
    this.changes = undefined;
  }
}
