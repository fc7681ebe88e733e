/** Which shards of an outbox this relay publishes, agreed on with the other relays through two tables.
 *
 *  Every beat is one transaction under a lock of the outbox: say that we live, give back what we finished, take what is free, and
 *  learn what we own. Times are the database's; here only the age of our own last beat counts, measured from before it was sent.
 *
 *  Invariants: (1) a shard has one owner and its epoch grows with each change; (2) who could not beat for a lease owns nothing, in
 *  its own eyes too, before another may take its shards; (3) a shard is given up only after its rows under way are settled, unless
 *  its owner was silent for a lease.
 */
import type { Clock } from '../../core/clock.ts';
import type { Logger } from '../../core/log.ts';
import type { SqlPool, SqlSession } from '../../io/postgres/sql/port.ts';
import { outboxError } from '../errors.ts';
import type { Ownership } from './source.ts';

export interface LeasesOptions {
  /** One connection of its own: its session is what others see us live by. */
  readonly pool: SqlPool;
  /** schema.table of the outbox. */
  readonly outbox: string;
  readonly shards: number;
  /** Where the outbox is published: consumers read one topic. */
  readonly topic: string;
  /** A name no other relay has. */
  readonly relay: string;
  readonly mode: 'poll' | 'wal';
  /** All shards or none: the source reads the whole outbox. */
  readonly exclusive: boolean;
  readonly leaseMs: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly transactionalId?: string;
  /** Fences producers that a silent owner may still have, before anything of its shards is published. */
  readonly fence?: (transactionalIds: readonly string[]) => Promise<void>;
}

const BEATS_A_LEASE = 3;
/** Between two beats while shards are on their way from one relay to another. */
const WANTING_BEAT_MS = 200;

interface LeaseRow {
  readonly shard: number;
  readonly owner: string | null;
  readonly epoch: bigint;
  readonly transactional_id: string | null;
  readonly topic: string | null;
}

interface MemberRow {
  readonly relay: string;
  readonly mode: string;
  readonly left_ms: number;
}

interface Beat {
  readonly mine: ReadonlyMap<number, bigint>;
  /** Shards to give up once their work is done. */
  readonly surplus: readonly number[];
  /** Producers of owners that went silent. */
  readonly orphans: readonly string[];
  readonly members: number;
  /** Until the first of the other relays would expire. */
  readonly nextExpiryMs: number;
  /** There are shards that nobody may take yet, or that are on their way to us. */
  readonly wanting: boolean;
  /** Where the outbox was published until this beat, where that was another topic. */
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
  private nextBeatMs = 0;
  private readonly unfenced = new Set<string>();
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

  /** The epoch under which a shard may be published now; undefined: not by us. */
  epochOf(shard: number): bigint | undefined {
    if (this.expired() || this.leaving.has(shard)) return undefined;
    return this.mine.get(shard);
  }

  /** Whether rows accepted under this epoch may still go out: a shard on its way to another relay finishes what it began. */
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

  /** No beat of the last lease was answered: others may have taken what we had. */
  hasLapsed(): boolean {
    return this.expired();
  }

  private expired(): boolean {
    return this.options.clock.monotonicMs() >= this.validUntilMs;
  }

  /** Takes nothing. @throws lease_mismatch when relays that live share or publish the outbox otherwise than this one would */
  async check(): Promise<void> {
    await this.options.pool.transaction(async (session) => {
      await this.lock(session);
      await this.removeDead(session);
      if ((await this.readMembers(session)).length > 0) this.refuseMismatch(await this.read(session));
    });
  }

  /** Says that we live, and learns what we own. `finished`: of the shards in `giveUp()`, those with nothing under way.
   *  @throws lease_mismatch when the outbox is shared in another number of shards, or published to another topic */
  async beat(finished: (shard: number) => boolean): Promise<void> {
    const { pool, clock, leaseMs, fence, log, relay } = this.options;
    const sentMs = clock.monotonicMs();
    const release = [...this.leaving].filter((shard) => this.mine.has(shard) && finished(shard));
    const known = this.mine;
    const beat = await pool.transaction((session) => this.transact(session, release));
    if (beat.topicBefore !== undefined)
      log.warn(
        { outbox: this.options.outbox, topic: this.options.topic, before: beat.topicBefore },
        'the outbox is published to another topic from here on: its consumers must read that one too',
      );
    for (const id of beat.orphans) this.unfenced.add(id);
    if (this.unfenced.size > 0 && fence !== undefined) {
      // Fails without a broker: then what was taken is not ours to publish before a later beat has fenced.
      await fence([...this.unfenced]);
      this.unfenced.clear();
    }
    const before = this.owned().join();
    const gained = [...beat.mine].filter(([shard, epoch]) => known.get(shard) !== epoch);
    const gone = [...known.keys()].filter((shard) => beat.mine.get(shard) !== known.get(shard));
    this.lost += gone.filter((shard) => !release.includes(shard)).length;
    this.mine = beat.mine;
    this.memberCount = beat.members;
    this.leaving = new Set(beat.surplus);
    this.validUntilMs = sentMs + leaseMs;
    const after = this.owned();
    const soonMs = beat.wanting || beat.surplus.length > 0 ? WANTING_BEAT_MS : leaseMs / BEATS_A_LEASE;
    this.nextBeatMs = Math.max(1, Math.min(soonMs, leaseMs / BEATS_A_LEASE, beat.nextExpiryMs + 1));
    if (gained.length === 0 && gone.length === 0 && before === after.join()) return;
    this.changes++;
    log.info({ relay, shards: after.length, of: this.shards, members: beat.members }, 'shards of the outbox');
  }

