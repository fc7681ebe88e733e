/** Retries of a single failing effect, over the simulated broker, a database in memory and a
 *  virtual clock. */
import { describe, expect, it } from 'vitest';
import type { Random } from '../../../../src/core/clock.ts';
import { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import type { BatchConsumer, BrokerDriver, ConsumerOptions } from '../../../../src/io/kafka/port.ts';
import type { SqlPool, SqlSession } from '../../../../src/io/postgres/sql/port.ts';
import { CONSUMER_DEFAULTS } from '../../../../src/outbox/defaults.ts';
import { outboxError } from '../../../../src/outbox/errors.ts';
import { InboxConsumer, type InboxConsumerOptions } from '../../../../src/outbox/inbox/consumer.ts';
import type { InboxPort, InboxRecord } from '../../../../src/outbox/inbox/port.ts';
import { Retries, type RetrySettings } from '../../../../src/outbox/inbox/retries.ts';
import { simBrokerDriver } from '../../../../src/sim/broker.ts';
import { realClock, turn } from '../../../wait.ts';

const TOPIC = 'events';
const GROUP = 'group';
const RETRY = CONSUMER_DEFAULTS.retry;
/** Virtual time after which a test fails. */
const END_MS = 3_600_000;

const drawing = (fraction: () => number): Random => ({ fraction, fill: (into) => void into.fill(0) });
/** Draws just below the upper end, so that each delay is known. */
const highest = drawing(() => 1 - 2 ** -53);

interface Tables {
  effects: string[];
  inbox: Set<string>;
  parked: Array<{ readonly offset: bigint; readonly reason: string; readonly detail: string }>;
}

/** Runs one transaction at a time; its writes take effect at the commit. */
class Database {
  tables: Tables = { effects: [], inbox: new Set(), parked: [] };
  private open: Tables = this.tables;

  readonly inbox = {
    claim: async (_tx: unknown, ids: readonly string[]) => {
      const unseen = new Set(ids.filter((id) => !this.open.inbox.has(id)));
      for (const id of unseen) this.open.inbox.add(id);
      return { unseen, seen: new Set(ids.filter((id) => !unseen.has(id))), undecidable: new Set() };
    },
  } as unknown as InboxPort;

  readonly pool = {
    query: async () => ({ rows: [{}], rowCount: 1 }),
    transaction: async (work: (session: SqlSession) => Promise<unknown>) => {
      const { effects, inbox, parked } = this.tables;
      this.open = { effects: [...effects], inbox: new Set(inbox), parked: [...parked] };
      const done = await work({ query: this.query } as unknown as SqlSession);
      this.tables = this.open;
      return done;
    },
  } as unknown as SqlPool;

  effect(text: string): void {
    this.open.effects.push(text);
  }

  private readonly query = async (sql: string, values: readonly unknown[]) => {
    if (sql.includes('INSERT INTO parked')) {
      const [, , offsets, reasons, details] = values as [0, 0, bigint[], string[], string[]];
      for (const [i, offset] of offsets.entries())
        this.open.parked.push({ offset, reason: reasons[i] as string, detail: details[i] as string });
    }
    return { rows: [], rowCount: 0 };
  };
}

const idOf = (n: number): string => `01890a5d-ac96-774b-bcce-${String(n).padStart(12, '0')}`;
const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text));
const textOf = ({ value }: InboxRecord): string => Buffer.from(value ?? []).toString();

class Simulation {
  nowMs = 0;
  readonly database = new Database();
  readonly clock = { ...realClock, wallNowMs: () => this.nowMs, monotonicMs: () => this.nowMs };
  readonly driver: BrokerDriver;
  /** Attempts at effects, with their times. */
  readonly attempts: Array<{ readonly text: string; readonly atMs: number }> = [];
  /** True if the third party behind the effect answers 503. */
  isUnavailable: (text: string) => boolean = () => false;
  callMs = 0;
  /** Longest time between two reads. */
  silenceMs = 0;
  private lastReadMs = 0;
  private readonly drains: AbortController[] = [];

