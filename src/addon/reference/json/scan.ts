/** Finds fields of JSON documents without building their values.
 *
 *  The scanner checks the whole document by the grammar of RFC 8259 and notes where the values of
 *  requested fields stand, so that no digit of a number is lost and no object is made.
 *  Invariants: (1) a document is accepted exactly when JSON.parse accepts its text and the bytes
 *  are UTF-8, up to the nesting JSON_DEPTH_MAX; (2) the last value of a repeated key applies,
 *  with everything below it, as in JSON.parse. */
import { isUtf8 } from 'node:buffer';
import { JSON_DEPTH_MAX, JSON_VALUE } from '../../../core/json/finder.ts';

interface PathNode {
  readonly name: string;
  readonly bytes: Uint8Array;
  /** Index of the requested field that ends here; -1: none. */
  field: number;
  readonly children: PathNode[];
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
const DOT = 0x2e;
const DIGIT_0 = 0x30;
const DIGIT_9 = 0x39;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
const [OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d] as const;

/** True for the letters that follow a backslash, except `u`. */
const ESCAPES = new Uint8Array(256);
for (const letter of '"\\/bfnrt') ESCAPES[letter.charCodeAt(0)] = 1;
const HEX_DIGITS = new Uint8Array(256);
for (const digit of '0123456789abcdefABCDEF') HEX_DIGITS[digit.charCodeAt(0)] = 1;

const WORDS: ReadonlyMap<number, { readonly bytes: Uint8Array; readonly kind: number }> = new Map(
  (
    [
      ['null', JSON_VALUE.NULL],
      ['false', JSON_VALUE.FALSE],
      ['true', JSON_VALUE.TRUE],
    ] as const
  ).map(([word, kind]) => [word.charCodeAt(0), { bytes: Buffer.from(word), kind }]),
);

/** Scanner for the fields at `paths`; a path is the names of nested objects. */
export class JsonScanner {
  /** JSON_VALUE.* of each field. */
  readonly kind: Uint8Array;
  /** Place of each field's value in the bytes, with the quotes of a string. */
  readonly start: Int32Array;
  readonly end: Int32Array;
  private readonly root: PathNode = { name: '', bytes: new Uint8Array(0), field: -1, children: [] };
  private bytes: Uint8Array = new Uint8Array(0);
  private at = 0;
  private to = 0;
  /** Bits of all bytes of strings: a byte above 127 makes the scanner check the encoding. */
  private bits = 0;
  private isEscaped = false;

  constructor(paths: ReadonlyArray<readonly string[]>) {
    this.kind = new Uint8Array(paths.length);
    this.start = new Int32Array(paths.length);
    this.end = new Int32Array(paths.length);
    paths.forEach((path, index) => {
      let node = this.root;
      for (const name of path) {
        let child = node.children.find((one) => one.name === name);
        if (child === undefined) {
          child = { name, bytes: Buffer.from(name), field: -1, children: [] };
          node.children.push(child);
        }
        node = child;
      }
      node.field = index;
    });
  }

  /** Scans a document. False: the bytes are no JSON document, and the fields are meaningless. */
  scan(bytes: Uint8Array, from: number, to: number): boolean {
    this.bytes = bytes;
    this.at = from;
    this.to = to;
    this.bits = 0;
    this.kind.fill(JSON_VALUE.MISSING);
    this.space();
    if (!this.value(this.root, 0)) return false;
    this.space();
    return this.at === to && (this.bits < 0x80 || isUtf8(bytes.subarray(from, to)));
  }

  private space(): void {
    const { bytes, to } = this;
    let { at } = this;
    for (; at < to; at++) {
      const byte = bytes[at];
      if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) break;
    }
    this.at = at;
  }

  /** Scans a value and the white space before it. @param node requested fields of the value */
  private value(node: PathNode | undefined, depth: number): boolean {
    const start = this.at;
    if (start >= this.to || depth > JSON_DEPTH_MAX) return false;
    const kind = this.kindAt(this.bytes[start] as number, node, depth);
    if (kind === JSON_VALUE.MISSING) return false;
    if (node !== undefined && node.field >= 0) {
      this.kind[node.field] = kind;
      this.start[node.field] = start;
      this.end[node.field] = this.at;
    }
    return true;
  }

  /** Scans the value that begins with `first`. @returns its kind; MISSING: it is invalid */
  private kindAt(first: number, node: PathNode | undefined, depth: number): number {
    switch (first) {
      case QUOTE:
        if (!this.string()) return JSON_VALUE.MISSING;
        return this.isEscaped ? JSON_VALUE.ESCAPED : JSON_VALUE.STRING;
      case OPEN_OBJECT:
        return this.object(node, depth) ? JSON_VALUE.OBJECT : JSON_VALUE.MISSING;
      case OPEN_ARRAY:
        return this.array(depth) ? JSON_VALUE.ARRAY : JSON_VALUE.MISSING;
      default:
        if (first === MINUS || (first >= DIGIT_0 && first <= DIGIT_9))
          return this.number() ? JSON_VALUE.NUMBER : JSON_VALUE.MISSING;
        return this.word(first);
    }
  }

