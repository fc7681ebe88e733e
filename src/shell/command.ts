/** Interface of a command: a table of settings and a function. The shell provides the rest for
 *  every command: parsing, help, log, metrics and health over HTTP, progress, signals and exit
 *  codes. */
import type { Timers } from '../core/clock.ts';
import type { Logger } from '../core/log.ts';
import type { Metrics } from '../core/metrics.ts';
import type { SettingsOf, SettingTable } from '../core/settings.ts';
import type { HttpCapability, HttpRoute, HttpServerOptions } from '../io/http/port.ts';
import type { ScreenSize } from './terminal/screen.ts';

/** Settings that every command has. */
export const SHARED_SETTINGS = {
  listen: {
    type: 'listen',
    default: '127.0.0.1:0',
    help: 'host:port of /metrics /health /ready /version; port 0 selects a free port and prints it on stderr',
  },
  json: { type: 'bool', default: 'false', help: 'print one JSON document on stdout instead of text' },
  config: { type: 'string', help: 'JSON file with settings by flag name; flags and environment override it' },
  native: {
    type: 'string',
    choices: ['on', 'off', 'auto'],
    default: 'auto',
    help: 'on: the C++ addon, off: the TypeScript reference implementation and the node-rdkafka driver, auto: the addon if it is built',
  },
  'log-level': {
    type: 'string',
    choices: ['debug', 'info', 'warn', 'error', 'silent'],
    default: 'info',
    help: 'lowest level that is logged on stderr',
  },
  'drain-timeout': {
    type: 'duration',
    default: '25s',
    // Timers of Node end after 1 ms if they are longer than some 24 days.
    max: 24 * 3_600_000,
    help: 'time that SIGTERM waits for work in flight before the process exits with 70',
  },
} as const satisfies SettingTable;

/** Settings of every command that serves `-listen`. */
export const HTTP_SETTINGS = {
  'metrics-listen': {
    type: 'listen',
    help: 'host:port that serves /metrics /health /ready /version instead of -listen, in plain HTTP and without access rules: bind it to an address that only monitoring and the orchestrator reach; port 0 selects a free port and prints it on stderr',
  },
  http: {
    type: 'string',
    choices: ['node', 'net', 'uws', 'auto'],
    default: 'auto',
    help: 'net: our own exact parser over node:net, uws: uWebSockets.js, node: node:http, whose parser accepts a few spellings that net refuses (docs/decisions/0016), auto: uws for plain HTTP on a loopback address if it loads and the command does not need a feature that it lacks, else net',
  },
  'tls-cert': {
    type: 'string',
    help: 'PEM file with the certificate of -listen and its chain; -listen then serves https',
  },
  'tls-key': { type: 'string', help: 'PEM file with the private key of -tls-cert' },
  'tls-client-ca': {
    type: 'string',
    help: 'PEM file with the certificate authorities of clients; requests a certificate from every client (mTLS)',
  },
  'tls-client-auth': {
    type: 'string',
    choices: ['required', 'optional'],
    default: 'required',
    needs: ['tls-client-ca'],
    help: 'with -tls-client-ca; optional: accepts clients without a certificate, but never a certificate that fails verification',
  },
  'connections-max': {
    type: 'int',
    default: '10000',
    min: 1,
    help: 'open connections of each server of this process, at most 256 below the limit of open files; a further connection is answered 503, over gRPC with GOAWAY, and closed; under TLS it is closed before its handshake. -http=uws counts only connections with a request body in flight',
  },
  'connections-per-address': {
    type: 'int',
    default: '1000',
    min: 0,
    help: 'open connections from one client address (IPv6: one /64); further connections are refused as with -connections-max; 0: no limit, for a server behind a proxy, whose address all clients share',
  },
  'held-max': {
    type: 'size',
    default: '64MiB',
    min: 65_536,
    help: 'bytes of unanswered requests that all connections together may hold in memory, at least the largest body; a request above the limit is answered 503 with Retry-After',
  },
  'allowed-origins': {
    type: 'list',
    help: 'origins (https://app.example.com) whose web pages may send requests; another Origin is answered 403, and on a loopback address so is a Host that is neither this machine nor the host of a listed origin; * accepts all',
  },
} as const satisfies SettingTable;

