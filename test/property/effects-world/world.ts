/** The whole system of orders, relay and payments under virtual time: clients, two processes of
 *  each service, one database and one broker, with the faults of one seed. The processes are the
 *  product's own code; database, broker, network and clocks are simulated. An auditor checks the
 *  requirements at each step.
 *
 *  A run has two phases: safety under faults, then the faults end and the system must complete.
 */
import type { BatchConsumer, BatchProducer, BrokerDriver } from '../../../src/io/kafka/port.ts';
import { Inbox } from '../../../src/outbox/inbox/once.ts';
import { simDriverOf } from '../../../src/sim/broker.ts';
import { type BrokerFaults, SimCluster } from '../../../src/sim/broker-cluster.ts';
import { SimLink } from '../../../src/sim/broker-link.ts';
import type { StoredRecord } from '../../../src/sim/broker-log.ts';
import { SeededRandom, VirtualClock } from '../../../src/sim/clock.ts';
import { OutboxDatabase } from '../relay-world/database.ts';
import { SimProcess } from '../relay-world/process.ts';
import { replicationOf, type Transaction } from '../relay-world/stream.ts';
import { Auditor } from './audit.ts';
import { Clients } from './clients.ts';
import type { Plan, PlannedFault } from './plan.ts';
import {
  LEASE_MS,
  type Running,
  type Seat,
  startOrders,
  startPayments,
  startRelay,
  TOPIC,
} from './services.ts';
import { type SessionHooks, sqlPoolOf, textPoolOf } from './sessions.ts';
import { Tables } from './tables.ts';
import { Trace } from './trace.ts';
import { Transactions } from './transactions.ts';

const PARTITIONS = 3;
/** Keeps the arenas of the relays small: a relay allocates them for records of this size. */
const RECORD_BYTES_MAX = 8192;
const MINUTE_MS = 60_000;
const RESTART_MS = 300;
const EXPIRE_EVERY_MS = 50;
/** Time within which a mark that the database did not flush may be lost, ms: synchronous_commit is
 *  off for marks. */
const UNFLUSHED_MS = 200;

type Kind = Running['kind'];

export interface WorldOptions {
  readonly seed: number;
  readonly plan: Plan;
  readonly hasUniqueOrder?: boolean;
  /** Steps in ascending order, from 1: each kills the process that takes it, right after it. A step
   *  of a process that is starting or dead leaves the kill to the next step. */
  readonly killAtSteps?: readonly number[];
  readonly keepsSteps?: boolean;
  /** Time after which the inbox forgets an id, ms; absent: it forgets none. */
  readonly inboxTtlMs?: number;
  /** `ignored`: an id that the inbox forgot counts as unseen (-unsafe-ttl). */
  readonly floor?: 'guarded' | 'ignored';
}

/** Cluster whose log the auditor sees. */
class AuditedCluster extends SimCluster {
  onAppend: (partition: number, record: StoredRecord) => void = () => {};

  override append(at: { readonly topic: string; readonly partition: number }, record: StoredRecord): void {
    super.append(at, record);
    this.onAppend(at.partition, record);
  }
}

export class EffectsWorld {
  readonly clock = new VirtualClock();
  readonly auditor = new Auditor();
  readonly trace: Trace;
  readonly outbox: OutboxDatabase;
  readonly tables: Tables;
  readonly clients: Clients;
  /** Number of rare events by name. A search that never meets one proves nothing about it. */
  readonly met = new Map<string, number>();
  private readonly options: WorldOptions;
  private readonly network: SeededRandom;
  private readonly transactions: Transactions;
  private readonly cluster: AuditedCluster;
  private readonly log: Transaction[] = [];
  private readonly running: Running[] = [];
  private readonly links = new Map<SimProcess, SimLink>();
  private readonly names = new Map<SimProcess, string>();
  private readonly heads = new Map<string, string>();
  private readonly marks: Array<{ readonly id: bigint; readonly atMs: number }> = [];
  private started = 0;
  /** Kills of `killAtSteps` that were done. */
  private killsAtSteps = 0;
  private isFaulty = true;
  private isEnding = false;
  private downUntilMs = 0;

