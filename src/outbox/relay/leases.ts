/** Leases of the shards of an outbox, shared with other relays through the tables relay_members and
 *  relay_leases.
 *
 *  Each heartbeat is one transaction under an advisory lock of the outbox. It renews the
 *  membership, releases drained shards, takes free shards, and reads what this relay owns. Expiry
 *  times are the database's. This process measures only the age of its own last heartbeat, from
 *  before it was sent.
 *
 *  Invariants: (1) a shard has one owner, and its epoch (fencing token) grows with each change of
 *  owner; (2) a relay without a heartbeat for one lease time treats its shards as lost, before
 *  another relay may take them; (3) a shard is released only after its rows in flight have settled,
 *  unless its owner was silent for one lease time; (4) with `fence`, a shard is published only
 *  after its silent owners were fenced. Their ids are stored with the shard in the transaction that
 *  takes it, so a lost answer or the end of this relay does not lose them.
 */
import type { Clock } from '../../core/clock.ts';
import type { Logger } from '../../core/log.ts';
import type { SqlPool, SqlSession } from '../../io/postgres/sql/port.ts';
import { outboxError } from '../errors.ts';
import type { Ownership } from './source.ts';

export interface LeasesOptions {
  /** Pool of one connection that nothing else uses: other relays treat its session as proof of
   *  life. */
  readonly pool: SqlPool;
  /** Outbox as `schema.table`. */
  readonly outbox: string;
  readonly shards: number;
  /** Topic of the outbox: its consumers read one topic. */
  readonly topic: string;
  /** Name that no other relay has. */
  readonly relay: string;
  readonly mode: 'poll' | 'wal';
  /** True: takes all shards or none, because the source reads the whole outbox. */
  readonly exclusive: boolean;
  readonly leaseMs: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly transactionalId?: string;
  /** Fences producers of silent owners, before any row of their shards is published. */
  readonly fence?: (transactionalIds: readonly string[]) => Promise<void>;
}

const HEARTBEATS_PER_LEASE = 3;
/** Time between two heartbeats while shards change their owner. */
const WANTING_HEARTBEAT_MS = 200;

interface LeaseRow {
  readonly shard: number;
  readonly owner: string | null;
  readonly epoch: bigint;
  readonly transactional_id: string | null;
  readonly topic: string | null;
  /** Transactional ids of former owners that were silent and are not fenced yet. */
  readonly unfenced: readonly string[];
}

interface MemberRow {
  readonly relay: string;
  readonly mode: string;
  readonly left_ms: number;
}

interface Heartbeat {
  readonly mine: ReadonlyMap<number, bigint>;
  /** Shards to release once they have no rows in flight. */
  readonly surplus: readonly number[];
  /** Transactional ids that are not fenced yet, of the shards of this relay. */
  readonly unfenced: readonly string[];
  readonly members: number;
  /** Time until the first membership of another relay expires. */
  readonly nextExpiryMs: number;
  /** True while this relay owns less than its share: some shards cannot be taken yet. */
  readonly wanting: boolean;
  /** Topic to which the outbox was published until this heartbeat; undefined where it did not
   *  change. */
  readonly topicBefore: string | undefined;
}

export class Leases implements Ownership {
  readonly shards: number;
  private readonly options: LeasesOptions;
  private mine: ReadonlyMap<number, bigint> = new Map();
  private leaving = new Set<number>();
  private validUntilMs = 0;
  private changes = 0;
  private memberCount = 0;
  private nextHeartbeatMs = 0;
  private takeovers = 0;
  private lost = 0;

  constructor(options: LeasesOptions) {
    this.options = options;
    this.shards = options.shards;
  }

  owned(): readonly number[] {
    if (this.expired()) return [];
    return [...this.mine.keys()].filter((shard) => !this.leaving.has(shard));
  }

  generation(): number {
    return this.changes;
  }

  /** Epoch under which a shard may be published now; undefined where this relay may not publish
   *  it. */
  epochOf(shard: number): bigint | undefined {
    if (this.expired() || this.leaving.has(shard)) return undefined;
    return this.mine.get(shard);
  }