export interface ProgressOptions {
  readonly what: string;
  /** Expected count, from which the ETA is computed. */
  readonly total?: number;
  readonly unit?: string;
  /** Further text after the counts: about the last seconds, in the last line about the whole time.
   */
  readonly note?: (over: 'last' | 'whole') => string;
  /** Lines above the progress line, on a TTY only. `rows` is the number of lines with space. */
  readonly table?: (room: ScreenSize) => readonly string[];
}

/** Progress on stderr: one line on a TTY, else a plain line every 10 s. Silent with -json without a
 *  TTY, and at log level silent. */
export interface Progress {
  add(count: number): void;
  set(count: number): void;
  error(count?: number): void;
  done(): void;
}

interface ServiceAddress {
  readonly host: string;
  readonly port: number;
}

export interface CommandContext<T extends SettingTable> {
  readonly settings: SettingsOf<T> & SettingsOf<typeof SHARED_SETTINGS> & SettingsOf<typeof HTTP_SETTINGS>;
  readonly positional: readonly string[];
  /** True if the setting was given as a flag. */
  isFlag(name: string): boolean;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly clock: Timers;
  /** Aborted by the first SIGTERM or SIGINT: accept no new work, finish the work in flight, return.
   *  A second SIGINT exits immediately with 130. */
  readonly drain: AbortSignal;
  /** Address that serves /metrics and the product's own `routes`. Undefined for a command with
   *  `listens: false`. */
  readonly address: ServiceAddress | undefined;
  /** Adds a named check to /ready. It fails by returning false or throwing the reason. /ready also
   *  answers 503 before `setReady()` and from the start of a drain. */
  readiness(name: string, check: () => boolean | Promise<boolean>): void;
  setReady(): void;
  /** Evaluates /ready now. */
  isReady(): Promise<boolean>;
  /** Registers a function that runs after `run` settled, even if it failed; the last registered
   *  runs first. */
  onClose(close: () => Promise<void> | void): void;
  progress(options: ProgressOptions): Progress;
  /** Prints a plain line on stderr, above the progress line. */
  say(line: string): void;
  /** Prints data on stdout: a line of text, or with -json the single document (call once). */
  print(text: string, document?: unknown): void;
}

type HttpLimits = Partial<
  Pick<
    HttpServerOptions,
    'fallbacks' | 'bodyBytesMax' | 'headerBytesMax' | 'requestTimeoutMs' | 'keepAliveTimeoutMs'
  >
>;

export interface Command<T extends SettingTable = SettingTable> {
  readonly name: string;
  /** One sentence for the list of commands. */
  readonly summary: string;
  /** Longer text for -help, with an example. */
  readonly description?: string;
  readonly settings: T;
  readonly positionalMax?: number;
  readonly positionalHelp?: string;
  /** Meanings of the command's own exit codes, beside the shared ones. */
  readonly exits?: Readonly<Record<number, string>>;
  /** False: the command serves nothing (up, down, topic, help). Default true. */
  readonly listens?: boolean;
  /** Returns true if a run with these arguments serves -listen. Absent: every run does. */
  serves?(positional: readonly string[]): boolean;
  /** HTTP routes on -listen beside the shared routes; called after the settings are parsed, before
   *  `run`. */
  routes?(context: CommandContext<T>): readonly HttpRoute[];
  /** Limits and error bodies of these routes, if the shell's defaults do not fit. */
  http?(context: CommandContext<T>): HttpLimits;
  /** Features of the HTTP backend that this run needs. Absent: unspecified, so -http=auto selects
   *  the backend with the most features. */
  httpNeeds?(context: CommandContext<T>): readonly HttpCapability[];
  /** File of settings that a flag names; flags and environment override it. */
  readonly file?: {
    readonly flag: string;
    /** False for arguments with which the command reads the file itself. */
    readonly isRead?: (positional: readonly string[]) => boolean;
    /** Texts of the file's settings by flag name. @throws bad_file, bad_job */
    readonly read: (path: string, table: SettingTable) => Readonly<Record<string, string>>;
  };
  /** Runs the command and resolves to the exit code; undefined is 0. A thrown MillraceError is
   *  printed as one line and sets its row's exit code. */
  run(context: CommandContext<T>): Promise<number | undefined>;
}

/** Preserves the literal type of a command's settings table. */
export function defineCommand<const T extends SettingTable>(command: Command<T>): Command<T> {
  return command;
}
