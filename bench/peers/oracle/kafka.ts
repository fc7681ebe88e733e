/** A minimal Kafka reader over TCP: Metadata, ListOffsets and Fetch requests, and record batches of
 *  format 2.
 *
 *  It shares no code with the product's broker clients, so records that they lose, repeat or
 *  reorder become visible. It reads only uncompressed batches. Source: the Kafka protocol guide,
 *  request and record formats. */
import { connect, type Socket } from 'node:net';

const METADATA = { key: 3, version: 1 };
const LIST_OFFSETS = { key: 2, version: 1 };
const FETCH = { key: 1, version: 4 };

const LATEST = -1n;
const FETCH_BYTES = 8 * 1024 * 1024;
const CONTROL = 0x20;
const APPEND_TIME = 0x08;
/** The broker has no timestamp for the record. */
const NO_TIMESTAMP = -1n;
const CLIENT_ID = 'oracle';

/** Writes the big-endian fields of a request. */
class Fields {
  private readonly parts: Buffer[] = [];
  int8(value: number): this {
    const part = Buffer.alloc(1);
    part.writeInt8(value);
    return this.push(part);
  }
  int16(value: number): this {
    const part = Buffer.alloc(2);
    part.writeInt16BE(value);
    return this.push(part);
  }
  int32(value: number): this {
    const part = Buffer.alloc(4);
    part.writeInt32BE(value);
    return this.push(part);
  }
  int64(value: bigint): this {
    const part = Buffer.alloc(8);
    part.writeBigInt64BE(value);
    return this.push(part);
  }
  text(value: string): this {
    const part = Buffer.from(value, 'utf8');
    return this.int16(part.length).push(part);
  }
  done(): Buffer {
    return Buffer.concat(this.parts);
  }
  private push(part: Buffer): this {
    this.parts.push(part);
    return this;
  }
}

/** Reads the big-endian fields of a response. */
class Reader {
  readonly bytes: Buffer;
  at = 0;
  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }
  int16(): number {
    this.at += 2;
    return this.bytes.readInt16BE(this.at - 2);
  }
  int32(): number {
    this.at += 4;
    return this.bytes.readInt32BE(this.at - 4);
  }
  int64(): bigint {
    this.at += 8;
    return this.bytes.readBigInt64BE(this.at - 8);
  }
  text(): string {
    const length = this.int16();
    if (length < 0) return '';
    this.at += length;
    return this.bytes.toString('utf8', this.at - length, this.at);
  }
  skip(bytes: number): void {
    this.at += bytes;
  }
  /** Reads a zigzag varint of up to 53 bits: lengths and deltas are small. */
  varint(): number {
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = this.bytes[this.at++] as number;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) break;
      scale *= 128;
    }
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }
}

class Connection {
  private readonly socket: Socket;
  private chunks: Buffer[] = [];
  private length = 0;
  private pending: { resolve(response: Buffer): void; reject(error: Error): void } | undefined;
  private correlation = 0;
  /** The error that ended the connection, for later requests: it may end while no request is
   *  pending. */
  private ended: Error | undefined;

  constructor(host: string, port: number) {
    this.socket = connect({ host, port, noDelay: true });
    this.socket.on('data', (chunk: Buffer) => this.receive(chunk));
    this.socket.on('error', (error) => this.end(error));
    this.socket.on('close', () => this.end(new Error(`the broker at ${host}:${port} closed the connection`)));
  }

  /** Sends a request. Calls must not overlap. */
  request(api: { readonly key: number; readonly version: number }, body: Buffer): Promise<Reader> {
    const head = new Fields()
      .int16(api.key)
      .int16(api.version)
      .int32(++this.correlation)
      .text(CLIENT_ID)
      .done();
    return new Promise<Buffer>((resolve, reject) => {
      if (this.ended !== undefined) {
        reject(this.ended);
        return;
      }
      this.pending = { resolve, reject };
      this.socket.write(Buffer.concat([new Fields().int32(head.length + body.length).done(), head, body]));
    }).then((response) => {
      const reader = new Reader(response);
      if (reader.int32() !== this.correlation) throw new Error('a response belongs to another request');
      return reader;
    });
  }

  close(): void {
    this.socket.destroy();
  }

  private end(error: Error): void {
    this.ended ??= error;
    this.pending?.reject(this.ended);
    this.pending = undefined;
  }

  private receive(chunk: Buffer): void {
    this.chunks.push(chunk);
    this.length += chunk.length;
    if (this.length < 4) return;
    if ((this.chunks[0] as Buffer).length < 4) this.chunks = [Buffer.concat(this.chunks)];
    const size = (this.chunks[0] as Buffer).readInt32BE(0);
    if (this.length < 4 + size) return;
    const whole = Buffer.concat(this.chunks);
    this.chunks = [];
    this.length = 0;
    const { pending } = this;
    this.pending = undefined;
    pending?.resolve(whole.subarray(4));
  }
}

export interface ReadRecord {
  readonly offset: bigint;
  /** The record's own timestamp, or its append time if the topic is configured so; undefined: none.
   */
  readonly timestamp: bigint | undefined;
  /** Borrowed until the next record. */
  readonly value: Uint8Array | null;
}

/** Calls `visit` for each record of the record batches in `bytes` from offset `from` on; returns
 *  the next offset to read. */
