/** Appends elements of the Protobuf wire format to one growing buffer. Source: protobuf.dev,
 *  "Encoding". */
const FIRST_BYTES = 1024;
const VARINT_BYTES_MAX = 10;
/** Greatest number of UTF-8 bytes of one UTF-16 unit. */
const UTF8_BYTES_MAX = 3;
/** Up to this length a loop is faster than a call into the runtime. */
const ASCII_CHARS_MAX = 40;

export class ProtoOutput {
  used = 0;
  private bytes = Buffer.allocUnsafeSlow(FIRST_BYTES);

  /** Written bytes; valid until the next write. */
  written(): Buffer {
    return this.bytes.subarray(0, this.used);
  }

  private reserve(more: number): void {
    if (this.used + more <= this.bytes.length) return;
    const grown = Buffer.allocUnsafeSlow(Math.max(this.bytes.length * 2, this.used + more));
    this.bytes.copy(grown, 0, 0, this.used);
    this.bytes = grown;
  }

  uint32(value: number): void {
    this.reserve(VARINT_BYTES_MAX);
    this.put(value);
  }

  private put(value: number): void {
    let rest = value >>> 0;
    for (; rest > 127; rest >>>= 7) this.bytes[this.used++] = (rest & 127) | 128;
    this.bytes[this.used++] = rest;
  }

  /** Negative numbers have ten bytes, as 64-bit numbers do. */
  int32(value: number): void {
    if (value >= 0) this.uint32(value);
    else this.words(value, -1);
  }

  sint32(value: number): void {
    this.uint32((value << 1) ^ (value >> 31));
  }

  varint64(value: bigint): void {
    this.words(Number(BigInt.asIntN(32, value)), Number(BigInt.asIntN(32, value >> 32n)));
  }

  sint64(value: bigint): void {
    this.varint64((value << 1n) ^ (value >> 63n));
  }

  private words(low: number, high: number): void {
    this.reserve(VARINT_BYTES_MAX);
    let rest = low >>> 0;
    let upper = high >>> 0;
    while (upper > 0 || rest > 127) {
      this.bytes[this.used++] = (rest & 127) | 128;
      rest = ((rest >>> 7) | (upper << 25)) >>> 0;
      upper >>>= 7;
    }
    this.bytes[this.used++] = rest;
  }

  fixed32(value: number): void {
    this.reserve(4);
    this.used = this.bytes.writeInt32LE(value | 0, this.used);
  }

  fixed64(value: bigint): void {
    this.reserve(8);
    this.used = this.bytes.writeBigInt64LE(BigInt.asIntN(64, value), this.used);
  }

  float(value: number): void {
    this.reserve(4);
    this.used = this.bytes.writeFloatLE(value, this.used);
  }

  double(value: number): void {
    this.reserve(8);
    this.used = this.bytes.writeDoubleLE(value, this.used);
  }

  text(value: string): void {
    const start = this.begin();
    this.reserve(value.length * UTF8_BYTES_MAX);
    if (value.length > ASCII_CHARS_MAX || !this.ascii(value)) this.used += this.bytes.write(value, this.used);
    this.end(start);
  }

  /** Writes ASCII text. @returns false, with nothing written, for other characters */
  private ascii(value: string): boolean {
    const { bytes, used } = this;
    for (let i = 0; i < value.length; i++) {
      const code = value.charCodeAt(i);
      if (code > 127) return false;
      bytes[used + i] = code;
    }
    this.used = used + value.length;
    return true;
  }

  blob(value: Uint8Array): void {
    this.uint32(value.length);
    this.reserve(value.length);
    this.bytes.set(value, this.used);
    this.used += value.length;
  }

  /** Begins a part with a length; `end` writes the length. */
  begin(): number {
    this.reserve(1);
    return this.used++;
  }

  /** Ends a part. @param start result of `begin` */
  end(start: number): void {
    const from = start + 1;
    const length = this.used - from;
    // One byte was reserved, which is enough for most lengths.
    let more = 0;
    for (let rest = length >>> 7; rest > 0; rest >>>= 7) more++;
    if (more > 0) {
      this.reserve(more);
      this.bytes.copyWithin(from + more, from, this.used);
    }
    const end = this.used + more;
    this.used = start;
    this.put(length);
    this.used = end;
  }
}
