/** Replication driver over `pg`: the package connects, negotiates TLS and logs in. After that this
 *  driver reads the socket itself, because it must pause a stream and still send feedback.
 *
 *  Invariants: (1) a position is sent every `feedbackMs` and at each request of the server, paused
 *  or not; (2) positions never fall; (3) a stream ends once, with one outcome.
 */
import type { Socket } from 'node:net';
import pg from 'pg';
import { coreError, findMillraceError, type MillraceError } from '../../../core/errors.ts';
import { pgConnection, tlsRemedy } from '../tls.ts';
import { queryMessage, ReplicationFrameReader, readFailure, statusUpdate, TERMINATE } from './frames.ts';
import {
  type ReplicationDriver,
  type ReplicationOptions,
  type ReplicationSession,
  type ReplicationStream,
  replicationError,
  type ServerIdentity,
  type StreamOptions,
} from './port.ts';

/** Time that close() waits for the server to close the connection. */
const CLOSE_WAIT_MS = 1000;
/** Idle time after which TCP keepalive probes the server of a paused stream. */
const KEEPALIVE_AFTER_MS = 10_000;
/** Names that need no quoting in a replication command. */
const PLAIN_NAME = /^[a-z0-9_]{1,63}$/;
const SQLSTATE = /^[0-9A-Z]{5}$/;
/** SQLSTATE classes of a reachable server that refuses: no right to replicate, no free sender,
 *  insufficient settings. */
const REFUSED = /^(42|53|55|0A|28)/;

const TYPE = {
  copyBoth: 0x57,
  error: 0x45,
  notice: 0x4e,
  parameter: 0x53,
  copyDone: 0x63,
  complete: 0x43,
  ready: 0x5a,
} as const;

function connectError(thrown: unknown, where: string): MillraceError {
  const fault = (thrown instanceof AggregateError ? thrown.errors[0] : thrown) as {
    readonly code?: unknown;
    readonly message?: string;
  };
  const code = typeof fault.code === 'string' ? fault.code : '';
  const remedy = tlsRemedy(code, fault.message ?? '');
  if (remedy !== undefined)
    return coreError('unreachable', `TLS to PostgreSQL at ${where} failed: ${fault.message}`, {
      next: remedy,
      cause: thrown,
    });
  const sqlstate = SQLSTATE.test(code) ? code : undefined;
  const message = fault.message ?? String(thrown);
  if (sqlstate !== undefined && REFUSED.test(sqlstate))
    return replicationError('replication_failed', `PostgreSQL at ${where} refuses to replicate: ${message}`, {
      next: 'the role needs REPLICATION, the server wal_level=logical and a free max_wal_senders',
      cause: thrown,
      details: { sqlstate },
    });
  return coreError('unreachable', `PostgreSQL at ${where} is not reachable: ${message}`, {
    next: 'check -postgres and that the server accepts connections',
    cause: thrown,
    details: sqlstate === undefined ? {} : { sqlstate },
  });
}

/** Socket of a client; the types of `pg` do not declare it. */
function socketOf(client: pg.Client): Socket {
  return (client as unknown as { readonly connection: { readonly stream: Socket } }).connection.stream;
}

/** Detaches `pg` from the socket of a connected client without a statement in flight. */
function detachSocket(client: pg.Client): Socket {
  const socket = socketOf(client);
  socket.removeAllListeners('data');
  return socket;
}

/** Ends the session, and destroys the socket when the server does not close it in time. */
async function endSession(client: pg.Client): Promise<void> {
  const timeout = setTimeout(() => socketOf(client).destroy(), CLOSE_WAIT_MS);
  await client.end().catch(() => {});
  clearTimeout(timeout);
}

class Stream implements ReplicationStream {
  readonly ended: Promise<void>;
  private readonly options: StreamOptions;
  private readonly socket: Socket;
  private readonly where: string;
  private readonly reader: ReplicationFrameReader;
  private readonly timer: NodeJS.Timeout;
  private settle!: { resolve(): void; reject(error: unknown): void };
  private opened!: { resolve(): void; reject(error: unknown): void };
  readonly open: Promise<void>;
  private position = 0n;
  /** Ticks since the last bytes arrived. Ticks stop while this process is suspended, so a
   *  suspension does not count as silence of the server. */
  private quietTicks = 0;
  private readonly openingMs: number;
  private streaming = false;
  private paused = false;
  private over = false;
  private closing = false;

