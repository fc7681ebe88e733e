/** The simulated outbox and tables of relays (test/property/relay-world) against PostgreSQL: the
 *  product's own leases, marks, reads and slot records run random scripts on both, and each result
 *  must be equal. */
import { randomBytes } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { Leases } from '../../src/outbox/relay/leases.ts';
import { Marker } from '../../src/outbox/relay/pipeline/marker.ts';
import { shardOf } from '../../src/outbox/relay/shards.ts';
import {
  describeOutbox,
  type OutboxRow,
  type OutboxTable,
  readPending,
} from '../../src/outbox/relay/store.ts';
import { OutboxRows } from '../../src/outbox/relay/wal/rows.ts';
import { WalSlot } from '../../src/outbox/relay/wal/slot.ts';
import { SeededRandom, VirtualClock } from '../../src/sim/clock.ts';
import { createTables, openPool } from '../fixtures/database.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { OutboxDatabase } from '../property/relay-world/database.ts';
import { SimProcess } from '../property/relay-world/process.ts';
import { runs } from '../tier.ts';

const STEPS = 40;
const KEYS = 5;
const SHARDS = 4;
const ROWS_MAX = 60;
/** Longer than a script takes on a real server, so that only a script lets a lease expire. */
const LEASE_MS = 3_600_000;
const RELAYS = ['a', 'b', 'c', 'other-topic'] as const;
/** Xid of a transaction that ended before any server started. */
const ENDED_XID = 3n;

interface Server {
  readonly pool: SqlPool;
  /** Stores committed rows. */
  insert(rows: readonly OutboxRow[]): Promise<void>;
  /** Lets time pass for the expiry of memberships. */
  pass(ms: number): Promise<void>;
  /** Runs a script to its end. */
  run<T>(script: Promise<T>): Promise<T>;
}

async function simulated(): Promise<Server> {
  const clock = new VirtualClock();
  let passedMs = 0;
  const database = new OutboxDatabase({
    nowMs: () => clock.wallNowMs() + passedMs,
    after: (ms, run) => clock.after(ms, run),
    delay: async () => {},
    isLost: () => false,
    onMark: () => {},
    onStatement: () => {},
    hasSequence: true,
  });
  const pool = await database.driver(new SimProcess(clock)).connect({
    url: 'postgres://simulated',
    connectionsMax: 1,
    applicationName: 'relay-statements',
    connectTimeoutMs: 1,
  });
  return {
    pool,
    insert: async (rows) => {
      for (const row of rows) {
        database.rows.insert(row);
        database.rows.show(row.id);
        database.lastId = row.id;
      }
    },
    pass: async (ms) => {
      passedMs += ms;
    },
    run: (script) => clock.run(script),
  };
}

/** Keeps the session of a transaction that failed: the pool would close it, and with it the proof
 *  of life of each member. */
function withOneSession(pool: SqlPool): SqlPool {
  return {
    ...pool,
    query: pool.query.bind(pool),
    transaction: async (work) => {
      const outcome = await pool.transaction(async (session) => {
        try {
          return { value: await work(session) };
        } catch (thrown) {
          await session.query('ROLLBACK');
          await session.query('BEGIN');
          return { thrown };
        }
      });
      if ('thrown' in outcome) throw outcome.thrown;
      return outcome.value;
    },
  };
}

function real(pool: SqlPool): Server {
  return {
    pool: withOneSession(pool),
    insert: async (rows) => {
      for (const { id, aggregateId, msgId, eventType, payload, createdAt } of rows)
        await pool.query(
          `INSERT INTO outbox (id, aggregate_id, msg_id, event_type, payload, created_at)
           VALUES ($1, $2, $3, $4, $5, $6)`,
          [id, aggregateId, msgId, eventType, payload, createdAt],
        );
    },
    pass: async (ms) => {
      await pool.query("UPDATE relay_members SET expires_at = expires_at - $1::int * interval '1 ms'", [ms]);
    },
    run: (script) => script,
  };
}

