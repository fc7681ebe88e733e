/** Avro object container files, read block by block from a stream: codecs null and deflate.
 *
 *  Invariants: (1) at most one block is in memory; (2) every length of the file is checked against
 *  a limit before it is used, also the length after decompression. Source: Apache Avro 1.12
 *  specification, "Object Container Files". */
import { promisify } from 'node:util';
import { inflateRaw } from 'node:zlib';
import { formatError } from '../errors.ts';

/** Greatest number of bytes of a block, compressed or not. */
const BLOCK_BYTES_MAX = 64 << 20;
/** Greatest number of bytes of the header's metadata, over all entries. */
const HEADER_BYTES_MAX = 16 << 20;
/** Greatest number of entries of the metadata. */
const HEADER_ENTRIES_MAX = 1_000;
const MAGIC = Buffer.from('Obj\u0001', 'latin1');
const SYNC_BYTES = 16;
const LONG_BYTES_MAX = 10;

const inflate = promisify(inflateRaw);

const malformed = (why: string, cause?: unknown): Error =>
  formatError('malformed_payload', `the file is not a valid Avro container: ${why}`, {
    next: 'check that the file is complete',
    ...(cause === undefined ? {} : { cause }),
  });

export interface ContainerBlock {
  /** Number of values in the block. */
  readonly count: number;
  /** Encoded values, one after the other. */
  readonly bytes: Buffer;
}

/** Bytes of a stream, taken in any lengths. */
class ByteSource {
  private readonly chunks: AsyncIterator<Uint8Array>;
  private buffer: Buffer = Buffer.alloc(0);

  constructor(chunks: AsyncIterable<Uint8Array>) {
    this.chunks = chunks[Symbol.asyncIterator]();
  }

  /** Takes `count` bytes; undefined where the stream ends before the first one. @throws
   *  malformed_payload where it ends inside them */
  async take(count: number): Promise<Buffer | undefined> {
    const parts = [this.buffer];
    let length = this.buffer.length;
    while (length < count) {
      const next = await this.chunks.next();
      if (next.done === true) break;
      const { buffer, byteOffset, byteLength } = next.value;
      parts.push(Buffer.from(buffer, byteOffset, byteLength));
      length += byteLength;
    }
    if (length === 0 && count > 0) return undefined;
    if (length < count) throw malformed(`it ends inside a part of ${count} bytes`);
    const all = parts.length === 1 ? this.buffer : Buffer.concat(parts, length);
    this.buffer = all.subarray(count);
    return all.subarray(0, count);
  }

  async demand(count: number): Promise<Buffer> {
    const bytes = await this.take(count);
    if (bytes === undefined) throw malformed('it ends too early');
    return bytes;
  }

  /** Undefined at the end of the stream. */
  async longOrEnd(): Promise<bigint | undefined> {
    let value = 0n;
    for (let i = 0; i < LONG_BYTES_MAX; i++) {
      const bytes = await this.take(1);
      if (bytes === undefined && i === 0) return undefined;
      const byte = bytes?.[0];
      if (byte === undefined) throw malformed('it ends inside a number');
      value |= BigInt(byte & 0x7f) << BigInt(7 * i);
      if (byte < 0x80) return BigInt.asIntN(64, (value >> 1n) ^ -(value & 1n));
    }
    throw malformed('a number is too long');
  }

  /** @param most greatest allowed value */
  async size(most: number, what: string): Promise<number> {
    const size = await this.longOrEnd();
    if (size === undefined) throw malformed(`it ends before the ${what}`);
    if (size < 0n || size > BigInt(most)) throw malformed(`the ${what} is ${size}; the most is ${most}`);
    return Number(size);
  }
}

export class AvroContainer {
  /** Text of the writer's schema. */
  readonly schema: string;
  private readonly source: ByteSource;
  private readonly isDeflated: boolean;
  private readonly sync: Buffer;

  private constructor(source: ByteSource, schema: string, isDeflated: boolean, sync: Buffer) {
    this.source = source;
    this.schema = schema;
    this.isDeflated = isDeflated;
    this.sync = sync;
  }

  /** Reads the header. @throws malformed_payload, invalid_schema for another codec */
  static async open(chunks: AsyncIterable<Uint8Array>): Promise<AvroContainer> {
    const source = new ByteSource(chunks);
    if (!(await source.demand(MAGIC.length)).equals(MAGIC)) throw malformed('it does not begin with "Obj" 1');
    const meta = await readMeta(source);
    const sync = Buffer.from(await source.demand(SYNC_BYTES));
    const schema = meta.get('avro.schema')?.toString('utf8');
    const codec = meta.get('avro.codec')?.toString('utf8') ?? 'null';
    if (schema === undefined) throw malformed('its header has no avro.schema');
    if (codec !== 'null' && codec !== 'deflate')
      throw formatError('invalid_schema', `the container file has the codec ${JSON.stringify(codec)}`, {
        next: 'write the file with the codec null or deflate',
      });
    return new AvroContainer(source, schema, codec === 'deflate', sync);
  }

  /** Yields the blocks in order. @throws malformed_payload */
  async *blocks(): AsyncGenerator<ContainerBlock, void> {
    for (;;) {
      const rows = await this.source.longOrEnd();
      if (rows === undefined) return;
      if (rows < 0n || rows > BigInt(Number.MAX_SAFE_INTEGER)) throw malformed(`a block has ${rows} values`);
      const stored = await this.source.demand(await this.source.size(BLOCK_BYTES_MAX, 'size of a block'));
      // Any later read may reuse the buffer.
      const bytes = this.isDeflated ? await inflated(stored) : Buffer.from(stored);
      if (!(await this.source.demand(SYNC_BYTES)).equals(this.sync))
        throw malformed('a block does not end with the sync marker');
      yield { count: Number(rows), bytes };
    }
  }
}

async function readMeta(source: ByteSource): Promise<ReadonlyMap<string, Buffer>> {
  const meta = new Map<string, Buffer>();
  let left = HEADER_BYTES_MAX;
  const blob = async (): Promise<Buffer> => {
    const size = await source.size(left, 'size of a header entry');
    left -= size;
    return size === 0 ? Buffer.alloc(0) : Buffer.from(await source.demand(size));
  };
  for (;;) {
    let count = (await source.longOrEnd()) ?? 0n;
    if (count === 0n) return meta;
    // A negative count is followed by the size of its block.
    if (count < 0n) {
      await source.size(HEADER_BYTES_MAX, 'size of the header');
      count = -count;
    }
    if (count + BigInt(meta.size) > BigInt(HEADER_ENTRIES_MAX))
      throw malformed(`its header has more than ${HEADER_ENTRIES_MAX} entries`);
    for (let i = 0n; i < count; i++) {
      const key = (await blob()).toString('utf8');
      meta.set(key, await blob());
    }
  }
}

async function inflated(stored: Buffer): Promise<Buffer> {
  try {
    return await inflate(stored, { maxOutputLength: BLOCK_BYTES_MAX });
  } catch (cause) {
    throw malformed(`a block cannot be decompressed: ${(cause as Error).message}`, cause);
  }
}
