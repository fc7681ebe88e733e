/** Feed from the replication stream to the pipeline: decodes messages, registers rows, delivers
 *  them in portions, and reports a portion as finished when its rows are marked.
 *
 *  Invariants: (1) a row is registered in WalProgress when it is received; (2) the waiting rows are
 *  bounded in number and bytes, and above the bound the stream is not read; (3) a row that is not
 *  acknowledged is delivered again before any later row. If the broker refuses it but accepts
 *  others, its key is parked (parking.ts) and the stream continues; (4) after stop() no row is
 *  delivered; (5) a row of the backlog is delivered only if it was not published before the stream.
 */
import type { Pipeline } from '../pipeline/contract.ts';
import { bytesOf } from '../pipeline/in-flight.ts';
import type { OutboxRow } from '../store.ts';
import type { WalMetrics } from './metrics.ts';
import type { WalParking } from './parking.ts';
import { PgOutputDecoder, type PgOutputMessage, type Relation } from './pgoutput.ts';
import { type Portion, WalProgress } from './progress.ts';
import { WalRowReader } from './row.ts';
import { StreamedTransactions } from './streamed.ts';

/** Rows of one call to the pipeline. */
const PORTION_ROWS_MAX = 1000;
/** Rows that may wait for the pipeline before the stream is paused. */
const WAITING_ROWS_MAX = 8000;
/** Share of a limit below which the stream is resumed. */
const RESUME_AT = 0.5;
const STREAMED_ROWS_MAX = 100_000;
/** Consecutive retries that publish none of the rows that were left; after them the next waiting
 *  rows are tried as well. */
const ROUNDS_ALONE = 3;
const RETRY_FIRST_MS = 50;
const RETRY_MAX_MS = 5000;

export interface Throttle {
  pause(): void;
  resume(): void;
}

/** Transactions that committed before the stream began. Their rows may be published already: by a
 *  relay that polled while the slot rested, or by an owner that died before it moved the slot. */
export interface Backlog {
  /** Position of the log above all of their commits. */
  readonly end: bigint;
  /** Returns those of the rows that were published. */
  published(rows: readonly OutboxRow[]): Promise<ReadonlySet<OutboxRow>>;
}

export interface WalFeedOptions {
  readonly pipeline: Pipeline;
  /** Schema and name of the outbox; rows of other tables are ignored. */
  readonly schema: string;
  readonly table: string;
  readonly metrics: WalMetrics;
  readonly parking: WalParking;
  /** Payload bytes that may wait for the pipeline before the stream is paused. */
  readonly waitingBytesMax: number;
  /** Absent: every row is delivered. */
  readonly backlog?: Backlog;
  readonly sleep: (ms: number) => Promise<void>;
  /** Called when the server describes the table after `open`, because its columns may have changed.
   *  Rows are delivered again once it resolves. If it rejects, none is. */
  readonly verify?: () => Promise<void>;
  /** Called when the pipeline has failed for good. */
  readonly failed: (thrown: unknown) => void;
}

/** Head of the waiting rows that is delivered next. */
interface Head {
  readonly rows: number;
  /** Rows of the head that were published before the stream. */
  readonly published: ReadonlySet<OutboxRow>;
}

const WHOLE_PORTION: Head = { rows: PORTION_ROWS_MAX, published: new Set() };

interface Left {
  readonly portion: Portion;
  rows: OutboxRow[];
  /** Marks of the calls that published the portion's other rows. */
  readonly marked: Array<Promise<void>>;
}

export class WalFeed {
  readonly progress = new WalProgress();
  private readonly options: WalFeedOptions;
  private readonly decoder = new PgOutputDecoder();
  private readonly streamed = new StreamedTransactions(STREAMED_ROWS_MAX);
  private readers = new WeakMap<Relation, WalRowReader | null>();
  private waiting: OutboxRow[] = [];
  private waitingBytes = 0;
  /** Number of the waiting rows that belong to the backlog; they come first. */
  private backlogRows = 0;
  private isInBacklog = false;
  private throttle: Throttle | undefined;
  private pumping = false;
  private stopped = false;
  private opened = false;
  private paused = false;
  private inFlight = 0;
  private idleWaiters: Array<() => void> = [];
  private left: Left[] = [];
  /** Verification of the columns in progress, or failed. */
  private verifying: Promise<void> | undefined;

  constructor(options: WalFeedOptions) {
    this.options = options;
  }

  /** Sets the stream that this feed pauses and resumes. */
  attach(throttle: Throttle): void {
    this.throttle = throttle;
    if (this.paused) throttle.pause();
  }

  /** @throws wal_undecodable */
  readonly onMessage = (bytes: Buffer, start: number, end: number): void => {
    this.apply(this.decoder.decode(bytes, start, end));
  };

  readonly onKeepalive = (walEnd: bigint): void => {
    this.progress.keepalive(walEnd);
  };

  /** Starts to deliver rows: the slot of the stream is verified. */
  open(): void {
    this.opened = true;
    this.start();
  }

