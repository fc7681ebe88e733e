/** Loads the libpq binding of pg-native and declares the part of it that is used. */
import { createRequire } from 'node:module';
import { coreError } from '../../../core/errors.ts';

/** libpq connection; methods are those of libpq. None blocks on the server except `cancel`, which
 *  is not used. */
export interface Libpq {
  /** Connects on another thread. */
  connect(conninfo: string, done: (error?: Error | null) => void): void;
  finish(): void;
  errorMessage(): string;
  setNonBlocking(on: boolean): boolean;
  sendQuery(text: string): boolean;
  sendPrepare(name: string, text: string, paramCount: number): boolean;
  sendQueryPrepared(name: string, params: ReadonlyArray<string | null>): boolean;
  /** Returns 0 when everything is sent, 1 when the socket is full, -1 after a failure. */
  flush(): number;
  writable(done: () => void): void;
  startReader(): void;
  stopReader(): void;
  on(event: 'readable', handler: () => void): void;
  consumeInput(): boolean;
  isBusy(): boolean;
  getResult(): boolean;
  resultStatus(): string;
  resultErrorFields(): Readonly<Record<string, string>> | null;
  ntuples(): number;
  nfields(): number;
  cmdStatus(): string;
  cmdTuples(): string;
  getvalue(row: number, column: number): string;
  getisnull(row: number, column: number): boolean;
}

type Client = new () => { readonly pq: Libpq };

let loaded: Client | Error | undefined;

function load(): Client | Error {
  try {
    return createRequire(import.meta.url)('pg-native') as Client;
  } catch (thrown) {
    return thrown instanceof Error ? thrown : new Error(String(thrown));
  }
}

/** Reason that libpq does not load, or undefined. */
export function whyNoLibpq(): string | undefined {
  loaded ??= load();
  return loaded instanceof Error ? (loaded.message.split('\n')[0] as string) : undefined;
}

/** A connection object that is not connected. @throws addon_missing */
export function newLibpq(): Libpq {
  loaded ??= load();
  if (loaded instanceof Error) {
    throw coreError('addon_missing', `libpq does not load: ${loaded.message.split('\n')[0]}`, {
      next: 'install libpq (Debian: libpq5) and run npm ci, or run with -sql=pg',
      cause: loaded,
    });
  }
  return new loaded().pq;
}
