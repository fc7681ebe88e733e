/** HTTP/2 on the frame level: encodes arbitrary frames and header blocks, and a client that sends
 *  and reads frames. */
import { connect, type Socket } from 'node:net';
import {
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  frame,
  GOAWAY,
  HEADERS,
  RST_STREAM,
  SETTINGS,
} from '../../src/io/grpc/http2/frames.ts';
import { HeaderList, HpackDecoder } from '../../src/io/grpc/http2/hpack.ts';

export const NOTHING = Buffer.alloc(0);
export const PREFACE = Buffer.concat([
  Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
  frame(SETTINGS, 0, 0, NOTHING),
]);

function integer(value: number, prefix: number): readonly number[] {
  const most = (1 << prefix) - 1;
  if (value < most) return [value];
  const bytes = [most];
  let rest = value - most;
  for (; rest >= 128; rest >>= 7) bytes.push((rest & 127) | 128);
  bytes.push(rest);
  return bytes;
}

/** HPACK literal without indexing, with its full name. Source: RFC 7541, 6.2.2. */
export function literal(name: string, value: string): Buffer {
  const parts = [name, value].map((text) => Buffer.from(text, 'latin1'));
  const [first, second] = parts as [Buffer, Buffer];
  return Buffer.concat([
    Buffer.of(0, ...integer(first.length, 7)),
    first,
    Buffer.from(integer(second.length, 7)),
    second,
  ]);
}

export type Fields = ReadonlyArray<readonly [name: string, value: string]>;
export const block = (fields: Fields): Buffer =>
  Buffer.concat(fields.map(([name, value]) => literal(name, value)));

/** Fields of a valid call of `path`. */
export const fieldsOf = (path: string): Fields => [
  [':method', 'POST'],
  [':scheme', 'http'],
  [':path', path],
  [':authority', 'x'],
  ['content-type', 'application/grpc'],
  ['te', 'trailers'],
];

export const number = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};

/** Entry of SETTINGS. */
export const setting = (id: number, value: number): Buffer =>
  Buffer.concat([Buffer.of(0, id), number(value)]);

/** Call in two frames. */
export const callFrames = (stream: number, fields: Fields, body: Uint8Array): Buffer =>
  Buffer.concat([frame(HEADERS, END_HEADERS, stream, block(fields)), frame(DATA, END_STREAM, stream, body)]);

export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

export interface RawAnswer {
  /** Fields of the headers and the trailers; the trailers win. */
  readonly fields: Readonly<Record<string, string>>;
  readonly data: Buffer;
  /** Code of the reset, if the stream was reset. */
  readonly reset: number | undefined;
}

export class RawH2 {
  readonly socket: Socket;
  /** Received frames, in their order. */
  readonly frames: Frame[] = [];
  over = false;
  private rest = NOTHING;
  private wake = (): void => {};
  private readonly decoder = new HpackDecoder();
  private readonly headers = new Map<Frame, readonly string[]>();

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on('data', (chunk: Buffer) => this.receive(chunk));
    socket.on('error', () => {});
    socket.on('close', () => {
      this.over = true;
      this.wake();
    });
  }

  static async open(port: number): Promise<RawH2> {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    return new RawH2(socket);
  }

  send(...parts: readonly Uint8Array[]): this {
    this.socket.write(Buffer.concat(parts));
    return this;
  }

  private receive(chunk: Buffer): void {
    let bytes = Buffer.concat([this.rest, chunk]);
    while (bytes.length >= 9 && bytes.length >= 9 + bytes.readUIntBE(0, 3)) {
      const end = 9 + bytes.readUIntBE(0, 3);
      const [type, flags] = [bytes[3] as number, bytes[4] as number];
      const one = { type, flags, stream: bytes.readUInt32BE(5), payload: bytes.subarray(9, end) };
      this.frames.push(one);
      if (type === HEADERS) {
        const list = new HeaderList();
        if (!this.decoder.read(one.payload, 0, one.payload.length, list))
          throw new Error('the server sent a header block that cannot be read');
        this.headers.set(one, list.fields);
      } else if (type === CONTINUATION) throw new Error('the server sent more headers than a frame holds');
      bytes = bytes.subarray(end);
    }
    this.rest = bytes;
    this.wake();
  }

  /** Resolves to the first result of `find`; undefined when the connection ends without one. */
  async until<T>(find: () => T | undefined): Promise<T | undefined> {
    for (;;) {
      const found = find();
      if (found !== undefined || this.over) return found;
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
  }

  async next(type: number, stream: number): Promise<Frame | undefined> {
    return this.until(() => this.frames.find((one) => one.type === type && one.stream === stream));
  }

  /** Waits for the whole answer of a stream. */
  async answer(stream: number): Promise<RawAnswer> {
    const ended = await this.until(() =>
      this.frames.find(
        (one) =>
          one.stream === stream &&
          (one.type === RST_STREAM || (one.type <= HEADERS && (one.flags & END_STREAM) !== 0)),
      ),
    );
    if (ended === undefined) throw new Error(`the connection ended before stream ${stream}`);
    const own = this.frames.filter((one) => one.stream === stream);
    const fields: Record<string, string> = {};
    for (const one of own) {
      const list = this.headers.get(one) ?? [];
      for (let i = 0; i < list.length; i += 2) fields[list[i] as string] = list[i + 1] as string;
    }
    return {
      fields,
      data: Buffer.concat(own.filter(({ type }) => type === DATA).map(({ payload }) => payload)),
      reset: ended.type === RST_STREAM ? ended.payload.readUInt32BE(0) : undefined,
    };
  }

  /** Code of the GOAWAY that ends the connection; -1 when the connection ends without GOAWAY. */
  async goneAway(): Promise<number> {
    const found = await this.next(GOAWAY, 0);
    return found === undefined ? -1 : found.payload.readUInt32BE(4);
  }

  close(): void {
    this.socket.destroy();
  }
}