  constructor(options: WorldOptions) {
    const { seed, plan } = options;
    this.options = options;
    this.trace = new Trace(options.keepsSteps);
    this.network = new SeededRandom(seed ^ 0x6e65_7477);
    const { clock } = this;
    this.outbox = new OutboxDatabase({
      nowMs: () => clock.wallNowMs(),
      after: (ms, run) => clock.after(ms, run),
      delay: () => this.travel(),
      isLost: () => this.isDown() || this.isLost(),
      onMark: (row) => {
        this.marks.push({ id: row.id, atMs: clock.monotonicMs() });
        this.auditor.onMark(row);
      },
      onStatement: (process) => this.step(process, 'relay statement'),
      hasSequence: true,
    });
    this.transactions = new Transactions({
      clock,
      random: this.network,
      outbox: this.outbox,
      log: this.log,
      flushMs: () => 1 + this.network.fraction() * plan.databaseMs,
    });
    this.tables = new Tables(
      this.transactions,
      {
        wallMs: () => clock.wallNowMs(),
        onOrder: this.auditor.onOrder,
        onCharge: this.auditor.onCharge,
      },
      options.hasUniqueOrder ?? false,
    );
    this.auditor.watch(this.outbox, this.tables);
    this.cluster = new AuditedCluster({
      brokers: 'sim',
      seed,
      clock,
      faults: faultsOf(plan),
      messageBytesMax: RECORD_BYTES_MAX,
    });
    this.cluster.onAppend = (partition, record) => this.auditor.onRecord(partition, record);
    this.clients = new Clients({
      clock,
      random: new SeededRandom(seed ^ 0x636c_6965),
      targets: () => this.running.filter(({ kind }) => kind === 'orders'),
      onReply: (key, { orderId, code, body }) => this.auditor.onReply(key, { orderId, code, body }),
      onViolation: (what) => this.auditor.violations.push(what),
      onStep: (who, what) => {
        const one = this.running.find(({ name }) => name === who);
        if (one !== undefined) this.step(one.process, what);
      },
    });
  }

  /** Runs to the end. Returns the violated requirements. */
  async run(): Promise<readonly string[]> {
    const { clock } = this;
    const { plan } = this.options;
    await this.createTopic();
    for (const kind of ['orders', 'relay', 'payments'] as const) for (let n = 0; n < 2; n++) this.start(kind);
    await clock.until('a process of each kind', () => this.running.length === 6);
    this.clients.start(plan.requests, plan.spreadMs);
    this.expireInbox();
    const startMs = clock.monotonicMs();
    for (const fault of plan.faults) {
      await clock.advance(Math.max(0, startMs + fault.atMs - clock.monotonicMs()));
      this.strike(fault);
    }
    await clock.until('the end of the load', () => clock.monotonicMs() >= startMs + plan.spreadMs);
    this.heal();
    await this.settle();
    return this.auditor.violations;
  }

  private async settle(): Promise<void> {
    const { clock } = this;
    const what = 'a complete system';
    await clock.until(what, () => this.auditor.violations.length > 0 || this.isComplete(), 10 * MINUTE_MS);
    this.isEnding = true;
    const open = new Set(this.running);
    for (const one of open) {
      const ended = (): void => void open.delete(one);
      one.ended.then(ended, ended);
      one.drain.abort();
    }
    const isOver = (): boolean => [...open].every(({ process }) => process.isDead);
    await clock.until('the end of each process', isOver, 10 * MINUTE_MS);
    if (this.auditor.violations.length === 0) this.auditor.atEnd(this.clients.answered);
    this.meetAtEnd();
  }

  private isComplete(): boolean {
    const { tables, outbox, clients } = this;
    return (
      clients.isDone &&
      outbox.pending().length === 0 &&
      tables.chargesOf.size + tables.parked.length >= tables.orders.size
    );
  }

  private async createTopic(): Promise<void> {
    const admin = await simDriverOf(this.cluster).admin({ brokers: 'sim', clientId: 'world' });
    await admin.createTopics([
      {
        topic: TOPIC,
        partitions: PARTITIONS,
        replicationFactor: 3,
        config: { 'max.message.bytes': String(RECORD_BYTES_MAX) },
      },
    ]);
    await admin.close();
  }

  private isLost(): boolean {
    return this.occurs(this.options.plan.lostStatement);
  }

  private isDown(): boolean {
    return this.clock.monotonicMs() < this.downUntilMs;
  }

  private occurs(chance: number): boolean {
    return this.isFaulty && chance > 0 && this.network.fraction() < chance;
  }

  private travel(): Promise<void> {
    const ms = this.network.fraction() * this.options.plan.databaseMs;
    return new Promise((resolve) => this.clock.after(ms, resolve));
  }

  /** Records a step, lets the auditor look, and kills the process if this is its last step. */
  private step(process: SimProcess, what: string): void {
    this.trace.step(this.clock.monotonicMs(), this.names.get(process) ?? '?', this.headOf(what));
    this.auditor.afterStep();
    const due = this.options.killAtSteps?.[this.killsAtSteps];
    if (due === undefined || this.trace.count < due) return;
    const one = this.running.find((each) => each.process === process);
    if (one === undefined) return;
    this.killsAtSteps++;
    this.meet('a kill at a step');
    this.kill(one);
  }