  constructor() {
    this.driver = simBrokerDriver({
      brokers: 'sim',
      seed: 1,
      clock: {
        ...this.clock,
        // The member sets one timer at a time, so its time passes immediately.
        after: (ms, run) => {
          this.nowMs += ms;
          if (this.nowMs > END_MS) for (const drain of this.drains) drain.abort();
          void turn().then(run);
          return () => {};
        },
      },
    });
  }

  /** Appends records `key value` to a single partition. */
  async append(...lines: readonly string[]): Promise<void> {
    const admin = await this.driver.admin({ brokers: 'sim', clientId: 'test' });
    await admin.createTopics([{ topic: TOPIC, partitions: 1, replicationFactor: 1 }]);
    const producer = await this.driver.producer({ brokers: 'sim', clientId: 'test' });
    const batch = RecordBatch.create(lines.length, 1 << 16);
    for (const [n, line] of lines.entries()) {
      const [key = ''] = line.split(' ');
      const headers = [['ce_id', bytes(idOf(n))]] as const;
      batch.append({
        topicIndex: 0,
        partition: 0,
        key: key === '-' ? null : bytes(key),
        value: bytes(line),
        headers,
      });
    }
    await producer.produce(batch, [TOPIC]);
    await producer.close();
  }

  /** Starts a member of the group. `crash` ends it like SIGKILL: it commits no further offset. */
  start(retry: Partial<RetrySettings> = {}, over: Partial<InboxConsumerOptions> = {}) {
    const drain = new AbortController();
    this.drains.push(drain);
    const metrics = new Metrics();
    let isDead = false;
    const connect = async (hooks: Required<Pick<ConsumerOptions, 'onRebalance'>>): Promise<BatchConsumer> => {
      const consumer = await this.driver.consumer({
        ...hooks,
        brokers: 'sim',
        clientId: 'test',
        group: GROUP,
        autoOffsetReset: 'earliest',
      });
      const commit = consumer.commit.bind(consumer);
      consumer.commit = (offsets) => (isDead ? Promise.reject(new Error('killed')) : commit(offsets));
      const consume = consumer.consume.bind(consumer);
      consumer.consume = (into, waitMs) => {
        this.silenceMs = Math.max(this.silenceMs, this.nowMs - this.lastReadMs);
        this.lastReadMs = this.nowMs;
        return consume(into, waitMs);
      };
      return consumer;
    };
    const consumer = new InboxConsumer({
      ...CONSUMER_DEFAULTS,
      connect,
      topics: [TOPIC],
      pool: this.database.pool,
      inbox: this.database.inbox,
      parkedTable: 'parked',
      handle: async (_session, record) => {
        const text = textOf(record);
        this.attempts.push({ text, atMs: this.nowMs });
        this.nowMs += this.callMs;
        if (this.isUnavailable(text)) throw new Error('503 from the third party');
        this.database.effect(text);
      },
      metrics,
      log: silentLogger,
      clock: this.clock,
      drain: drain.signal,
      retry: { ...RETRY, ...retry },
      random: highest,
      ...over,
    });
    const run = consumer.run();
    run.catch(() => {});
    const stop = async (): Promise<void> => {
      drain.abort();
      await run;
    };
    const crash = (): Promise<void> => {
      isDead = true;
      return stop();
    };
    return { stop, crash, metrics };
  }

  /** Runs until the condition holds. */
  async until(holds: () => boolean): Promise<void> {
    while (!holds()) {
      if (this.nowMs > END_MS)
        throw new Error(
          `not within ${END_MS} ms of virtual time: ${JSON.stringify(this.database.tables.effects)}`,
        );
      await turn();
    }
  }

  async committed(): Promise<bigint | undefined> {
    const reader = await this.driver.consumer({ brokers: 'sim', clientId: 'test', group: GROUP });
    const [at] = await reader.committed([{ topic: TOPIC, partition: 0 }]);
    await reader.close();
    return at?.offset;
  }

  attemptsAt(text: string): readonly number[] {
    return this.attempts.filter((one) => one.text === text).map(({ atMs }) => atMs);
  }
}

