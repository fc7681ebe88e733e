/** Polling source: reads pending rows of the owned shards in id order and delivers them, while
 *  earlier rows are published and marked.
 *
 *  The cursor only saves work. Every read also scans the ids between the cursor and the safe-id
 *  horizon (safe-id-horizon.ts). The cursor moves back every `rescanMs`, after a change of
 *  ownership, and for each row that was left pending. When the database may have lost transactions
 *  (restart-detector.ts), cursor and horizon start again, because ids below them may get new rows.
 *
 *  Invariants: (1) reads follow one another and each is one snapshot, so a row is never delivered
 *  before an earlier committed row of its key; (2) a row in flight is not read, except after such a
 *  loss, because its id may belong to another row since (doubtful-rows.ts); (3) no transaction is
 *  open between two statements.
 */
import { findMillraceError } from '../../../core/errors.ts';
import type { CountingPipeline, Covered, Delivered, RowSource } from '../pipeline/contract.ts';
import type { SourceParts } from '../source.ts';
import { describeOutbox, type OutboxRow, type OutboxTable, readPending } from '../store.ts';
import { DoubtfulRows, type ReadRow } from './doubtful-rows.ts';
import { RestartDetector } from './restart-detector.ts';
import { SafeIdHorizon } from './safe-id-horizon.ts';

export interface PollSettings {
  /** Limit of the rows of a read. */
  readonly rowsMax: number;
  /** Limit of the payload bytes of a read; a larger row is read alone. */
  readonly bytesMax: number;
  /** Longest time between two reads. */
  readonly intervalMs: number;
  /** Shortest time between two reads, unless the first is full. */
  readonly spacingMs: number;
  readonly rescanMs: number;
  readonly stragglerAfterMs: number;
  readonly backoffMaxMs: number;
}

/** Time between two polls of the horizon, each of which reads the table of locks. */
const HORIZON_POLL_MS = 50;
/** First wait before rows that were left are read again; doubles while rows are left again. */
const RETRY_MS = 100;
/** Time between two reads while rows arrive. */
const BUSY_MS = 10;
const START = -1n;
/** Higher than every id. */
const END = (1n << 63n) - 1n;

export type PollParts = SourceParts & { readonly pipeline: CountingPipeline };

export class PollSource implements RowSource {
  private readonly parts: PollParts;
  private table: OutboxTable;
  private readonly settings: PollSettings;
  private readonly restarts: RestartDetector;
  private horizon: SafeIdHorizon;
  private readonly counters;
  /** Rows of each delivery of which some are neither marked nor left. */
  private readonly unsettledReads = new Set<readonly ReadRow[]>();
  private readonly doubtful = new DoubtfulRows();
  private cursor = START;
  private readTo = START;
  private seenGeneration = -1;
  private horizonPolledMs = Number.NEGATIVE_INFINITY;
  private rescannedMs = 0;
  private retryAtMs = Number.POSITIVE_INFINITY;
  private retryFrom = END;
  private retryCount = 0;
  /** True until a scan that moved back has reached the end of the table. */
  private movedBack = false;
  private lastError: string | undefined = 'no row has been read yet';
  private broken: { readonly thrown: unknown } | undefined;

  constructor(parts: PollParts, table: OutboxTable, settings: PollSettings) {
    this.parts = parts;
    this.table = table;
    this.settings = settings;
    this.restarts = new RestartDetector(parts.pool, parts.connections);
    this.horizon = this.newHorizon();
    const { metrics } = parts;
    this.counters = {
      reads: metrics.counter('relay_reads_total', 'Reads of pending rows.'),
      readSeconds: metrics.histogram('relay_read_seconds', 'Time of a read of pending rows.'),
      rescans: metrics.counter('relay_rescans_total', 'Scans that started again at the lowest id.'),
      errors: metrics.counter('relay_cycle_errors_total', 'Reads that ended with an error.'),
      leftRows: metrics.counter(
        'relay_left_total',
        'Rows that stayed pending after a delivery and are read again.',
      ),
      stragglers: metrics.gauge(
        'relay_stragglers',
        'Long transactions whose ids every read looks for separately.',
      ),
      decided: metrics.gauge(
        'relay_decided_id',
        'Safe-id horizon: up to this id every outbox row is committed or will never exist.',
      ),
    };
  }

  private newHorizon(): SafeIdHorizon {
    const { pool, clock } = this.parts;
    return new SafeIdHorizon(pool, this.table, clock, this.settings.stragglerAfterMs);
  }