  /** Returns the first characters of a step's text, in one line. */
  private headOf(what: string): string {
    if (what.length <= STEP_CHARS) return what;
    let head = this.heads.get(what);
    if (head === undefined) {
      head = what.trimStart().slice(0, STEP_CHARS).replaceAll('\n', ' ');
      this.heads.set(what, head);
    }
    return head;
  }

  private start(kind: Kind): void {
    void this.supervise(kind);
  }

  /** Starts a process, and another one when it fails, as a supervisor does. */
  private async supervise(kind: Kind): Promise<void> {
    const process = new SimProcess(this.clock);
    const name = `${kind}-${++this.started}`;
    this.names.set(process, name);
    const { seed, plan } = this.options;
    const seat: Seat = { name, process, plan, random: new SeededRandom(seed * 1000 + this.started) };
    try {
      const one = await this.open(kind, seat);
      if (process.isDead) return;
      this.running.push(one);
      one.ended.catch((thrown: unknown) => this.failed(one, thrown));
    } catch {
      this.clock.after(RESTART_MS, () => this.isEnding || this.start(kind));
    }
  }

  private failed(one: Running, thrown: unknown): void {
    if (one.process.isDead || this.isEnding) return;
    this.trace.step(this.clock.monotonicMs(), one.name, `failed: ${(thrown as Error).message}`);
    this.kill(one);
  }

  private async open(kind: Kind, seat: Seat): Promise<Running> {
    const { process } = seat;
    const { plan } = this.options;
    const parts = { tables: this.tables, transactions: this.transactions, hooks: this.sessionHooks() };
    if (kind === 'orders') return startOrders(seat, textPoolOf(parts, process), sqlPoolOf(parts, process));
    const broker = this.driverOf(process);
    if (kind === 'payments') {
      return startPayments(seat, {
        pool: sqlPoolOf(parts, process),
        broker,
        watch: (client) => this.watched(process, client),
        inbox: new Inbox('inbox', this.options.floor),
      });
    }
    return startRelay(seat, {
      sql: this.outbox.driver(process),
      broker,
      replication: replicationOf(this.outbox, process, {
        after: (ms, run) => this.clock.after(ms, run),
        log: this.log,
        gapMs: () => 1 + this.network.fraction() * 40,
        burst: () => 1 + Math.floor(this.network.fraction() * STREAM_BURST_MAX),
        breaks: () => this.occurs(plan.brokenStream),
        onStep: (what) => this.step(process, what),
      }),
    });
  }

  private driverOf(process: SimProcess): BrokerDriver {
    const link = new SimLink(this.cluster, { clock: process.clock, latencyMs: this.options.plan.brokerMs });
    this.links.set(process, link);
    const driver = simDriverOf(this.cluster, link);
    return {
      ...driver,
      producer: async (given) => this.watchedProducer(process, await driver.producer(given)),
      transactional: async (given) => {
        const producer = this.watchedProducer(process, await driver.transactional(given));
        for (const name of ['init', 'commit', 'abort'] as const) {
          const request = producer[name];
          producer[name] = async (timeoutMs) => {
            this.step(process, `${name} transaction`);
            const failure = await request.call(producer, timeoutMs);
            this.step(process, `${name} transaction ${failure?.kind ?? 'done'}`);
            return process.receive(failure);
          };
        }
        return producer;
      },
    };
  }

  private watchedProducer<T extends BatchProducer>(process: SimProcess, producer: T): T {
    const { produce } = producer;
    producer.produce = async (batch, topics) => {
      this.step(process, `produce ${batch.rowCount}`);
      const report = await produce.call(producer, batch, topics);
      this.step(process, `produced ${report.delivered}`);
      return process.receive(report);
    };
    return producer;
  }

  /** Shows the steps of a group's client. */
  private watched(process: SimProcess, client: BatchConsumer): BatchConsumer {
    const { consume, commit } = client;
    client.consume = async (into, waitMs) => {
      const result = await consume.call(client, into, waitMs);
      if (result.rowCount > 0) this.step(process, `consumed ${result.rowCount}`);
      return process.receive(result);
    };
    client.commit = async (offsets) => {
      for (const { partition, offset } of offsets) this.auditor.onCommit(partition, offset);
      this.step(
        process,
        `commit ${offsets.map(({ partition, offset }) => `${partition}:${offset}`).join(' ')}`,
      );
      const outcome = await commit.call(client, offsets);
      this.step(process, `${outcome} offsets`);
      return process.receive(outcome);
    };
    return client;
  }

  private sessionHooks(): SessionHooks {
    return {
      travel: () => this.travel(),
      isLost: () => this.isLost(),
      isDown: () => this.isDown(),
      onStep: (process, what) => this.step(process, what),
      after: (ms, run) => this.clock.after(ms, run),
      onUnknownCommit: () => this.meet('a commit without an answer'),
    };
  }

