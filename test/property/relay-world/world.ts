/** Relays over one outbox under virtual time: several processes, a database and a broker with the
 *  faults of a seed. The oracle is written from the requirements: an event is published at least
 *  once, in the order of its key, and marked after that. */
import { silentLogger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { RELAY_DEFAULTS, WAL_DEFAULTS } from '../../../src/outbox/defaults.ts';
import { Relay } from '../../../src/outbox/relay/instance.ts';
import type { Leases } from '../../../src/outbox/relay/leases.ts';
import type { OutboxRow } from '../../../src/outbox/relay/store.ts';
import { WalSource } from '../../../src/outbox/relay/wal/source.ts';
import { SeededRandom, VirtualClock } from '../../../src/sim/clock.ts';
import { type BrokerHooks, brokerOf, type Published, TransactionLog } from './broker.ts';
import { LEASE_IDLE_MS, OutboxDatabase, type Writer } from './database.ts';
import { SimProcess } from './process.ts';
import { replicationOf, type Transaction } from './stream.ts';

export const LEASE_MS = LEASE_IDLE_MS;
const SHARDS = 4;
const MINUTE_MS = 60_000;

/** Probability of each fault per occasion, and longest delays in ms. */
export interface RelayFaults {
  readonly lostRow: number;
  readonly lostReport: number;
  readonly lostStatement: number;
  readonly brokenStream: number;
  readonly requestMs: number;
  readonly statementMs: number;
}

export const CALM: RelayFaults = {
  lostRow: 0,
  lostReport: 0,
  lostStatement: 0,
  brokenStream: 0,
  requestMs: 5,
  statementMs: 3,
};

interface Running {
  readonly process: SimProcess;
  readonly relay: Relay;
  readonly drain: AbortController;
  readonly metrics: Metrics;
  readonly ended: Promise<void>;
}

export interface WorldOptions {
  readonly mode: 'poll' | 'wal';
  readonly fence?: 'mark' | 'broker';
  /** True: ids come from a sequence that the relay may read, so that a poll uses the safe-id
   *  horizon. */
  readonly hasSequence?: boolean;
  /** Limit of the bytes in memory: a low limit makes pages of a few rows. */
  readonly inFlightBytesMax?: number;
}

export class RelayWorld {
  readonly clock = new VirtualClock();
  readonly random: SeededRandom;
  readonly database: OutboxDatabase;
  readonly published: Published[] = [];
  readonly running: Running[] = [];
  /** Violated requirements, in the order of their detection. */
  readonly violations: string[] = [];
  faults: RelayFaults = CALM;
  /** True for rows whose requests the broker refuses in any case. */
  refuses: (row: Published) => boolean = () => false;
  /** Offset of the database's wall clock from the clock of the world, in ms. */
  databaseJumpMs = 0;
  private readonly options: WorldOptions;
  private readonly log: TransactionLog;
  /** End of the transaction that holds the lock of each key. */
  private readonly keyLocks = new Map<string, Promise<void>>();
  private readonly transactions: Transaction[] = [];
  /** Messages of each key in the order of their commits. */
  private readonly committed = new Map<string, string[]>();
  private readonly acknowledged = new Set<string>();
  /** Rows in the order of their marks. */
  private readonly marked: OutboxRow[] = [];
  /** Messages whose transactions the database lost. */
  private readonly lost = new Set<string>();
  private crashes = 0;
  private messages = 0;
  /** Number of published rows of each key; the field below: the last published row by key, producer
   *  and epoch. */
  private readonly reached = new Map<string, number>();
  private readonly last = new Map<string, number>();
  private writing = 0;
  private names = 0;

  constructor(seed: number, options: WorldOptions) {
    this.random = new SeededRandom(seed);
    this.options = options;
    this.log = new TransactionLog(this.brokerHooks());
    this.database = new OutboxDatabase({
      nowMs: () => this.clock.wallNowMs() + this.databaseJumpMs,
      after: (ms, run) => this.clock.after(ms, run),
      delay: () => this.pass(this.random.fraction() * this.faults.statementMs),
      isLost: () => this.occurs(this.faults.lostStatement),
      onMark: (row) => {
        this.check(this.acknowledged.has(row.msgId), `row ${row.id} was marked before its ack`);
        this.marked.push(row);
      },
      onStatement: () => this.checkOwners(),
      hasSequence: options.hasSequence ?? false,
    });
  }

  occurs(chance: number): boolean {
    return chance > 0 && this.random.fraction() < chance;
  }

  below(count: number): number {
    return Math.floor(this.random.fraction() * count);
  }

  pass(ms: number): Promise<void> {
    return new Promise((resolve) => this.clock.after(ms, resolve));
  }

  /** Starts a relay; retries like a supervisor if it cannot be opened. */
  async start(mode: 'poll' | 'wal' = this.options.mode): Promise<Running> {
    for (;;) {
      const one = await this.tryToStart(mode).catch(() => undefined);
      if (one !== undefined) return one;
      await this.pass(100);
    }
  }

  private async tryToStart(mode: 'poll' | 'wal'): Promise<Running> {
    const process = new SimProcess(this.clock);
    const drain = new AbortController();
    const metrics = new Metrics();
    const relay = this.relayOf(process, metrics, mode);
    await relay.open();
    const ended = relay.run(drain.signal);
    ended.catch((thrown: unknown) => this.violations.push(`a relay failed: ${String(thrown)}`));
    const one = { process, relay, drain, metrics, ended };
    this.running.push(one);
    return one;
  }

  /** Ends a relay like SIGTERM: it marks its rows and releases its shards. */
  async stop(one: Running): Promise<void> {
    one.drain.abort();
    await one.ended;
    this.running.splice(this.running.indexOf(one), 1);
  }

  /** Crashes the database: it loses its last commits and marks, which were not flushed, and gives
   *  their ids out again. Open transactions end. */
  crashDatabase(commits: number, marks: number): void {
    this.crashes++;
    const rows = this.transactions.splice(Math.max(0, this.transactions.length - commits));
    const lost = rows.flatMap((one) => one.rows);
    for (const { msgId } of lost) this.lost.add(msgId);
    for (const [key, msgIds] of this.committed) {
      const kept = msgIds.filter((msgId) => !this.lost.has(msgId));
      this.committed.set(key, kept);
      this.reached.set(key, Math.min(this.reached.get(key) ?? 0, kept.length));
    }
    this.database.crash(lost);
    for (const { id, msgId } of this.marked.splice(Math.max(0, this.marked.length - marks)))
      if (!this.lost.has(msgId)) this.database.rows.unmark(id);
  }

  /** SIGKILL: requests in transit still reach their server. */
  kill(one: Running): void {
    one.process.isDead = true;
    this.running.splice(this.running.indexOf(one), 1);
    // The server ends the sessions of a dead process.
    this.database.slot.end();
  }

  /** Starts parallel writers, each with transactions of its key and sometimes of a later key.
   *  Transactions of one key follow one another, as the ordering rule demands: each locks the key
   *  before it draws an id for it. */
  write(keys: number, transactions: number, gapMs: number): void {
    for (let key = 0; key < keys; key++) void this.writeKey(key, keys, transactions, gapMs);
  }

  get isWritten(): boolean {
    return this.writing === 0;
  }

  get isDrained(): boolean {
    return this.isWritten && this.database.pending().length === 0;
  }

  /** Waits until every row is published and marked, then ends the relays. */
  async settle(): Promise<void> {
    await this.clock.until('an outbox without pending rows', () => this.isDrained, 30 * MINUTE_MS);
    // The broker aborts a transaction that its producer left open; until then readers wait for it.
    this.log.expire();
    for (const { drain } of this.running) drain.abort();
    await this.clock.run(Promise.all(this.running.map(({ ended }) => ended)));
    for (const [key, ids] of this.committed)
      this.check((this.reached.get(key) ?? 0) === ids.length, `rows of ${key} are lost: ${this.story(key)}`);
  }

  /** Formats the messages of a key in the order of their publication, with the producer of each. */
  story(key: string): string {
    const all = this.published.filter((one) => one.key === key);
    const order = this.committed.get(key) ?? [];
    const numberOf = (msgId: string): number => Number.parseInt(msgId.slice(-12), 16);
    return `committed ${order.map(numberOf).join(' ')}; published ${all.map(({ msgId, producer }) => `${numberOf(msgId)}@${producer}`).join(' ')}`;
  }

  private relayOf(process: SimProcess, metrics: Metrics, mode: 'poll' | 'wal'): Relay {
    const replication = replicationOf(this.database, process, {
      after: (ms, run) => this.clock.after(ms, run),
      log: this.transactions,
      gapMs: () => 1 + this.random.fraction() * 20,
      burst: () => 1 + this.below(4),
      breaks: () => this.occurs(this.faults.brokenStream),
    });
    return new Relay({
      sql: this.database.driver(process),
      broker: brokerOf(this.brokerHooks(), process, this.log),
      clock: process.clock,
      metrics,
      log: silentLogger,
      ...(mode === 'wal'
        ? {
            makeSource: (parts) =>
              new WalSource(parts, {
                ...WAL_DEFAULTS,
                driver: replication,
                url: '',
                heartbeatMs: 1000,
                auditMs: 2000,
              }),
          }
        : {}),
      settings: {
        ...RELAY_DEFAULTS,
        mode,
        fence: this.options.fence ?? 'mark',
        inFlightBytesMax: this.options.inFlightBytesMax ?? RELAY_DEFAULTS.inFlightBytesMax,
        postgres: 'postgres://me@nowhere/shop',
        brokers: 'nowhere:1',
        table: 'outbox',
        topic: 'events',
        source: '/test',
        name: `relay-${this.names++}`,
        shards: SHARDS,
        leaseMs: LEASE_MS,
        rowsMax: 4,
        pollIntervalMs: 200,
        readEveryMs: 5,
        rescanMs: 10_000,
        deliveryTimeoutMs: 4000,
        createTopic: undefined,
      },
    });
  }

  private brokerHooks(): BrokerHooks {
    return {
      after: (ms, run) => this.clock.after(ms, run),
      delay: () => this.pass(this.random.fraction() * this.faults.requestMs),
      fault: (row) => {
        if (this.refuses(row) || this.occurs(this.faults.lostRow)) return 'lost row';
        return this.occurs(this.faults.lostReport) ? 'lost report' : 'none';
      },
      onRequest: () => this.checkOwners(),
      onAppend: (row) => this.append(row),
      onAck: ({ msgId }) => void this.acknowledged.add(msgId),
      isAnswerLost: () => this.occurs(this.faults.lostReport),
    };
  }

  private append(row: Published): void {
    this.published.push(row);
    const { key, id, msgId, epoch, producer } = row;
    // Consumers get an event that the database lost after the relay had read it.
    if (this.lost.has(msgId)) return;
    const order = this.committed.get(key) ?? [];
    const place = order.indexOf(msgId);
    const reached = this.reached.get(key) ?? 0;
    this.check(
      place >= 0 && place <= reached,
      `row ${id} overtook an earlier row of ${key}: ${this.story(key)}`,
    );
    if (place === reached) this.reached.set(key, place + 1);
    const run = `${key} ${producer} ${epoch}`;
    const last = this.last.get(run);
    const isRepeat = place < reached;
    // After a jump of the database's clock two relays own a key, and one repeats rows that the
    // other has not marked yet. A crash of the database loses marks of rows that are not adjacent.
    this.check(
      !isRepeat || last === undefined || place <= last + 1 || this.databaseJumpMs !== 0 || this.crashes > 0,
      `row ${id} was repeated amid its key: ${this.story(key)}`,
    );
    this.last.set(run, place);
  }

  private check(holds: boolean, what: string): void {
    if (!holds) this.violations.push(what);
  }

  /** Invariant: a shard is published under one valid lease. A jump of the database's wall clock
   *  ends leases early, so the check is skipped then. */
  private checkOwners(): void {
    if (this.databaseJumpMs !== 0) return;
    for (let shard = 0; shard < SHARDS; shard++) {
      const owners = this.running.filter(({ relay }) => {
        const { leases } = (relay as unknown as { parts: { leases: Leases } }).parts;
        return leases.epochOf(shard) !== undefined;
      });
      this.check(owners.length <= 1, `shard ${shard} has ${owners.length} owners`);
    }
  }

  private async writeKey(key: number, keys: number, transactions: number, gapMs: number): Promise<void> {
    this.writing++;
    for (let n = 0; n < transactions; n++) {
      await this.pass(this.random.fraction() * gapMs);
      const later = key + 1 + this.below(keys);
      // Locks keys in their order, so that no two transactions wait for each other.
      await this.transact(later < keys && this.occurs(0.3) ? [keyOf(key), keyOf(later)] : [keyOf(key)]);
    }
    this.writing--;
  }

  /** Runs a transaction; others draw ids and commit meanwhile. */
  private async transact(keys: readonly string[]): Promise<void> {
    const { database, crashes } = this;
    const isEnded = (): boolean => this.crashes !== crashes;
    const rows: OutboxRow[] = [];
    const unlocks: Array<() => void> = [];
    let writer: Writer | undefined;
    for (const key of keys) {
      unlocks.push(await this.lockKey(key));
      if (isEnded()) break;
      if (writer === undefined) {
        writer = database.openWriter();
        // A statement that found no row to write also holds the writers' lock, without an xid.
        if (this.occurs(0.1)) await this.idle(writer);
      }
      for (let left = 1 + this.below(2); left > 0 && !isEnded(); left--)
        await this.insert(writer, key, rows, isEnded);
    }
    if (writer !== undefined && !isEnded()) await this.end(writer, rows, isEnded);
    if (writer !== undefined) {
      database.endXids(writer);
      database.writers.delete(writer);
    }
    for (const unlock of unlocks) unlock();
  }

  /** Commits or rolls back, sometimes after a prepared state. */
  private async end(writer: Writer, rows: readonly OutboxRow[], isEnded: () => boolean): Promise<void> {
    const { database } = this;
    if (this.occurs(0.05)) {
      database.prepare(writer);
      await this.idle(writer);
      if (isEnded()) return;
    }
    if (this.occurs(0.1)) database.endXids(writer);
    else await this.commit(rows, writer);
    await this.pass(this.random.fraction() * 5);
  }

  /** Inserts a row: the statement draws its id before the transaction has an xid. Between
   *  statements the transaction is idle, sometimes for long. */
  private async insert(
    writer: Writer,
    key: string,
    rows: OutboxRow[],
    isEnded: () => boolean,
  ): Promise<void> {
    writer.isIdle = false;
    await this.pass(this.random.fraction() * 3);
    if (isEnded()) return;
    rows.push(this.rowOf(key));
    await this.pass(this.random.fraction() * 3);
    if (isEnded()) return;
    if (writer.xids.length === 0 || this.occurs(0.2)) this.database.assignXid(writer);
    await this.idle(writer);
  }

  private async idle(writer: Writer): Promise<void> {
    writer.isIdle = true;
    await this.pass(this.random.fraction() * (this.occurs(0.05) ? 4000 : 30));
  }

  private async lockKey(key: string): Promise<() => void> {
    const before = this.keyLocks.get(key);
    let unlock = (): void => {};
    this.keyLocks.set(
      key,
      new Promise((resolve) => {
        unlock = resolve;
      }),
    );
    await before;
    return unlock;
  }

  private rowOf(key: string): OutboxRow {
    const id = ++this.database.lastId;
    return {
      id,
      aggregateId: key,
      msgId: uuid(++this.messages),
      eventType: 't',
      payload: PAYLOAD,
      createdAt: new Date(this.clock.wallNowMs()),
    };
  }

  /** Commits: the log shows the commit before a statement sees it. */
  private async commit(rows: readonly OutboxRow[], writer: Writer): Promise<void> {
    const { database } = this;
    for (const row of rows) {
      database.rows.insert(row);
      const { aggregateId: key } = row;
      this.committed.set(key, [...(this.committed.get(key) ?? []), row.msgId]);
    }
    database.lsn += 10n;
    const endLsn = database.lsn;
    this.transactions.push({ endLsn, rows });
    database.committing.add(endLsn);
    await this.pass(this.random.fraction() * 10);
    for (const { id, msgId } of rows) if (!this.lost.has(msgId)) database.rows.show(id);
    database.endXids(writer);
    database.committing.delete(endLsn);
  }
}

const PAYLOAD = Buffer.from(JSON.stringify({ pad: 'x'.repeat(200) }));
const uuid = (n: number): string => `00000000-0000-7000-8000-${n.toString(16).padStart(12, '0')}`;
export const keyOf = (n: number): string => uuid(n + 1);