  failureReason(): string | undefined {
    return this.lastError;
  }

  async run(): Promise<void> {
    const { drain, log, pipeline, sleep } = this.parts;
    let failures = 0;
    while (!drain.aborted) {
      try {
        const more = await this.cycle();
        if (failures > 0) log.info({ failures }, 'reads of pending rows succeed again');
        failures = 0;
        this.lastError = undefined;
        if (more === 'end') break;
      } catch (thrown) {
        if (this.broken !== undefined) throw this.broken.thrown;
        const error = findMillraceError(thrown);
        if (error === undefined || (error.kind !== 'unavailable' && error.code !== 'sql_failed'))
          throw thrown;
        failures++;
        this.lastError = error.message;
        this.counters.errors.add();
        log.warn(
          { code: error.code, error: error.message, failures },
          'a read of pending rows failed; the rows stay pending',
        );
        await sleep(
          Math.min(this.settings.backoffMaxMs, this.settings.intervalMs * 2 ** Math.min(failures, 16)),
        );
      }
    }
    await pipeline.idle();
    if (this.broken !== undefined) throw this.broken.thrown;
  }

  /** One read, and the wait after it. */
  private async cycle(): Promise<'more' | 'end'> {
    const { pipeline, ownership, sleepUntilWoken, clock, exitWhenDrained } = this.parts;
    const { intervalMs, rescanMs } = this.settings;
    await pipeline.room();
    if (this.broken !== undefined) throw this.broken.thrown;
    const owned = ownership.owned();
    const generation = ownership.generation();
    if (owned.length === 0) {
      this.seenGeneration = -1;
      await sleepUntilWoken(Math.min(intervalMs, 50));
      return 'more';
    }
    const nowMs = clock.monotonicMs();
    if (await this.restarts.mayHaveLost()) this.startAgain();
    if (generation !== this.seenGeneration || nowMs - this.rescannedMs >= rescanMs) {
      this.seenGeneration = generation;
      this.rescannedMs = nowMs;
      this.moveBack(START);
      this.counters.rescans.add();
    }
    if (nowMs >= this.retryAtMs) this.moveBack(this.retryFrom - 1n);
    if (nowMs - this.horizonPolledMs >= HORIZON_POLL_MS && this.horizon.needsPoll(this.readTo)) {
      this.horizonPolledMs = nowMs;
      await this.horizon.poll();
    }
    const { rows, full } = await this.read(owned);
    if (full) return 'more';
    if (exitWhenDrained && rows === 0 && (await this.isDrained())) return 'end';
    const startMs = clock.monotonicMs();
    const spacingMs = Math.max(this.settings.spacingMs, rows > 0 ? pipeline.paceMs() : 0);
    // A short wait while rows arrive or an open transaction may still add some.
    const busy = rows > 0 || this.horizon.needsPoll(this.readTo);
    await sleepUntilWoken(busy ? Math.max(spacingMs, Math.min(intervalMs, BUSY_MS)) : intervalMs);
    const restMs = spacingMs - (clock.monotonicMs() - startMs);
    if (restMs > 0) await this.parts.sleep(restMs);
    return 'more';
  }

  private async read(owned: readonly number[]): Promise<{ readonly rows: number; readonly full: boolean }> {
    const { pool, pipeline, ownership, clock, log } = this.parts;
    const { rowsMax, bytesMax } = this.settings;
    const { horizon, cursor } = this;
    const mark = horizon.mark();
    const stragglers = horizon.stragglers();
    const { decided } = horizon;
    let low = decided < cursor ? decided : cursor;
    for (const one of stragglers) if (one.from <= low) low = one.from - 1n;
    const startMs = clock.monotonicMs();
    const asOf = pipeline.leftSoFar();
    const page = await readPending(pool, this.table, {
      cursor,
      decided,
      except: low >= this.readTo ? [] : this.inFlightAbove(low),
      stragglers,
      filter: { shards: ownership.shards, owned },
      limit: rowsMax,
      bytesMax,
    });
    // The answer may be that of another server, to a cursor of this one.
    if (this.restarts.isDue()) return { rows: 0, full: true };
    if (page.isOutdated) {
      this.table = await describeOutbox(pool, this.table.name);
      log.info({ table: this.table.fullName }, 'the table has further columns; they are read from now on');
      return { rows: 0, full: true };
    }
    const { rows: found, cut } = page;
    if (this.doubtful.size > 0) for (const row of found) this.doubtful.remove(row);
    this.counters.reads.add();
    this.counters.readSeconds.observe((clock.monotonicMs() - startMs) / 1000);
    const full = cut || found.length === rowsMax;
    const rows = distinct(found);
    const last = rows[rows.length - 1]?.id;
    // A full read has covered ids up to its last row; below the cursor it may have missed some.
    const reached = full ? (last as bigint) : END;
    if (!full || (last as bigint) > cursor) {
      horizon.covered(mark);
      if (last !== undefined && last > this.cursor) this.cursor = last;
    }
    if (!full && this.cursor < this.readTo) this.cursor = this.readTo;
    if (this.cursor > this.readTo) this.readTo = this.cursor;
    this.counters.stragglers.set(stragglers.length);
    this.counters.decided.set(Number(horizon.decided));
    if (rows.length > 0 || this.movedBack) this.forward(rows, { from: cursor + 1n, to: reached, asOf });
    return { rows: rows.length, full };
  }

