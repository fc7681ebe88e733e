/** Simulated environment for consumers with an inbox: members of a group, a broker, a database in
 *  memory and virtual time. A test provides the consumer and the statements of its transactions. */
import { sleep, type Timers } from '../../src/core/clock.ts';
import { coreError } from '../../src/core/errors.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import type { BatchConsumer, BrokerDriver, ConsumerOptions } from '../../src/io/kafka/port.ts';
import { type SqlPool, type SqlSession, sqlError } from '../../src/io/postgres/sql/port.ts';
import type { MemberOptions } from '../../src/outbox/inbox/member.ts';
import type { InboxPort } from '../../src/outbox/inbox/port.ts';
import { simBrokerDriver } from '../../src/sim/broker.ts';
import { SeededRandom, VirtualClock } from '../../src/sim/clock.ts';
import { SimProcess } from './relay-world/process.ts';

export const TOPIC = 'events';
const GROUP = 'group';
const PARTITIONS = 3;
const KEYS = 8;
const MESSAGES = 120;
/** The server ends a session that is idle in a transaction for this long. */
const IDLE_MS = 2000;
/** A member that does not consume for this long loses its partitions. */
const SESSION_MS = 2500;

export const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text));
const idOf = (n: number): string => `01890a5d-ac96-774b-bcce-${String(n).padStart(12, '0')}`;

export interface Effect {
  readonly id: string;
  readonly key: string;
  readonly place: string;
  readonly offset: bigint;
}

/** Database that runs one transaction at a time, as row locks would. The server ends a transaction
 *  that is idle too long. */
export class GroupDatabase {
  readonly effects: Effect[] = [];
  readonly inbox = new Set<string>();
  readonly faults = { slowMs: 5, lostAnswer: 0, lostCommit: 0 };
  private readonly clock: VirtualClock;
  private readonly random: SeededRandom;
  private locked: Promise<void> = Promise.resolve();
  private open: { readonly ids: string[]; readonly effects: Effect[] } = { ids: [], effects: [] };

  constructor(clock: VirtualClock, random: SeededRandom) {
    this.clock = clock;
    this.random = random;
  }

  readonly claims = {
    claim: async (_session: unknown, ids: readonly string[]) => {
      const unseen = new Set(ids.filter((id) => !this.inbox.has(id)));
      this.open.ids.push(...unseen);
      return { unseen, seen: new Set(ids.filter((id) => !unseen.has(id))), undecidable: new Set() };
    },
  } as unknown as InboxPort;

  effect(effect: Effect): void {
    this.open.effects.push(effect);
  }

  pool(process: SimProcess): SqlPool {
    return {
      query: this.ask,
      transaction: (work: (session: SqlSession) => Promise<unknown>) => this.transaction(process, work),
    } as unknown as SqlPool;
  }

  /** Answers a statement, inside and outside of transactions. */
  ask: SqlSession['query'] = (async () => ({ rows: [{}], rowCount: 1 })) as unknown as SqlSession['query'];

  private strikes(chance: number): boolean {
    return chance > 0 && this.random.fraction() < chance;
  }

  private async transaction(process: SimProcess, work: (session: SqlSession) => Promise<unknown>) {
    const before = this.locked;
    let unlock = (): void => {};
    this.locked = new Promise((resolve) => {
      unlock = resolve;
    });
    await before;
    let isOver = false;
    const own = { ids: [] as string[], effects: [] as Effect[] };
    const end = (): void => {
      isOver = true;
      cancel();
      unlock();
    };
    const cancel = this.clock.after(IDLE_MS, end);
    try {
      await sleep(this.clock, this.random.fraction() * this.faults.slowMs);
      await process.receive(undefined);
      if (isOver || this.strikes(this.faults.lostAnswer))
        throw coreError('unreachable', 'the connection is gone');
      this.open = own;
      const done = await work({ query: this.ask } as unknown as SqlSession);
      await sleep(this.clock, this.random.fraction() * this.faults.slowMs);
      if (isOver) throw coreError('unreachable', 'the connection is gone');
      const isLost = this.strikes(this.faults.lostCommit);
      if (!isLost || this.strikes(0.5)) {
        for (const id of own.ids) this.inbox.add(id);
        this.effects.push(...own.effects);
      }
      end();
      await process.receive(undefined);
      if (isLost) throw sqlError('commit_unknown', 'COMMIT got no answer');
      return done;
    } finally {
      if (!isOver) end();
    }
  }
}

