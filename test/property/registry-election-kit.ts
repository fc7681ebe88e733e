/** Simulated registry processes on one topic under virtual time, and an oracle that reads the topic
 *  without the registry's code. */
import { expect } from 'vitest';
import { sleep, type Timers } from '../../src/core/clock.ts';
import { findMillraceError } from '../../src/core/errors.ts';
import { silentLogger } from '../../src/core/log.ts';
import type { BrokerDriver } from '../../src/io/kafka/port.ts';
import { KafkaLog } from '../../src/registry/store/kafka/log.ts';
import type { LogRecord } from '../../src/registry/store/log.ts';
import { simDriverOf } from '../../src/sim/broker.ts';
import { type BrokerFaults, SimCluster } from '../../src/sim/broker-cluster.ts';
import { SimLink } from '../../src/sim/broker-link.ts';
import { SeededRandom, VirtualClock } from '../../src/sim/clock.ts';
import { ProcessClock } from '../../src/sim/process-clock.ts';
import { type Operation, RegisterHistory, violationsOf } from './register-history.ts';

const TOPIC = '_schemas';
const BROKERS = 'simulated:9092';
/** Default lease of a registry. */
export const LEASE_MS = 4000;
/** Longest latency between a process and the broker, in each direction. */
const LATENCY_MS = 5;
/** Longest pause between two writes of a process, and between two of its reads. */
const PAUSE_MS = 200;
/** Pause of a supervisor before it restarts a process that could not open its log. */
const RESTART_MS = 500;
/** Number of settings that are rewritten. */
const SETTINGS = 3;
/** Keys of the settings: each is a register, as the schemas of a subject are. */
const REGISTERS = Array.from({ length: SETTINGS }, (_, i) => `set/${i}`);

interface Write {
  readonly nonce: string;
  readonly id: number;
  readonly records: readonly LogRecord[];
  /** The write of the setting, in the history. */
  readonly operation: Operation;
  /** Outcome as the writer saw it; undefined if the writer was killed or still waits. */
  outcome?: 'kept' | 'lost' | 'unknown';
}

interface Entry {
  readonly key: string;
  readonly value: string | null;
}

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString();
const entryOf = ({ key, value }: Pick<LogRecord, 'key' | 'value'>): Entry => ({
  key: text(key),
  value: value === null ? null : text(value),
});

/** Every record that a process has applied, in order. */
class View {
  readonly applied: Entry[] = [];
  readonly values = new Map<string, string | null>();

  apply(records: readonly LogRecord[]): void {
    for (const record of records) {
      const entry = entryOf(record);
      this.applied.push(entry);
      this.values.set(entry.key, entry.value);
    }
  }

  nextId(): number {
    let greatest = 0;
    for (const [key, value] of this.values)
      if (value !== null && key.startsWith('id/')) greatest = Math.max(greatest, Number(key.slice(3)));
    return greatest + 1;
  }
}

/** One registry process: opens its log, writes while it leads, and reads continuously. */
export class RegistryProcess {
  readonly clock: ProcessClock;
  readonly link: SimLink;
  readonly url: string;
  private readonly election: Election;
  private readonly random: SeededRandom;
  log: KafkaLog | undefined;
  view = new View();
  /** True if the process was killed or closed. */
  isOver = false;
  isReading = false;
  /** Number of times that the process became the leader. */
  terms = 0;

  /** Starts the process.
   *  @param startsAfterMs delay from the beginning of the election */
  constructor(election: Election, place: number, startsAfterMs = 0) {
    this.election = election;
    this.url = `http://host-${place}:8081`;
    this.clock = new ProcessClock(election.world);
    this.link = new SimLink(election.cluster, { clock: this.clock, latencyMs: LATENCY_MS });
    this.random = new SeededRandom(election.cluster.random() * 2 ** 32);
    void this.run(startsAfterMs);
  }

  get leads(): boolean {
    return this.log?.role().leader === true;
  }

  kill(): void {
    this.isOver = true;
    this.clock.kill();
  }

  async close(): Promise<void> {
    this.isOver = true;
    await this.log?.close();
  }

  private async run(startsAfterMs: number): Promise<void> {
    await sleep(this.clock, startsAfterMs);
    const info = (_facts: unknown, message: string): void => {
      if (message.startsWith('this instance leads:')) this.terms++;
    };
    while (!this.isOver) {
      const view = new View();
      const log = new KafkaLog({
        driver: this.election.driverOf(this.link),
        brokers: BROKERS,
        clock: this.clock,
        random: this.random,
        url: this.url,
        log: { ...silentLogger, info },
      });
      try {
        await log.open(view);
      } catch (thrown) {
        // Opening a log fails only in an outage.
        expect(findMillraceError(thrown)?.code).toMatch(/^(unreachable|timeout|store_timeout|closed)$/);
        await log.close();
        await sleep(this.clock, RESTART_MS);
        continue;
      }
      if (this.isOver) return log.close();
      Object.assign(this, { view, log });
      this.election.watch(this.write(log, view));
      this.election.watch(this.read(log, view));
      return;
    }
  }

