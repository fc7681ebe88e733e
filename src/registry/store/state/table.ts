/** Memory of the state: copy-on-write maps, and schema texts outside the JavaScript heap.
 *
 *  A fork of a map sees the base and its own changes, and the base sees them after `merge`. Values
 *  are immutable: a change sets another value under the same key.
 *
 *  A heap of a hundred thousand texts grows to several times their size between garbage
 *  collections, and each collection takes time. A packed text becomes a string again on access.
 */
import type { Json, Reference, SchemaContent } from '../../../formats/content.ts';
import type { SchemaFormat } from '../../../formats/format.ts';

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

/** Bytes of a chunk; it is freed with the last content in it. */
const CHUNK_BYTES = 1 << 20;
/** Size in bytes above which a text gets a buffer of its own. */
const OWN_BYTES = CHUNK_BYTES / 8;

/** Content with a packed text. Never spread it: `text` is an accessor and would be lost. */
class PackedContent implements SchemaContent {
  readonly format: SchemaFormat;
  readonly references: readonly Reference[];
  declare readonly metadata?: Json;
  declare readonly ruleSet?: Json;
  readonly #chunk: Buffer;
  readonly #at: number;
  readonly #bytes: number;
  readonly #encoding: 'latin1' | 'utf16le';

  constructor(
    content: SchemaContent,
    chunk: Buffer,
    at: number,
    bytes: number,
    encoding: 'latin1' | 'utf16le',
  ) {
    this.format = content.format;
    this.references = content.references;
    if (content.metadata !== undefined) this.metadata = content.metadata;
    if (content.ruleSet !== undefined) this.ruleSet = content.ruleSet;
    this.#chunk = chunk;
    this.#at = at;
    this.#bytes = bytes;
    this.#encoding = encoding;
  }

  get text(): string {
    return this.#chunk.toString(this.#encoding, this.#at, this.#at + this.#bytes);
  }

  /** Length of the text in UTF-16 units. */
  get length(): number {
    return this.#encoding === 'latin1' ? this.#bytes : this.#bytes / 2;
  }
}

/** Length of a text in UTF-16 units; a packed text is not decoded. */
export const textLengthOf = (content: SchemaContent): number =>
  content instanceof PackedContent ? content.length : content.text.length;

/** True when two contents have the same text. Texts of different lengths are not decoded. */
export function hasSameText(a: SchemaContent, b: SchemaContent): boolean {
  return a === b || (textLengthOf(a) === textLengthOf(b) && a.text === b.text);
}

export class Packer {
  private chunk = Buffer.alloc(0);
  private used = 0;

  pack(content: SchemaContent): SchemaContent {
    const { text } = content;
    // A lone surrogate, which a foreign record may hold, survives only in UTF-16.
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the range of one byte a character
    const encoding = /^[\u0000-\u00ff]*$/.test(text) ? 'latin1' : 'utf16le';
    const bytes = encoding === 'latin1' ? text.length : text.length * 2;
    if (bytes > OWN_BYTES) {
      const own = Buffer.allocUnsafeSlow(bytes);
      own.write(text, encoding);
      return new PackedContent(content, own, 0, bytes, encoding);
    }
    if (this.used + bytes > this.chunk.length) {
      this.chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES);
      this.used = 0;
    }
    const at = this.used;
    this.chunk.write(text, at, bytes, encoding);
    this.used += bytes;
    return new PackedContent(content, this.chunk, at, bytes, encoding);
  }
}