  /** Stops to deliver rows; waiting rows are dropped, because the slot still has them. */
  stop(): void {
    this.stopped = true;
    this.waiting = [];
    this.waitingBytes = 0;
    this.backlogRows = 0;
  }

  /** Resolves when every call to the pipeline has settled and its published rows are marked. */
  async idle(): Promise<void> {
    while (this.inFlight > 0) await new Promise<void>((resolve) => this.idleWaiters.push(resolve));
  }

  private apply(message: PgOutputMessage): void {
    const { progress, options } = this;
    switch (message.kind) {
      case 'insert': {
        const reader = this.readerOf(message.relation);
        if (reader === null) return;
        const row = reader.read(message.tuple);
        if (this.streamed.isOpen) this.streamed.add(row, message.xid ?? 0);
        else this.receive(row);
        return;
      }
      case 'relation':
        this.described(message.relation);
        return;
      case 'begin':
        progress.begin();
        this.isInBacklog = message.finalLsn < (options.backlog?.end ?? 0n);
        return;
      case 'commit':
        options.metrics.transactions.add();
        progress.commit(message.endLsn);
        return;
      case 'stream_start':
        this.streamed.start(message.xid);
        return;
      case 'stream_stop':
        this.streamed.stop();
        return;
      case 'stream_abort':
        this.streamed.abort(message.xid, message.subXid);
        return;
      case 'stream_commit':
        progress.begin();
        this.isInBacklog = message.commitLsn < (options.backlog?.end ?? 0n);
        for (const row of this.streamed.commit(message.xid)) this.receive(row);
        options.metrics.transactions.add();
        progress.commit(message.endLsn);
        return;
      default:
        // The decoder keeps descriptions of tables and types; messages, origins and other changes
        // are not needed.
        return;
    }
  }

  /** Each row follows the description that it was decoded with. */
  private described({ schema, name }: Relation): void {
    const { options } = this;
    const isOurs = schema === options.schema && name === options.table;
    // Before `open`, the columns are verified with the slot.
    if (!isOurs || !this.opened || options.verify === undefined) return;
    const mine: Promise<void> = options.verify().then(() => {
      if (this.verifying === mine) this.verifying = undefined;
    });
    mine.catch(options.failed);
    this.verifying = mine;
  }

  private readerOf(relation: Relation): WalRowReader | null {
    const known = this.readers.get(relation);
    if (known !== undefined) return known;
    const { schema, table } = this.options;
    const ours = relation.schema === schema && relation.name === table;
    const reader = ours ? new WalRowReader(relation) : null;
    this.readers.set(relation, reader);
    return reader;
  }

  private receive(row: OutboxRow): void {
    this.progress.row();
    this.options.metrics.rows.add();
    if (this.stopped) return;
    this.waiting.push(row);
    if (this.isInBacklog) this.backlogRows++;
    this.waitingBytes += bytesOf(row);
    if (!this.paused && this.isFull()) {
      this.paused = true;
      this.options.metrics.pauses.add();
      this.throttle?.pause();
    }
    this.start();
  }

  private start(): void {
    if (this.pumping || !this.opened) return;
    this.pumping = true;
    // Runs after the other rows of the same network read.
    queueMicrotask(() => {
      this.pump().catch(this.options.failed);
    });
  }

  private isFull(): boolean {
    return (
      this.waiting.length >= WAITING_ROWS_MAX ||
      this.waitingBytes >= this.options.waitingBytesMax ||
      this.options.parking.isFull
    );
  }

  /** Resumes the stream where there is room. The keeper calls it too, because retries of parked
   *  rows make room outside of the feed. */
  resumeIfRoom(): void {
    if (!this.paused || this.options.parking.isFull) return;
    if (this.waiting.length > WAITING_ROWS_MAX * RESUME_AT) return;
    if (this.waitingBytes > this.options.waitingBytesMax * RESUME_AT) return;
    this.paused = false;
    this.throttle?.resume();
  }

  private async pump(): Promise<void> {
    const { pipeline } = this.options;
    try {
      while (!this.stopped) {
        if (this.left.length > 0) await this.redeliver();
        if (this.waiting.length === 0) break;
        await pipeline.room();
        if (this.verifying !== undefined) await this.verifying;
        const head = this.backlogRows === 0 ? WHOLE_PORTION : await this.headOfBacklog();
        // Calls made meanwhile may have left rows, which must be delivered first.
        if (this.stopped || this.left.length > 0) continue;
        this.portion(head);
      }
    } finally {
      this.pumping = false;
    }
    if (!this.stopped && (this.waiting.length > 0 || this.left.length > 0)) {
      this.pumping = true;
      await this.pump();
    }
  }

  /** Looks up which of the next rows were published before the stream. */
  private async headOfBacklog(): Promise<Head> {
    const asked = this.waiting.slice(0, Math.min(this.backlogRows, PORTION_ROWS_MAX));
    const published = (await this.options.backlog?.published(asked)) ?? new Set();
    return { rows: asked.length, published };
  }

