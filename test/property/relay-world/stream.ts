/** Replication stream of the simulated database: committed transactions from the position of the
 *  slot, in commit order. */
import { coreError } from '../../../src/core/errors.ts';
import {
  type ReplicationDriver,
  type ReplicationStream,
  replicationError,
  type StreamOptions,
} from '../../../src/io/postgres/replication/port.ts';
import type { OutboxRow } from '../../../src/outbox/relay/store.ts';
import * as wire from '../wal-encode.ts';
import type { OutboxDatabase } from './database.ts';
import type { SimProcess } from './process.ts';

export interface Transaction {
  readonly endLsn: bigint;
  readonly rows: readonly OutboxRow[];
}

export interface StreamHooks {
  readonly after: (ms: number, run: () => void) => () => void;
  readonly log: readonly Transaction[];
  /** Returns the time until the next message of the stream. */
  readonly gapMs: () => number;
  /** Returns the most transactions that follow one another without a gap, as a server sends a
   *  backlog. */
  readonly burst: () => number;
  readonly breaks: () => boolean;
  /** Called after each step of the stream: a transaction arrived, or a position was confirmed. */
  readonly onStep?: (what: string) => void;
}

const IN_USE = '55006';
const SENDER_TIMEOUT_MS = 60_000;

const uuidBytes = (text: string): Buffer => Buffer.from(text.replaceAll('-', ''), 'hex');
const insertOf = ({ aggregateId, msgId, ...row }: OutboxRow): Buffer =>
  wire.outboxInsert({ ...row, aggregateId: uuidBytes(aggregateId), msgId: uuidBytes(msgId) });

let pids = 0;

class SimStream implements ReplicationStream {
  readonly pid = ++pids;
  readonly ended: Promise<void>;
  private readonly database: OutboxDatabase;
  private readonly process: SimProcess;
  private readonly hooks: StreamHooks;
  private readonly options: StreamOptions;
  private sent: bigint;
  /** Number of transactions in the log that were sent or lie below the slot. */
  private passed = 0;
  private isPaused = false;
  private isOver = false;
  private finish: (thrown?: Error) => void = () => {};

  constructor(database: OutboxDatabase, process: SimProcess, hooks: StreamHooks, options: StreamOptions) {
    this.database = database;
    this.process = process;
    this.hooks = hooks;
    this.options = options;
    this.sent = database.slot.confirmed;
    this.ended = new Promise((resolve, reject) => {
      this.finish = (thrown) =>
        process.runWhenActive(() => (thrown === undefined ? resolve() : reject(thrown)));
    });
    this.ended.catch(() => {});
    database.slot.activePid = this.pid;
    database.slot.end = () => this.end(coreError('unreachable', 'the sender was ended'));
    this.deliver(wire.relation(1, 'public', 'outbox', wire.OUTBOX_COLUMNS));
    this.next();
  }

  confirm(lsn: bigint): void {
    const { slot } = this.database;
    if (this.isOver || lsn <= slot.confirmed) return;
    slot.confirmed = lsn;
    this.hooks.onStep?.(`confirm ${lsn}`);
  }

  pause(): void {
    this.isPaused = true;
  }

  resume(): void {
    this.isPaused = false;
  }

  async close(): Promise<void> {
    this.end();
  }

  private next(): void {
    this.hooks.after(this.hooks.gapMs(), () => {
      let left = this.hooks.burst();
      let hasMore = true;
      while (hasMore && left-- > 0) {
        if (this.isOver) return;
        if (this.hooks.breaks()) {
          this.end(coreError('unreachable', 'the stream broke'));
          return;
        }
        hasMore = !this.isPaused && this.step();
      }
      this.next();
    });
  }

  /** Sends the next transaction, or a keepalive if the log has none: false. */
  private step(): boolean {
    const { log } = this.hooks;
    while ((log[this.passed]?.endLsn ?? this.sent + 1n) <= this.sent) this.passed++;
    const transaction = log[this.passed];
    if (transaction === undefined) {
      this.sent = this.database.lsn;
      const { sent } = this;
      this.process.runWhenActive(() => this.isOver || this.options.onKeepalive(sent));
      return false;
    }
    const { endLsn, rows } = transaction;
    this.sent = endLsn;
    this.deliver(wire.begin(endLsn - 1n, 0n, 1));
    for (const row of rows) this.deliver(insertOf(row));
    this.deliver(wire.commit(endLsn - 1n, endLsn, 0n));
    this.process.runWhenActive(() => this.isOver || this.hooks.onStep?.(`streamed ${rows.length}`));
    return true;
  }

  private deliver(bytes: Buffer): void {
    this.process.runWhenActive(() => this.isOver || this.options.onMessage(bytes, 0, bytes.length));
  }

  private end(thrown?: Error): void {
    if (this.isOver) return;
    this.isOver = true;
    const { slot } = this.database;
    if (slot.activePid === this.pid) slot.activePid = null;
    this.finish(thrown);
  }
}

export function replicationOf(
  database: OutboxDatabase,
  process: SimProcess,
  hooks: StreamHooks,
): ReplicationDriver {
  return {
    name: 'simulated',
    connect: async () => ({
      identity: { systemIdentifier: '7', timeline: 1 },
      senderTimeoutMs: SENDER_TIMEOUT_MS,
      start: async (options) => {
        if (database.slot.activePid !== null)
          throw replicationError('replication_failed', 'the slot is active', {
            details: { sqlstate: IN_USE },
          });
        return new SimStream(database, process, hooks, options);
      },
      close: async () => {},
    }),
  };
}