interface Running {
  readonly process: SimProcess;
  readonly drain: AbortController;
  readonly ended: Promise<void>;
}

/** Parts that a new member gets from the environment. */
export interface Seat {
  readonly connect: MemberOptions['connect'];
  readonly process: SimProcess;
  readonly clock: Timers;
  readonly drain: AbortSignal;
}

/** The consumer under test, and the format of its records. */
export interface Product {
  consumer(world: GroupWorld, seat: Seat): { run(): Promise<void> };
  valueOf(id: string, n: number): Uint8Array;
  idOf(value: string): string;
}

export class GroupWorld {
  readonly clock = new VirtualClock();
  readonly random: SeededRandom;
  readonly database: GroupDatabase;
  readonly members: Running[] = [];
  readonly violations: string[] = [];
  /** Time until which the third party behind an effect is unavailable. */
  unavailableUntilMs = 0;
  private readonly driver: BrokerDriver;
  private readonly order = new Map<string, string[]>();
  /** Key of each message. */
  readonly keys = new Map<string, string>();

  private readonly product: Product;

  constructor(seed: number, product: Product) {
    this.product = product;
    this.random = new SeededRandom(seed);
    this.database = new GroupDatabase(this.clock, this.random);
    this.driver = simBrokerDriver({
      brokers: 'sim',
      seed,
      clock: this.clock,
      faults: { shortRead: 0.2, lostCommit: 0.2 },
    });
  }

  below(count: number): number {
    return Math.floor(this.random.fraction() * count);
  }

  /** Publishes messages of several keys, some of them twice, as a relay repeats a suffix. */
  async publish(): Promise<void> {
    const admin = await this.driver.admin({ brokers: 'sim', clientId: 'test' });
    await admin.createTopics([{ topic: TOPIC, partitions: PARTITIONS, replicationFactor: 1 }]);
    const producer = await this.driver.producer({ brokers: 'sim', clientId: 'test' });
    for (let n = 0; n < MESSAGES; n++) {
      const key = `key-${this.below(KEYS)}`;
      const id = idOf(n);
      this.order.set(key, [...(this.order.get(key) ?? []), id]);
      this.keys.set(id, key);
      const batch = RecordBatch.create(2, 4096);
      for (let copy = 0; copy <= (this.random.fraction() < 0.2 ? 1 : 0); copy++)
        batch.append({
          topicIndex: 0,
          partition: -1,
          key: bytes(key),
          value: this.product.valueOf(id, n),
          headers: [['ce_id', bytes(id)]],
        });
      await producer.produce(batch, [TOPIC]);
      await sleep(this.clock, this.random.fraction() * 100);
    }
  }

  start(): void {
    const process = new SimProcess(this.clock);
    const drain = new AbortController();
    const clock: Timers = process.clock;
    const connect = async (hooks: Required<Pick<ConsumerOptions, 'onRebalance'>>): Promise<BatchConsumer> => {
      return this.checked(
        process,
        await this.driver.consumer({
          ...hooks,
          brokers: 'sim',
          clientId: 'test',
          group: GROUP,
          autoOffsetReset: 'earliest',
          properties: { 'session.timeout.ms': SESSION_MS },
        }),
      );
    };
    const consumer = this.product.consumer(this, { connect, process, clock, drain: drain.signal });
    const ended = consumer.run();
    ended.catch((thrown: unknown) => this.violations.push(`a member failed: ${String(thrown)}`));
    this.members.push({ process, drain, ended });
  }

