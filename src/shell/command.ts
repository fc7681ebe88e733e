/** What a command is: a table of settings and a function. The shell does the rest, the same for
 *  all: parsing, help, log, metrics and health over HTTP, progress, signals and exit codes. */
import type { Timers } from '../core/clock.ts';
import type { Logger } from '../core/log.ts';
import type { Metrics } from '../core/metrics.ts';
import type { SettingsOf, SettingTable } from '../core/settings.ts';
import type { HttpCapability, HttpRoute, HttpServerOptions } from '../io/http/port.ts';

/** Settings that every command has. */
export const SHARED_SETTINGS = {
  listen: {
    type: 'listen',
    default: '127.0.0.1:0',
    help: 'host:port of /metrics /health /ready /version; port 0 takes a free one and prints it on stderr',
  },
  json: { type: 'bool', default: 'false', help: 'print one JSON document on stdout instead of text' },
  config: { type: 'string', help: 'JSON file with settings by flag name; flags and environment win over it' },
  native: {
    type: 'string',
    choices: ['on', 'off', 'auto'],
    default: 'auto',
    help: 'on: the C++ addon, off: the TypeScript twins and the node-rdkafka driver, auto: the addon where it is built',
  },
  'log-level': {
    type: 'string',
    choices: ['debug', 'info', 'warn', 'error', 'silent'],
    default: 'info',
    help: 'least level that is logged on stderr',
  },
  'drain-timeout': {
    type: 'duration',
    default: '25s',
    help: 'how long SIGTERM waits for work under way before the process ends with 70',
  },
} as const satisfies SettingTable;

/** Settings of every command that serves `-listen`. */
export const HTTP_SETTINGS = {
  'metrics-listen': {
    type: 'listen',
    help: 'host:port that serves /metrics /health /ready /version instead of -listen, in plain HTTP and without access rules: bind it where only monitoring and the orchestrator reach it; port 0 takes a free one and prints it on stderr',
  },
  http: {
    type: 'string',
    choices: ['node', 'net', 'uws', 'auto'],
    default: 'auto',
    help: 'net: our own exact parser over node:net, uws: uWebSockets.js, node: node:http, whose parser takes a few spellings that net refuses (docs/decisions/0016), auto: uws for plain HTTP on a loopback address, where it loads and the command can do with what it lacks; net everywhere else',
  },
  'tls-cert': {
    type: 'string',
    help: 'PEM file with the certificate, and its chain, of -listen, which then speaks https',
  },
  'tls-key': { type: 'string', help: 'PEM file with the private key of -tls-cert' },
  'tls-client-ca': {
    type: 'string',
    help: 'PEM file with the authorities of client certificates: clients are asked for one (mTLS)',
  },
  'tls-client-auth': {
    type: 'string',
    choices: ['required', 'optional'],
    default: 'required',
    needs: ['tls-client-ca'],
    help: 'with -tls-client-ca; optional lets clients without a certificate in, one that does not verify never',
  },
  'connections-max': {
    type: 'int',
    default: '10000',
    min: 1,
    help: 'connections at once of each server of this process, at most 256 below the limit of open files; another one is answered 503, over gRPC with GOAWAY, and closed; under TLS it is closed before its handshake',
  },
  'connections-per-address': {
    type: 'int',
    default: '1000',
    min: 0,
    help: 'connections at once from one client address (IPv6: one /64), refused alike; 0 is no limit, for a server behind a proxy, whose address all clients share',
  },
  'held-max': {
    type: 'size',
    default: '64MiB',
    min: 65_536,
    help: 'bytes of unanswered requests that all connections may hold in memory, at least one largest body; a request above it is answered 503 with Retry-After',
  },
  'allowed-origins': {
    type: 'list',
    help: 'origins (https://app.example.com) whose web pages may send requests; another Origin is answered 403, and on a loopback address so is a Host that is neither this machine nor the host of a listed origin; * admits all',
  },
} as const satisfies SettingTable;

export interface ProgressOptions {
  readonly what: string;
  /** Known end; gives an ETA. */
  readonly total?: number;
  readonly unit?: string;
  /** More to say behind the counts; of the whole time in the last line, else of about the last
   *  seconds. */
  readonly note?: (over: 'last' | 'whole') => string;
}

/** One line on a TTY, a plain line every 10 s elsewhere, nothing with -json on a TTY-less stderr at
 *  level silent. */
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
  /** Whether the setting was given as a flag. */
  isFlag(name: string): boolean;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly clock: Timers;
  /** Aborted by the first SIGTERM or SIGINT: stop taking work, finish what is under way, return. A
   *  second SIGINT ends the process with 130 at once. */
  readonly drain: AbortSignal;
  /** Where /metrics and the product's own `routes` are served. Undefined for a command with
   *  `listens: false`. */
  readonly address: ServiceAddress | undefined;
  /** A named condition of /ready: a function that throws or returns false says why the process is
   *  not ready. Until `setReady()` the answer is 503 as well, and from the start of a drain on. */
  readiness(name: string, check: () => boolean | Promise<boolean>): void;
  setReady(): void;
  /** What /ready says at this moment. */
  isReady(): Promise<boolean>;
  /** Runs after `run` settled, last registered first, also when it threw. */
  onClose(close: () => Promise<void> | void): void;
  progress(options: ProgressOptions): Progress;
  /** One plain line of what is happening, on stderr and above the progress line. */
  say(line: string): void;
  /** Data for stdout: a line of text, or with -json the one document (call once). */
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
  /** Exit codes of its own, above the shared ones: what each means. */
  readonly exits?: Readonly<Record<number, string>>;
  /** false: the command ends at once and serves nothing (up, down, topic, help). Default true. */
  readonly listens?: boolean;
  /** Whether a run with these arguments serves -listen. Absent: each does. */
  serves?(positional: readonly string[]): boolean;
  /** HTTP routes served on -listen beside the shared ones; called after the settings are parsed,
   *  before run. */
  routes?(context: CommandContext<T>): readonly HttpRoute[];
  /** Limits and error bodies of those routes, where the shell's own do not fit. */
  http?(context: CommandContext<T>): HttpLimits;
  /** What of the HTTP backend this run cannot do without. Absent: the command makes no statement,
   *  and -http=auto takes the backend that lacks least. */
  httpNeeds?(context: CommandContext<T>): readonly HttpCapability[];
  /** Resolves to the exit code; undefined is 0. A thrown MillraceError gives its row's exit code
   *  and one line. */
  run(context: CommandContext<T>): Promise<number | undefined>;
}

/** Keeps the literal type of a command's table. */
export function defineCommand<const T extends SettingTable>(command: Command<T>): Command<T> {
  return command;
}
