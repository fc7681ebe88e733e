/** Publisher: sends the rows of all sources to the broker in batches, several in flight in
 *  parallel, and has them marked. A batch at the broker is called a flight.
 *
 *  The rows of a key may fill one flight, but never span two: rows that arrive while their key is
 *  in flight wait for its outcome. So a key with a thousand rows costs one round trip, and a
 *  failure is known before later rows are sent.
 *
 *  Invariants: (1) rows of a key are sent in id order; (2) after a row was left, no row of its key
 *  is sent before a call covers the ids that were left; (3) a row is sent only under an epoch that
 *  is valid when its flight starts; (4) only rows that the broker acknowledged go to the marker,
 *  except dead letters; (5) a row whose payload should be JSON and is not is never sent, because it
 *  would break the JSON of the record: it becomes a dead letter, and its key continues.
 */
import type { Cancel, Timers } from '../../../core/clock.ts';
import { coreError, invariant } from '../../../core/errors.ts';
import { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { Logger } from '../../../core/log.ts';
import type { Metrics } from '../../../core/metrics.ts';
import { isJsonContent } from '../../append/record-columns.ts';
import { isJsonText } from '../../json-text.ts';
import { isSampled, startSpan, type TraceSpan } from '../../tracing.ts';
import type { Leases } from '../leases.ts';
import { shardOf } from '../shards.ts';
import type { OutboxRow } from '../store.ts';
import { BlockedKeys, begins, type Hold } from './blocked-keys.ts';
import type { CountingPipeline, Covered, Delivered } from './contract.ts';
import { type EventEncoder, headersOf, inTrace, tracestateOf } from './event.ts';
import { FlightPace } from './flight-pace.ts';
import { InFlight, type InFlightLimits } from './in-flight.ts';
import type { Marker } from './marker.ts';
import { publishingMetrics } from './metrics.ts';
import { RequeueQueue } from './requeue-queue.ts';
import type { Sender, Sent } from './sender.ts';
import type { TopicRouter } from './topic-router.ts';

export interface PublisherOptions {
  readonly sender: Sender;
  readonly encoder: EventEncoder;
  /** Chooses the topic of each row. Absent: every row has topic 0. */
  readonly topics?: Pick<TopicRouter, 'names' | 'placeOf' | 'recordBytesMax'> | undefined;
  readonly marker: Pick<Marker<Entry>, 'add' | 'onDone'>;
  readonly leases: Pick<Leases, 'shards' | 'epochOf' | 'holds'>;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly clock: Timers;
  /** Limits of a flight. */
  readonly flightRowsMax: number;
  readonly flightBytesMax: number;
  /** Largest record in bytes that the topic accepts, read at the start. */
  readonly recordBytesMax: number;
  /** Limits of the rows that are accepted and not yet marked. */
  readonly inFlight: InFlightLimits;
  /** Called before a flight starts. */
  readonly crashAt: (point: 'commit', unfinished: number) => void;
  /** Called when the broker reports that the topic does not exist. */
  readonly onTopicMissing: () => void;
  /** Called when a newer producer has the transactional id of this relay. */
  readonly onFenced: () => void;
  /** Called when publishing has failed for good. */
  readonly onFailed?: (thrown: unknown) => void;
}

/** State of one deliver call: the rows without an outcome, the rows without a mark, and the
 *  promises to settle. */
interface Ticket {
  open: number;
  unmarked: number;
  published: number;
  readonly left: bigint[];
  settle: () => void;
  allMarked: () => void;
  notMarked: (thrown: unknown) => void;
}

/** Accepted row, with the epoch of its shard at that time. */
export interface Entry {
  readonly row: OutboxRow;
  readonly shard: number;
  readonly epoch: bigint;
  readonly ticket: Ticket;
  /** Reason why the row can never be published. */
  readonly dead?: string;
  /** Span of its publication, while it is recorded. */
  span?: TraceSpan | undefined;
}

interface Flight {
  readonly batch: RecordBatch;
  entries: Entry[];
  startedMs: number;
  /** True when no other flight was in progress, so that an error of a batch belongs to this
   *  flight. */
  alone: boolean;
}

/** Broker error codes of a batch that is too large (MSG_SIZE_TOO_LARGE, RECORD_LIST_TOO_LARGE). */
const TOO_LARGE = new Set([10, 18]);
/** Local status of a row that fits into no batch; the driver uses the same code. */
const OVERSIZE = -10_000;
const TOPIC_MISSING = new Set([3, -188, -190]);
const GROW_AFTER = 64;
/** Shortest time between starts of flights that are not full while another flight is in progress;
 *  while none is, the pace of flights applies. It is a limit so that other keys do not wait forever
 *  for a partition without a leader. librdkafka sends one request of a partition at a time, and its
 *  thread spins while rows behind that request have passed their linger. With three brokers, whose
 *  answers take longer, the spinning was a third of the cost of a row. Rows that wait here cost
 *  nothing, and leave in one batch. */
const SPARSE_EVERY_MS = 1000;

export class Publisher implements CountingPipeline {
  private readonly options: PublisherOptions;
  private readonly counters;
  private readonly flights: Flight[] = [];
  private readonly free: Flight[];
  private readonly holds = new BlockedKeys();
  /** Accepted rows, those of a key in id order; requeued rows come before later ones. */
  private readonly queue = new RequeueQueue<Entry>();
  /** Flight of each key in flight. */
  private readonly inFlightKeys = new Map<string, Flight>();
  /** Rows that wait until their key is no longer in flight. */
  private readonly waiting = new Map<string, Entry[]>();
  private readonly known: InFlight;
  /** Calls with rows that are neither marked nor left. */
  private readonly tickets = new Set<Ticket>();
  /** Keys of which a row was just left: their queued rows must be left too before another row is
   *  accepted. */
  private readonly newlyBlocked = new Set<string>();
  private rowsMax: number;
  private goodFlights = 0;
  private published = 0;
  /** True: one flight at a time. The client merges rows of several flights into one batch, and such
   *  a batch was too large for the broker. */
  private oneByOne = false;
  private pumping = false;
  private startedMs = Number.NEGATIVE_INFINITY;
  private readonly pace = new FlightPace();
  /** Cancels the timer that starts a flight that is not full. */
  private sparseTimer: Cancel | undefined;
  private sparseDueMs = 0;
  /** Reason why `append` refused the last row. */
  private appendRefusal: 'full' | 'too large' | 'no topic' | DeadReason = 'full';
  private failure: { readonly thrown: unknown } | undefined;
  private abandoned = false;

  constructor(options: PublisherOptions) {
    this.options = options;
    this.rowsMax = options.flightRowsMax;
    this.known = new InFlight(options.leases.shards, options.inFlight);
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
      this.counters.inFlight.set(this.known.size);
      this.counters.inFlightBytes.set(this.known.bytes);
      this.counters.held.set(this.holds.size);
    });
  }

  owns(aggregateId: string): boolean {
    const { leases } = this.options;
    return leases.epochOf(shardOf(aggregateId, leases.shards)) !== undefined;
  }

  isInFlight(id: bigint): boolean {
    return this.known.hasId(id);
  }

  leftSoFar(): number {
    return this.holds.count;
  }

  inFlight(): number {
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

  paceMs(): number {
    return this.pace.paceMs();
  }

  /** Age of the oldest flight in ms; 0 without one. */
  oldestFlightMs(): number {
    const nowMs = this.options.clock.monotonicMs();
    return Math.max(
      0,
      ...this.flights.filter((one) => !this.free.includes(one)).map((one) => nowMs - one.startedMs),
    );
  }

  /** Ends all waits: the outcome of rows in flight is unknown, so they stay pending until a relay
   *  finds them marked or publishes them. */
  abandon(): void {
    this.abandoned = true;
    this.sparseTimer?.();
    const queued = this.queue.removeIf(() => true);
    for (const behind of this.waiting.values()) queued.push(...behind);
    this.waiting.clear();
    for (const entry of queued) this.leave(entry);
    this.newlyBlocked.clear();
    for (const flight of this.flights) {
      if (this.free.includes(flight)) continue;
      for (const { row, ticket, span } of flight.entries) {
        span?.fail(new Error('the outcome is unknown'));
        ticket.left.push(row.id);
      }
    }
    // It is not known whether these rows will be marked, so a replication slot must not move past
    // them.
    this.endTickets(
      coreError('unreachable', `the drain ended with ${this.known.size} rows in flight`, {
        next: 'nothing: rows without a mark are pending, and the next relay publishes them again',
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
      if (this.known.has(row)) {
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
      this.queue.push({ row, shard, epoch, ticket });
    }
    if (covered !== undefined) this.holds.covered(covered);
    // Runs after `covered` has ended blocks: rows left above, without a valid lease, still block
    // their keys.
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
      this.queue.peek() !== undefined &&
      this.mayStart()
    ) {
      const flight = this.free.pop() as Flight;
      this.fill(flight);
      if (flight.entries.length === 0) this.free.push(flight);
      else void this.sendFlight(flight);
    }
    this.pumping = false;
  }

  private mayStart(): boolean {
    if (this.free.length === 0) return false;
    const isAlone = this.free.length === this.flights.length;
    if (this.oneByOne) return isAlone;
    const bytesMax = this.options.flightBytesMax;
    if (this.queue.reaches(this.rowsMax, bytesMax, ({ row }) => row.payload.length)) return true;
    const { clock } = this.options;
    const dueMs = this.startedMs + (isAlone ? this.pace.paceMs() : SPARSE_EVERY_MS);
    const waitMs = dueMs - clock.monotonicMs();
    if (waitMs > 0 && this.sparseTimer !== undefined && this.sparseDueMs === dueMs) return false;
    this.sparseTimer?.();
    this.sparseTimer = undefined;
    if (waitMs <= 0) return true;
    this.sparseDueMs = dueMs;
    this.sparseTimer = clock.after(waitMs, () => {
      this.sparseTimer = undefined;
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
      const entry = this.queue.peek();
      if (entry === undefined) break;
      const key = entry.row.aggregateId;
      const at = this.inFlightKeys.get(key);
      if (at !== undefined && at !== flight) this.waitForKey(key, entry);
      else if (!leases.holds(entry.shard, entry.epoch) || this.mustStay(key, entry.row.id)) this.leave(entry);
      else if (this.append(batch, entry)) {
        if (at === undefined) this.inFlightKeys.set(key, flight);
        flight.entries.push(entry);
      } else if (this.appendRefusal === 'full') break;
      else if (this.appendRefusal === 'too large') this.tooLarge(entry);
      else if (this.appendRefusal === 'no topic') this.leave(entry);
      else this.deadLetter(entry, this.appendRefusal);
      this.queue.shift();
    }
    if (this.newlyBlocked.size > 0) this.leaveNewlyBlocked();
  }

  private append(batch: RecordBatch, entry: Entry): boolean {
    const { encoder, recordBytesMax, topics } = this.options;
    const { row } = entry;
    const topic = topics === undefined ? 0 : topics.placeOf(row);
    if (topic === undefined) {
      this.appendRefusal = 'no topic';
      return false;
    }
    const before = batch.arenaUsed;
    const rows = batch.rowCount;
    entry.span ??= isSampled(row.traceparent) ? this.spanOf(row, topic, row.traceparent) : undefined;
    const sent = entry.span === undefined ? row : inTrace(row, entry.span);
    const fits = encoder.append(batch, sent, entry.epoch);
    const bytesMax = Math.min(recordBytesMax, topics?.recordBytesMax(topic) ?? recordBytesMax);
    const isSendable = fits && batch.arenaUsed - before <= bytesMax;
    const dead = isSendable ? deadReason(row) : undefined;
    if (isSendable && dead === undefined) {
      batch.columns.topicIndex[rows] = topic;
      return true;
    }
    this.appendRefusal = dead ?? (fits || rows === 0 ? 'too large' : 'full');
    batch.arenaUsed = before;
    batch.rowCount = rows;
    return false;
  }

  private spanOf(row: OutboxRow, topic: number, traceparent: string): TraceSpan | undefined {
    const name = this.options.topics?.names[topic] ?? '';
    const attributes = {
      'messaging.system': 'kafka',
      'messaging.operation.name': 'publish',
      'messaging.operation.type': 'send',
      'messaging.destination.name': name,
      'messaging.message.id': row.msgId,
    };
    const cause = { traceparent, tracestate: tracestateOf(row) };
    return startSpan(`publish ${name}`, 'producer', attributes, cause);
  }

  private waitForKey(key: string, entry: Entry): void {
    const behind = this.waiting.get(key);
    if (behind === undefined) this.waiting.set(key, [entry]);
    else behind.push(entry);
  }

  private leaveNewlyBlocked(): void {
    const stays = (entry: Entry): boolean =>
      this.newlyBlocked.has(entry.row.aggregateId) && this.mustStay(entry.row.aggregateId, entry.row.id);
    const leaving = this.queue.removeIf(stays);
    for (const key of this.newlyBlocked) {
      const behind = this.waiting.get(key);
      if (behind === undefined) continue;
      leaving.push(...behind.filter(stays));
      this.waiting.set(
        key,
        behind.filter((entry) => !stays(entry)),
      );
    }
    for (const entry of leaving) this.leave(entry);
    this.newlyBlocked.clear();
  }

  /** True when an earlier row of the key was left after this row was accepted. */
  private mustStay(key: string, id: bigint): boolean {
    const hold = this.holds.of(key);
    return hold !== undefined && id > hold.from;
  }

  private async sendFlight(flight: Flight): Promise<void> {
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
    const tookMs = clock.monotonicMs() - flight.startedMs;
    this.counters.seconds.observe(tookMs / 1000);
    this.pace.landed(tookMs);
    for (const event of sent.events) {
      log.warn({ code: event.name, error: event.message }, 'rows were not acknowledged');
      if (TOPIC_MISSING.has(event.code)) onTopicMissing();
    }
    if (sent.fenced) onFenced();
    this.settleFlight(flight, sent);
    this.free.push(flight);
    this.pump();
  }

  private settleFlight(flight: Flight, sent: Sent): void {
    const { marker } = this.options;
    const { entries } = flight;
    invariant(sent.status.length >= entries.length, 'the broker reports on each row that was sent');
    const tooLarge = sent.status.reduce((sum, status) => (TOO_LARGE.has(status) ? sum + 1 : sum), 0);
    let failed = 0;
    for (let i = 0; i < entries.length; i++) {
      const entry = entries[i] as Entry;
      const status = sent.status[i] as number;
      if (status !== 0) {
        failed++;
        // A single refused row is itself too large; several are refused for the size of their
        // batch.
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
          'a row was acknowledged although an earlier row of its key had failed',
        );
      }
      entry.ticket.published++;
      entry.span?.end();
      entry.span = undefined;
      marker.add(entry);
      this.settleOne(entry.ticket);
    }
    this.published += entries.length - failed;
    this.counters.published.add(entries.length - failed);
    this.counters.failed.add(failed);
    this.adapt(tooLarge, failed, flight.alone);
    for (const { row } of entries) {
      if (!this.inFlightKeys.delete(row.aggregateId) || this.waiting.size === 0) continue;
      const behind = this.waiting.get(row.aggregateId);
      if (behind === undefined) continue;
      this.waiting.delete(row.aggregateId);
      this.queue.requeue(behind);
    }
    if (this.newlyBlocked.size > 0) this.leaveNewlyBlocked();
  }

  /** Adapts the size of flights when the broker refuses a batch as too large. The cause may be one
   *  row, the whole batch, or a merge with another flight. One flight at a time, with a quarter of
   *  the refused rows each, isolates it; each attempt costs a producer and a wait. */
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
      'an outbox row exceeds the record limit; its key is blocked',
    );
    this.leave(entry);
  }

  private deadLetter(entry: Entry, reason: DeadReason): void {
    const { id, msgId, aggregateId } = entry.row;
    this.counters.deadLetters.add();
    this.options.log.error(
      { id: id.toString(), msg_id: msgId, aggregate_id: aggregateId },
      `${DEAD_TEXTS[reason]}; the row is copied into relay_dead_letters and its key continues`,
    );
    entry.span?.fail(new Error(reason));
    this.options.marker.add({ ...entry, span: undefined, dead: reason });
    this.settleOne(entry.ticket);
  }

  private leave(entry: Entry): void {
    entry.span?.fail(new Error('not acknowledged'));
    entry.span = undefined;
    this.newlyBlocked.add(entry.row.aggregateId);
    this.holds.add(entry.row.aggregateId, entry.row.id);
    entry.ticket.left.push(entry.row.id);
    this.known.remove(entry.row, entry.shard);
    this.settleOne(entry.ticket);
    this.markedOne(entry.ticket);
  }

  private settleOne(ticket: Ticket): void {
    invariant(--ticket.open >= 0, 'a row has one outcome');
    if (ticket.open === 0) ticket.settle();
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

  /** Fails all calls, present and future, with an error that no retry can fix. */
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

type DeadReason = 'payload_not_json' | 'headers_not_valid';

const DEAD_TEXTS: Readonly<Record<DeadReason, string>> = {
  payload_not_json: 'the payload of an outbox row is not JSON',
  headers_not_valid: 'the headers of an outbox row are not an object of texts and bytes',
};

/** Reason why the row can never be published; undefined for a sound one. */
function deadReason(row: OutboxRow): DeadReason | undefined {
  if (isJsonContent(row.record?.contentType) && !isJsonText(row.payload)) return 'payload_not_json';
  return row.record === undefined || headersOf(row) !== undefined ? undefined : 'headers_not_valid';
}

/** True when a row of a blocked key may be sent in this call: its id is below the ids that were
 *  left, or the call covers those ids from the first one on. */
function mayPass(key: string, hold: Hold, id: bigint, covered: Covered | undefined): boolean {
  if (id < hold.from) return true;
  return covered !== undefined && id <= covered.to && begins(key, hold, covered);
}
