/** Declarations of the used part of uWebSockets.js, and its loader.
 *
 *  The package's own entry falls back to a JavaScript imitation, with a line on stdout, when its
 *  binary does not match. So the binary is loaded by its name; without it the driver is
 *  unavailable.
 */
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { coreError } from '../../../core/errors.ts';

/** Response; valid until its answer is complete or its connection is closed. Any later use throws.
 */
export interface UwsResponse {
  writeStatus(status: string): UwsResponse;
  writeHeader(name: string, value: string | Uint8Array): UwsResponse;
  end(body?: string | Uint8Array, closeConnection?: boolean): UwsResponse;
  /** Ends without a body. Any argument, even `undefined`, counts as a length, and the response then
   *  never completes. */
  endWithoutBody(): UwsResponse;
  /** Returns `[all bytes were accepted, the answer is complete]`. */
  tryEnd(part: string | Uint8Array, totalBytes?: number): readonly [boolean, boolean];
  /** Sends a part of a body without a known length. False: bytes wait for the client. */
  write(part: string): boolean;
  getWriteOffset(): number;
  onWritable(handler: (offset: number) => boolean): UwsResponse;
  onAborted(handler: () => void): UwsResponse;
  /** Sets the data handler; `chunk` is detached when the handler returns. */
  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): UwsResponse;
  close(): UwsResponse;
  /** Pauses reading; bytes that were read before still arrive. */
  pause(): void;
  resume(): void;
  cork(write: () => void): UwsResponse;
  getRemoteAddress(): ArrayBuffer;
}

/** Request; valid until the handler returns. */
export interface UwsRequest {
  getUrl(): string;
  /** Undefined without a question mark. */
  getQuery(): string | undefined;
  getCaseSensitiveMethod(): string;
  forEach(each: (name: string, value: string) => void): void;
}

export interface UwsApp {
  any(pattern: string, handler: (response: UwsResponse, request: UwsRequest) => void): UwsApp;
  /** Listens; `false`: the address could not be bound. */
  listen(host: string, port: number, listening: (token: object | false) => void): UwsApp;
  /** Closes every connection. */
  close(): UwsApp;
}

export interface Uws {
  App(): UwsApp;
  us_listen_socket_close(token: object): void;
  us_socket_local_port(token: object): number;
  _cfg(option: string): void;
}

let loaded: Uws | undefined;

/** Loads the binary. @throws addon_missing without the package or a binary for this machine and
 *  Node.js */
export function loadUws(): Uws {
  if (loaded !== undefined) return loaded;
  const require = createRequire(import.meta.url);
  const file = `uws_${process.platform}_${process.arch}_${process.versions.modules}.node`;
  try {
    const root = dirname(require.resolve('uWebSockets.js/package.json'));
    const uws = require(join(root, 'binaries', file)) as Uws;
    // Omits the header that names the server.
    uws._cfg('silent');
    loaded = uws;
    return uws;
  } catch (cause) {
    throw coreError('addon_missing', `uWebSockets.js does not load here (${file})`, {
      next: 'run with -http=net',
      cause,
    });
  }
}
