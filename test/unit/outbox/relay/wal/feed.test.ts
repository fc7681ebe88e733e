/** The WAL feed from stream messages to the pipeline. Rows are registered on receipt, delivered in
 *  order, confirmed after the mark, and bounded, also while the broker refuses. */
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../../../src/core/log.ts';
import { Metrics } from '../../../../../src/core/metrics.ts';
import type { Covered, Delivered, Pipeline } from '../../../../../src/outbox/relay/pipeline/contract.ts';
import type { OutboxRow } from '../../../../../src/outbox/relay/store.ts';
import { type Backlog, WalFeed } from '../../../../../src/outbox/relay/wal/feed.ts';
import { walMetrics } from '../../../../../src/outbox/relay/wal/metrics.ts';
import {
  PARKING_LIMITS,
  type ParkingLimits,
  WalParking,
} from '../../../../../src/outbox/relay/wal/parking.ts';
import type { KeyFilter, OutboxRows } from '../../../../../src/outbox/relay/wal/rows.ts';
import * as wire from '../../../../property/wal-encode.ts';
import { turn } from '../../../../wait.ts';

const keyOf = (key: number): Buffer => Buffer.alloc(16, key);
const nameOf = (key: number): string => {
  const hex = keyOf(key).toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
};

/** Pipeline that blocks keys as the real one does. A key with a row that was left accepts rows
 *  again only after a call that covers the ids that were left. */
class Broker implements Pipeline {
  readonly taken: Array<readonly [string, bigint]> = [];
  refuses: (row: OutboxRow) => boolean = () => false;
  marks: Promise<void> = Promise.resolve();
  isFull = false;
  calls = 0;
  /** Ids of all delivered rows. */
  readonly tried: bigint[] = [];
  private readonly held = new Map<string, Set<bigint>>();

  async deliver(rows: readonly OutboxRow[], covered?: Covered): Promise<Delivered> {
    this.calls++;
    await turn();
    if (covered !== undefined)
      for (const [key, ids] of this.held) {
        if (covered.keys?.has(key) === false) continue;
        for (const id of ids) if (id >= covered.from && id <= covered.to) ids.delete(id);
        if (ids.size === 0) this.held.delete(key);
      }
    const left: bigint[] = [];
    for (const row of rows) {
      this.tried.push(row.id);
      const held = this.held.get(row.aggregateId);
      if (![...(held ?? [])].some((id) => id <= row.id) && !this.refuses(row))
        this.taken.push([row.aggregateId, row.id]);
      else {
        this.held.set(row.aggregateId, (held ?? new Set()).add(row.id));
        left.push(row.id);
      }
    }
    return { published: rows.length - left.length, left, known: 0, marked: this.marks };
  }
  owns = (): boolean => true;
  isInFlight = (): boolean => false;
  inFlight = (): number => 0;
  idle = async (): Promise<void> => {};
  async room(): Promise<void> {
    while (this.isFull) await turn();
  }
}

const rowOf = (id: bigint, key: number, payloadBytes = 0): OutboxRow => ({
  id,
  aggregateId: nameOf(key),
  msgId: 'm',
  eventType: 't',
  payload: new Uint8Array(payloadBytes),
  createdAt: new Date(0),
});

/** Outbox in memory: its visible rows, with a mark on the published rows. */
class Table {
  readonly rows = new Map<bigint, OutboxRow>();
  /** Number of rows of each statement that reads payloads. */
  readonly pages: number[] = [];
  /** Oldest transaction of the next snapshot, and the number of the next transaction. */
  snapshot = { oldest: 10n, next: 20n };
  private readonly broker: Broker;
  constructor(broker: Broker) {
    this.broker = broker;
  }
  put(...rows: readonly OutboxRow[]): void {
    for (const row of rows) this.rows.set(row.id, row);
  }
  get asTable(): OutboxRows {
    return this as unknown as OutboxRows;
  }
  private isPending(id: bigint): boolean {
    return !this.broker.taken.some(([, taken]) => taken === id);
  }
  async byId(ids: readonly bigint[], bytesMax: number) {
    await turn();
    const found = ids.flatMap((id) => this.rows.get(id) ?? []);
    const until = (count: number): number =>
      found.slice(0, count).reduce((sum, { payload }) => sum + payload.length, 0);
    const kept = found.filter((_, i) => until(i + 1) <= bytesMax || i === 0);
    this.pages.push(kept.length);
    return {
      states: kept.map((row) => ({ row, pending: this.isPending(row.id) })),
      through: kept.length < found.length ? (kept.at(-1)?.id as bigint) : (ids.at(-1) as bigint),
    };
  }
  async visibleOf(ids: readonly bigint[]) {
    await turn();
    return { ids: ids.filter((id) => this.rows.has(id)), oldest: this.snapshot.oldest };
  }
  async numberAbove() {
    await turn();
    return this.snapshot.next;
  }
  async pendingIds(to: bigint, limit: number, { only }: KeyFilter) {
    await turn();
    const ids = [...this.rows.values()]
      .filter(({ id, aggregateId }) => id <= to && this.isPending(id) && only?.has(aggregateId) !== false)
      .map(({ id }) => id)
      .sort((a, b) => Number(a - b));
    return BigInt64Array.from(ids.slice(0, limit));
  }
}