  /** How long to wait before the next beat, after one that went well. */
  beatWithinMs(): number {
    return this.nextBeatMs;
  }

  /** Gives everything back: nothing is under way any more. */
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

  /** Drops what we believe to own, after another relay fenced us. */
  forget(): void {
    this.validUntilMs = 0;
    this.changes++;
  }

  private async lock(session: SqlSession): Promise<void> {
    // Who is stopped in the middle of a beat holds this lock: the server ends its session, or nobody could ever take over.
    await session.query(
      `SET LOCAL idle_in_transaction_session_timeout = ${Math.max(1, Math.round(this.options.leaseMs))}`,
    );
    await session.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [
      `millrace.relay.${this.options.outbox}`,
    ]);
  }

  private async transact(session: SqlSession, release: readonly number[]): Promise<Beat> {
    const { outbox, relay, mode, leaseMs, exclusive, shards, topic, transactionalId } = this.options;
    await this.lock(session);
    // Whoever has expired is gone for good under its old name, we too: what it owned is free below.
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
      await session.query('DELETE FROM relay_leases WHERE outbox = $1 AND shard >= $2', [outbox, shards]);
      await session.query(
        `INSERT INTO relay_leases (outbox, shard, topic) SELECT $1, generate_series(0, $2::int - 1), $3
         ON CONFLICT (outbox, shard) DO UPDATE SET topic = excluded.topic`,
        [outbox, shards, topic],
      );
      leases = await this.read(session);
    }
    // A relay of the other mode is no sharer: one that takes all or nothing would leave what is kept for it without an owner.
    const sharers = members.filter((one) => one.mode === mode).length;
    const share = exclusive ? shards : Math.ceil(shards / sharers);
    const free = leases.filter(({ owner }) => owner === null || !alive.has(owner));
    const held = leases.filter(({ owner }) => owner === relay);
    const room = Math.max(0, share - held.length);
    // All or nothing for a source that reads everything.
    const take = exclusive && held.length + free.length < shards ? [] : free.slice(0, room);
    if (take.length > 0) {
      await session.query(
        `UPDATE relay_leases SET owner = $2, epoch = epoch + 1, transactional_id = $4, taken_at = clock_timestamp()
         WHERE outbox = $1 AND shard = ANY($3::int[])`,
        [outbox, relay, take.map(({ shard }) => shard), transactionalId ?? null],
      );
      leases = await this.read(session);
    }
    const silent = take.filter(({ owner }) => owner !== null);
    this.takeovers += silent.length;
    const mine = new Map(
      leases.filter(({ owner }) => owner === relay).map(({ shard, epoch }) => [shard, epoch]),
    );
    return {
      mine,
      surplus: [...mine.keys()].slice(share),
      orphans: [...new Set(silent.map((one) => one.transactional_id).filter((id) => id !== null))],
      members: alive.size,
      nextExpiryMs: Math.min(...members.map((one) => (one.relay === relay ? leaseMs : one.left_ms))),
      wanting: mine.size < Math.floor(shards / alive.size),
      topicBefore,
    };
  }

  /** A relay that died took its session with it: nobody waits for that lease. One that only lost its connection comes back with its
   *  next beat, and what both published meanwhile is in order and marked once. */
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

  /** While others live, theirs is what counts. */
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

  /** Where the outbox was published last, where that is not our topic. */
  private otherTopic(leases: readonly LeaseRow[]): string | undefined {
    return leases.find((one) => one.topic !== null && one.topic !== this.options.topic)?.topic ?? undefined;
  }

  private async read(session: SqlSession): Promise<readonly LeaseRow[]> {
    const { rows } = await session.query<LeaseRow & Readonly<Record<string, unknown>>>(
      'SELECT shard, owner, epoch, transactional_id, topic FROM relay_leases WHERE outbox = $1 ORDER BY shard',
      [this.options.outbox],
    );
    return rows;
  }
}