  /** True while rows accepted under this epoch may be sent: a shard that is being released still
   *  sends the rows it accepted. */
  holds(shard: number, epoch: bigint): boolean {
    return !this.expired() && this.mine.get(shard) === epoch;
  }

  members(): number {
    return this.memberCount;
  }
  /** Shards taken from an owner that was silent. */
  takeoverCount(): number {
    return this.takeovers;
  }
  /** Shards that another relay took from this one. */
  lostCount(): number {
    return this.lost;
  }

  /** True when no heartbeat was answered for one lease time: other relays may own the shards. */
  hasLapsed(): boolean {
    return this.expired();
  }

  private expired(): boolean {
    return this.options.clock.monotonicMs() >= this.validUntilMs;
  }

  /** Checks the settings against the live relays; takes no shard. @throws lease_mismatch when they
   *  use another number of shards or another topic */
  async check(): Promise<void> {
    await this.options.pool.transaction(async (session) => {
      await this.lock(session);
      await this.removeDead(session);
      if ((await this.readMembers(session)).length > 0) this.refuseMismatch(await this.read(session));
    });
  }

  /** Sends a heartbeat and reads which shards this relay owns. `finished` is true for a shard to be
   *  released that has no rows in flight.
   *  @throws lease_mismatch when live relays use another number of shards or another topic */
  async heartbeat(finished: (shard: number) => boolean): Promise<void> {
    const { pool, clock, leaseMs, log, relay } = this.options;
    const sentMs = clock.monotonicMs();
    const release = [...this.leaving].filter((shard) => this.mine.has(shard) && finished(shard));
    const known = this.mine;
    const heartbeat = await pool.transaction((session) => this.transact(session, release));
    if (heartbeat.topicBefore !== undefined)
      log.warn(
        { outbox: this.options.outbox, topic: this.options.topic, before: heartbeat.topicBefore },
        'the outbox is published to another topic from now on: its consumers must read the new topic too',
      );
    if (heartbeat.unfenced.length > 0) await this.fence(heartbeat.unfenced);
    const before = this.owned().join();
    const gained = [...heartbeat.mine].filter(([shard, epoch]) => known.get(shard) !== epoch);
    const gone = [...known.keys()].filter((shard) => heartbeat.mine.get(shard) !== known.get(shard));
    this.lost += gone.filter((shard) => !release.includes(shard)).length;
    this.mine = heartbeat.mine;
    this.memberCount = heartbeat.members;
    this.leaving = new Set(heartbeat.surplus);
    this.validUntilMs = sentMs + leaseMs;
    const after = this.owned();
    const soonMs =
      heartbeat.wanting || heartbeat.surplus.length > 0
        ? WANTING_HEARTBEAT_MS
        : leaseMs / HEARTBEATS_PER_LEASE;
    this.nextHeartbeatMs = Math.max(
      1,
      Math.min(soonMs, leaseMs / HEARTBEATS_PER_LEASE, heartbeat.nextExpiryMs + 1),
    );
    if (gained.length === 0 && gone.length === 0 && before === after.join()) return;
    this.changes++;
    log.info(
      { relay, shards: after.length, of: this.shards, members: heartbeat.members },
      'shards of the outbox',
    );
  }

  /** Fences silent owners and removes their ids. Rejects without a broker: then the taken shards
   *  stay unowned here until a later heartbeat has fenced. */
  private async fence(ids: readonly string[]): Promise<void> {
    const { pool, outbox, relay, fence, transactionalId } = this.options;
    if (fence === undefined) return;
    // This relay may have lost a shard to one that ended before it fenced this one.
    const others = ids.filter((id) => id !== transactionalId);
    if (others.length > 0) await fence(others);
    await pool.query(
      `UPDATE relay_leases SET unfenced = '{}'
       WHERE outbox = $1 AND owner = $2 AND unfenced <> '{}' AND unfenced <@ $3::text[]`,
      [outbox, relay, ids],
    );
  }

