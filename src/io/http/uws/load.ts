/** The part of uWebSockets.js that the driver uses, and how it is loaded.
 *
 *  The package's own entry falls back to a JavaScript imitation when its binary does not fit, with a line on stdout;
 *  the binary is loaded here by its name instead, and where there is none the driver is not there.
 */
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { coreError } from '../../../core/errors.ts';

/** Valid until its answer is complete or its connection is gone; any use after that throws. */
export interface UwsResponse {
  writeStatus(status: string): UwsResponse;
  writeHeader(name: string, value: string | Uint8Array): UwsResponse;
  end(body?: string | Uint8Array, closeConnection?: boolean): UwsResponse;
  /** Any argument, even `undefined`, is taken for a length, and the response is then never complete. */
  endWithoutBody(): UwsResponse;
  /** `[everything was taken, the answer is complete]` */
  tryEnd(part: string | Uint8Array, totalBytes?: number): readonly [boolean, boolean];
  getWriteOffset(): number;
  onWritable(handler: (offset: number) => boolean): UwsResponse;
  onAborted(handler: () => void): UwsResponse;
  /** `chunk` is taken away when the handler returns. */
  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): UwsResponse;
  close(): UwsResponse;
  /** Bytes that were read before still arrive. */
  pause(): void;
  resume(): void;
  cork(write: () => void): UwsResponse;
  getRemoteAddress(): ArrayBuffer;
}

/** Valid until the handler returns. */
export interface UwsRequest {
  getUrl(): string;
  /** Undefined where there is no question mark. */
  getQuery(): string | undefined;
  getCaseSensitiveMethod(): string;
  forEach(each: (name: string, value: string) => void): void;
}

export interface UwsApp {
  any(pattern: string, handler: (response: UwsResponse, request: UwsRequest) => void): UwsApp;
  /** `false`: the address could not be taken. */
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

/** @throws addon_missing where the package or a binary for this machine and Node is not there */
export function loadUws(): Uws {
  if (loaded !== undefined) return loaded;
  const require = createRequire(import.meta.url);
  const file = `uws_${process.platform}_${process.arch}_${process.versions.modules}.node`;
  try {
    const root = dirname(require.resolve('uWebSockets.js/package.json'));
    const uws = require(join(root, 'binaries', file)) as Uws;
    // No header that names the server.
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
