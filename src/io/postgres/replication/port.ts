/** Port of a logical replication stream (PostgreSQL's streaming replication protocol, output plugin
 *  pgoutput). */
import { type ErrorTable, errorRow, errorsOf } from '../../../core/errors.ts';

/** Errors of every driver, beside core's `unreachable`. `details.sqlstate` has the server's code,
 *  if any. */
export const REPLICATION_ERRORS = {
  /** The server refused the stream or ended it with an error. */
  replication_failed: errorRow('unavailable'),
  /** The server sent bytes that are no message of the protocol. */
  replication_protocol: errorRow('corrupt'),
} as const satisfies ErrorTable;

export const replicationError = errorsOf(REPLICATION_ERRORS);

export interface ReplicationOptions {
  /** Address, the same as for SQL; its connection options apply to the stream too. */
  readonly url: string;
  readonly applicationName: string;
  /** Timeout of connecting, and of each query before the stream. */
  readonly connectTimeoutMs: number;
}

/** Identity of a server's history: positions compare only within one system and timeline. */
export interface ServerIdentity {
  /** System identifier, decimal. */
  readonly systemIdentifier: string;
  readonly timeline: number;
}

export interface StreamOptions {
  /** Slot name. Slot and publication must be plain names: they enter a command unquoted. */
  readonly slot: string;
  readonly publication: string;
  /** Interval at which a position is sent to the server. */
  readonly feedbackMs: number;
  /** Silence after which a stream that is not paused counts as lost. */
  readonly silenceMs: number;
  /** Size above which a message is dropped while it arrives. */
  readonly messageBytesMax: number;
  /** Handles one message of the output plugin, `bytes[start, end)`. The buffer is never written
   *  again; a reference to a part keeps the whole buffer in memory. An error of the handler ends
   *  the stream. */
  readonly onMessage: (bytes: Buffer, start: number, end: number) => void;
  /** Handles a keepalive: everything below this position was sent. */
  readonly onKeepalive: (walEnd: bigint) => void;
  readonly onOversize: (byteCount: number) => void;
}

export interface ReplicationStream {
  /** Confirms that everything below this position is processed, so the server may discard its log.
   *  A position below an earlier one is ignored. */
  confirm(lsn: bigint): void;
  /** Stops reading from the network; positions are still sent. */
  pause(): void;
  resume(): void;
  /** Settles when the stream has ended: resolves after close(), rejects with the error that ended
   *  it. */
  readonly ended: Promise<void>;
  /** Sends the last position and ends the stream. */
  close(): Promise<void>;
}

export interface ReplicationSession {
  readonly identity: ServerIdentity;
  /** wal_sender_timeout of this session: the server ends a stream that is silent for longer. 0:
   *  never. */
  readonly senderTimeoutMs: number;
  /** Starts at the position of the slot. A session has one stream. @throws replication_failed with
   *  details.sqlstate */
  start(options: StreamOptions): Promise<ReplicationStream>;
  close(): Promise<void>;
}

export interface ReplicationDriver {
  readonly name: string;
  /** Connects. @throws unreachable, replication_failed (no right to replicate, no free sender) */
  connect(options: ReplicationOptions): Promise<ReplicationSession>;
}