function scene(
  opened = true,
  over: Partial<ParkingLimits> = {},
  verify = async (): Promise<void> => {},
  backlog?: Backlog,
) {
  const broker = new Broker();
  const metrics = walMetrics(new Metrics());
  const limits = { ...PARKING_LIMITS, pageBytes: 1 << 20, ...over };
  const parking = new WalParking({ pipeline: broker, metrics, log: silentLogger, limits });
  const failures: unknown[] = [];
  const throttled: string[] = [];
  const feed = new WalFeed({
    pipeline: broker,
    schema: 'public',
    table: 'outbox',
    metrics,
    parking,
    waitingBytesMax: 16 << 20,
    sleep: async () => {
      await turn();
    },
    verify,
    ...(backlog === undefined ? {} : { backlog }),
    failed: (thrown) => failures.push(thrown),
  });
  feed.attach({ pause: () => throttled.push('pause'), resume: () => throttled.push('resume') });
  const send = (message: Buffer): void => feed.onMessage(message, 0, message.length);
  send(wire.relation(1, 'public', 'outbox', wire.OUTBOX_COLUMNS));
  if (opened) feed.open();
  const row = (id: bigint, key: number, payloadBytes = 2): void =>
    send(
      wire.outboxInsert({
        id,
        aggregateId: keyOf(key),
        msgId: Buffer.alloc(16, 9),
        eventType: 't',
        payload: Buffer.alloc(payloadBytes),
      }),
    );
  const transaction = (endLsn: bigint, rows: ReadonlyArray<readonly [bigint, number]>): void => {
    send(wire.begin(endLsn - 1n, 0n, 1));
    for (const [id, key] of rows) row(id, key);
    send(wire.commit(endLsn - 1n, endLsn, 0n));
  };
  const settle = async (): Promise<void> => {
    for (let i = 0; i < 60; i++) await turn();
    await feed.idle();
    expect(failures).toEqual([]);
  };
  return {
    broker,
    feed,
    parking,
    metrics,
    send,
    row,
    transaction,
    settle,
    throttled,
    failures,
    table: new Table(broker),
  };
}

async function waitFor(what: () => boolean): Promise<void> {
  for (let turns = 0; !what(); turns++) {
    expect(turns).toBeLessThan(500);
    await turn();
  }
}

const of = (broker: Broker, key: number): bigint[] =>
  broker.taken.filter(([name]) => name === nameOf(key)).map(([, id]) => id);

