/** HPACK decoder of header blocks, and encoder of the blocks of answers. Source: RFC 7541; RFC
 *  9113, section 8.2.1 for valid fields.
 *
 *  A malformed block ends its connection, because the tables of both sides would differ from then
 *  on. An invalid field (an upper-case name, a line end in a value) is decoded like any other and
 *  makes the list unsound, which ends only its stream. The size of a list is bounded; a longer list
 *  is decoded to its end, and its rest is dropped.
 */
import { STATIC_ENTRIES, STATIC_TABLE } from './hpack-static.ts';
import { huffmanBytesMax, readHuffman } from './huffman.ts';

/** Size of the dynamic table: the default, which the server does not change. */
const TABLE_BYTES = 4096;
/** Bytes that an entry counts beside its text (RFC 7541, section 4.1). */
const ENTRY_BYTES = 32;
/** Most entries of a table; a power of two. */
const SLOTS = TABLE_BYTES / ENTRY_BYTES;
/** Most bytes of an encoded header block, and of the decoded list. */
export const HEADER_BYTES_MAX = 64 * 1024;

/** Decoded fields of one block. */
export class HeaderList {
  /** Header names and values in turn, Latin-1. */
  fields: string[] = [];
  /** Size of the list by RFC 7541, section 4.1. */
  bytes = 0;
  /** True when HTTP/2 allows every name and value. */
  sound = true;

  get tooLong(): boolean {
    return this.bytes > HEADER_BYTES_MAX;
  }

  add(name: string, value: string, sound: boolean): void {
    this.bytes += name.length + value.length + ENTRY_BYTES;
    if (!sound) this.sound = false;
    if (this.bytes <= HEADER_BYTES_MAX) this.fields.push(name, value);
  }
}

const COLON = 58;
const TAB = 9;
const SPACE = 32;
const IN_NAME = 1;
const IN_VALUE = 2;

/** Character classes: whether a byte may be part of a name, a value or both. */
function textClasses(): Uint8Array {
  const classes = new Uint8Array(256).fill(IN_VALUE, 32);
  classes[TAB] = IN_VALUE;
  classes[127] = 0;
  for (const char of "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")
    classes[char.charCodeAt(0)] = IN_NAME | IN_VALUE;
  return classes;
}
const CLASSES = textClasses();

/** Cache of names and short values, which repeat: an equal text in the same slot is not allocated
 *  again. */
const CACHE_SLOTS = 1024;
const CACHED_BYTES_MAX = 32;
const cachedTexts: string[] = new Array<string>(CACHE_SLOTS).fill('');

function isText(text: string, bytes: Uint8Array, from: number, length: number): boolean {
  if (text.length !== length) return false;
  for (let i = 0; i < length; i++) if (text.charCodeAt(i) !== bytes[from + i]) return false;
  return true;
}

const unpacked = Buffer.allocUnsafeSlow(huffmanBytesMax(HEADER_BYTES_MAX));

export class HpackDecoder {
  /** Slot of the newest entry. */
  private newest = 0;
  private entries = 0;
  private used = 0;
  private max = TABLE_BYTES;
  private readonly names: string[] = new Array<string>(SLOTS).fill('');
  private readonly values: string[] = new Array<string>(SLOTS).fill('');
  private readonly sounds = new Uint8Array(SLOTS);
  private at = 0;
  /** True when the last decoded text is valid for its kind. */
  private sound = true;

  /** Decodes the fields of a block into `list`. False: the block is malformed. @cost O(to - from)
   */
  read(bytes: Buffer, from: number, to: number, list: HeaderList): boolean {
    this.at = from;
    let begun = false;
    while (this.at < to) {
      const first = bytes[this.at] as number;
      if (first >= 0x80) {
        if (!this.readIndexed(bytes, to, list)) return false;
      } else if (first >= 0x40) {
        if (!this.readLiteral(bytes, to, 6, list)) return false;
      } else if (first < 0x20) {
        if (!this.readLiteral(bytes, to, 4, list)) return false;
      } else {
        const max = this.integer(bytes, to, 5);
        if (begun || max < 0 || max > TABLE_BYTES) return false;
        this.max = max;
        this.evict(max);
        continue;
      }
      begun = true;
    }
    return true;
  }

  private readIndexed(bytes: Buffer, to: number, list: HeaderList): boolean {
    const index = this.integer(bytes, to, 7);
    if (index <= 0) return false;
    if (index <= STATIC_ENTRIES) {
      list.add(STATIC_TABLE[2 * index - 2] as string, STATIC_TABLE[2 * index - 1] as string, true);
      return true;
    }
    const slot = this.slotOf(index);
    if (slot < 0) return false;
    list.add(this.names[slot] as string, this.values[slot] as string, this.sounds[slot] === 1);
    return true;
  }

  /** Decodes a literal field. @param prefix six bits: the field enters the table; four: it does not
   */
  private readLiteral(bytes: Buffer, to: number, prefix: 4 | 6, list: HeaderList): boolean {
    const index = this.integer(bytes, to, prefix);
    if (index < 0) return false;
    let name: string | undefined;
    let sound = true;
    if (index === 0) {
      name = this.text(bytes, to, IN_NAME);
      sound = this.sound;
    } else if (index <= STATIC_ENTRIES) name = STATIC_TABLE[2 * index - 2];
    else {
      const slot = this.slotOf(index);
      if (slot >= 0) {
        name = this.names[slot];
        // The name may be valid although its entry has an invalid value.
        sound = this.sounds[slot] === 1 || isName(name as string);
      }
    }
    if (name === undefined) return false;
    const value = this.text(bytes, to, IN_VALUE);
    if (value === undefined) return false;
    sound = sound && this.sound;
    list.add(name, value, sound);
    if (prefix === 6) this.insert(name, value, sound);
    return true;
  }