  /** Wraps a client so that replies reach only a running process, and checks each offset commit
   *  when it is made. */
  private checked(process: SimProcess, client: BatchConsumer): BatchConsumer {
    const { consume, commit } = client;
    client.consume = async (into, waitMs) => {
      const result = await consume.call(client, into, waitMs);
      return process.receive(result);
    };
    client.commit = async (offsets) => {
      for (const { topic, partition, offset } of offsets) this.checkCommit(`${partition}@${topic}`, offset);
      const outcome = await commit.call(client, offsets);
      return process.receive(outcome);
    };
    return client;
  }

  /** Checks that every message before a committed offset has had its effect. */
  private checkCommit(place: string, next: bigint): void {
    for (const [offset, id] of this.logOf(place).entries())
      if (BigInt(offset) < next && !this.database.inbox.has(id))
        this.violations.push(
          `offset ${next} of ${place} was committed before the effect of offset ${offset}`,
        );
  }

  readonly log = new Map<string, string[]>();

  private logOf(place: string): readonly string[] {
    return this.log.get(place) ?? [];
  }

  /** Reads the content of the topic with a client outside of the group. */
  async readLog(): Promise<void> {
    const reader = await this.driver.consumer({ brokers: 'sim', clientId: 'test' });
    const at = Array.from({ length: PARTITIONS }, (_, partition) => ({
      topic: TOPIC,
      partition,
      offset: 0n,
    }));
    await reader.assign(at);
    const into = RecordBatch.create(4 * MESSAGES, 1 << 20);
    for (let count = 1; count > 0; ) {
      count = (await reader.consume(into, 10)).rowCount;
      for (let i = 0; i < count; i++) {
        const place = `${into.columns.partition[i]}@${TOPIC}`;
        this.log.set(place, [
          ...this.logOf(place),
          this.product.idOf(Buffer.from(into.value(i) ?? []).toString()),
        ]);
      }
    }
    await reader.close();
  }

  /** Drains a member and starts another one. */
  async replace(one: Running): Promise<void> {
    one.drain.abort();
    this.start();
    await one.ended;
    this.members.splice(this.members.indexOf(one), 1);
  }

  check(): void {
    const ids = this.database.effects.map(({ id }) => id);
    if (new Set(ids).size !== ids.length) this.violations.push('a message had its effect twice');
    for (const [key, order] of this.order) {
      const seen = this.database.effects.filter((one) => one.key === key).map(({ id }) => id);
      if (seen.join() !== order.join())
        this.violations.push(`${key}: ${seen.join()} instead of ${order.join()}`);
    }
  }
}

/** Suspends, drains and starts members in random steps, then waits for every effect and returns the
 *  violations. */
export async function groupViolations(world: GroupWorld): Promise<readonly string[]> {
  const { clock, database, random } = world;
  await clock.run(world.publish());
  await clock.run(world.readLog());
  world.start();
  world.start();
  Object.assign(database.faults, {
    slowMs: 5 + 800 * random.fraction() ** 3,
    lostAnswer: 0.1 * random.fraction(),
    lostCommit: 0.2 * random.fraction(),
  });
  world.unavailableUntilMs = clock.monotonicMs() + world.below(6000);
  for (let step = 0; step < 5; step++) {
    await clock.advance(world.below(1500));
    const one = world.members[world.below(world.members.length)] as Running;
    const kind = random.fraction();
    if (kind < 0.4) {
      one.process.stop();
      await clock.advance(world.below(4000));
      one.process.resume();
    } else if (kind < 0.7) void world.replace(one);
    else if (world.members.length < 4) world.start();
  }
  Object.assign(database.faults, { slowMs: 5, lostAnswer: 0, lostCommit: 0 });
  await clock.until('every effect', () => database.inbox.size === MESSAGES);
  await clock.advance(5000);
  for (const { drain } of world.members) drain.abort();
  await clock.run(Promise.all(world.members.map(({ ended }) => ended)));
  world.check();
  return world.violations;
}
