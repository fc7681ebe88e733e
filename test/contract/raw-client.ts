/** Client that sends raw bytes and reads answers one by one, including bytes that an HTTP library
 *  would not send. */
import { connect, type Socket } from 'node:net';
import { arrival } from '../wait.ts';

export interface RawAnswer {
  readonly status: number;
  /** Headers with lower-case names; lines of one name are joined with a line feed. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

export class RawClient {
  readonly socket: Socket;
  private received = Buffer.alloc(0);
  private ended = false;
  /** Code of the error that ended the connection, e.g. ECONNRESET; undefined for a clean end. */
  error: string | undefined;
  private readonly waiters = new Set<() => void>();

  private constructor(socket: Socket) {
    this.socket = socket;
    const wake = (): void => {
      for (const waiter of this.waiters) waiter();
    };
    socket.on('data', (chunk) => {
      this.received = Buffer.concat([this.received, chunk]);
      wake();
    });
    socket.on('error', (error: NodeJS.ErrnoException) => {
      this.error = error.code;
    });
    for (const event of ['end', 'close', 'error']) {
      socket.on(event, () => {
        this.ended = true;
        wake();
      });
    }
  }

  static open(port: number, host = '127.0.0.1'): Promise<RawClient> {
    return new Promise((resolve, reject) => {
      const socket = connect({ port, host, allowHalfOpen: true });
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.off('error', reject);
        resolve(new RawClient(socket));
      });
    });
  }

  send(bytes: string | Uint8Array): this {
    if (!this.socket.destroyed) this.socket.write(bytes);
    return this;
  }

  /** Sends as fast as the connection accepts bytes, until the connection is closed. */
  feed(chunk: Uint8Array): void {
    const more = (): void => {
      while (!this.socket.destroyed && this.socket.writable && this.socket.write(chunk));
      if (!this.socket.destroyed) this.socket.once('drain', more);
    };
    more();
  }

  /** Number of bytes that have left this process. */
  get bytesSent(): number {
    return this.socket.bytesWritten - this.socket.writableLength;
  }

  close(): void {
    this.socket.destroy();
  }

  /** Received bytes that were not read as an answer. */
  get unread(): string {
    return this.received.toString('latin1');
  }

  /** True once the server has ended the connection. */
  get hasEnded(): boolean {
    return this.ended;
  }

  /** Resolves to the first result of `look`, which is called after each change of the
   *  connection. */
  private next<T>(what: string, find: () => T | undefined): Promise<T> {
    const found = new Promise<T>((resolve, reject) => {
      const attempt = (): void => {
        try {
          const answer = find();
          if (answer === undefined) return;
          resolve(answer);
        } catch (thrown) {
          reject(thrown);
        }
        this.waiters.delete(attempt);
      };
      this.waiters.add(attempt);
      attempt();
    });
    return arrival(what, found, () => this.unread);
  }

  private takeAnswer(head: boolean): RawAnswer | undefined {
    const end = this.received.indexOf('\r\n\r\n');
    if (end < 0) return undefined;
    const [first, ...lines] = this.received.subarray(0, end).toString('latin1').split('\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(first as string)?.[1]);
    const headers: Record<string, string> = {};
    for (const line of lines) {
      const colon = line.indexOf(':');
      const name = line.slice(0, colon).toLowerCase();
      const value = line.slice(colon + 1).trim();
      headers[name] = headers[name] === undefined ? value : `${headers[name]}\n${value}`;
    }
    const bodiless = head || status < 200 || status === 204 || status === 304;
    const length = bodiless ? 0 : Number(headers['content-length'] ?? 0);
    const bodyAt = end + 4;
    if (this.received.length < bodyAt + length) return undefined;
    const body = this.received.subarray(bodyAt, bodyAt + length);
    this.received = this.received.subarray(bodyAt + length);
    return { status, headers, body };
  }

  /** Returns the next answer; `head` for an answer without a body. 100 Continue counts as an
   *  answer. */
  answer(options: { readonly head?: boolean } = {}): Promise<RawAnswer> {
    return this.next('answer', () => {
      const answer = this.takeAnswer(options.head === true);
      if (answer === undefined && this.ended)
        throw new Error(
          `the connection ended without an answer; received ${JSON.stringify(this.received.toString('latin1'))}`,
        );
      return answer;
    });
  }

  /** Returns the next answer, or 'ended' if the connection ends first. */
  outcome(): Promise<RawAnswer | 'ended'> {
    return this.next<RawAnswer | 'ended'>(
      'answer and no end of the connection',
      () => this.takeAnswer(false) ?? (this.ended ? 'ended' : undefined),
    );
  }

  /** Returns the next answer if it has arrived, otherwise the state of the connection. */
  outcomeSoFar(): RawAnswer | 'ended' | 'silent' {
    return this.takeAnswer(false) ?? (this.ended ? 'ended' : 'silent');
  }

  /** Resolves when the connection can send no more bytes. */
  async disconnected(): Promise<void> {
    await this.next('loss of the connection', () => (this.socket.destroyed ? true : undefined));
  }

  /** Resolves when the server has ended the connection, to the bytes that were not read as an
   *  answer. */
  closed(): Promise<string> {
    return this.next('end of the connection', () =>
      this.ended ? this.received.toString('latin1') : undefined,
    );
  }
}