  /** Slot of a table index; -1 for an index without an entry. */
  private slotOf(index: number): number {
    const age = index - STATIC_ENTRIES - 1;
    return age < this.entries ? (this.newest - age) & (SLOTS - 1) : -1;
  }

  private insert(name: string, value: string, sound: boolean): void {
    const bytes = name.length + value.length + ENTRY_BYTES;
    this.evict(this.max - bytes);
    if (bytes > this.max) return;
    this.newest = (this.newest + 1) & (SLOTS - 1);
    this.names[this.newest] = name;
    this.values[this.newest] = value;
    this.sounds[this.newest] = sound ? 1 : 0;
    this.entries++;
    this.used += bytes;
  }

  /** Evicts the oldest entries until at most this many bytes remain. */
  private evict(bytes: number): void {
    while (this.entries > 0 && this.used > bytes) {
      const slot = (this.newest - this.entries + 1) & (SLOTS - 1);
      this.used -= (this.names[slot] as string).length + (this.values[slot] as string).length + ENTRY_BYTES;
      this.names[slot] = '';
      this.values[slot] = '';
      this.entries--;
    }
  }

  /** Decodes an integer; -1 when it is incomplete or over 28 bits. Source: RFC 7541, section 5.1.
   */
  private integer(bytes: Buffer, to: number, prefix: number): number {
    const most = (1 << prefix) - 1;
    let value = (bytes[this.at++] as number) & most;
    if (value < most) return value;
    for (let shift = 0; shift <= 21; shift += 7) {
      if (this.at >= to) return -1;
      const byte = bytes[this.at++] as number;
      value += (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return -1;
  }

  /** Decodes a text; undefined when it is incomplete or no Huffman code. */
  private text(bytes: Buffer, to: number, kind: typeof IN_NAME | typeof IN_VALUE): string | undefined {
    if (this.at >= to) return undefined;
    const coded = (bytes[this.at] as number) >= 0x80;
    const length = this.integer(bytes, to, 7);
    const from = this.at;
    if (length < 0 || length > to - from) return undefined;
    this.at = from + length;
    if (!coded) return this.textOf(bytes, from, length, kind);
    const size = readHuffman(bytes, from, from + length, unpacked);
    return size < 0 ? undefined : this.textOf(unpacked, 0, size, kind);
  }

  private textOf(bytes: Buffer, from: number, length: number, kind: number): string {
    const to = from + length;
    let sound = true;
    let hash = length;
    // Only the first character of a pseudo-header's name is a colon.
    let at = kind === IN_NAME && length > 1 && bytes[from] === COLON ? from + 1 : from;
    for (; at < to; at++) {
      const byte = bytes[at] as number;
      if (((CLASSES[byte] as number) & kind) === 0) sound = false;
      hash = (Math.imul(hash, 31) + byte) | 0;
    }
    if (length === 0) {
      this.sound = kind === IN_VALUE;
      return '';
    }
    if (kind === IN_VALUE && (isBlank(bytes[from] as number) || isBlank(bytes[to - 1] as number)))
      sound = false;
    this.sound = sound;
    if (length > CACHED_BYTES_MAX) return bytes.toString('latin1', from, to);
    const slot = (hash ^ (hash >>> 11)) & (CACHE_SLOTS - 1);
    const known = cachedTexts[slot] as string;
    if (isText(known, bytes, from, length)) return known;
    const text = bytes.toString('latin1', from, to);
    cachedTexts[slot] = text;
    return text;
  }
}

const isBlank = (byte: number): boolean => byte === SPACE || byte === TAB;

function isName(name: string): boolean {
  const from = name.length > 1 && name.charCodeAt(0) === COLON ? 1 : 0;
  for (let i = from; i < name.length; i++)
    if (((CLASSES[name.charCodeAt(i)] as number) & IN_NAME) === 0) return false;
  return name.length > 0;
}

function integerBytes(value: number, prefix: number, flags: number): readonly number[] {
  const most = (1 << prefix) - 1;
  if (value < most) return [flags | value];
  const bytes = [flags | most];
  let rest = value - most;
  for (; rest >= 0x80; rest >>>= 7) bytes.push((rest & 0x7f) | 0x80);
  bytes.push(rest);
  return bytes;
}

function textBytes(text: string): Buffer {
  const bytes = Buffer.from(text, 'latin1');
  return Buffer.concat([Buffer.from(integerBytes(bytes.length, 7, 0)), bytes]);
}

/** Encodes fields (names and values in turn, Latin-1) without table entries; a status of 200 by its
 *  index. */
export function writeHeaders(fields: readonly string[]): Buffer {
  const parts: Uint8Array[] = [];
  for (let i = 0; i < fields.length; i += 2) {
    const name = fields[i] as string;
    const value = fields[i + 1] as string;
    if (name === ':status' && value === '200') {
      parts.push(Buffer.of(0x80 | 8));
      continue;
    }
    const known = STATIC_TABLE.findIndex((text, at) => at % 2 === 0 && text === name);
    if (known >= 0) parts.push(Buffer.from(integerBytes(known / 2 + 1, 4, 0)));
    else parts.push(Buffer.of(0), textBytes(name));
    parts.push(textBytes(value));
  }
  return Buffer.concat(parts);
}

/** Table size update to 0, which must begin the first block after the client has shrunk its table.
 */
export const NO_TABLE = Buffer.of(0x20);
