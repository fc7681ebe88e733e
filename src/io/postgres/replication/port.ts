/** A logical replication stream in our words (PostgreSQL's streaming replication protocol, output plugin pgoutput). */
import { type ErrorTable, errorRow, errorsOf } from '../../../core/errors.ts';

/** What every driver throws, beside core's `unreachable`. `details.sqlstate` holds the server's code where it gave one. */
export const REPLICATION_ERRORS = {
  /** The server refused the stream or ended it with an error. */
  replication_failed: errorRow('unavailable'),
  /** Bytes that are no message of the protocol. */
  replication_protocol: errorRow('corrupt'),
} as const satisfies ErrorTable;

export const replicationError = errorsOf(REPLICATION_ERRORS);

export interface ReplicationOptions {
  /** The same address as for SQL; connection options in it hold for the stream too. */
  readonly url: string;
  readonly applicationName: string;
  /** Of connecting, and of each question that is asked before the stream. */
  readonly connectTimeoutMs: number;
}

/** Which history the positions of a server belong to: they only compare within one system and timeline. */
export interface ServerIdentity {
  /** Decimal. */
  readonly systemIdentifier: string;
  readonly timeline: number;
}

export interface StreamOptions {
  /** Plain names; they enter a command as they are. */
  readonly slot: string;
  readonly publication: string;
  /** A position is sent to the server this often, whatever else happens. */
  readonly feedbackMs: number;
  /** A stream that is read and from which nothing comes for this long is given up. */
  readonly silenceMs: number;
  /** A message above this is dropped while it arrives. */
  readonly messageBytesMax: number;
  /** One message of the output plugin, `bytes[start, end)`. The bytes are never written again; whoever keeps a part of them
   *  keeps the whole buffer. What it throws ends the stream. */
  readonly onMessage: (bytes: Buffer, start: number, end: number) => void;
  /** Everything below this position was sent. */
  readonly onKeepalive: (walEnd: bigint) => void;
  readonly onOversize: (byteCount: number) => void;
}

export interface ReplicationStream {
  /** What was received is done up to here; the server forgets it. A lower position than before is ignored. */
  confirm(lsn: bigint): void;
  /** Stops reading from the network; positions are still sent. */
  pause(): void;
  resume(): void;
  /** Settles when the stream is over: resolves after close(), rejects with what ended it. */
  readonly ended: Promise<void>;
  /** Sends the last position and ends the stream. */
  close(): Promise<void>;
}

export interface ReplicationSession {
  readonly identity: ServerIdentity;
  /** wal_sender_timeout as this session has it: a stream that is silent for longer is ended by the server. 0: never. */
  readonly senderTimeoutMs: number;
  /** Starts where the slot stands. A session carries one stream. @throws replication_failed with details.sqlstate */
  start(options: StreamOptions): Promise<ReplicationStream>;
  close(): Promise<void>;
}

export interface ReplicationDriver {
  readonly name: string;
  /** @throws unreachable, replication_failed (no right to replicate, no sender left) */
  connect(options: ReplicationOptions): Promise<ReplicationSession>;
}