  private pause(): Promise<void> {
    return sleep(this.clock, this.random.fraction() * PAUSE_MS);
  }

  /** Appends one write at a time, decided on the complete state, as the registry does. */
  private async write(log: KafkaLog, view: View): Promise<void> {
    for (; !this.isOver; await this.pause()) {
      if (this.election.isQuiet || !log.role().leader) continue;
      const write = this.election.draft(view.nextId(), Math.floor(this.random.fraction() * SETTINGS));
      try {
        await log.append(write.records);
      } catch (thrown) {
        const code = findMillraceError(thrown)?.code;
        expect(['not_leader', 'store_failed', 'store_unknown']).toContain(code);
        write.outcome = code === 'store_unknown' ? 'unknown' : 'lost';
        // No decision before the process has read all records of the log.
        if (write.outcome === 'unknown')
          while (!this.isOver && !(await this.caughtUp(log))) await sleep(this.clock, 100);
        continue;
      }
      // A leader decides its next write on a state that includes this write.
      if (log.role().leader)
        expect(view.values.get(`id/${write.id}`), `${this.url} applied id ${write.id}`).toBe(write.nonce);
      write.outcome = 'kept';
      this.election.history.end(write.operation);
      this.election.kept.push(write);
    }
  }

  /** A successful read shows every write that any process acknowledged before the read began. The
   *  history has what it shows of each setting. */
  private async read(log: KafkaLog, view: View): Promise<void> {
    for (; !this.isOver; await this.pause()) {
      const { history } = this.election;
      const before = this.election.kept.length;
      const reads = REGISTERS.map((register) => history.begin('read', register));
      if (!(await this.caughtUp(log)) || this.isOver) continue;
      for (const read of reads) {
        read.value = view.values.get(read.register) ?? null;
        history.end(read);
      }
      for (const { id, nonce } of this.election.kept.slice(0, before))
        expect(view.values.get(`id/${id}`), `${this.url} read id ${id}`).toBe(nonce);
      this.election.reads++;
    }
  }

  private async caughtUp(log: KafkaLog): Promise<boolean> {
    try {
      await log.catchUp();
      return true;
    } catch (thrown) {
      expect(findMillraceError(thrown)?.code).toMatch(/^(store_timeout|closed)$/);
      return false;
    }
  }
}

export interface ElectionOptions {
  readonly seed: number;
  readonly processes: number;
  readonly faults: Partial<BrokerFaults>;
  /** Distance between the starts of two processes. */
  readonly apartMs?: number;
  /** Plants a fault into the driver of each process; `clock` is the clock of the world. */
  readonly plant?: (driver: BrokerDriver, clock: Timers) => BrokerDriver;
}

export class Election {
  readonly world = new VirtualClock();
  readonly cluster: SimCluster;
  readonly processes: RegistryProcess[] = [];
  /** Acknowledged writes, in the order of their acknowledgement. */
  readonly kept: Write[] = [];
  reads = 0;
  readonly history = new RegisterHistory();
  /** True once no process writes any more. */
  isQuiet = false;
  private readonly writes: Write[] = [];
  private readonly options: ElectionOptions;
  private failure: unknown;

  constructor(options: ElectionOptions) {
    this.options = options;
    const { seed, faults } = options;
    this.cluster = new SimCluster({ brokers: BROKERS, seed, clock: this.world, faults, slowMs: 1500 });
    for (let place = 0; place < options.processes; place++)
      this.processes.push(new RegistryProcess(this, place, place * (options.apartMs ?? 0)));
  }

  /** Starts a new process in place of an ended process. */
  replace(place: number): void {
    this.processes[place] = new RegistryProcess(this, place);
  }

  driverOf(link: SimLink): BrokerDriver {
    const driver = simDriverOf(this.cluster, link);
    return this.options.plant?.(driver, this.world) ?? driver;
  }

  /** A failure in the background fails the run. */
  watch(work: Promise<void>): void {
    work.catch((thrown: unknown) => {
      this.failure ??= thrown;
    });
  }

  async pass(ms: number): Promise<void> {
    await this.world.advance(ms);
    if (this.failure !== undefined) throw this.failure;
  }

