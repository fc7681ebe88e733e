/** Response of node:http whose bytes are held until the transaction has committed.
 *
 *  The methods that send are replaced on the object, so everything above them (express, fastify,
 *  NestJS, streams) works unchanged. Nothing reaches the socket before `send`.
 */
import type { EndpointAnswer, Header } from '../answer.ts';
import { answerTooLarge } from '../answer.ts';

type Values = number | string | readonly string[];

/** Part of ServerResponse that the capture uses. */
export interface ResponseLike {
  statusCode: number;
  statusMessage: string;
  readonly headersSent: boolean;
  getHeaders(): Readonly<Record<string, Values | undefined>>;
  setHeader(name: string, value: Values): unknown;
  removeHeader(name: string): void;
  // biome-ignore lint/suspicious/noExplicitAny: the overloads of ServerResponse
  writeHead(...args: any[]): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: the overloads of ServerResponse
  write(...args: any[]): boolean;
  // biome-ignore lint/suspicious/noExplicitAny: the overloads of ServerResponse
  end(...args: any[]): unknown;
  flushHeaders(): void;
  once(event: 'close', listener: () => void): unknown;
  off(event: 'close', listener: () => void): unknown;
}

const METHODS = ['writeHead', 'write', 'end', 'flushHeaders'] as const;
type Callback = (error?: Error) => void;

/** Sets the headers of writeHead: an object, a flat list, or a list of pairs. */
function applyHeaders(res: ResponseLike, headers: unknown): void {
  if (headers === undefined || headers === null) return;
  const set = (name: unknown, value: unknown): void => {
    if (value !== undefined) res.setHeader(String(name), value as Values);
  };
  if (!Array.isArray(headers))
    for (const [name, value] of Object.entries(headers as object)) set(name, value);
  else if (Array.isArray(headers[0])) for (const [name, value] of headers) set(name, value);
  else for (let at = 0; at + 1 < headers.length; at += 2) set(headers[at], headers[at + 1]);
}

export class CapturedResponse {
  /** Resolves when the handler has ended the response. */
  readonly ended: Promise<void>;
  private readonly res: ResponseLike;
  private readonly bytesMax: number;
  private readonly own = new Map<string, unknown>();
  private readonly before: Readonly<Record<string, Values | undefined>>;
  private readonly statusBefore: number;
  private chunks: Buffer[] = [];
  private bytes = 0;
  private isEnded = false;
  private onEnded: () => void = () => {};

  constructor(res: ResponseLike, bytesMax: number) {
    this.res = res;
    this.bytesMax = bytesMax;
    this.before = { ...res.getHeaders() };
    this.statusBefore = res.statusCode;
    this.ended = new Promise((resolve) => {
      this.onEnded = resolve;
    });
    for (const name of METHODS) if (Object.hasOwn(res, name)) this.own.set(name, res[name]);
    res.writeHead = (status: number, ...rest: unknown[]): unknown => {
      res.statusCode = status;
      const [first, second] = rest;
      if (typeof first === 'string') res.statusMessage = first;
      applyHeaders(res, typeof first === 'string' ? second : first);
      return res;
    };
    res.flushHeaders = () => {};
    res.write = (chunk: unknown, ...rest: unknown[]): boolean => {
      this.hold(chunk, rest);
      return true;
    };
    res.end = (...args: unknown[]): unknown => {
      this.end(args);
      return res;
    };
  }

  get hasEnded(): boolean {
    return this.isEnded;
  }

  private hold(chunk: unknown, rest: readonly unknown[]): void {
    const encoding = typeof rest[0] === 'string' ? (rest[0] as BufferEncoding) : 'utf8';
    if (chunk !== undefined && chunk !== null) {
      const bytes =
        typeof chunk === 'string' ? Buffer.from(chunk, encoding) : Buffer.from(chunk as Uint8Array);
      this.bytes += bytes.length;
      if (this.bytes <= this.bytesMax) this.chunks.push(bytes);
      else this.chunks = [];
    }
    const done = rest.find((one): one is Callback => typeof one === 'function');
    if (done !== undefined) process.nextTick(done);
  }

  private end(args: readonly unknown[]): void {
    if (this.isEnded) return;
    const [first, ...rest] = args;
    if (typeof first === 'function') this.hold(undefined, [first]);
    else this.hold(first, rest);
    this.isEnded = true;
    this.onEnded();
  }

  /** Resolves when the response has ended. Rejects when the connection closes before, because a
   *  handler that has returned may never end it. */
  async endedOrClosed(): Promise<void> {
    if (this.isEnded) return;
    let onClose = (): void => {};
    const closed = new Promise<never>((_, reject) => {
      onClose = () => reject(new Error('the connection closed before the handler ended its response'));
    });
    this.res.once('close', onClose);
    try {
      await Promise.race([this.ended, closed]);
    } finally {
      this.res.off('close', onClose);
    }
  }

  /** Returns the ended response. @throws answer_too_large */
  answer(): EndpointAnswer {
    if (this.bytes > this.bytesMax) throw answerTooLarge(this.bytesMax);
    const headers = Object.entries(this.res.getHeaders()).flatMap(([name, value]): Header[] =>
      (Array.isArray(value) ? value : [value])
        .filter((one) => one !== undefined)
        .map((one) => [name.toLowerCase(), String(one)]),
    );
    return { status: this.res.statusCode, headers, body: this.body() };
  }

  private body(): Buffer {
    if (this.chunks.length !== 1) this.chunks = [Buffer.concat(this.chunks)];
    return this.chunks[0] as Buffer;
  }

  private restore(): void {
    for (const name of METHODS) {
      if (this.own.has(name)) Object.assign(this.res, { [name]: this.own.get(name) });
      else delete (this.res as unknown as Record<string, unknown>)[name];
    }
  }

  /** Sends the response as the handler wrote it. */
  send(): void {
    this.restore();
    this.res.end(this.body());
  }

  /** Discards the response: status and headers are those of before. */
  discard(): void {
    this.restore();
    this.chunks = [];
    this.res.statusCode = this.statusBefore;
    for (const name of Object.keys(this.res.getHeaders()))
      if (!Object.hasOwn(this.before, name)) this.res.removeHeader(name);
    applyHeaders(this.res, this.before);
  }
}