  /** Time to wait before the next heartbeat, after a successful one. */
  heartbeatWithinMs(): number {
    return this.nextHeartbeatMs;
  }

  /** Releases all shards; requires that no row is in flight. */
  async leave(): Promise<void> {
    const { pool, outbox, relay } = this.options;
    this.validUntilMs = 0;
    this.changes++;
    await pool.transaction(async (session) => {
      await this.lock(session);
      await session.query(
        'UPDATE relay_leases SET owner = NULL, transactional_id = NULL WHERE outbox = $1 AND owner = $2',
        [outbox, relay],
      );
      await session.query('DELETE FROM relay_members WHERE outbox = $1 AND relay = $2', [outbox, relay]);
    });
    this.mine = new Map();
  }

  /** Drops the ownership of all shards, after another relay fenced this one. */
  forget(): void {
    this.validUntilMs = 0;
    this.changes++;
  }

  private async lock(session: SqlSession): Promise<void> {
    // A process that is suspended during a heartbeat holds this lock. The server ends its session,
    // so that other relays can continue.
    await session.query(
      `SET LOCAL idle_in_transaction_session_timeout = ${Math.max(1, Math.round(this.options.leaseMs))}`,
    );
    await session.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [
      `millrace.relay.${this.options.outbox}`,
    ]);
  }

  private async transact(session: SqlSession, release: readonly number[]): Promise<Heartbeat> {
    const { outbox, relay, mode, leaseMs, exclusive, shards, topic, transactionalId } = this.options;
    await this.lock(session);
    // Removes every expired member, this relay included: its shards are free below.
    await this.removeDead(session);
    await session.query(
      `INSERT INTO relay_members (outbox, relay, mode, expires_at, backend, backend_start)
       SELECT $1, $2, $3, clock_timestamp() + $4::int * interval '1 ms', pid, backend_start
       FROM pg_stat_activity WHERE pid = pg_backend_pid()
       ON CONFLICT (outbox, relay) DO UPDATE SET expires_at = excluded.expires_at, backend = excluded.backend,
         backend_start = excluded.backend_start`,
      [outbox, relay, mode, Math.round(leaseMs)],
    );
    if (release.length > 0) {
      await session.query(
        `UPDATE relay_leases SET owner = NULL, transactional_id = NULL
         WHERE outbox = $1 AND owner = $2 AND shard = ANY($3::int[])`,
        [outbox, relay, release],
      );
    }
    const members = await this.readMembers(session);
    const alive = new Set(members.map((row) => row.relay));
    let leases = await this.read(session);
    if (alive.size > 1) this.refuseMismatch(leases);
    const topicBefore = this.otherTopic(leases);
    if (leases.length !== shards || leases.some((one) => one.topic !== topic)) {
      await this.fit(session, leases);
      leases = await this.read(session);
    }
    // A relay of the other mode gets no share: an exclusive relay takes all or nothing, so its
    // share would stay without an owner.
    const sharers = members.filter((one) => one.mode === mode).length;
    const share = exclusive ? shards : Math.ceil(shards / sharers);
    const free = leases.filter(({ owner }) => owner === null || !alive.has(owner));
    const held = leases.filter(({ owner }) => owner === relay);
    const room = Math.max(0, share - held.length);
    // An exclusive source takes all shards or none.
    const take = exclusive && held.length + free.length < shards ? [] : free.slice(0, room);
    if (take.length > 0) {
      await session.query(
        `UPDATE relay_leases SET owner = $2, epoch = epoch + 1, transactional_id = $4, taken_at = clock_timestamp(),
           unfenced = CASE WHEN owner IS NULL OR transactional_id IS NULL THEN unfenced ELSE unfenced || transactional_id END
         WHERE outbox = $1 AND shard = ANY($3::int[])`,
        [outbox, relay, take.map(({ shard }) => shard), transactionalId ?? null],
      );
      leases = await this.read(session);
    }
    this.takeovers += take.filter(({ owner }) => owner !== null).length;
    const owned = leases.filter(({ owner }) => owner === relay);
    const mine = new Map(owned.map(({ shard, epoch }) => [shard, epoch]));
    return {
      mine,
      surplus: [...mine.keys()].slice(share),
      unfenced: [...new Set(owned.flatMap(({ unfenced }) => unfenced))],
      members: alive.size,
      nextExpiryMs: Math.min(...members.map((one) => (one.relay === relay ? leaseMs : one.left_ms))),
      wanting: mine.size < Math.floor(shards / alive.size),
      topicBefore,
    };
  }

  /** Gives the outbox its number of shards and its topic. This relay is then the only live one, and
   *  takes every shard. The keys of removed shards have other shards from now on, so their silent
   *  owners are fenced with the first one. */
  private async fit(session: SqlSession, leases: readonly LeaseRow[]): Promise<void> {
    const { outbox, shards, topic } = this.options;
    await session.query('DELETE FROM relay_leases WHERE outbox = $1 AND shard >= $2', [outbox, shards]);
    await session.query(
      `INSERT INTO relay_leases (outbox, shard, topic) SELECT $1, generate_series(0, $2::int - 1), $3
       ON CONFLICT (outbox, shard) DO UPDATE SET topic = excluded.topic`,
      [outbox, shards, topic],
    );
    const removed = leases.filter(({ shard }) => shard >= shards);
    const ids = removed.flatMap((one) => [...one.unfenced, one.transactional_id]);
    const silent = ids.filter((id) => id !== null);
    if (silent.length === 0) return;
    await session.query(
      'UPDATE relay_leases SET unfenced = unfenced || $2::text[] WHERE outbox = $1 AND shard = 0',
      [outbox, silent],
    );
  }

  /** Removes members whose lease or session has ended: the shards of a dead relay are free
   *  immediately. A relay that only lost its connection joins again with its next heartbeat. Rows
   *  that both published meanwhile are in order, and each is marked once. */
  private async removeDead(session: SqlSession): Promise<void> {
    await session.query(
      `DELETE FROM relay_members AS m WHERE outbox = $1 AND (expires_at < clock_timestamp() OR NOT EXISTS (
         SELECT FROM pg_stat_activity a
         WHERE a.pid = m.backend AND coalesce(a.backend_start = m.backend_start, true)))`,
      [this.options.outbox],
    );
  }

  private async readMembers(session: SqlSession): Promise<readonly MemberRow[]> {
    const { rows } = await session.query<MemberRow & Readonly<Record<string, unknown>>>(
      `SELECT relay, mode, (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::float8 AS left_ms
       FROM relay_members WHERE outbox = $1 ORDER BY relay`,
      [this.options.outbox],
    );
    return rows;
  }

  /** Refuses settings that differ from those of the live relays. */
  private refuseMismatch(leases: readonly LeaseRow[]): void {
    const { outbox, shards, topic } = this.options;
    const refusal = (what: string, flag: string): Error =>
      outboxError('lease_mismatch', `the relays of ${outbox} ${what}`, {
        next: `start with ${flag}, or stop the others first`,
      });
    if (leases.length > 0 && leases.length !== shards)
      throw refusal(`share it in ${leases.length} shards, not ${shards}`, `-shards=${leases.length}`);
    const other = this.otherTopic(leases);
    if (other !== undefined)
      throw refusal(`publish it to the topic ${other}, not ${topic}`, `-topic=${other}`);
  }

  /** Topic to which the outbox was published last, if it is not the topic of this relay. */
  private otherTopic(leases: readonly LeaseRow[]): string | undefined {
    return leases.find((one) => one.topic !== null && one.topic !== this.options.topic)?.topic ?? undefined;
  }

  private async read(session: SqlSession): Promise<readonly LeaseRow[]> {
    const { rows } = await session.query<LeaseRow & Readonly<Record<string, unknown>>>(
      'SELECT shard, owner, epoch, transactional_id, topic, unfenced FROM relay_leases WHERE outbox = $1 ORDER BY shard',
      [this.options.outbox],
    );
    return rows;
  }
}
