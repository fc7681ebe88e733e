/** A client that sends bytes as they are and reads answers one by one: what a polite HTTP library would not do. */
import { connect, type Socket } from 'node:net';

/** What comes at all comes much sooner, but not on every machine. */
const PATIENCE_MS = 60_000;

export interface RawAnswer {
  readonly status: number;
  /** Lower-case names; several lines of one name joined by a line feed. */
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

  /** Sends as fast as the connection takes it, until it is gone. */
  feed(chunk: Uint8Array): void {
    const more = (): void => {
      while (!this.socket.destroyed && this.socket.writable && this.socket.write(chunk));
      if (!this.socket.destroyed) this.socket.once('drain', more);
    };
    more();
  }

  /** Bytes that have left this process. */
  get bytesSent(): number {
    return this.socket.bytesWritten - this.socket.writableLength;
  }

  close(): void {
    this.socket.destroy();
  }

  /** What came and was not read as an answer. */
  get unread(): string {
    return this.received.toString('latin1');
  }

  private async until<T>(look: () => T | undefined, what: string, timeoutMs: number): Promise<T> {
    const deadline = Date.now() + timeoutMs;
    for (;;) {
      const found = look();
      if (found !== undefined) return found;
      const left = deadline - Date.now();
      if (left <= 0)
        throw new Error(
          `no ${what} within ${timeoutMs} ms; received ${JSON.stringify(this.received.toString('latin1'))}`,
        );
      await new Promise<void>((resolve) => {
        const done = (): void => {
          clearTimeout(timer);
          this.waiters.delete(done);
          resolve();
        };
        const timer = setTimeout(done, left);
        this.waiters.add(done);
      });
    }
  }

  /** The next answer; `head` for one without a body. 100 Continue is an answer of its own. */
  answer(options: { readonly head?: boolean; readonly timeoutMs?: number } = {}): Promise<RawAnswer> {
    return this.until(
      () => {
        const end = this.received.indexOf('\r\n\r\n');
        if (end < 0) {
          if (this.ended)
            throw new Error(
              `the connection ended without an answer; received ${JSON.stringify(this.received.toString('latin1'))}`,
            );
          return undefined;
        }
        const [first, ...lines] = this.received.subarray(0, end).toString('latin1').split('\r\n');
        const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(first as string)?.[1]);
        const headers: Record<string, string> = {};
        for (const line of lines) {
          const colon = line.indexOf(':');
          const name = line.slice(0, colon).toLowerCase();
          const value = line.slice(colon + 1).trim();
          headers[name] = headers[name] === undefined ? value : `${headers[name]}\n${value}`;
        }
        const bodiless = options.head === true || status < 200 || status === 204 || status === 304;
        const length = bodiless ? 0 : Number(headers['content-length'] ?? 0);
        const bodyAt = end + 4;
        if (this.received.length < bodyAt + length) return undefined;
        const body = this.received.subarray(bodyAt, bodyAt + length);
        this.received = this.received.subarray(bodyAt + length);
        return { status, headers, body };
      },
      'answer',
      options.timeoutMs ?? PATIENCE_MS,
    );
  }

  /** The next answer, or how the connection stands when there is none after `withinMs`. */
  async outcome(withinMs: number): Promise<RawAnswer | 'ended' | 'silent'> {
    try {
      return await this.answer({ timeoutMs: withinMs });
    } catch {
      return this.ended ? 'ended' : 'silent';
    }
  }

  /** Resolves when nothing can be sent any more. */
  async gone(timeoutMs = PATIENCE_MS): Promise<void> {
    await this.until(() => (this.socket.destroyed ? true : undefined), 'loss of the connection', timeoutMs);
  }

  /** Resolves when the server has ended the connection, to what came and was not read as an answer. */
  closed(timeoutMs = PATIENCE_MS): Promise<string> {
    return this.until(
      () => (this.ended ? this.received.toString('latin1') : undefined),
      'end of the connection',
      timeoutMs,
    );
  }
}
