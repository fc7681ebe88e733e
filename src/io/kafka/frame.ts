/** Frames of Kafka's protocol, for requests that the client library does not have.
 *
 *  Request (Source: Kafka protocol guide):
 *    size i32 | key i16 | version i16 | correlation i32 | client id str | body
 *  Response:
 *    size i32 | correlation i32 | body
 *  A str is its length i16, -1 for null, and its bytes. */

/** Correlation of every request: a connection has one request in flight. */
export const CORRELATION = 0x6d72;

export const int16 = (value: number): Buffer => Buffer.from([(value >> 8) & 255, value & 255]);
export function int32(value: number): Buffer {
  const out = Buffer.alloc(4);
  out.writeInt32BE(value);
  return out;
}
/** Text behind its length in bytes. */
export const shortText = (text: string): Buffer =>
  Buffer.concat([int16(Buffer.byteLength(text)), Buffer.from(text)]);

/** Bytes of a request. */
export function requestFrame(
  { key, version, clientId }: { readonly key: number; readonly version: number; readonly clientId: string },
  ...body: readonly Buffer[]
): Buffer {
  const head = [int16(key), int16(version), int32(CORRELATION), shortText(clientId)];
  const frame = Buffer.concat([...head, ...body]);
  return Buffer.concat([int32(frame.length), frame]);
}

/** Reads the fields of a response, in order. Each call throws a RangeError for bytes that the
 *  response does not have. */
export class ResponseFields {
  private readonly body: Buffer;
  private at = 0;

  constructor(body: Buffer) {
    this.body = body;
  }

  /** Advances by this many bytes and returns the position before them. */
  skip(bytes: number): number {
    this.at += bytes;
    if (this.at > this.body.length) throw new RangeError('the response is cut short');
    return this.at - bytes;
  }

  i16(): number {
    return this.body.readInt16BE(this.skip(2));
  }

  i32(): number {
    return this.body.readInt32BE(this.skip(4));
  }

  /** Number of items in a list. @throws RangeError for more than `most` */
  count(most: number): number {
    const found = this.i32();
    if (found < 0 || found > most) throw new RangeError('a count out of range');
    return found;
  }

  /** Undefined for null. */
  text(): string | undefined {
    const length = this.i16();
    if (length < 0) return undefined;
    const start = this.skip(length);
    return this.body.toString('utf8', start, this.at);
  }
}

/** Reads a response after its size field; undefined for a malformed or a foreign one. */
export function readResponse<T>(
  body: Buffer,
  read: (fields: ResponseFields) => T | undefined,
): T | undefined {
  const fields = new ResponseFields(body);
  try {
    return fields.i32() === CORRELATION ? read(fields) : undefined;
  } catch (thrown) {
    if (thrown instanceof RangeError) return undefined;
    throw thrown;
  }
}
