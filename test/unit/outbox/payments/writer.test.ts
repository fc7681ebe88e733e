/** The writer of payments with a database that refuses, has lock conflicts, becomes unreachable, or
 *  loses its answer to COMMIT. */
import { describe, expect, it } from 'vitest';
import { coreError } from '../../../../src/core/errors.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import {
  type SqlPool,
  type SqlResult,
  type SqlRow,
  type SqlSession,
  type SqlValue,
  sqlError,
} from '../../../../src/io/postgres/sql/port.ts';
import { UuidV7 } from '../../../../src/outbox/ids.ts';
import type { InboxPort } from '../../../../src/outbox/inbox/port.ts';
import type { Delivery } from '../../../../src/outbox/payments/duplicates.ts';
import { applyBatch } from '../../../../src/outbox/payments/store.ts';
import { PaymentWriter } from '../../../../src/outbox/payments/writer.ts';
import { SeededRandom } from '../../../../src/sim/clock.ts';

const uuid = (n: number): string => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`;

/** Message n is for order n, unless another order is given. */
const order = (n: number, orderNumber = n, partition = 0): Delivery => ({
  topic: 't',
  partition,
  offset: BigInt(n),
  key: null,
  value: null,
  event: {
    kind: 'order',
    msgId: uuid(n),
    orderId: uuid(orderNumber),
    amountCents: BigInt(n),
    createdMs: undefined,
  },
  injected: false,
});
const poison = (n: number): Delivery => ({ ...order(n), event: { kind: 'poison', why: 'it is bad' } });

interface State {
  readonly inbox: ReadonlySet<string>;
  readonly charges: ReadonlyMap<string, string>;
  readonly suppressed: readonly string[];
  readonly parked: readonly string[];
  readonly batches: number;
}

/** Tables in memory that answer the writer's statements. A transaction is applied at its commit. */
class Tables implements SqlPool {
  state: State = { inbox: new Set(), charges: new Map(), suppressed: [], parked: [], batches: 0 };
  transactions = 0;
  /** Refuses a statement by throwing. */
  beforeCharges: (orders: readonly string[]) => void = () => {};
  /** Error of the commit, if any; `applied` tells whether the commit takes place nevertheless. */
  atCommit: () => { readonly error: Error; readonly applied: boolean } | undefined = () => undefined;
  /** Ids below the inbox's floor, so that their messages are undecidable. */
  readonly expired = new Set<string>();
  status: string | null = 'aborted';
  statusAsked = 0;
  beforeStatus: () => void = () => {};
  /** Batches that a look-up finds. */
  stored: ReadonlyArray<{ readonly id: bigint; readonly startedUs: bigint }> = [];

  async transaction<T>(work: (session: SqlSession) => Promise<T>): Promise<T> {
    this.transactions++;
    const inbox = new Set(this.state.inbox);
    const charges = new Map(this.state.charges);
    const suppressed = [...this.state.suppressed];
    const parked = [...this.state.parked];
    const query = async (text: string, params: readonly SqlValue[] = []): Promise<SqlResult> => {
      const list = (i: number): readonly string[] => params[i] as readonly string[];
      let rows: SqlRow[] = [];
      if (text === 'claim') {
        rows = list(0)
          .filter((id) => !inbox.has(id) && !this.expired.has(id))
          .map((msg_id) => ({ msg_id }));
        for (const { msg_id } of rows) inbox.add(msg_id as string);
      } else if (text.includes('INTO charges')) {
        this.beforeCharges(list(1));
        list(1).forEach((orderId, i) => {
          if (charges.has(orderId)) return;
          charges.set(orderId, list(0)[i] as string);
          rows.push({ order_id: orderId, charge_id: list(0)[i] });
        });
      } else if (text.includes('INTO payments_batches')) {
        list(4).forEach((id, i) => void suppressed.push(`${id} ${list(6)[i]}`));
        list(13).forEach((offset, i) => void parked.push(`${offset} ${list(14)[i]}`));
        const started_us = BigInt(this.transactions) * 1000n;
        rows = [{ id: BigInt(this.transactions), xid: String(this.transactions), started_us }];
      } else throw new Error(`unexpected statement: ${text}`);
      return { rows, rowCount: rows.length };
    };
    const value = await work({ query: query as SqlSession['query'], copyIn: () => Promise.reject() });
    const verdict = this.atCommit();
    if (verdict === undefined || verdict.applied)
      this.state = { inbox, charges, suppressed, parked, batches: this.state.batches + 1 };
    if (verdict !== undefined) throw verdict.error;
    return value;
  }

  async query<R extends SqlRow>(text: string, params: readonly SqlValue[] = []): Promise<SqlResult<R>> {
    let rows: SqlRow[] = [];
    if (text.includes('pg_xact_status')) {
      this.statusAsked++;
      this.beforeStatus();
      rows = [{ status: this.status }];
    } else if (text.includes('FROM charges')) {
      rows = [...this.state.charges.values()].filter((id) => id === params[0]).map(() => ({}));
    } else if (text.includes('FROM payments_batches')) {
      const [id, startedUs] = params;
      rows = this.stored.filter((one) => one.id === id && one.startedUs === startedUs).map(() => ({}));
    } else throw new Error(`unexpected statement: ${text}`);
    return { rows: rows as R[], rowCount: rows.length };
  }

  copyIn = (): Promise<number> => Promise.reject(new Error('not used'));
  systemIdentifier = (): Promise<string> => Promise.resolve('1');
  close = (): Promise<void> => Promise.resolve();
}

/** Inbox over the tables in memory. */
const inboxOf = (tables: Tables): Pick<InboxPort, 'claim'> => ({
  claim: async (tx, msgIds) => {
    const { rows } = await tx.query('claim', [[...new Set(msgIds)]]);
    const unseen = new Set(rows.map((row) => row['msg_id'] as string));
    const undecidable = new Set(msgIds.filter((id) => tables.expired.has(id)));
    return {
      unseen,
      undecidable,
      seen: new Set(msgIds.filter((id) => !unseen.has(id) && !undecidable.has(id))),
    };
  },
});

function setup() {
  const tables = new Tables();
  const charged: string[] = [];
  const afterCharges: number[] = [];
  const waits: boolean[] = [];
  const control = { idles: 0, shouldStop: false, left: new Set<number>(), onIdle: () => {} };
  let ms = 0;
  const clock = { wallNowMs: () => 1, monotonicMs: () => ms++ };
  const writer = new PaymentWriter({
    pool: tables,
    apply: (session, orders, parked) =>
      applyBatch(session, orders, parked, {
        ids: new UuidV7(clock, new SeededRandom(7)),
        inbox: inboxOf(tables),
        afterCharges: async (charges) => void afterCharges.push(charges),
      }),
    log: silentLogger,
    idle: async () => {
      control.idles++;
      control.onIdle();
    },
    shouldStop: () => control.shouldStop,
    isOurs: (delivery) => !control.left.has(delivery.partition),
    onCommitted: (outcome) => {
      for (const { event } of outcome.charged) charged.push(event.orderId);
    },
    onWait: async (waiting) => void waits.push(waiting),
    monotonicMs: clock.monotonicMs,
  });
  return { tables, writer, charged, afterCharges, waits, control };
}

const failure = (sqlstate: string): Error => sqlError('sql_failed', 'no', { details: { sqlstate } });
const gone = (): Error => coreError('unreachable', 'gone');
const ids = (count: number): string[] => Array.from({ length: count }, (_, n) => uuid(n));

/** Throws the error `times` times. */
const failing = (times: number, error: () => Error): (() => void) => {
  let left = times;
  return () => {
    if (left-- > 0) throw error();
  };
};

describe('batch of payments', () => {
  it('a batch charges each unseen order once and records why the rest charged nothing', async () => {
    const { tables, writer, charged, afterCharges } = setup();
    expect(await writer.write([order(1), order(1), order(2), poison(3)])).toBe(true);
    expect(await writer.write([order(2), order(4, 1), order(5), order(6, 5)])).toBe(true);
    expect([...tables.state.charges.keys()]).toEqual([uuid(1), uuid(2), uuid(5)]);
    expect(charged).toEqual([uuid(1), uuid(2), uuid(5)]);
    expect([...tables.state.suppressed].sort()).toEqual([
      `${uuid(1)} same_batch`,
      `${uuid(2)} seen`,
      `${uuid(4)} order_charged`,
      `${uuid(6)} order_charged`,
    ]);
    expect(tables.state.parked).toEqual(['3 malformed_payload']);
    expect(tables.transactions).toBe(2);
    // Number of charges at each crash point after the charges.
    expect(afterCharges).toEqual([2, 1]);
  });

  it('a batch parks each delivery of an id that has expired from the inbox, and charges the others', async () => {
    const { tables, writer, charged } = setup();
    for (const n of [2, 3]) tables.expired.add(uuid(n));
    expect(await writer.write([order(1), order(2), order(2), order(3), order(4)])).toBe(true);
    expect(charged).toEqual([uuid(1), uuid(4)]);
    expect(tables.state.parked).toEqual(['2 undecidable', '2 undecidable', '3 undecidable']);
    expect(tables.state.suppressed).toEqual([]);
    expect([...tables.state.inbox]).toEqual([uuid(1), uuid(4)]);
  });

  it('a batch of only other events needs no transaction', async () => {
    const { tables, writer } = setup();
    expect(await writer.write([{ ...order(1), event: { kind: 'other', eventType: 'x' } }])).toBe(true);
    expect(tables.transactions).toBe(0);
  });

  it.each(['22003', '23514', 'P0001', '54000'])(
    'a batch with records refused by %s is split, and only those records are parked',
    async (code) => {
      const { tables, writer } = setup();
      const bad = new Set([uuid(5), uuid(6), uuid(31)]);
      tables.beforeCharges = (orders) => {
        if (orders.some((id) => bad.has(id))) throw failure(code);
      };
      expect(await writer.write([poison(99), ...Array.from({ length: 32 }, (_, n) => order(n))])).toBe(true);
      expect([...tables.state.charges.keys()].sort()).toEqual(ids(32).filter((id) => !bad.has(id)));
      expect([...tables.state.parked].sort()).toEqual([
        '31 refused',
        '5 refused',
        '6 refused',
        '99 malformed_payload',
      ]);
      // A refused record is not stored as processed: after a fix it can be delivered again.
      expect([...bad].some((id) => tables.state.inbox.has(id))).toBe(false);
      expect(tables.transactions).toBeLessThan(40);
    },
  );

  it.each(['40P01', '40001', '55P03'])(
    'a batch with a lock conflict (%s) is retried as a whole',
    async (code) => {
      const { tables, writer, waits } = setup();
      tables.beforeCharges = failing(3, () => failure(code));
      expect(await writer.write([order(1), order(2)])).toBe(true);
      expect(tables.transactions).toBe(4);
      expect(tables.state).toMatchObject({ batches: 1, parked: [] });
      expect(waits).toEqual([]);
    },
  );

  it('a batch with a long lock conflict pauses, so that the group does not evict the member', async () => {
    const { tables, writer, waits } = setup();
    tables.beforeCharges = failing(9, () => failure('55P03'));
    expect(await writer.write([order(1), order(2)])).toBe(true);
    expect(waits).toEqual([true, false]);
    expect(tables.state).toMatchObject({ batches: 1, parked: [] });
  });

  it.each([
    ['the connection is lost', gone],
    ['the server shuts down', () => failure('57P01')],
    ['the disk is full', () => failure('53100')],
    ['it is read-only', () => failure('25006')],
  ])('a batch waits when %s, and parks nothing', async (_, error) => {
    const { tables, writer, waits, control } = setup();
    tables.beforeCharges = failing(5, error);
    expect(await writer.write([order(1), order(2)])).toBe(true);
    expect(control.idles).toBe(5);
    expect(waits).toEqual([true, false]);
    expect(tables.state).toMatchObject({ batches: 1, parked: [], suppressed: [] });
    expect(tables.state.charges.size).toBe(2);
  });

  it.each(['42P01', '42501'])('a batch ends with an error that no retry can fix (%s)', async (code) => {
    const { tables, writer } = setup();
    tables.beforeCharges = () => {
      throw failure(code);
    };
    await expect(writer.write([order(1), order(2)])).rejects.toMatchObject({ code: 'sql_failed' });
    expect(tables.transactions).toBe(1);
  });

  it('a batch is abandoned when a drain begins during an outage, and records of lost partitions are dropped', async () => {
    const { tables, writer, control } = setup();
    tables.beforeCharges = () => {
      throw gone();
    };
    control.onIdle = () => {
      control.shouldStop = true;
    };
    expect(await writer.write([order(1)])).toBe(false);
    expect(tables.state.batches).toBe(0);

    const other = setup();
    other.tables.beforeCharges = failing(1, gone);
    other.control.onIdle = () => other.control.left.add(1);
    expect(await other.writer.write([order(1, 1, 0), order(2, 2, 1)])).toBe(true);
    expect([...other.tables.state.charges.keys()]).toEqual([uuid(1)]);
  });
});

describe('unanswered COMMIT', () => {
  const unknown = (): Error => sqlError('commit_unknown', 'lost');

  it('an unanswered COMMIT that took place is neither repeated nor counted as duplicates', async () => {
    const { tables, writer, charged } = setup();
    tables.atCommit = () => ({ error: unknown(), applied: true });
    tables.status = 'committed';
    expect(await writer.write([order(1), order(2)])).toBe(true);
    expect(tables.transactions).toBe(1);
    expect(tables.state.suppressed).toEqual([]);
    expect(charged).toEqual([uuid(1), uuid(2)]);
  });

  it('an unanswered COMMIT that did not take place is written again, once', async () => {
    const { tables, writer, charged } = setup();
    let first = true;
    tables.atCommit = () => {
      if (!first) return undefined;
      first = false;
      return { error: unknown(), applied: false };
    };
    // After a crash, a lost xid may belong to another commit, so the tables decide.
    tables.status = 'committed';
    expect(await writer.write([order(1), order(2)])).toBe(true);
    expect(tables.transactions).toBe(2);
    expect(tables.state).toMatchObject({ batches: 1, suppressed: [] });
    expect(charged).toEqual([uuid(1), uuid(2)]);
  });

  it('a batch without charges is not mistaken for another batch that got its id after a crash', async () => {
    const parked = async (startedUs: bigint): Promise<number> => {
      const { tables, writer } = setup();
      let first = true;
      tables.atCommit = () => {
        if (!first) return undefined;
        first = false;
        return { error: unknown(), applied: false };
      };
      tables.stored = [{ id: 1n, startedUs }];
      expect(await writer.write([poison(3)])).toBe(true);
      return tables.transactions;
    };
    // The batch itself is found, so it is not written again.
    expect(await parked(1000n)).toBe(1);
    expect(await parked(1001n)).toBe(2);
  });

  it('an unanswered COMMIT is queried until the database is back and the transaction has ended', async () => {
    const { tables, writer, waits } = setup();
    tables.atCommit = () => ({ error: unknown(), applied: true });
    const away = failing(2, gone);
    tables.beforeStatus = () => {
      away();
      tables.status = tables.statusAsked < 5 ? 'in progress' : 'committed';
    };
    expect(await writer.write([order(1)])).toBe(true);
    expect(tables.statusAsked).toBe(5);
    expect(tables.transactions).toBe(1);
    expect(waits).toEqual([true, false]);
  });
});
