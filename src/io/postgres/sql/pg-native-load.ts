/** Loads libpq's binding, the one that pg-native brings, and says the part of it that is used here. */
import { createRequire } from 'node:module';
import { coreError } from '../../../core/errors.ts';

/** One libpq connection. Calls give what libpq gives; none waits for the server but `cancel`, which is not used. */
export interface Libpq {
  /** Connects on a thread of its own. */
  connect(conninfo: string, done: (error?: Error | null) => void): void;
  finish(): void;
  errorMessage(): string;
  setNonBlocking(on: boolean): boolean;
  sendQuery(text: string): boolean;
  sendPrepare(name: string, text: string, paramCount: number): boolean;
  sendQueryPrepared(name: string, params: ReadonlyArray<string | null>): boolean;
  /** 0 sent, 1 the socket is full, -1 failed. */
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

/** Why libpq does not load; undefined where it does. */
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