  /** Delivers the next waiting rows, without those that were published before. */
  private portion({ rows: most, published }: Head): Promise<boolean> {
    const next = this.waiting.slice(0, most);
    this.waiting = this.waiting.slice(next.length);
    this.backlogRows = Math.max(0, this.backlogRows - next.length);
    this.options.metrics.skipped.add(published.size);
    for (const row of next) this.waitingBytes -= bytesOf(row);
    this.resumeIfRoom();
    const portion = this.progress.portion(next.length);
    const { parking } = this.options;
    const fresh = published.size === 0 ? next : next.filter((row) => !published.has(row));
    const rows = parking.size === 0 ? fresh : fresh.filter((row) => !parking.add(row));
    const done = this.deliver(portion, rows);
    done.catch(this.options.failed);
    return done;
  }

  /** Delivers rows of a portion; true when the broker acknowledged any of them. */
  private async deliver(portion: Portion, rows: readonly OutboxRow[]): Promise<boolean> {
    const { pipeline, parking } = this.options;
    this.inFlight++;
    try {
      const { left, published, marked } = await pipeline.deliver(rows);
      if (left.length > 0) {
        const ids = new Set(left);
        const again = rows.filter((row) => ids.has(row.id) && !parking.add(row));
        if (again.length > 0) this.left.push({ portion, rows: again, marked: [marked] });
        else await this.finish(portion, [marked]);
        this.wake();
      } else await this.finish(portion, [marked]);
      return published > 0;
    } finally {
      this.callSettled();
    }
  }

  private callSettled(): void {
    this.inFlight--;
    if (this.inFlight > 0) return;
    for (const wake of this.idleWaiters.splice(0)) wake();
  }

  private async finish(portion: Portion, marked: ReadonlyArray<Promise<void>>): Promise<void> {
    await Promise.all(marked);
    this.progress.finish(portion);
  }

  /** Starts the pump for rows that were left while no row waited. */
  private wake(): void {
    if (this.pumping || this.stopped || this.left.length === 0) return;
    this.pumping = true;
    this.pump().catch(this.options.failed);
  }

  /** Delivers rows that were left, and no later row, until each is published or parked. */
  private async redeliver(): Promise<void> {
    const { parking, sleep } = this.options;
    for (let round = 1; this.left.length > 0 && !this.stopped; round++) {
      await this.idle();
      await sleep(Math.min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** Math.min(round, 10)));
      if (this.stopped) return;
      this.dropParked();
      const tried = this.left;
      this.inFlight++;
      const { left, published, marked } = await this.deliverByKey(tried.flatMap(({ rows }) => rows)).finally(
        () => this.callSettled(),
      );
      for (const one of tried) {
        one.rows = one.rows.filter((row) => left.has(row.id));
        one.marked.push(marked);
      }
      this.dropDone();
      if (published > 0) round = 0;
      if (round < ROUNDS_ALONE || this.left.length === 0 || this.waiting.length === 0) continue;
      // Tests whether the broker refuses only these rows, or all rows.
      if (this.verifying !== undefined) await this.verifying;
      const head = this.backlogRows === 0 ? WHOLE_PORTION : await this.headOfBacklog();
      if (this.stopped) return;
      const stuck = this.left;
      this.left = [];
      const anyPublished = await this.portion(head);
      this.left.push(...stuck);
      if (!anyPublished) continue;
      parking.park(stuck.flatMap((one) => one.rows));
      // Other rows that were left wait behind a parked row of their key.
      this.dropParked();
    }
  }

  /** Delivers rows that were left, each key under its own range. A range of several keys would
   *  unblock keys that this feed does not deliver, such as a parked key whose later rows are
   *  delivered page by page. */
  private async deliverByKey(rows: readonly OutboxRow[]) {
    const byKey = new Map<string, OutboxRow[]>();
    for (const row of rows) {
      const ofKey = byKey.get(row.aggregateId);
      if (ofKey === undefined) byKey.set(row.aggregateId, [row]);
      else ofKey.push(row);
    }
    const outcomes = await Promise.all(
      [...byKey].map(([key, ofKey]) => {
        const ascending = ofKey.sort((a, b) => (a.id < b.id ? -1 : 1));
        const [first, last] = [ascending[0] as OutboxRow, ascending.at(-1) as OutboxRow];
        return this.options.pipeline.deliver(ascending, {
          from: first.id,
          to: last.id,
          keys: new Set([key]),
        });
      }),
    );
    const marked = Promise.all(outcomes.map((one) => one.marked)).then(() => {});
    // Prevents an unhandled rejection: a portion awaits this only once all of its rows are
    // published.
    marked.catch(() => {});
    return {
      left: new Set(outcomes.flatMap(({ left }) => left)),
      published: outcomes.reduce((sum, one) => sum + one.published, 0),
      marked,
    };
  }

  /** Leaves the rows of parked keys to the parking. */
  private dropParked(): void {
    for (const one of this.left) one.rows = one.rows.filter((row) => !this.options.parking.add(row));
    this.dropDone();
  }

  /** Finishes the portions that have no rows left. */
  private dropDone(): void {
    this.left = this.left.filter((one) => {
      if (one.rows.length > 0) return true;
      this.finish(one.portion, one.marked).catch(this.options.failed);
      return false;
    });
  }
}