const keyOf = (n: number): string => `00000000-0000-4000-8000-${n.toString(16).padStart(12, '0')}`;
const msgOf = (id: bigint): string => `01930000-0000-7000-8000-${id.toString(16).padStart(12, '0')}`;
const byValue = (a: bigint, b: bigint): number => (a < b ? -1 : 1);
const textOf = ({ id, aggregateId, msgId, eventType, payload, createdAt }: OutboxRow): string =>
  `${id} ${aggregateId} ${msgId} ${eventType} ${Buffer.from(payload)} ${createdAt.toISOString()}`;

/** A script: the same calls on either server, in an order that a seed draws. */
class Script {
  private readonly server: Server;
  private readonly random: SeededRandom;
  private readonly results: unknown[] = [];
  private readonly leases: readonly Leases[];
  private readonly slots: readonly WalSlot[];
  private lastId = 0n;

  constructor(server: Server, seed: number) {
    this.server = server;
    this.random = new SeededRandom(seed);
    this.leases = RELAYS.map((relay) => this.leasesOf(relay));
    const names = {
      schema: 'public',
      table: 'outbox',
      slot: 'relay_statements',
      publication: 'relay_statements',
      isOwnPublication: true,
      hasTraceparent: false,
      hasRecordColumns: false,
      serverVersion: 180_000,
    };
    this.slots = [new WalSlot(server.pool, names), new WalSlot(server.pool, names)];
  }

  async run(): Promise<readonly unknown[]> {
    const described = await describeOutbox(this.server.pool, 'outbox');
    // Leases and marks name the outbox by its schema, which differs between the servers.
    const table: OutboxTable = { ...described, fullName: 'shop.outbox' };
    const rows = new OutboxRows(this.server.pool, table.name, table);
    await this.heartbeat(0);
    for (let step = 0; step < STEPS; step++) {
      const kind = this.below(9);
      if (kind < 2) await this.insert();
      else if (kind === 2) await this.readPage(table);
      else if (kind === 3) await this.mark(table);
      else if (kind === 4) await this.heartbeat(this.below(RELAYS.length));
      else if (kind === 5) await this.end(this.below(RELAYS.length));
      else if (kind === 6) await this.readRows(rows);
      else if (kind === 7) await this.writeRecord();
      else await this.heartbeat(this.below(2));
    }
    await this.note(async () => (await this.page(table, 0n, 0n, ROWS_MAX)).map(textOf));
    return this.results;
  }

  private below(count: number): number {
    return Math.floor(this.random.fraction() * count);
  }

  private id(): bigint {
    return BigInt(this.below(Number(this.lastId) + 2));
  }

  /** Draws some ids in ascending order. */
  private someIds(): bigint[] {
    const drawn = Array.from({ length: this.below(8) }, () => this.id());
    return [...new Set(drawn)].sort(byValue);
  }