  constructor(socket: Socket, where: string, openingMs: number, options: StreamOptions) {
    this.socket = socket;
    this.openingMs = openingMs;
    this.where = where;
    this.options = options;
    this.ended = new Promise((resolve, reject) => {
      this.settle = { resolve, reject };
    });
    this.open = new Promise((resolve, reject) => {
      this.opened = { resolve, reject };
    });
    // Callers await one of the two promises at most; the other must not cause an unhandled
    // rejection.
    this.ended.catch(() => {});
    this.open.catch(() => {});
    this.reader = new ReplicationFrameReader({
      messageBytesMax: options.messageBytesMax,
      onMessage: options.onMessage,
      onOversize: options.onOversize,
      onKeepalive: (walEnd, replyWanted) => {
        options.onKeepalive(walEnd);
        if (replyWanted) this.send(false);
      },
      onPlain: (type, bytes, start, end) => this.handlePlain(type, bytes, start, end),
    });
    socket.on('data', (chunk: Buffer) => this.receive(chunk));
    socket.on('error', (error) => this.fail(this.lost(error.message, error)));
    socket.on('close', () => this.fail(this.lost('the connection was closed')));
    this.timer = setInterval(() => this.tick(), options.feedbackMs);
    socket.write(
      queryMessage(
        `START_REPLICATION SLOT ${options.slot} LOGICAL 0/0 (proto_version '1', publication_names '${options.publication}', binary 'true', messages 'true')`,
      ),
    );
  }

  confirm(lsn: bigint): void {
    if (lsn <= this.position) return;
    this.position = lsn;
    this.send(false);
  }

  pause(): void {
    if (this.paused) return;
    this.paused = true;
    this.socket.pause();
  }

  resume(): void {
    if (!this.paused) return;
    this.paused = false;
    this.quietTicks = 0;
    this.socket.resume();
  }

  async close(): Promise<void> {
    if (!this.over && !this.closing) {
      this.closing = true;
      this.send(false);
      this.socket.write(TERMINATE);
      this.resume();
      const timeout = setTimeout(() => this.socket.destroy(), CLOSE_WAIT_MS);
      await new Promise<void>((resolve) => this.socket.once('close', () => resolve()));
      clearTimeout(timeout);
    }
    await this.ended.catch(() => {});
  }

  private receive(chunk: Buffer): void {
    this.quietTicks = 0;
    if (this.over || this.closing) return;
    try {
      this.reader.push(chunk);
    } catch (thrown) {
      this.fail(thrown);
    }
  }

  private handlePlain(type: number, bytes: Buffer, start: number, end: number): void {
    switch (type) {
      case TYPE.copyBoth:
        this.streaming = true;
        this.opened.resolve();
        return;
      case TYPE.error: {
        const { sqlstate, message } = readFailure(bytes, start, end);
        this.fail(
          replicationError('replication_failed', `PostgreSQL at ${this.where} ended the stream: ${message}`, {
            details: { sqlstate },
          }),
        );
        return;
      }
      case TYPE.copyDone:
      case TYPE.complete:
      case TYPE.ready:
        this.fail(this.lost('the server ended the stream'));
        return;
      case TYPE.notice:
      case TYPE.parameter:
        return;
      default:
        throw replicationError(
          'replication_protocol',
          `the server sent a message of type 0x${type.toString(16)}`,
          { next: 'check that -postgres is a PostgreSQL server of version 15 or later' },
        );
    }
  }

  private tick(): void {
    if (!this.paused) this.quietTicks++;
    // A server loads the plugin and seeks its position in the log before its first message.
    const { feedbackMs, silenceMs } = this.options;
    const patienceMs = this.streaming ? silenceMs : Math.max(this.openingMs, silenceMs);
    if (this.quietTicks * feedbackMs > patienceMs) {
      this.fail(this.lost(`no bytes arrived for ${patienceMs} ms`));
      return;
    }
    // A server answers a request immediately, so silence means that it is lost.
    this.send(!this.paused);
  }