function readBatches(bytes: Buffer, from: bigint, visit: (record: ReadRecord) => void): bigint {
  let next = from;
  let at = 0;
  // The last batch of a response may be truncated; the next fetch returns it again.
  while (at + 61 <= bytes.length) {
    const base = bytes.readBigInt64BE(at);
    const end = at + 12 + bytes.readInt32BE(at + 8);
    if (end > bytes.length) break;
    if (bytes[at + 16] !== 2) throw new Error(`record batches of format ${bytes[at + 16]} are not supported`);
    const attributes = bytes.readInt16BE(at + 21);
    const last = base + BigInt(bytes.readInt32BE(at + 23));
    const codec = attributes & 7;
    if (codec !== 0)
      throw new Error(`compression codec ${codec} is not supported: write the topic without compression`);
    if ((attributes & CONTROL) === 0) {
      const reader = new Reader(bytes.subarray(at + 61, end));
      const count = bytes.readInt32BE(at + 57);
      const firstTimestamp = bytes.readBigInt64BE(at + 27);
      const appendedAt = (attributes & APPEND_TIME) === 0 ? undefined : bytes.readBigInt64BE(at + 35);
      for (let i = 0; i < count; i++) {
        const length = reader.varint();
        const stop = reader.at + length;
        reader.at += 1;
        const ownTimestamp = firstTimestamp + BigInt(reader.varint());
        const offset = base + BigInt(reader.varint());
        const keyLength = reader.varint();
        if (keyLength > 0) reader.at += keyLength;
        const valueLength = reader.varint();
        const value = valueLength < 0 ? null : reader.bytes.subarray(reader.at, reader.at + valueLength);
        reader.at = stop;
        const known = appendedAt ?? ownTimestamp;
        const timestamp = known === NO_TIMESTAMP ? undefined : known;
        if (offset >= from) visit({ offset, timestamp, value });
      }
    }
    next = last + 1n;
    at = end;
  }
  return next;
}

export class TopicReader {
  readonly partitions: readonly number[];
  private readonly topic: string;
  private readonly leaders: ReadonlyMap<number, Connection>;
  private readonly connections: readonly Connection[];

  private constructor(
    topic: string,
    leaders: ReadonlyMap<number, Connection>,
    connections: readonly Connection[],
  ) {
    this.topic = topic;
    this.leaders = leaders;
    this.connections = connections;
    this.partitions = [...leaders.keys()].sort((a, b) => a - b);
  }

  static async open(brokers: string, topic: string): Promise<TopicReader> {
    const [host, port] = (brokers.split(',')[0] as string).split(':');
    const first = new Connection(host as string, Number(port));
    const response = await first.request(METADATA, new Fields().int32(1).text(topic).done());
    const nodes = new Map<number, Connection>();
    for (let i = response.int32(); i > 0; i--) {
      const id = response.int32();
      const nodeHost = response.text();
      nodes.set(id, new Connection(nodeHost, response.int32()));
      response.text();
    }
    response.int32();
    const leaders = new Map<number, Connection>();
    for (let i = response.int32(); i > 0; i--) {
      const error = response.int16();
      if (error !== 0) throw new Error(`topic ${topic}: broker error ${error}`);
      response.text();
      response.skip(1);
      for (let p = response.int32(); p > 0; p--) {
        response.int16();
        const partition = response.int32();
        leaders.set(partition, nodes.get(response.int32()) as Connection);
        response.skip(4 * response.int32());
        response.skip(4 * response.int32());
      }
    }
    return new TopicReader(topic, leaders, [first, ...nodes.values()]);
  }

  /** Returns the next offset to be written. */
  async end(partition: number): Promise<bigint> {
    const body = new Fields()
      .int32(-1)
      .int32(1)
      .text(this.topic)
      .int32(1)
      .int32(partition)
      .int64(LATEST)
      .done();
    const response = await this.leader(partition).request(LIST_OFFSETS, body);
    response.int32();
    response.text();
    response.int32();
    response.int32();
    const error = response.int16();
    if (error !== 0) throw new Error(`the end of partition ${partition}: broker error ${error}`);
    response.int64();
    return response.int64();
  }

  /** Reads every record from offset 0 to the current end, in log order. */
  async read(partition: number, visit: (record: ReadRecord) => void): Promise<void> {
    const end = await this.end(partition);
    let next = 0n;
    while (next < end) {
      const body = new Fields()
        .int32(-1)
        .int32(1000)
        .int32(1)
        .int32(FETCH_BYTES)
        .int8(0)
        .int32(1)
        .text(this.topic)
        .int32(1)
        .int32(partition)
        .int64(next)
        .int32(FETCH_BYTES)
        .done();
      const response = await this.leader(partition).request(FETCH, body);
      response.int32();
      response.int32();
      response.text();
      response.int32();
      response.int32();
      const error = response.int16();
      if (error !== 0) throw new Error(`partition ${partition} from ${next}: broker error ${error}`);
      response.int64();
      response.int64();
      response.skip(16 * Math.max(0, response.int32()));
      const length = response.int32();
      next = readBatches(
        response.bytes.subarray(response.at, response.at + Math.max(0, length)),
        next,
        visit,
      );
    }
  }

  close(): void {
    for (const connection of this.connections) connection.close();
  }

  private leader(partition: number): Connection {
    return this.leaders.get(partition) as Connection;
  }
}