describe('failing effect', () => {
  it('a failing effect is retried after delays that double up to their maximum, and succeeds once the third party answers', async () => {
    const simulation = new Simulation();
    await simulation.append('a 1');
    simulation.isUnavailable = () => simulation.nowMs < 60_000;
    const { stop, metrics } = simulation.start({ maxDelayMs: 5000 });
    await simulation.until(() => simulation.database.tables.effects.length === 1);
    await stop();
    expect(simulation.database.tables).toMatchObject({ effects: ['a 1'], parked: [] });
    const times = simulation.attemptsAt('a 1');
    // The first attempt was part of the batch.
    const delays = times.slice(1).map((at, i) => Math.round(at - (times[i] as number)));
    expect(delays.slice(0, 8)).toEqual([100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    expect(metrics.counter('inbox_retries_total', '').value()).toBe(times.length - 1);
    expect(metrics.gauge('inbox_waiting_records', '').value()).toBe(0);
    expect(await simulation.committed()).toBe(1n);
  });

  it('a failing effect delays later records of its key in order, and no record of another key', async () => {
    const simulation = new Simulation();
    await simulation.append('a 1', 'b 1', 'a 2', 'c 1', '- 1', 'b 2', 'a 3', '- 2');
    let away = true;
    simulation.isUnavailable = (text) => away && (text.startsWith('a') || text === '- 1');
    const { stop, metrics } = simulation.start();
    const done = (): readonly string[] => simulation.database.tables.effects;
    await simulation.until(() => done().length === 4);
    await simulation.until(() => simulation.nowMs > 20_000);
    // A record without a key blocks nothing.
    expect([...done()].sort()).toEqual(['- 2', 'b 1', 'b 2', 'c 1']);
    expect(metrics.gauge('inbox_waiting_records', '').value()).toBe(4);
    expect(metrics.gauge('inbox_waiting_keys', '').value()).toBe(2);
    // Only the first record of a key is tried.
    expect(simulation.attemptsAt('a 2')).toEqual([]);
    away = false;
    await simulation.until(() => done().length === 8);
    await stop();
    expect(done().filter((text) => text.startsWith('a'))).toEqual(['a 1', 'a 2', 'a 3']);
    expect(done().filter((text) => text.startsWith('b'))).toEqual(['b 1', 'b 2']);
  });

  it('a failing effect is parked once its budget is used up, and later records of its key get their own budget', async () => {
    const simulation = new Simulation();
    await simulation.append('a 1', 'a 2', 'b 1');
    simulation.isUnavailable = (text) => text.startsWith('a');
    const { stop } = simulation.start({ budgetMs: 60_000 });
    await simulation.until(() => simulation.database.tables.parked.length === 2);
    await stop();
    const [first, second] = [simulation.attemptsAt('a 1'), simulation.attemptsAt('a 2')];
    expect((first.at(-1) as number) - (first[0] as number)).toBe(60_000);
    expect((second.at(-1) as number) - (second[0] as number)).toBe(60_000);
    expect(second[0]).toBeGreaterThanOrEqual(first.at(-1) as number);
    expect(simulation.database.tables.effects).toEqual(['b 1']);
    expect(simulation.database.tables.parked).toEqual([
      { offset: 0n, reason: 'refused', detail: '503 from the third party' },
      { offset: 1n, reason: 'refused', detail: '503 from the third party' },
    ]);
    expect(await simulation.committed()).toBe(3n);
  });

  it('a failing effect survives SIGKILL of its consumer, because no offset after it is committed', async () => {
    const simulation = new Simulation();
    await simulation.append('b 1', 'a 1', 'b 2', 'a 2', 'b 3');
    let away = true;
    simulation.isUnavailable = (text) => away && text.startsWith('a');
    const killed = simulation.start();
    await simulation.until(() => simulation.nowMs > 10_000);
    expect(simulation.database.tables.effects).toEqual(['b 1', 'b 2', 'b 3']);
    expect(await simulation.committed()).toBe(1n);
    await killed.crash();
    away = false;
    const successor = simulation.start();
    await simulation.until(() => simulation.database.tables.effects.length === 5);
    await successor.stop();
    expect(simulation.database.tables).toMatchObject({
      effects: ['b 1', 'b 2', 'b 3', 'a 1', 'a 2'],
      parked: [],
    });
    expect(successor.metrics.counter('inbox_duplicates_total', '').value()).toBe(2);
    expect(await simulation.committed()).toBe(5n);
  });

  it('a failing effect moves to the next owner of its partition, which alone retries it', async () => {
    const simulation = new Simulation();
    await simulation.append('a 1', 'b 1');
    let away = true;
    simulation.isUnavailable = (text) => away && text.startsWith('a');
    const first = simulation.start();
    await simulation.until(() => simulation.nowMs > 5000);
    await first.stop();
    const tried = simulation.attempts.length;
    const second = simulation.start();
    await simulation.until(() => simulation.attempts.length > tried);
    away = false;
    await simulation.until(() => simulation.database.tables.effects.length === 2);
    await second.stop();
    expect(simulation.database.tables.effects).toEqual(['b 1', 'a 1']);
  });

  it('failing effects stop further reads when the allowed number of records waits', async () => {
    const simulation = new Simulation();
    await simulation.append(...Array.from({ length: 12 }, (_, n) => `key${n} 1`));
    let away = true;
    simulation.isUnavailable = () => away;
    const { stop, metrics } = simulation.start({ waitingRowsMax: 5, maxDelayMs: 200 }, { batchRows: 2 });
    await simulation.until(() => simulation.nowMs > 1500);
    // A batch of two may begin while one slot is free.
    expect(metrics.gauge('inbox_waiting_records', '').value()).toBe(6);
    expect(simulation.attemptsAt('key6 1')).toEqual([]);
    away = false;
    await simulation.until(() => simulation.database.tables.effects.length === 12);
    await stop();
    expect(new Set(simulation.database.tables.effects).size).toBe(12);
    expect(await simulation.committed()).toBe(12n);
  });

  it('failing effects with long attempts do not keep the member from polling in time', async () => {
    const simulation = new Simulation();
    await simulation.append(...Array.from({ length: 40 }, (_, n) => `key${n} 1`));
    simulation.callMs = 6000;
    simulation.isUnavailable = () => simulation.nowMs < 200_000;
    const { stop } = simulation.start();
    await simulation.until(() => simulation.database.tables.effects.length === 40);
    await stop();
    // One pass over 40 records would take 4 minutes or more, and the group would evict the member.
    expect(simulation.silenceMs).toBeLessThan(120_000);
    expect(simulation.database.tables.parked).toEqual([]);
  });

  it('a failing effect is parked after the first attempt if the handler throws poison_record', async () => {
    const simulation = new Simulation();
    await simulation.append('a 1', 'a 2');
    const { stop } = simulation.start(
      {},
      {
        handle: async (_session, record) => {
          if (textOf(record) === 'a 1') throw outboxError('poison_record', 'the record cannot be read');
          simulation.database.effect(textOf(record));
        },
      },
    );
    await simulation.until(() => simulation.database.tables.effects.length === 1);
    await stop();
    expect(simulation.database.tables.parked).toHaveLength(1);
    expect(simulation.nowMs).toBeLessThan(RETRY.firstDelayMs * 10);
  });
});

describe('retry delay', () => {
  const record = {
    topic: TOPIC,
    partition: 0,
    offset: 1n,
    msgId: idOf(1),
    key: bytes('a'),
    value: null,
    timestampMs: 0,
    headers: [],
  };

  it('a retry delay is drawn from the whole range below its upper end', () => {
    const draws = [0, 0.5, 0.25];
    const retries = new Retries(
      { ...RETRY, firstDelayMs: 1000 },
      drawing(() => draws.shift() ?? 0),
    );
    const delays = [0, 0, 0].map(() => {
      retries.failed(record, 0);
      return retries.dueInMs(0);
    });
    expect(delays).toEqual([0, 1000, 1000]);
  });

  it('a retry delay never exceeds the budget, and the last attempt is made at the end of the budget', () => {
    const retries = new Retries({ ...RETRY, firstDelayMs: 1000, budgetMs: 1500 }, highest);
    expect(retries.failed(record, 0)).toBe(true);
    expect(retries.failed(record, 1000)).toBe(true);
    expect(retries.dueInMs(1000)).toBe(500);
    expect(retries.failed(record, 1500)).toBe(false);
  });

  it('a record is parked without a retry if the budget is 0', () => {
    const retries = new Retries({ ...RETRY, budgetMs: 0 }, highest);
    expect(retries.failed(record, 0)).toBe(false);
    expect(retries.waitingRows).toBe(0);
  });
});