  private meet(what: string, count = 1): void {
    if (count > 0) this.met.set(what, (this.met.get(what) ?? 0) + count);
  }

  /** Counts what the tables and the log show at the end. */
  private meetAtEnd(): void {
    const { suppressed } = this.tables;
    const seen = suppressed.filter(({ reason }) => reason === 'seen' || reason === 'same_batch');
    this.meet('an injected duplicate absorbed', seen.filter(({ injected }) => injected === true).length);
    this.meet('a repeated publication absorbed', seen.filter(({ injected }) => injected !== true).length);
  }

  /** SIGKILL, and another process after a while. */
  private kill(one: Running): void {
    const at = this.running.indexOf(one);
    if (at < 0) return;
    this.running.splice(at, 1);
    one.process.isDead = true;
    // Requests in transit still arrive; then the server sees that the connection is gone.
    this.clock.after(1 + this.network.fraction() * 20, () => this.transactions.endSessionsOf(one.process));
    if (one.kind === 'relay') this.outbox.slot.end();
    this.clock.after(RESTART_MS, () => this.isEnding || this.start(one.kind));
  }

  private victimOf({ victim }: PlannedFault, kind?: Kind): Running | undefined {
    const all = kind === undefined ? this.running : this.running.filter((one) => one.kind === kind);
    return all[Math.floor(victim * all.length)];
  }

  private strike(fault: PlannedFault): void {
    const [verb, noun] = fault.kind.split(' ') as [string, Kind];
    this.meet(fault.kind);
    this.trace.step(this.clock.monotonicMs(), 'fault', fault.kind);
    if (fault.kind === 'crash database') this.crashDatabase(fault.forMs);
    else if (fault.kind === 'end sessions')
      for (const tx of this.transactions.openOnes()) this.transactions.endIdle(tx);
    else if (fault.kind === 'add payments') this.start('payments');
    else if (fault.kind === 'jump a clock') this.victimOf(fault)?.process.jump((fault.victim - 0.5) * 1e8);
    else if (verb === 'cut') this.cut(this.victimOf(fault, noun), fault.forMs);
    else if (verb === 'stop') this.stop(this.victimOf(fault, noun), fault.forMs);
    else {
      const one = this.victimOf(fault, noun);
      if (one !== undefined) this.kill(one);
    }
  }

  private stop(one: Running | undefined, forMs: number): void {
    one?.process.stop();
    // Up to two leases, and longer than a session of the group.
    this.clock.after(Math.min(forMs * 1.5, 2 * LEASE_MS), () => one?.process.resume());
  }

  private cut(one: Running | undefined, forMs: number): void {
    const link = one === undefined ? undefined : this.links.get(one.process);
    link?.cut();
    this.clock.after(forMs, () => link?.mend());
  }

  /** Immediate stop: what was not flushed is lost, among it the last marks. */
  private crashDatabase(forMs: number): void {
    const nowMs = this.clock.monotonicMs();
    this.downUntilMs = nowMs + Math.min(forMs, 1500);
    this.transactions.crash();
    this.outbox.slot.end();
    const firstLost = nowMs - this.network.fraction() * UNFLUSHED_MS;
    for (const { id, atMs } of this.marks) {
      if (atMs < firstLost || this.outbox.rows.get(id)?.isMarked !== true) continue;
      this.outbox.rows.unmark(id);
      this.meet('a mark lost in a crash of the database');
    }
  }

  /** Forgets inbox rows whose id is older than the TTL, again and again. */
  private expireInbox(): void {
    const { inboxTtlMs } = this.options;
    if (inboxTtlMs === undefined) return;
    this.clock.after(EXPIRE_EVERY_MS, () => {
      const hex = Math.max(0, this.clock.wallNowMs() - inboxTtlMs)
        .toString(16)
        .padStart(12, '0');
      const before = this.tables.inbox.size;
      this.tables.dropInbox(`${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`);
      this.auditor.dropped += before - this.tables.inbox.size;
      if (!this.isEnding) this.expireInbox();
    });
  }

  private heal(): void {
    this.isFaulty = false;
    this.downUntilMs = 0;
    this.cluster.heal();
    for (const link of this.links.values()) link.mend();
    for (const { process } of this.running) process.resume();
  }
}

const STEP_CHARS = 60;
const STREAM_BURST_MAX = 16;

const faultsOf = (plan: Plan): Partial<BrokerFaults> => ({
  lostRow: plan.lostRow,
  lostReport: plan.lostReport,
  lostCommit: plan.lostCommit,
  shortRead: 0.2,
});