  private word(first: number): number {
    const word = WORDS.get(first);
    if (word === undefined || this.at + word.bytes.length > this.to) return JSON_VALUE.MISSING;
    for (const byte of word.bytes) if (this.bytes[this.at++] !== byte) return JSON_VALUE.MISSING;
    return word.kind;
  }

  private digits(): boolean {
    const { bytes, to } = this;
    const from = this.at;
    let at = from;
    while (at < to && (bytes[at] as number) >= DIGIT_0 && (bytes[at] as number) <= DIGIT_9) at++;
    this.at = at;
    return at > from;
  }

  private number(): boolean {
    const { bytes, to } = this;
    if (bytes[this.at] === MINUS) this.at++;
    const first = this.at;
    if (!this.digits()) return false;
    if (bytes[first] === DIGIT_0 && this.at > first + 1) return false;
    if (this.at < to && bytes[this.at] === DOT) {
      this.at++;
      if (!this.digits()) return false;
    }
    // 0x20 makes both cases of E one byte.
    if (this.at < to && ((bytes[this.at] as number) | 0x20) === 0x65) {
      this.at++;
      const sign = this.at < to ? bytes[this.at] : 0;
      if (sign === MINUS || sign === 0x2b) this.at++;
      if (!this.digits()) return false;
    }
    return true;
  }

  /** Scans a string and sets `isEscaped`. */
  private string(): boolean {
    const { bytes, to } = this;
    let bits = 0;
    let isEscaped = false;
    for (let at = this.at + 1; at < to; at++) {
      const byte = bytes[at] as number;
      if (byte === QUOTE) {
        this.at = at + 1;
        this.bits |= bits;
        this.isEscaped = isEscaped;
        return true;
      }
      if (byte < 0x20) return false;
      bits |= byte;
      if (byte !== BACKSLASH) continue;
      isEscaped = true;
      at++;
      const letter = at < to ? (bytes[at] as number) : 0;
      if (letter === LETTER_U) {
        for (let digit = 0; digit < 4; digit++)
          if (++at >= to || HEX_DIGITS[bytes[at] as number] === 0) return false;
      } else if (ESCAPES[letter] === 0) return false;
    }
    return false;
  }

  private array(depth: number): boolean {
    this.at++;
    this.space();
    if (this.take(CLOSE_ARRAY)) return true;
    for (;;) {
      if (!this.value(undefined, depth + 1)) return false;
      this.space();
      if (this.take(CLOSE_ARRAY)) return true;
      if (!this.take(COMMA)) return false;
      this.space();
    }
  }

  private object(node: PathNode | undefined, depth: number): boolean {
    this.at++;
    this.space();
    if (this.take(CLOSE_OBJECT)) return true;
    for (;;) {
      const keyAt = this.at;
      if (keyAt >= this.to || this.bytes[keyAt] !== QUOTE || !this.string()) return false;
      const child =
        node === undefined || node.children.length === 0 ? undefined : this.childOf(node, keyAt, this.at);
      this.space();
      if (!this.take(COLON)) return false;
      this.space();
      if (!this.value(child, depth + 1)) return false;
      this.space();
      if (this.take(CLOSE_OBJECT)) return true;
      if (!this.take(COMMA)) return false;
      this.space();
    }
  }

  private take(byte: number): boolean {
    if (this.at >= this.to || this.bytes[this.at] !== byte) return false;
    this.at++;
    return true;
  }

  /** Requested fields below the key in `bytes[start, end)`, which has quotes; forgets the values
   *  that an earlier key of this name had. */
  private childOf(node: PathNode, start: number, end: number): PathNode | undefined {
    const child = this.isEscaped
      ? this.escapedChild(node, start, end)
      : this.plainChild(node, start + 1, end - 1);
    if (child !== undefined) this.forget(child);
    return child;
  }

  private plainChild({ children }: PathNode, start: number, end: number): PathNode | undefined {
    const { bytes } = this;
    search: for (const child of children) {
      const name = child.bytes;
      if (name.length !== end - start) continue;
      for (let i = 0; i < name.length; i++) if (name[i] !== bytes[start + i]) continue search;
      return child;
    }
    return undefined;
  }

  private escapedChild({ children }: PathNode, start: number, end: number): PathNode | undefined {
    const { buffer, byteOffset } = this.bytes;
    const key = JSON.parse(Buffer.from(buffer, byteOffset + start, end - start).toString('utf8')) as string;
    return children.find(({ name }) => name === key);
  }

  private forget(node: PathNode): void {
    if (node.field >= 0) this.kind[node.field] = JSON_VALUE.MISSING;
    for (const child of node.children) this.forget(child);
  }
}
