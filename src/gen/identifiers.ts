/** Random identifiers of an order as one text, of which each identifier is a part: making a string
 *  costs more than writing its characters.
 *
 *  Every identifier has a fixed place, so that its constant characters are written once. */

/** Two hexadecimal digits of each byte, as a little-endian pair of characters. */
const PAIRS = Uint16Array.from({ length: 256 }, (_, byte) => {
  const digits = byte.toString(16).padStart(2, '0');
  return digits.charCodeAt(0) | (digits.charCodeAt(1) << 8);
});
const CAPITAL_PAIRS = PAIRS.map((pair) => {
  const capital = (code: number): number => (code >= 0x61 ? code - 0x20 : code);
  return capital(pair & 0xff) | (capital(pair >> 8) << 8);
});

/** Writes the eight hexadecimal digits of a word of 32 bits. */
export function writeHexWord(view: DataView, at: number, word: number, pairs: Uint16Array = PAIRS): void {
  view.setUint16(at, pairs[word >>> 24] as number, true);
  view.setUint16(at + 2, pairs[(word >>> 16) & 0xff] as number, true);
  view.setUint16(at + 4, pairs[(word >>> 8) & 0xff] as number, true);
  view.setUint16(at + 6, pairs[word & 0xff] as number, true);
}

const UUID = '00000000-0000-0000-0000-000000000000';
const TRACE = `00-${'0'.repeat(32)}-${'0'.repeat(16)}-01`;
const REFERENCE = 'customer-00000000';
const COUPON = 'SAVE-00000000';
const SKU = `sku-${UUID}`;

const TRACE_AT = UUID.length;
const REFERENCE_AT = TRACE_AT + TRACE.length;
const COUPON_AT = REFERENCE_AT + REFERENCE.length;
const SKUS_AT = COUPON_AT + COUPON.length;

/** Most items of an order. */
const ITEMS_MAX = 6;

/** Identifiers of one order at a time. The set methods fill their places, `freeze` makes the text,
 *  and the getters cut it. */
export class OrderIdentifiers {
  private readonly bytes = Buffer.from(UUID + TRACE + REFERENCE + COUPON + SKU.repeat(ITEMS_MAX), 'latin1');
  private readonly view = new DataView(this.bytes.buffer, this.bytes.byteOffset, this.bytes.length);
  private text = '';

  /** @param words four random words */
  setId(words: Uint32Array): void {
    this.uuid(0, words);
  }

  /** @param words four random words of the item */
  setSku(item: number, words: Uint32Array): void {
    this.uuid(SKUS_AT + item * SKU.length + 4, words);
  }

  /** @param words four random words */
  setTrace(words: Uint32Array): void {
    for (let i = 0; i < 4; i++) this.word(TRACE_AT + 3 + 8 * i, words[i] as number, PAIRS);
  }

  /** @param words random words, of which two are used */
  setSpan(words: Uint32Array): void {
    this.word(TRACE_AT + 36, words[0] as number, PAIRS);
    this.word(TRACE_AT + 44, words[1] as number, PAIRS);
  }

  setReference(word: number): void {
    this.word(REFERENCE_AT + 9, word, PAIRS);
  }

  setCoupon(word: number): void {
    this.word(COUPON_AT + 5, word, CAPITAL_PAIRS);
  }

  /** Makes the text of an order with so many items. */
  freeze(items: number): void {
    this.text = this.bytes.toString('latin1', 0, SKUS_AT + items * SKU.length);
  }

  get id(): string {
    return this.text.slice(0, TRACE_AT);
  }

  get trace(): string {
    return this.text.slice(TRACE_AT, REFERENCE_AT);
  }

  get reference(): string {
    return this.text.slice(REFERENCE_AT, COUPON_AT);
  }

  get coupon(): string {
    return this.text.slice(COUPON_AT, SKUS_AT);
  }

  sku(item: number): string {
    const start = SKUS_AT + item * SKU.length;
    return this.text.slice(start, start + SKU.length);
  }

  /** Writes a word as eight digits at a place. */
  private word(at: number, word: number, pairs: Uint16Array): void {
    writeHexWord(this.view, at, word, pairs);
  }

  /** Writes a UUID of version 4 between its dashes, with the digits of `uuidOf`. */
  private uuid(at: number, words: Uint32Array): void {
    const { view } = this;
    const second = words[1] as number;
    const third = words[2] as number;
    this.word(at, words[0] as number, PAIRS);
    view.setUint16(at + 9, PAIRS[second >>> 24] as number, true);
    view.setUint16(at + 11, PAIRS[(second >>> 16) & 0xff] as number, true);
    view.setUint16(at + 14, PAIRS[((second >>> 8) & 0x0f) | 0x40] as number, true);
    view.setUint16(at + 16, PAIRS[second & 0xff] as number, true);
    view.setUint16(at + 19, PAIRS[((third >>> 24) & 0x3f) | 0x80] as number, true);
    view.setUint16(at + 21, PAIRS[(third >>> 16) & 0xff] as number, true);
    view.setUint16(at + 24, PAIRS[(third >>> 8) & 0xff] as number, true);
    view.setUint16(at + 26, PAIRS[third & 0xff] as number, true);
    this.word(at + 28, words[3] as number, PAIRS);
  }
}