  /** Notes the result of a call, or the code of its error. */
  private async note(call: () => Promise<unknown>): Promise<void> {
    try {
      this.results.push(await call());
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error === undefined) throw thrown;
      this.results.push(error.code);
    }
  }

  private leasesOf(relay: string): Leases {
    return new Leases({
      pool: this.server.pool,
      outbox: 'shop.outbox',
      shards: SHARDS,
      topic: relay === 'other-topic' ? 'other' : 'events',
      relay,
      mode: 'poll',
      exclusive: false,
      leaseMs: LEASE_MS,
      clock: { wallNowMs: () => 0, monotonicMs: () => 0 },
      log: silentLogger,
    });
  }

  private async insert(): Promise<void> {
    const count = Math.min(1 + this.below(5), ROWS_MAX - Number(this.lastId));
    const rows = Array.from({ length: count }, () => {
      this.lastId += 1n;
      return {
        id: this.lastId,
        aggregateId: keyOf(this.below(KEYS)),
        msgId: msgOf(this.lastId),
        eventType: 'order.created.v1',
        payload: Buffer.from('x'.repeat(1 + this.below(20))),
        createdAt: new Date(1_700_000_000_000 + Number(this.lastId)),
      };
    });
    await this.server.insert(rows);
  }

  private async page(table: OutboxTable, cursor: bigint, decided: bigint, limit: number) {
    const filter = { shards: SHARDS, owned: [0, 1, 2, 3] };
    const scan = { cursor, decided, except: [], stragglers: [], filter, limit, bytesMax: 1 << 20 };
    return (await readPending(this.server.pool, table, scan)).rows;
  }

  private async readPage(table: OutboxTable): Promise<void> {
    const [decided, cursor] = [this.id(), this.id()].sort(byValue) as [bigint, bigint];
    // Ranges of stragglers are apart and below the decided id.
    const [from, to] = [this.id(), this.id()].sort(byValue) as [bigint, bigint];
    const stragglers = to <= decided ? [{ xid: ENDED_XID, from, to }] : [];
    const owned = [0, 1, 2, 3].filter(() => this.below(2) === 0);
    const scan = {
      cursor,
      decided,
      except: this.someIds(),
      stragglers,
      filter: { shards: SHARDS, owned },
      limit: 1 + this.below(8),
      bytesMax: 1 + this.below(60),
    };
    await this.note(async () => {
      const { rows, cut, isOutdated } = await readPending(this.server.pool, table, scan);
      return { rows: rows.map(textOf), cut, isOutdated };
    });
  }

  /** Marks rows under the epochs of the leases, some of which have changed since. */
  private async mark(table: OutboxTable): Promise<void> {
    const { rows } = await this.server.pool.query<{ shard: number; epoch: bigint }>(
      'SELECT shard, epoch FROM relay_leases WHERE outbox = $1',
      [table.fullName],
    );
    const epochs = new Map(rows.map(({ shard, epoch }) => [shard, epoch]));
    const isStale = this.below(3) === 0;
    const found = await this.page(table, -1n, -1n, ROWS_MAX);
    const chosen = found.filter(() => this.below(3) === 0);
    // A row that was marked before, or that does not exist.
    const others = this.below(2) === 0 ? [this.otherRow()] : [];
    const named = [...chosen, ...others.filter(({ id }) => chosen.every((one) => one.id !== id))];
    if (named.length === 0) return;
    const metrics = new Metrics();
    const done: bigint[] = [];
    await new Promise<void>((resolve) => {
      const marker = new Marker({
        pool: this.server.pool,
        table,
        metrics,
        log: silentLogger,
        clock: {
          wallNowMs: () => 0,
          monotonicMs: () => 0,
          after: (_, run) => {
            queueMicrotask(run);
            return () => {};
          },
          every: () => () => {},
        },
        rowsMax: ROWS_MAX,
        withinMs: 1,
        missingAfterMs: 0,
        crashAt: () => {},
      });
      marker.onDone = ({ row }) => {
        done.push(row.id);
        if (done.length === named.length) resolve();
      };
      for (const [i, { id, msgId, aggregateId }] of named.entries()) {
        const shard = shardOf(aggregateId, SHARDS);
        const epoch = (epochs.get(shard) ?? 0n) - (isStale && i % 2 === 0 ? 1n : 0n);
        marker.add({ row: { id, msgId }, shard, epoch });
      }
    });
    this.results.push({ done: done.sort(byValue), metrics: metrics.snapshot() });
  }

  /** Row by its id, with its message or that of a row that was lost. */
  private otherRow(): Pick<OutboxRow, 'id' | 'msgId' | 'aggregateId'> {
    const id = this.id();
    const msgId = msgOf(this.below(2) === 0 ? id : id + 1000n);
    return { id, msgId, aggregateId: keyOf(this.below(KEYS)) };
  }

  private async heartbeat(at: number): Promise<void> {
    const leases = this.leases[at] as Leases;
    const finishes = this.below(2) === 0;
    await this.note(async () => {
      await leases.heartbeat((shard) => finishes || shard % 2 === 0);
      const epochs = Array.from({ length: SHARDS }, (_, shard) => leases.epochOf(shard));
      return [epochs, leases.members(), leases.takeoverCount(), leases.lostCount()];
    });
  }

  /** Ends a relay: it leaves, or it is silent and its lease expires later. */
  private async end(at: number): Promise<void> {
    if (this.below(2) === 0) await this.server.pass(LEASE_MS * 0.6);
    else await this.note(() => (this.leases[at] as Leases).leave());
  }

  private async readRows(rows: OutboxRows): Promise<void> {
    const keys = new Set(Array.from({ length: 1 + this.below(3) }, () => keyOf(this.below(KEYS))));
    const filter = [{}, { only: keys }, { except: keys }][this.below(3)] as object;
    const [to, limit, ids, bytesMax] = [this.id(), 1 + this.below(6), this.someIds(), this.below(60)];
    await this.note(async () => [...(await rows.pendingIds(to, limit, filter))]);
    await this.note(async () => [...(await rows.pendingOf(ids))].sort(byValue));
    await this.note(async () => [...(await rows.visibleOf(ids)).ids].sort(byValue));
    await this.note(async () => (await rows.sight(limit, keys)).ids);
    // Missing rows count as deleted with the first bound, and as not visible yet with the second.
    const asked = ids.map((id) => ({ id, msgId: msgOf(this.below(4) === 0 ? id + 1n : id) }) as OutboxRow);
    for (const ended of [0n, 1n << 62n])
      await this.note(async () => [...(await rows.published(asked, ended))].map(({ id }) => id));
    await this.note(async () => {
      const { states, through } = await rows.byId(ids, bytesMax);
      return { states: states.map(({ row, pending }) => `${textOf(row)} ${pending}`), through };
    });
  }

  /** Writes the record of a slot. A relay that claimed it before another one is refused. */
  private async writeRecord(): Promise<void> {
    const slot = this.slots[this.below(2)] as WalSlot;
    const kind = this.below(5);
    const confirmed = BigInt(this.below(1000));
    const to = this.below(2) === 0 ? null : this.id();
    await this.note(async () => {
      if (kind === 0) return slot.claim();
      if (kind === 1) return slot.readRecord();
      if (kind === 2) return slot.swept();
      if (kind === 3) return slot.allow(confirmed, to);
      const unswept = to === null ? null : { reason: 'slot_lost' as const, to };
      return slot.saveRecord({ confirmed, systemIdentifier: '7', unswept });
    });
  }
}

const SEEDS = Array.from({ length: runs(30) }, (_, i) => i + 1);

describe('the simulated tables of a relay beside PostgreSQL', () => {
  let pool: SqlPool;
  beforeAll(async () => {
    const schema = `relay_${randomBytes(6).toString('hex')}`;
    // One connection: its session is the proof of life of each member.
    pool = await openPool((await sharedStack()).postgres, { schema, connections: 1 });
    await createTables(pool, schema, 'orders', 'relay');
  });

  it('every lease, mark, read and slot record has the same result', async () => {
    const seen = new Set<unknown>();
    for (const seed of SEEDS) {
      const server = await simulated();
      const expected = await server.run(new Script(server, seed).run());
      await pool.query('TRUNCATE outbox, relay_members, relay_leases, relay_slots');
      expect({ seed, results: expected }).toEqual({
        seed,
        results: await new Script(real(pool), seed).run(),
      });
      for (const one of expected) seen.add(one);
    }
    // Refusals occur, so that they are compared as well.
    expect([...seen]).toEqual(expect.arrayContaining(['lease_mismatch', 'slot_claimed']));
  });
});