  draft(id: number, setting: number): Write {
    const nonce = `n${this.writes.length}`;
    const records = [`id/${id}`, `set/${setting}`].map((key) => ({
      key: Buffer.from(key),
      value: Buffer.from(nonce),
    }));
    const operation = this.history.begin('write', `set/${setting}`, nonce);
    const write: Write = { nonce, id, records, operation };
    this.writes.push(write);
    return write;
  }

  /** Ends every fault and waits until one process leads, the others know it, and writes are
   *  acknowledged.
   *  @returns the virtual time that this took, in ms */
  async settle(limitMs: number): Promise<number> {
    this.cluster.heal();
    for (const [place, { isOver, clock, link }] of this.processes.entries()) {
      if (isOver) this.replace(place);
      link.mend();
      clock.continue();
    }
    const startMs = this.world.monotonicMs();
    const acknowledged = this.kept.length;
    await this.world.until(
      'one leader that every process knows, and a write',
      () => this.failure !== undefined || (this.isSettled() && this.kept.length > acknowledged),
      limitMs,
    );
    await this.pass(0);
    const tookMs = this.world.monotonicMs() - startMs;
    this.isQuiet = true;
    // Wait until the last writes and announcements have reached every process.
    await this.pass(2 * LEASE_MS);
    expect(this.isSettled(), 'the leader stays').toBe(true);
    return tookMs;
  }

  private isSettled(): boolean {
    const leaders = this.processes.filter((one) => one.leads);
    if (leaders.length !== 1) return false;
    return this.processes.every((one) => {
      const role = one.log?.role();
      return role !== undefined && (role.leader || role.url === leaders[0]?.url);
    });
  }

  /** Returns what contradicts linearizability in the history of the settings. */
  contradictions(): readonly string[] {
    const { committed } = this.content();
    const order = REGISTERS.map(
      (key) => [key, firstSeen(committed.filter((one) => one.key === key))] as const,
    );
    return violationsOf(this.history, new Map(order));
  }

  /** Records of the topic, and those of committed transactions, in log order. */
  private content(): { readonly stored: readonly Entry[]; readonly committed: readonly Entry[] } {
    const records = (this.cluster.topics.get(TOPIC)?.[0] ?? []).filter(({ isMark }) => isMark !== true);
    const entry = ({ key, value }: (typeof records)[number]): Entry =>
      entryOf({ key: key as Uint8Array, value });
    return {
      stored: records.map(entry),
      committed: records.filter(({ transaction }) => transaction?.state === 'committed').map(entry),
    };
  }

  /** Checks the topic and the processes.
   *  @returns the number of writes by outcome */
  judge(): Readonly<Record<string, number>> {
    const { stored, committed } = this.content();
    const found = new Map<string, Set<string>>();
    for (const { key, value } of committed)
      if (value !== null) found.set(value, (found.get(value) ?? new Set()).add(key));
    for (const { nonce, outcome, records } of this.writes) {
      const count = found.get(nonce)?.size ?? 0;
      expect([0, records.length], `records of ${nonce}, whole or not at all`).toContain(count);
      if (outcome === 'kept') expect(count, `${nonce} was acknowledged`).toBe(records.length);
      if (outcome === 'lost') expect(count, `${nonce} was refused as not kept`).toBe(0);
    }
    expect(this.contradictions(), 'settings are linearizable').toEqual([]);
    const log = changesOf(committed);
    for (const [key, values] of log)
      if (key.startsWith('id/'))
        expect(values.filter((value) => value !== null).length, `${key} was given once`).toBeLessThan(2);
    for (const { url, view } of this.processes)
      expect(view.applied, `the sequence of ${url}`).toEqual(committed);
    // A reader of uncommitted records ends with the same values: no record of an aborted
    // transaction is the last of its key.
    expect(lastOf(stored)).toEqual(lastOf(committed));
    const outcomes: Record<string, number> = { reads: this.reads };
    for (const { outcome = 'none' } of this.writes) outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    return outcomes;
  }
}

/** Values of each key in order, without repetitions. A new leader repeats a value that an aborted
 *  record follows. */
function changesOf(entries: readonly Entry[]): Map<string, Array<string | null>> {
  const found = new Map<string, Array<string | null>>();
  const last = new Map<string, string | null>();
  for (const { key, value } of entries) {
    if ((last.get(key) ?? null) === value) continue;
    last.set(key, value);
    found.set(key, [...(found.get(key) ?? []), value]);
  }
  return found;
}

/** Values in the order of their first occurrence. */
const firstSeen = (entries: readonly Entry[]): string[] => [
  ...new Set(entries.map(({ value }) => value).filter((value) => value !== null)),
];

const lastOf = (entries: readonly Entry[]): Record<string, string> =>
  Object.fromEntries(
    [...new Map(entries.map(({ key, value }) => [key, value]))]
      .filter((entry): entry is [string, string] => entry[1] !== null)
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