describe('WAL feed', () => {
  it('the feed forwards rows in commit order and confirms the last commit', async () => {
    const { broker, feed, transaction, settle } = scene();
    transaction(100n, [
      [3n, 1],
      [4n, 2],
    ]);
    transaction(200n, [[1n, 3]]);
    expect(feed.progress.confirmed).toBe(0n);
    await settle();
    expect(broker.taken.map(([, id]) => id)).toEqual([3n, 4n, 1n]);
    expect(feed.progress.confirmed).toBe(200n);
  });

  it('rows behind a description of their table wait until its columns are verified', async () => {
    let verified = (): void => {};
    let asked = 0;
    const verify = () => {
      asked++;
      return new Promise<void>((resolve) => {
        verified = resolve;
      });
    };
    const { broker, send, transaction, settle } = scene(true, {}, verify);
    transaction(100n, [[1n, 1]]);
    await settle();
    expect(asked, 'a description before the start').toBe(0);
    send(wire.relation(2, 'public', 'other', wire.OUTBOX_COLUMNS));
    send(wire.relation(1, 'public', 'outbox', wire.OUTBOX_COLUMNS));
    transaction(200n, [[2n, 1]]);
    await settle();
    expect([asked, broker.tried]).toEqual([1, [1n]]);
    verified();
    await settle();
    expect(broker.tried).toEqual([1n, 2n]);
  });

  it('no row behind a description is delivered when the columns have changed', async () => {
    const changed = new Error('the columns have changed');
    const { broker, feed, send, transaction, failures } = scene(true, {}, () => Promise.reject(changed));
    send(wire.relation(1, 'public', 'outbox', wire.OUTBOX_COLUMNS));
    transaction(100n, [[1n, 1]]);
    transaction(200n, [[2n, 1]]);
    await waitFor(() => failures.length > 0);
    for (let i = 0; i < 20; i++) await turn();
    expect(broker.tried).toEqual([]);
    expect(new Set(failures)).toEqual(new Set([changed]));
    expect(feed.progress.confirmed).toBe(0n);
  });

  it('the feed ignores other tables and other kinds of changes, and advances past their transactions', async () => {
    const { broker, feed, send, settle } = scene();
    send(wire.begin(9n, 0n, 1));
    send(wire.relation(2, 'public', 'orders', wire.OUTBOX_COLUMNS));
    send(
      wire.insert(
        2,
        wire.OUTBOX_COLUMNS.map(() => ({ kind: 'n' as const })),
      ),
    );
    send(wire.truncate([1]));
    send(wire.message(false, 5n, 'millrace', Buffer.from('heartbeat')));
    send(wire.commit(9n, 10n, 0n));
    await settle();
    expect(broker.taken).toEqual([]);
    expect(feed.progress.confirmed).toBe(10n);
    feed.onKeepalive(50n);
    expect(feed.progress.confirmed).toBe(50n);
  });

  it('the feed publishes a large transaction in parts before it ends, and confirms it as a whole', async () => {
    const { broker, feed, send, row, settle } = scene();
    send(wire.begin(9n, 0n, 1));
    for (let id = 1n; id <= 2500n; id++) row(id, Number(id % 200n));
    await settle();
    expect(broker.taken.length).toBe(2500);
    feed.onKeepalive(8n);
    expect(feed.progress.confirmed).toBe(0n);
    send(wire.commit(9n, 10n, 0n));
    expect(feed.progress.confirmed).toBe(10n);
  });

  it('the feed confirms no position before its rows are marked', async () => {
    const { broker, feed, transaction, settle } = scene();
    let mark = (): void => {};
    broker.marks = new Promise((resolve) => {
      mark = resolve;
    });
    transaction(100n, [[1n, 1]]);
    for (let i = 0; i < 20; i++) await turn();
    feed.onKeepalive(500n);
    expect([broker.taken.length, feed.progress.confirmed]).toEqual([1, 0n]);
    mark();
    await settle();
    expect(feed.progress.confirmed).toBe(100n);
  });

  it('the feed counts rows that arrive while the pipeline is full, and a keepalive confirms no position after them', async () => {
    const { broker, feed, transaction, settle, throttled } = scene();
    broker.isFull = true;
    for (let i = 1n; i <= 200n; i++)
      transaction(
        i * 100n,
        Array.from({ length: 50 }, (_, row) => [i * 100n + BigInt(row), row] as const),
      );
    for (let i = 0; i < 20; i++) await turn();
    expect(throttled).toEqual(['pause']);
    feed.onKeepalive(999_999n);
    expect([broker.taken.length, feed.progress.confirmed]).toEqual([0, 0n]);
    broker.isFull = false;
    await settle();
    expect(throttled).toEqual(['pause', 'resume']);
    expect([broker.taken.length, feed.progress.confirmed]).toEqual([10_000, 20_000n]);
  });

  it('the feed stops reading above its limit in bytes, too', async () => {
    const { broker, send, row, throttled, settle } = scene();
    broker.isFull = true;
    send(wire.begin(9n, 0n, 1));
    for (let id = 1n; id <= 20n; id++) row(id, 1, 1 << 20);
    expect(throttled).toEqual(['pause']);
    broker.isFull = false;
    await settle();
    expect(throttled).toEqual(['pause', 'resume']);
  });

  it('the feed keeps a key in order while the broker refuses, and resumes when it accepts', async () => {
    const { broker, feed, transaction, settle } = scene();
    let down = true;
    broker.refuses = () => down;
    for (let i = 1n; i <= 30n; i++) transaction(i * 10n, [[i, Number(i % 3n)]]);
    for (let i = 0; i < 200; i++) await turn();
    expect([broker.taken, feed.progress.confirmed]).toEqual([[], 0n]);
    down = false;
    await settle();
    expect(feed.progress.confirmed).toBe(300n);
    for (const key of [0, 1, 2])
      expect(of(broker, key)).toEqual([...of(broker, key)].sort((a, b) => Number(a - b)));
    expect(broker.taken.length).toBe(30);
  });

  it('the feed parks a refused row with the later rows of its key, and continues with others', async () => {
    const { broker, feed, transaction, settle, parking, table } = scene();
    broker.refuses = (row) => row.id === 1n;
    transaction(10n, [[1n, 1]]);
    for (let i = 2n; i <= 9n; i++) transaction(i * 10n, [[i, i % 2n === 0n ? 1 : 2]]);
    await settle();
    transaction(100n, [
      [10n, 1],
      [11n, 2],
    ]);
    await settle();
    expect(of(broker, 2)).toEqual([3n, 5n, 7n, 9n, 11n]);
    expect(of(broker, 1)).toEqual([]);
    expect([feed.progress.confirmed, parking.highest()]).toEqual([100n, 10n]);
    broker.refuses = () => false;
    table.put(...[1n, 2n, 4n, 6n, 8n, 10n].map((id) => rowOf(id, 1)));
    await parking.redeliver(table.asTable);
    expect(of(broker, 1)).toEqual([1n, 2n, 4n, 6n, 8n, 10n]);
    expect(parking.highest()).toBeNull();
    transaction(110n, [[12n, 1]]);
    await settle();
    expect(of(broker, 1).at(-1)).toBe(12n);
  });

  it('the feed parks a key at its lowest row, also if the broker refused every row for a while', async () => {
    const { broker, parking, feed, transaction, table } = scene();
    broker.refuses = () => true;
    transaction(10n, [[1n, 1]]);
    await waitFor(() => broker.tried.length > 1);
    // This row is delivered while row 1 is retried, as a test of the broker, which accepts no row.
    transaction(20n, [[2n, 1]]);
    await waitFor(() => broker.tried.includes(2n));
    broker.refuses = (row) => row.aggregateId === nameOf(1);
    transaction(30n, [[3n, 2]]);
    await waitFor(() => parking.size === 1);
    broker.refuses = () => false;
    table.put(rowOf(1n, 1), rowOf(2n, 1));
    await feed.idle();
    await parking.redeliver(table.asTable);
    expect(of(broker, 1)).toEqual([1n, 2n]);
  });

  it('the feed does not disturb the order of a parked key while it retries rows of other keys', async () => {
    const { broker, parking, feed, transaction, settle, table } = scene(true, { pageRows: 1 });
    const tries = (id: bigint): number => broker.tried.filter((one) => one === id).length;
    let rest = 0;
    broker.refuses = ({ id, aggregateId }) => aggregateId === nameOf(2) || (id === 3n && rest === 0);
    table.put(...[2n, 3n, 4n].map((id) => rowOf(id, 1)));
    parking.parkKeys(new Map([[nameOf(1), { from: 2n, to: 4n }]]));
    // The ids that the feed retries enclose those of the parked key.
    transaction(10n, [
      [1n, 2],
      [5n, 2],
    ]);
    await waitFor(() => tries(5n) > 0);
    const byId = table.byId.bind(table);
    table.byId = async (ids, bytesMax) => {
      if (!ids.includes(4n)) return byId(ids, bytesMax);
      await waitFor(() => tries(3n) > 0);
      rest = tries(5n) + 2;
      await waitFor(() => tries(5n) >= rest);
      return byId(ids, bytesMax);
    };
    await parking.redeliver(table.asTable);
    expect(of(broker, 1)).toEqual([2n]);
    table.byId = byId;
    broker.refuses = () => false;
    await parking.redeliver(table.asTable);
    await settle();
    expect([of(broker, 1), of(broker, 2)]).toEqual([
      [2n, 3n, 4n],
      [1n, 5n],
    ]);
    expect(feed.progress.confirmed).toBe(10n);
  });

  it('every caller that waits for an idle feed resumes', async () => {
    const { broker, feed, transaction } = scene();
    let answer = (): void => {};
    broker.marks = new Promise((resolve) => {
      answer = resolve;
    });
    transaction(10n, [[1n, 1]]);
    await waitFor(() => broker.taken.length === 1);
    const resumed: string[] = [];
    for (const name of ['pump', 'stream']) feed.idle().then(() => resumed.push(name), expect.fail);
    await turn();
    expect(resumed).toEqual([]);
    answer();
    await waitFor(() => resumed.length === 2);
    expect(resumed).toEqual(['pump', 'stream']);
  });

  it('parked rows are not published while one of them is still invisible', async () => {
    const { broker, parking, table } = scene();
    parking.park([rowOf(1n, 1), rowOf(2n, 1)]);
    table.put(rowOf(2n, 1));
    await parking.redeliver(table.asTable);
    expect([broker.calls, parking.highest()]).toEqual([0, 2n]);
    table.put(rowOf(1n, 1));
    await parking.redeliver(table.asTable);
    expect([of(broker, 1), parking.highest()]).toEqual([[1n, 2n], null]);
  });

  it('a parked row counts as deleted once every transaction that may have written it has ended', async () => {
    const { broker, parking, table } = scene();
    parking.park([rowOf(1n, 1), rowOf(2n, 1)]);
    table.put(rowOf(2n, 1));
    await parking.redeliver(table.asTable);
    // The commit of the first row waits for a standby, however many transactions end meanwhile.
    table.snapshot = { oldest: 19n, next: 1000n };
    for (let i = 0; i < 3; i++) await parking.redeliver(table.asTable);
    expect(broker.calls).toBe(0);
    table.snapshot = { oldest: 20n, next: 1000n };
    await parking.redeliver(table.asTable);
    expect([of(broker, 1), parking.highest()]).toEqual([[2n], null]);
  });

  it('each round retries some parked keys with one row each, and reads later rows in pages', async () => {
    const { broker, parking, table, metrics } = scene(true, {
      keysATurn: 3,
      pageRows: 4,
      pageBytes: 3000,
      idsMax: 10,
    });
    const keys = [1, 2, 3, 4, 5, 6, 7];
    let next = 1n;
    for (let round = 0; round < 10; round++) for (const key of keys) table.put(rowOf(next++, key, 1000));
    broker.refuses = () => true;
    const range = (key: number) => ({ from: BigInt(key), to: BigInt(63 + key) });
    parking.parkKeys(new Map(keys.map((key) => [nameOf(key), range(key)])));
    expect([parking.size, metrics.parked.value(), parking.highest()]).toEqual([7, 7, 70n]);
    for (let i = 0; i < 3; i++) await parking.redeliver(table.asTable);
    // Each round tries three keys, and the next round tries the next keys.
    expect(table.pages).toEqual([3, 3, 3]);
    expect(broker.tried.map(String)).toEqual(['1', '2', '3', '4', '5', '6', '1', '2', '7']);
    broker.refuses = ({ id }) => id === 30n;
    for (let i = 0; i < 40 && parking.size > 1; i++) await parking.redeliver(table.asTable);
    expect(Math.max(...table.pages)).toBe(3);
    for (const key of keys.filter((one) => one !== 2))
      expect(of(broker, key), `key ${key}`).toEqual(
        Array.from({ length: 10 }, (_, i) => BigInt(key + 7 * i)),
      );
    expect(of(broker, 2)).toEqual([2n, 9n, 16n, 23n]);
    expect([...parking.keys()]).toEqual([nameOf(2)]);
    broker.refuses = () => false;
    for (let i = 0; i < 10 && parking.size > 0; i++) await parking.redeliver(table.asTable);
    expect(of(broker, 2)).toEqual(Array.from({ length: 10 }, (_, i) => BigInt(2 + 7 * i)));
    expect([parking.size, metrics.parked.value(), parking.highest()]).toEqual([0, 0, null]);
  });

  it('a key stays parked when it gets a row while its other rows are published', async () => {
    const { broker, parking, table } = scene();
    table.put(rowOf(1n, 1));
    parking.park([rowOf(1n, 1)]);
    const came: boolean[] = [];
    broker.refuses = ({ id }) => {
      if (id === 1n) came.push(parking.add(rowOf(2n, 1)));
      return false;
    };
    await parking.redeliver(table.asTable);
    expect(came).toEqual([true]);
    expect([of(broker, 1), parking.highest()]).toEqual([[1n], 2n]);
    table.put(rowOf(2n, 1));
    await parking.redeliver(table.asTable);
    expect([of(broker, 1), parking.size]).toEqual([[1n, 2n], 0]);
  });

  it('rows of the backlog that were published before are confirmed and not delivered, and no later row is looked up', async () => {
    const asked: bigint[][] = [];
    const backlog: Backlog = {
      end: 200n,
      published: async (rows) => {
        await turn();
        asked.push(rows.map(({ id }) => id));
        return new Set(rows.filter(({ id }) => id !== 3n));
      },
    };
    const { broker, feed, transaction, settle, metrics } = scene(true, {}, undefined, backlog);
    transaction(100n, [
      [1n, 1],
      [2n, 2],
      [3n, 1],
    ]);
    transaction(200n, [[4n, 1]]);
    transaction(300n, [[5n, 1]]);
    await settle();
    expect(asked.flat()).toEqual([1n, 2n, 3n, 4n]);
    expect(broker.tried).toEqual([3n, 5n]);
    expect([feed.progress.confirmed, metrics.skipped.value()]).toEqual([300n, 3]);
  });

  it('the feed looks up large backlogs in portions, and keeps the order of a key over rows that were left', async () => {
    const sizes: number[] = [];
    const backlog: Backlog = {
      end: 10_000n,
      published: async (rows) => {
        await turn();
        sizes.push(rows.length);
        return new Set(rows.filter(({ id }) => id <= 1500n));
      },
    };
    const { broker, feed, transaction, settle } = scene(true, {}, undefined, backlog);
    let refusals = 3;
    broker.refuses = ({ id }) => id === 1600n && refusals-- > 0;
    transaction(
      5000n,
      Array.from({ length: 2500 }, (_, i) => [BigInt(i + 1), 1 + (i % 2)] as const),
    );
    await settle();
    expect(Math.max(...sizes)).toBe(1000);
    for (const key of [1, 2]) {
      const taken = of(broker, key);
      expect(taken).toEqual([...taken].sort((a, b) => Number(a - b)));
    }
    expect(broker.taken.length).toBe(1000);
    expect(feed.progress.confirmed).toBe(5000n);
  });

  it('streamed transactions are held back until they are committed', async () => {
    const { broker, feed, send, settle } = scene();
    const cells = (id: bigint): wire.WireCell[] => [
      { kind: 't', bytes: Buffer.from(String(id)) },
      { kind: 'b', bytes: keyOf(1) },
      { kind: 'b', bytes: keyOf(2) },
      { kind: 't', bytes: Buffer.from('t') },
      { kind: 'b', bytes: Buffer.alloc(1) },
      { kind: 'b', bytes: Buffer.alloc(8) },
    ];
    send(wire.streamStart(5, true));
    send(wire.relation(1, 'public', 'outbox', wire.OUTBOX_COLUMNS, 5));
    send(wire.insert(1, cells(1n), 5));
    send(wire.insert(1, cells(2n), 6));
    send(wire.streamStop());
    await settle();
    expect(broker.taken).toEqual([]);
    send(wire.streamAbort(5, 6));
    send(wire.streamCommit(5, 9n, 10n, 0n));
    await settle();
    expect([broker.taken.map(([, id]) => id), feed.progress.confirmed]).toEqual([[1n], 10n]);
  });

  it('the feed forwards nothing before it is opened, because the slot may have been recreated', async () => {
    const { broker, feed, transaction, settle } = scene(false);
    transaction(10n, [[1n, 1]]);
    await settle();
    expect([broker.taken, feed.progress.confirmed]).toEqual([[], 0n]);
    feed.open();
    await settle();
    expect([broker.taken.length, feed.progress.confirmed]).toEqual([1, 10n]);
  });

  it('the feed forwards nothing after it was stopped', async () => {
    const { broker, feed, transaction, settle } = scene();
    broker.isFull = true;
    transaction(10n, [[1n, 1]]);
    await turn();
    feed.stop();
    broker.isFull = false;
    transaction(20n, [[2n, 1]]);
    await settle();
    expect([broker.taken, feed.progress.confirmed]).toEqual([[], 0n]);
  });
});
