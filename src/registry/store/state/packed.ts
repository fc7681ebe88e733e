/** Schema texts outside the JavaScript heap. A heap of a hundred thousand texts grows to several
 *  times their size between garbage collections, and each collection takes time. A text becomes a
 *  string again on access.
 */
import type { Json, Reference, SchemaContent } from '../../../formats/content.ts';
import type { SchemaFormat } from '../../../formats/format.ts';

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

/** True when two contents have the same text. Texts of different lengths are not decoded. */
export function hasSameText(a: SchemaContent, b: SchemaContent): boolean {
  if (a === b) return true;
  const length = (content: SchemaContent): number =>
    content instanceof PackedContent ? content.length : content.text.length;
  return length(a) === length(b) && a.text === b.text;
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