  private send(replyWanted: boolean): void {
    // Position 0, sent until the first confirmation, makes a server keep all of its log.
    if (!this.over && this.socket.writable)
      this.socket.write(statusUpdate(this.position, Date.now(), replyWanted));
  }

  private lost(why: string, cause?: unknown): MillraceError {
    return coreError(
      'unreachable',
      `the replication stream from PostgreSQL at ${this.where} was lost: ${why}`,
      {
        next: 'check that the server accepts connections',
        cause,
      },
    );
  }

  private fail(thrown: unknown): void {
    if (this.over) return;
    this.over = true;
    clearInterval(this.timer);
    this.socket.destroy();
    this.opened.reject(thrown);
    if (this.closing) this.settle.resolve();
    else this.settle.reject(thrown);
  }
}

class Session implements ReplicationSession {
  readonly identity: ServerIdentity;
  readonly senderTimeoutMs: number;
  private readonly client: pg.Client;
  private readonly where: string;
  private readonly openingMs: number;
  private stream: Stream | undefined;

  constructor(
    client: pg.Client,
    where: string,
    openingMs: number,
    identity: ServerIdentity,
    senderTimeoutMs: number,
  ) {
    this.client = client;
    this.where = where;
    this.openingMs = openingMs;
    this.identity = identity;
    this.senderTimeoutMs = senderTimeoutMs;
  }

  async start(options: StreamOptions): Promise<ReplicationStream> {
    for (const name of [options.slot, options.publication]) {
      if (!PLAIN_NAME.test(name))
        throw coreError('bad_value', `${JSON.stringify(name)} is no plain name of a slot or publication`, {
          next: 'use lower-case letters, digits and _ (at most 63)',
        });
    }
    this.stream = new Stream(detachSocket(this.client), this.where, this.openingMs, options);
    await this.stream.open;
    return this.stream;
  }

  async close(): Promise<void> {
    if (this.stream !== undefined) await this.stream.close();
    else await endSession(this.client);
  }
}

export const pgReplicationDriver: ReplicationDriver = {
  name: 'pg',
  async connect(options: ReplicationOptions): Promise<ReplicationSession> {
    let client: pg.Client;
    try {
      // `replication` is a start-up parameter that pg forwards and its types do not declare.
      const config: pg.ClientConfig & { readonly replication: string } = {
        ...pgConnection(options.url),
        application_name: options.applicationName,
        connectionTimeoutMillis: options.connectTimeoutMs,
        query_timeout: options.connectTimeoutMs,
        keepAlive: true,
        keepAliveInitialDelayMillis: KEEPALIVE_AFTER_MS,
        replication: 'database',
      };
      client = new pg.Client(config);
    } catch (thrown) {
      if (findMillraceError(thrown) !== undefined) throw thrown;
      throw coreError('bad_value', 'the PostgreSQL address is not a URL', {
        next: 'give postgres://user:password@host:port/database',
        cause: thrown,
      });
    }
    const where = `${client.host}:${client.port}`;
    // The stream listens on the socket itself; an error event without a listener would end the
    // process.
    client.on('error', () => {});
    try {
      await client.connect();
      const { rows } = await client.query<{ systemid: string; timeline: string }>('IDENTIFY_SYSTEM');
      const row = rows[0];
      const patience = await client.query<{ ms: string }>(
        "SELECT setting AS ms FROM pg_settings WHERE name = 'wal_sender_timeout'",
      );
      if (row === undefined) throw new Error('IDENTIFY_SYSTEM returned no row');
      return new Session(
        client,
        where,
        options.connectTimeoutMs,
        { systemIdentifier: row.systemid, timeline: Number(row.timeline) },
        Number(patience.rows[0]?.ms ?? 0),
      );
    } catch (thrown) {
      await endSession(client);
      throw findMillraceError(thrown) ?? connectError(thrown, where);
    }
  },
};