  private forward(rows: readonly OutboxRow[], scanned: Covered): void {
    const { pipeline } = this.parts;
    const read = rows.map(({ id, msgId }) => ({ id, msgId }));
    this.unsettledReads.add(read);
    // Only a scan that moved back covers rows that were left; another scan knows only the rows
    // above its start.
    const covered = this.movedBack ? scanned : undefined;
    if (scanned.to === END) this.movedBack = false;
    pipeline.deliver(rows, covered).then(
      (delivered) => this.settled(read, delivered),
      (thrown: unknown) => {
        this.broken ??= { thrown };
      },
    );
  }

  private settled(read: readonly ReadRow[], delivered: Delivered): void {
    const { clock } = this.parts;
    if (delivered.left.length > 0) {
      this.counters.leftRows.add(delivered.left.length);
      for (const id of delivered.left) if (id < this.retryFrom) this.retryFrom = id;
      if (this.retryAtMs === Number.POSITIVE_INFINITY) {
        const waitMs = Math.min(this.settings.backoffMaxMs, RETRY_MS * 2 ** Math.min(this.retryCount++, 16));
        this.retryAtMs = clock.monotonicMs() + waitMs;
      }
    } else if (delivered.published > 0 && this.retryAtMs === Number.POSITIVE_INFINITY) this.retryCount = 0;
    const done = (): void => {
      this.unsettledReads.delete(read);
      if (this.doubtful.size > 0) this.doubtful.settled(read, this.unsettledReads);
    };
    delivered.marked.then(done, done);
  }

  private inFlightAbove(low: bigint): bigint[] {
    const { pipeline } = this.parts;
    const found: bigint[] = [];
    for (const read of this.unsettledReads)
      for (const { id } of read)
        if (id > low && pipeline.isInFlight(id) && !this.doubtful.has(id)) found.push(id);
    return found;
  }

  /** Forgets what was read: the database may have lost it. */
  private startAgain(): void {
    this.horizon = this.newHorizon();
    this.readTo = START;
    this.moveBack(START);
    for (const read of this.unsettledReads) for (const row of read) this.doubtful.add(row);
  }

  private moveBack(to: bigint): void {
    if (to < this.cursor) this.cursor = to;
    this.movedBack = true;
    if (to < this.retryFrom) {
      this.retryFrom = END;
      this.retryAtMs = Number.POSITIVE_INFINITY;
    }
  }

  /** True when no row is pending or in flight, and no row waits to be delivered again. */
  private async isDrained(): Promise<boolean> {
    const { pipeline } = this.parts;
    if (this.retryAtMs !== Number.POSITIVE_INFINITY) return false;
    await pipeline.idle();
    if (this.retryAtMs !== Number.POSITIVE_INFINITY) return false;
    const { rows } = await this.parts.pool.query<{ some: boolean }>(
      `SELECT EXISTS (SELECT FROM ${this.table.name} WHERE published_at IS NULL) AS some`,
    );
    return rows[0]?.some === false;
  }
}

/** Removes repeated rows from an ascending list: the parts of a read may overlap. */
function distinct(rows: readonly OutboxRow[]): readonly OutboxRow[] {
  for (let i = 1; i < rows.length; i++)
    if (rows[i]?.id === rows[i - 1]?.id) return rows.filter((row, at) => row.id !== rows[at - 1]?.id);
  return rows;
}
