/** The pipeline: rows of any source are sent in flights, several of them in parallel, and are then marked.
 *
 *  A key's rows may fill one flight, but are never in two together: rows that arrive while one of them is in flight wait for its
 *  outcome. So a key with a thousand rows costs one round trip, and a failure is known before anything behind it is sent.
 *
 *  Invariants: (1) rows of a key go out in id order; (2) after a row was left, nothing of its key goes out before a call that covers
 *  what was left; (3) a row goes out only under an epoch that is valid when its flight starts; (4) only what the broker
 *  acknowledged is handed to the marker; (5) a row whose payload is not JSON is never sent, because it would break the JSON of the
 *  record: the marker sets it aside, and its key continues without it.
 */
import type { Cancel, Timers } from '../../../core/clock.ts';
import { coreError } from '../../../core/errors.ts';
import { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { Logger } from '../../../core/log.ts';
import type { Metrics } from '../../../core/metrics.ts';
import { isJsonText } from '../../json-text.ts';
import type { Leases } from '../leases.ts';
import { shardOf } from '../shards.ts';
import type { OutboxRow } from '../store.ts';
import { BlockedKeys, begins, type Hold } from './blocked-keys.ts';
import type { CountingPipeline, Covered, Delivered } from './contract.ts';
import type { EventEncoder } from './event.ts';
import { InFlight, type InFlightLimits } from './in-flight.ts';
import type { Marker } from './marker.ts';
import { publishingMetrics } from './metrics.ts';
import { RequeueQueue } from './requeue-queue.ts';
import type { Sender, Sent } from './sender.ts';

export interface PublisherOptions {
  readonly sender: Sender;
  readonly encoder: EventEncoder;
  readonly marker: Pick<Marker<Entry>, 'add' | 'onDone'>;
  readonly leases: Pick<Leases, 'shards' | 'epochOf' | 'holds'>;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly clock: Timers;
  /** Rows and bytes of a flight. */
  readonly flightRowsMax: number;
  readonly flightBytesMax: number;
  /** Bytes of a record that the topic took when it was asked. */
  readonly recordBytesMax: number;
  /** Of what is accepted and not yet marked. */
  readonly underWay: InFlightLimits;
  /** Before a flight starts. */
  readonly crashAt: (point: 'commit', unfinished: number) => void;
  /** The broker says that the topic is not there. */
  readonly onTopicMissing: () => void;
  /** A newer producer has our transactional id. */
  readonly onFenced: () => void;
  /** Nothing will be published any more. */
  readonly onFailed?: (thrown: unknown) => void;
}

/** What one deliver call waits for. */
interface Ticket {
  open: number;
  unmarked: number;
  published: number;
  readonly left: bigint[];
  settle: () => void;
  allMarked: () => void;
  notMarked: (thrown: unknown) => void;
}

/** A row on its way: accepted for an epoch of its shard. */
export interface Entry {
  readonly row: OutboxRow;
  readonly shard: number;
  readonly epoch: bigint;
  readonly ticket: Ticket;
  /** Why the row can never be published. */
  readonly dead?: string;
}

interface Flight {
  readonly batch: RecordBatch;
  entries: Entry[];
  startedMs: number;
  /** Nothing else was in the air with it, so that what the broker says of a batch is said of this one. */
  alone: boolean;
}

/** Error codes of the broker that a smaller batch may not meet. */
const TOO_LARGE = new Set([10, 18]);
/** Local code of a row that fits into no batch, as the driver names it too. */
const OVERSIZE = -10_000;
const TOPIC_MISSING = new Set([3, -188, -190]);
const GROW_AFTER = 64;
/** A flight that is not full starts beside others no more often than this: for a partition whose leader is away the others need not
 *  wait for ever. librdkafka sends one request of a partition at a time, and its thread spins while rows behind that one have waited
 *  for their linger; with three brokers, whose answers take longer, that was a third of what a row cost. Rows that wait here cost
 *  nothing, and go out together. */
const SPARSE_EVERY_MS = 1000;

export class Publisher implements CountingPipeline {
  private readonly options: PublisherOptions;
  private readonly counters;
  private readonly flights: Flight[] = [];
  private readonly free: Flight[];
  private readonly holds = new BlockedKeys();
  /** Accepted rows. Those of a key stand in id order, what was let back in front before what came since. */
  private readonly line = new RequeueQueue<Entry>();
  /** The flight in which a key is. */
  private readonly aloft = new Map<string, Flight>();
  /** By key in the air: what came up meanwhile and waits for it to land. */
  private readonly waiting = new Map<string, Entry[]>();
  private readonly known: InFlight;
  /** Calls of which not everything is marked or left. */
  private readonly tickets = new Set<Ticket>();
  /** Keys of which a row was left just now: what is queued of them must go the same way before anything else is accepted. */
  private readonly struck = new Set<string>();
  private rowsMax: number;
  private goodFlights = 0;
  private published = 0;
  /** One flight at a time: the client joins rows of several, and one of them was too large for the broker. */
  private oneByOne = false;
  private pumping = false;
  private startedMs = Number.NEGATIVE_INFINITY;
  /** Cancels the wait of a flight that is not full. */
  private sparse: Cancel | undefined;
  /** Why the last row did not go into the batch. */
  private appended: 'full' | 'too large' | 'not json' = 'full';
  private failure: { readonly thrown: unknown } | undefined;
  private abandoned = false;

  constructor(options: PublisherOptions) {
    this.options = options;
    this.rowsMax = options.flightRowsMax;
    this.known = new InFlight(options.leases.shards, options.underWay);
    for (let i = 0; i < options.sender.flights; i++) {
      const batch = RecordBatch.create(options.flightRowsMax, options.flightBytesMax);
      this.flights.push({ batch, entries: [], startedMs: 0, alone: false });
    }
    this.free = [...this.flights];
    options.marker.onDone = (entry) => {
      this.known.remove(entry.row, entry.shard);
      this.markedOne(entry.ticket);
    };
    const { metrics } = options;
    this.counters = publishingMetrics(metrics);
    metrics.onCollect(() => {
      this.counters.underWay.set(this.known.size);
      this.counters.underWayBytes.set(this.known.bytes);
      this.counters.held.set(this.holds.size);
    });
  }

  owns(aggregateId: string): boolean {
    const { leases } = this.options;
    return leases.epochOf(shardOf(aggregateId, leases.shards)) !== undefined;
  }

  isUnderWay(id: bigint): boolean {
    return this.known.has(id);
  }

  leftSoFar(): number {
    return this.holds.count;
  }

  underWay(): number {
    return this.known.size;
  }

  /** True while no row of the shard is in flight. */
  isShardIdle(shard: number): boolean {
    return this.known.isShardIdle(shard);
  }

  /** Rows that the broker acknowledged, repeats included. */
  publishedSoFar(): number {
    return this.published;
  }

  /** How long the flight that waits longest has been waiting for the broker. */
  oldestFlightMs(): number {
    const nowMs = this.options.clock.monotonicMs();
    return Math.max(
      0,
      ...this.flights.filter((one) => !this.free.includes(one)).map((one) => nowMs - one.startedMs),
    );
  }

  /** Waits for nothing any more: rows in flight stay pending, or the next relay finds them published. */
  abandon(): void {
    this.abandoned = true;
    this.sparse?.();
    const queued = this.line.removeIf(() => true);
    for (const behind of this.waiting.values()) queued.push(...behind);
    this.waiting.clear();
    for (const entry of queued) this.leave(entry);
    this.struck.clear();
    for (const flight of this.flights) {
      if (this.free.includes(flight)) continue;
      for (const { row, ticket } of flight.entries) ticket.left.push(row.id);
    }
    // Whether these rows will be marked is not known: a slot must not move past them.
    this.endTickets(
      coreError('unreachable', `${this.known.size} rows under way were given up at the drain`, {
        next: 'nothing: what is not marked is pending, and is published again by the next relay',
      }),
    );
    this.known.clear();
  }

  room(): Promise<void> {
    return this.known.room();
  }

  idle(): Promise<void> {
    return this.known.idle();
  }

  deliver(rows: readonly OutboxRow[], covered?: Covered): Promise<Delivered> {
    if (this.failure !== undefined) return Promise.reject(this.failure.thrown);
    if (this.abandoned) {
      const left = rows.map(({ id }) => id);
      return Promise.resolve({ published: 0, left, known: 0, marked: Promise.resolve() });
    }
    const { leases } = this.options;
    const { shards } = leases;
    let known = 0;
    let settle = (): void => {};
    let allMarked = (): void => {};
    let notMarked = (_thrown: unknown): void => {};
    const settled = new Promise<void>((resolve) => {
      settle = resolve;
    });
    const marked = new Promise<void>((resolve, reject) => {
      allMarked = resolve;
      notMarked = reject;
    });
    // Prevents an unhandled rejection when the caller ignores `marked`.
    marked.catch(() => {});
    const ticket: Ticket = { open: 1, unmarked: 1, published: 0, left: [], settle, allMarked, notMarked };
    this.tickets.add(ticket);
    const left: OutboxRow[] = [];
    for (const row of rows) {
      if (this.known.has(row.id)) {
        known++;
        continue;
      }
      const shard = shardOf(row.aggregateId, shards);
      const epoch = leases.epochOf(shard);
      const hold = this.holds.of(row.aggregateId);
      if (epoch === undefined || (hold !== undefined && !mayPass(row.aggregateId, hold, row.id, covered))) {
        left.push(row);
        ticket.left.push(row.id);
        continue;
      }
      ticket.open++;
      ticket.unmarked++;
      this.known.add(row, shard);
      this.line.push({ row, shard, epoch, ticket });
    }
    if (covered !== undefined) this.holds.covered(covered);
    // After the holds that the call ends: what it leaves, because no lease is valid now, still blocks its key.
    for (const { aggregateId, id } of left) this.holds.add(aggregateId, id);
    this.settleOne(ticket);
    this.markedOne(ticket);
    this.pump();
    const delivered = settled.then(() => {
      if (this.failure !== undefined) throw this.failure.thrown;
      return { published: ticket.published, left: ticket.left, known, marked };
    });
    delivered.catch(() => {});
    return delivered;
  }

  /** Starts flights while there are rows and free batches. */
  private pump(): void {
    if (this.pumping) return;
    this.pumping = true;
    while (
      this.failure === undefined &&
      !this.abandoned &&
      this.line.peek() !== undefined &&
      this.mayStart()
    ) {
      const flight = this.free.pop() as Flight;
      this.fill(flight);
      if (flight.entries.length === 0) this.free.push(flight);
      else void this.fly(flight);
    }
    this.pumping = false;
  }

  private mayStart(): boolean {
    if (this.free.length === this.flights.length) return true;
    if (this.oneByOne || this.free.length === 0) return false;
    const bytesMax = this.options.flightBytesMax;
    if (this.line.reaches(this.rowsMax, bytesMax, ({ row }) => row.payload.length)) return true;
    const { clock } = this.options;
    const waitMs = this.startedMs + SPARSE_EVERY_MS - clock.monotonicMs();
    if (waitMs <= 0) return true;
    this.sparse ??= clock.after(waitMs, () => {
      this.sparse = undefined;
      this.pump();
    });
    return false;
  }

  private fill(flight: Flight): void {
    const { leases } = this.options;
    const { batch } = flight;
    batch.clear();
    flight.entries = [];
    while (flight.entries.length < this.rowsMax) {
      const entry = this.line.peek();
      if (entry === undefined) break;
      const key = entry.row.aggregateId;
      const at = this.aloft.get(key);
      if (at !== undefined && at !== flight) this.wait(key, entry);
      else if (!leases.holds(entry.shard, entry.epoch) || this.mustStay(key, entry.row.id)) this.leave(entry);
      else if (this.append(batch, entry)) {
        if (at === undefined) this.aloft.set(key, flight);
        flight.entries.push(entry);
      } else if (this.appended === 'full') break;
      else if (this.appended === 'not json') this.setAside(entry);
      else this.tooLarge(entry);
      this.line.shift();
    }
    if (this.struck.size > 0) this.leaveStruck();
  }

  private append(batch: RecordBatch, entry: Entry): boolean {
    const { encoder, recordBytesMax } = this.options;
    const before = batch.arenaUsed;
    const rows = batch.rowCount;
    const fits = encoder.append(batch, entry.row, entry.epoch);
    const isSendable = fits && batch.arenaUsed - before <= recordBytesMax;
    if (isSendable && isJsonText(entry.row.payload)) return true;
    this.appended = isSendable ? 'not json' : fits || rows === 0 ? 'too large' : 'full';
    batch.arenaUsed = before;
    batch.rowCount = rows;
    return false;
  }

  private wait(key: string, entry: Entry): void {
    const behind = this.waiting.get(key);
    if (behind === undefined) this.waiting.set(key, [entry]);
    else behind.push(entry);
  }

  private leaveStruck(): void {
    const stays = (entry: Entry): boolean =>
      this.struck.has(entry.row.aggregateId) && this.mustStay(entry.row.aggregateId, entry.row.id);
    const leaving = this.line.removeIf(stays);
    for (const key of this.struck) {
      const behind = this.waiting.get(key);
      if (behind === undefined) continue;
      leaving.push(...behind.filter(stays));
      this.waiting.set(
        key,
        behind.filter((entry) => !stays(entry)),
      );
    }
    for (const entry of leaving) this.leave(entry);
    this.struck.clear();
  }

  /** A row of the key before this one was left since it was accepted. */
  private mustStay(key: string, id: bigint): boolean {
    const hold = this.holds.of(key);
    return hold !== undefined && id > hold.from;
  }

  private async fly(flight: Flight): Promise<void> {
    const { sender, crashAt, clock, log, onFenced, onTopicMissing } = this.options;
    let sent: Sent;
    flight.startedMs = clock.monotonicMs();
    this.startedMs = flight.startedMs;
    flight.alone = this.oneByOne;
    try {
      crashAt('commit', flight.entries.length);
      this.counters.flights.add();
      sent = await sender.send(flight.batch);
    } catch (thrown) {
      this.fail(thrown);
      return;
    }
    this.counters.seconds.observe((clock.monotonicMs() - flight.startedMs) / 1000);
    for (const event of sent.events) {
      log.warn({ code: event.name, error: event.message }, 'rows were not acknowledged');
      if (TOPIC_MISSING.has(event.code)) onTopicMissing();
    }
    if (sent.fenced) onFenced();
    this.land(flight, sent);
    this.free.push(flight);
    this.pump();
  }

  private land(flight: Flight, sent: Sent): void {
    const { marker } = this.options;
    const { entries } = flight;
    const tooLarge = sent.status.reduce((sum, status) => (TOO_LARGE.has(status) ? sum + 1 : sum), 0);
    let failed = 0;
    for (let i = 0; i < entries.length; i++) {
      const entry = entries[i] as Entry;
      const status = sent.status[i] as number;
      if (status !== 0) {
        failed++;
        // One alone is the row's own size; several are that of the batch they were in.
        if (status === OVERSIZE || (tooLarge === 1 && flight.alone && TOO_LARGE.has(status)))
          this.tooLarge(entry);
        else this.leave(entry);
        continue;
      }
      if (
        this.holds.of(entry.row.aggregateId) !== undefined &&
        this.mustStay(entry.row.aggregateId, entry.row.id)
      ) {
        this.counters.gaps.add();
        this.options.log.error(
          { id: entry.row.id.toString() },
          'a row was acknowledged before one of its key that failed',
        );
      }
      entry.ticket.published++;
      marker.add(entry);
      this.settleOne(entry.ticket);
    }
    this.published += entries.length - failed;
    this.counters.published.add(entries.length - failed);
    this.counters.failed.add(failed);
    this.adapt(tooLarge, failed, flight.alone);
    for (const { row } of entries) {
      if (!this.aloft.delete(row.aggregateId) || this.waiting.size === 0) continue;
      const behind = this.waiting.get(row.aggregateId);
      if (behind === undefined) continue;
      this.waiting.delete(row.aggregateId);
      this.line.requeue(behind);
    }
    if (this.struck.size > 0) this.leaveStruck();
  }

  /** A batch the broker finds too large may be so for one row, or as a whole, or together with another flight's: one at a time and
   *  in quarters it comes out: each attempt costs a producer and a wait. */
  private adapt(tooLarge: number, failed: number, alone: boolean): void {
    if (tooLarge > 0) {
      this.goodFlights = 0;
      this.oneByOne = true;
      if (alone && tooLarge > 1) this.rowsMax = Math.max(1, Math.min(this.rowsMax, tooLarge) >> 2);
    } else if (failed === 0 && this.oneByOne && ++this.goodFlights >= GROW_AFTER) {
      this.goodFlights = 0;
      this.rowsMax = Math.min(this.options.flightRowsMax, this.rowsMax * 2);
      this.oneByOne = this.rowsMax < this.options.flightRowsMax;
    }
  }

  private tooLarge(entry: Entry): void {
    const { row } = entry;
    this.counters.oversize.add();
    this.options.log.error(
      { id: row.id.toString(), msg_id: row.msgId, bytes: row.payload.length },
      'an outbox row is larger than a record may be; its key waits',
    );
    this.leave(entry);
  }

  private setAside(entry: Entry): void {
    const { id, msgId, aggregateId } = entry.row;
    this.counters.deadLetters.add();
    this.options.log.error(
      { id: id.toString(), msg_id: msgId, aggregate_id: aggregateId },
      'the payload of an outbox row is not JSON; the row is set aside in relay_dead_letters and its key continues',
    );
    this.options.marker.add({ ...entry, dead: 'payload_not_json' });
    this.settleOne(entry.ticket);
  }

  private leave(entry: Entry): void {
    this.struck.add(entry.row.aggregateId);
    this.holds.add(entry.row.aggregateId, entry.row.id);
    entry.ticket.left.push(entry.row.id);
    this.known.remove(entry.row, entry.shard);
    this.settleOne(entry.ticket);
    this.markedOne(entry.ticket);
  }

  private settleOne(ticket: Ticket): void {
    if (--ticket.open === 0) ticket.settle();
  }

  private markedOne(ticket: Ticket): void {
    if (--ticket.unmarked > 0) return;
    this.tickets.delete(ticket);
    ticket.allMarked();
  }

  private endTickets(thrown: unknown): void {
    for (const ticket of this.tickets) {
      ticket.settle();
      ticket.notMarked(thrown);
    }
    this.tickets.clear();
  }

  /** What no later try can cure: everybody who waits is told. */
  private fail(thrown: unknown): void {
    this.failure ??= { thrown };
    this.endTickets(this.failure.thrown);
    this.known.end();
    this.options.onFailed?.(thrown);
    this.options.log.error(
      { error: thrown instanceof Error ? thrown.message : String(thrown) },
      'publishing failed',
    );
  }
}

/** Rows of a held key pass in a call that covers the ids that were left, in their order. */
function mayPass(key: string, hold: Hold, id: bigint, covered: Covered | undefined): boolean {
  if (id < hold.from) return true;
  return covered !== undefined && id <= covered.to && begins(key, hold, covered);
}
