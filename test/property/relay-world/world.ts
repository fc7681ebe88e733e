/** Relays over one outbox under virtual time: several processes, a database and a broker with the faults of a seed, and a judge that is
 *  written from the requirements (an event is published at least once, in the order of its key, and marked after that).
 */
import { silentLogger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { RELAY_DEFAULTS, WAL_DEFAULTS } from '../../../src/outbox/defaults.ts';
import { Relay } from '../../../src/outbox/relay/instance.ts';
import type { Leases } from '../../../src/outbox/relay/leases.ts';
import type { OutboxRow } from '../../../src/outbox/relay/store.ts';
import { WalSource } from '../../../src/outbox/relay/wal/source.ts';
import { SeededRandom, VirtualClock } from '../../../src/sim/clock.ts';
import { type BrokerHooks, brokerOf, type Published } from './broker.ts';
import { LEASE_IDLE_MS, OutboxDatabase } from './database.ts';
import { SimProcess } from './process.ts';
import { replicationOf, type Transaction } from './stream.ts';

export const LEASE_MS = LEASE_IDLE_MS;
const SHARDS = 4;
const MINUTE_MS = 60_000;

/** Chances per occasion, and longest times in ms. */
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

export class RelayWorld {
  readonly clock = new VirtualClock();
  readonly random: SeededRandom;
  readonly database: OutboxDatabase;
  readonly published: Published[] = [];
  readonly running: Running[] = [];
  /** What broke a promise, in the order in which it was seen. */
  readonly violations: string[] = [];
  faults: RelayFaults = CALM;
  /** Rows whose requests the broker refuses in any case. */
  refuses: (row: Published) => boolean = () => false;
  /** Wall time of the database beside that of the world. */
  databaseJumpMs = 0;
  private readonly mode: 'poll' | 'wal';
  private readonly transactions: Transaction[] = [];
  private readonly committed = new Map<string, bigint[]>();
  private readonly acknowledged = new Set<bigint>();
  /** By key: how many of its rows were published; by key, producer and epoch: the last one that was. */
  private readonly reached = new Map<string, number>();
  private readonly last = new Map<string, number>();
  private ids = 0n;
  private writing = 0;
  private names = 0;

  constructor(seed: number, mode: 'poll' | 'wal') {
    this.random = new SeededRandom(seed);
    this.mode = mode;
    this.database = new OutboxDatabase({
      nowMs: () => this.clock.wallNowMs() + this.databaseJumpMs,
      after: (ms, run) => this.clock.after(ms, run),
      delay: () => this.pass(this.random.fraction() * this.faults.statementMs),
      isLost: () => this.strikes(this.faults.lostStatement),
      onMark: ({ id }) => this.check(this.acknowledged.has(id), `row ${id} was marked before its ack`),
      onStatement: () => this.checkOwners(),
    });
  }

  strikes(chance: number): boolean {
    return chance > 0 && this.random.fraction() < chance;
  }

  below(count: number): number {
    return Math.floor(this.random.fraction() * count);
  }

  pass(ms: number): Promise<void> {
    return new Promise((resolve) => this.clock.after(ms, resolve));
  }

  /** A relay that is open and runs; started again where it cannot be opened, as a supervisor does. */
  async start(): Promise<Running> {
    for (;;) {
      const one = await this.tryToStart().catch(() => undefined);
      if (one !== undefined) return one;
      await this.pass(100);
    }
  }

  private async tryToStart(): Promise<Running> {
    const process = new SimProcess(this.clock);
    const drain = new AbortController();
    const metrics = new Metrics();
    const relay = this.relayOf(process, metrics);
    await relay.open();
    const ended = relay.run(drain.signal);
    ended.catch((thrown: unknown) => this.violations.push(`a relay failed: ${String(thrown)}`));
    const one = { process, relay, drain, metrics, ended };
    this.running.push(one);
    return one;
  }

  /** SIGKILL: what is on its way to a server arrives there all the same. */
  kill(one: Running): void {
    one.process.isDead = true;
    this.running.splice(this.running.indexOf(one), 1);
    // The server ends the sessions of a process that is gone.
    this.database.slot.end();
  }

  /** Writers of the keys beside each other; those of one key follow one another, as the ordering rule demands. */
  write(keys: number, transactions: number, gapMs: number): void {
    for (let key = 0; key < keys; key++) void this.writeKey(keyOf(key), transactions, gapMs);
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
    for (const { drain } of this.running) drain.abort();
    await this.clock.run(Promise.all(this.running.map(({ ended }) => ended)));
    for (const [key, ids] of this.committed)
      this.check(this.reached.get(key) === ids.length, `rows of ${key} are lost: ${this.story(key)}`);
  }

  /** Ids of a key in the order in which they were published, and the producer of each. */
  story(key: string): string {
    const all = this.published.filter((one) => one.key === key);
    const order = this.committed.get(key) ?? [];
    return `committed ${order.join(' ')}; published ${all.map(({ id, producer }) => `${id}@${producer}`).join(' ')}`;
  }

  private relayOf(process: SimProcess, metrics: Metrics): Relay {
    const replication = replicationOf(this.database, process, {
      after: (ms, run) => this.clock.after(ms, run),
      log: this.transactions,
      gapMs: () => 1 + this.random.fraction() * 20,
      breaks: () => this.strikes(this.faults.brokenStream),
    });
    return new Relay({
      sql: this.database.driver(process),
      broker: brokerOf(this.brokerHooks(), process),
      clock: process.clock,
      metrics,
      log: silentLogger,
      ...(this.mode === 'wal'
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
        mode: this.mode,
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
        if (this.refuses(row) || this.strikes(this.faults.lostRow)) return 'lost row';
        return this.strikes(this.faults.lostReport) ? 'lost report' : 'none';
      },
      onRequest: () => this.checkOwners(),
      onAppend: (row) => this.append(row),
      onAck: ({ id }) => void this.acknowledged.add(id),
    };
  }

  private append(row: Published): void {
    this.published.push(row);
    const { key, id, epoch, producer } = row;
    const order = this.committed.get(key) ?? [];
    const place = order.indexOf(id);
    const reached = this.reached.get(key) ?? 0;
    this.check(
      place >= 0 && place <= reached,
      `row ${id} passed an earlier one of ${key}: ${this.story(key)}`,
    );
    if (place === reached) this.reached.set(key, place + 1);
    const run = `${key} ${producer} ${epoch}`;
    const last = this.last.get(run);
    const isRepeat = place < reached;
    this.check(
      !isRepeat || last === undefined || place <= last + 1,
      `row ${id} was repeated amid its key: ${this.story(key)}`,
    );
    this.last.set(run, place);
  }

  private check(holds: boolean, what: string): void {
    if (!holds) this.violations.push(what);
  }

  /** Invariant: a shard is published under one valid lease. A wall clock of the database that jumps ends leases early, so nothing is
   *  said then. */
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

  private async writeKey(key: string, transactions: number, gapMs: number): Promise<void> {
    this.writing++;
    for (let n = 0; n < transactions; n++) {
      await this.pass(this.random.fraction() * gapMs);
      const rows = Array.from({ length: 1 + this.below(2) }, () => this.rowOf(key));
      // Other keys draw ids and commit meanwhile.
      await this.pass(this.random.fraction() * 30);
      if (this.strikes(0.1)) continue;
      await this.commit(key, rows);
    }
    this.writing--;
  }

  private rowOf(key: string): OutboxRow {
    const id = ++this.ids;
    return {
      id,
      aggregateId: key,
      msgId: uuid(Number(id)),
      eventType: 't',
      payload: Buffer.from('{}'),
      createdAt: new Date(this.clock.wallNowMs()),
    };
  }

  /** The log shows a commit before a statement sees it. */
  private async commit(key: string, rows: readonly OutboxRow[]): Promise<void> {
    for (const row of rows) this.database.rows.set(row.id, { row, isVisible: false, isMarked: false });
    this.committed.set(key, [...(this.committed.get(key) ?? []), ...rows.map(({ id }) => id)]);
    this.database.lsn += 10n;
    const endLsn = this.database.lsn;
    this.transactions.push({ endLsn, rows });
    this.database.committing.add(endLsn);
    await this.pass(this.random.fraction() * 10);
    for (const { id } of rows) Object.assign(this.database.rows.get(id) as object, { isVisible: true });
    this.database.committing.delete(endLsn);
  }
}

const uuid = (n: number): string => `00000000-0000-7000-8000-${n.toString(16).padStart(12, '0')}`;
export const keyOf = (n: number): string => uuid(n + 1);
