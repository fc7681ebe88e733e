/** Inbox retention: creates partitions ahead of time, and expires keys whose messages can no longer
 *  be redelivered.
 *
 *  Invariants: (1) no key expires that is younger than the TTL or the redelivery horizon, whichever
 *  is longer, unless `unsafe` overrides the horizon; (2) a source of the horizon that does not
 *  answer, or clocks that disagree, stop expiry and never shorten the horizon. Several keepers of
 *  one inbox may run; their work is idempotent.
 */
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { Counter, Gauge, Metrics } from '../../../core/metrics.ts';
import { formatDuration } from '../../../core/quantity.ts';
import type { SqlPool } from '../../../io/postgres/sql/port.ts';
import { type InboxNames, plainTableName } from '../names.ts';
import type { HorizonParts } from './horizon.ts';
import {
  type HorizonSources,
  horizonText,
  type LiveHorizon,
  liveHorizon,
  readHorizon,
} from './live-horizon.ts';
import { dropPartitions, expireTimeless, makePartitions, readFloorMs } from './partitions.ts';

export interface InboxKeeperOptions {
  /** Pool whose search path resolves the inbox's name; two connections are enough. */
  readonly pool: SqlPool;
  readonly names: InboxNames;
  readonly sources: HorizonSources;
  readonly ttlMs: number;
  readonly parts: Omit<HorizonParts, 'topicRetentionMs'>;
  /** Expires keys by the TTL alone. */
  readonly unsafe: boolean;
  /** Width of a partition by time, ms. */
  readonly widthMs: number;
  /** Time ahead of the database's clock that partitions cover, ms. */
  readonly aheadMs: number;
  readonly everyMs: number;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly drain: AbortSignal;
  /** Resolves after the time, or immediately when the drain starts. */
  readonly sleep: (ms: number) => Promise<void>;
}

/** Number of rows without a partition by time that one statement deletes. */
const CHUNK_ROWS = 10_000;
/** Maximum of such statements in one turn and partition; the next turn continues. */
const CHUNKS_MAX = 100;
const BUSY = new Set(['55P03', '40P01', '40001']);

/** True for a lock timeout, a deadlock or a serialization failure: nothing was changed, and a retry
 *  can succeed. */
export function isBusy(thrown: unknown): boolean {
  const error = findMillraceError(thrown);
  const sqlstate = error?.details['sqlstate'];
  return error?.code === 'sql_failed' && typeof sqlstate === 'string' && BUSY.has(sqlstate);
}

/** Margins of the inboxes that share metrics, seconds. */
const MARGINS = new WeakMap<Metrics, Map<string, number>>();

export interface RetentionReport {
  readonly partitionsMade: number;
  readonly partitionsDropped: number;
  /** Rows deleted one by one. */
  readonly rowsDeleted: number;
  /** Undefined: it could not be read, and no key expired. */
  readonly horizon: LiveHorizon | undefined;
}

/** Keeps an inbox small: creates its partitions ahead of time and drops those whose messages can
 *  no longer be redelivered. Several keepers may run on one inbox.
 */
export class InboxKeeper {
  private readonly options: InboxKeeperOptions;
  private readonly margin: Gauge;
  private readonly stopped: Gauge;
  private readonly horizonAge: Gauge;
  private readonly floorAge: Gauge;
  private readonly made: Counter;
  private readonly dropped: Counter;
  private readonly expired: Counter;
  private readonly moved: Counter;
  /** Series of this inbox in the metrics that have only that label. */
  private readonly series: number;
  /** State that was logged last; a state is logged once. */
  private loggedState: 'covered' | 'below' | 'unknown' | undefined;

  constructor(options: InboxKeeperOptions) {
    this.options = options;
    const { metrics } = options;
    this.margin = metrics.gauge('dedup_ttl_margin_seconds', 'Dedup TTL less the redelivery horizon.');
    this.stopped = metrics.gauge(
      'inbox_expiry_stopped',
      '1 while a source of the redelivery horizon does not answer and nothing expires.',
      ['inbox'],
    );
    this.horizonAge = metrics.gauge(
      'inbox_horizon_seconds',
      'Age up to which a message can be redelivered, by bound.',
      ['inbox', 'bound'],
    );
    this.floorAge = metrics.gauge(
      'inbox_floor_age_seconds',
      'Age of the inbox floor, below which partitions were dropped; 0 before the first drop.',
      ['inbox'],
    );
    this.series = this.stopped.series(options.names.table);
    this.floorAge.series(options.names.table);
    this.made = metrics.counter('inbox_partitions_made_total', 'Partitions created ahead of time.');
    this.dropped = metrics.counter('inbox_partitions_dropped_total', 'Partitions dropped with their keys.');
    this.expired = metrics.counter(
      'inbox_expired_keys_total',
      'Expired keys: an estimate from table statistics for dropped partitions, else exact.',
    );
    this.moved = metrics.counter(
      'inbox_moved_keys_total',
      'Keys moved between a partition by time and the default partition.',
    );
  }

  /** Runs a turn every `everyMs` until the drain. Logs and retries a turn that fails. */
  async run(): Promise<void> {
    const { drain, sleep, everyMs, log } = this.options;
    const drained = new Promise<void>((resolve) =>
      drain.addEventListener('abort', () => resolve(), { once: true }),
    );
    while (!drain.aborted) {
      try {
        const turn = this.turn();
        // A turn may wait for an unavailable broker. The next process does what is unfinished at
        // the drain.
        turn.catch(() => {});
        await Promise.race([turn, drained]);
      } catch (thrown) {
        const error = findMillraceError(thrown);
        if (error === undefined) throw thrown;
        log.warn({ code: error.code, error: error.message }, 'inbox retention failed; it will be retried');
      }
      await sleep(everyMs);
    }
  }

  /** Runs one turn: creates partitions, reads the horizon, drops partitions and deletes rows.
   *  @throws too_many_partitions, tables_missing, unreachable, sql_failed */
  async turn(): Promise<RetentionReport> {
    const partitionsMade = await this.makeAhead();
    const horizon = await this.readHorizon();
    if (horizon === undefined) return { partitionsMade, partitionsDropped: 0, rowsDeleted: 0, horizon };
    const partitionsDropped = await this.drop(horizon.cutoffMs);
    const rowsDeleted = await this.deleteTimeless(horizon.cutoffMs);
    const floorMs = await readFloorMs(this.options.pool, this.options.names);
    this.floorAge.set(
      floorMs === 0 ? 0 : (horizon.nowMs - floorMs) / 1000,
      this.floorAge.series(this.options.names.table),
    );
    return { partitionsMade, partitionsDropped, rowsDeleted, horizon };
  }

  private async makeAhead(): Promise<number> {
    const { pool, names, sources, ttlMs, aheadMs, widthMs, log } = this.options;
    const nowMs = await sources.databaseNowMs();
    const coverage = { fromMs: nowMs - ttlMs, toMs: nowMs + aheadMs, widthMs };
    const made = { partitions: 0, movedRows: 0, leftOut: 0 };
    try {
      const { leftOut } = await makePartitions(pool, names, coverage, (movedRows) => {
        made.partitions++;
        made.movedRows += movedRows;
        this.made.add(1);
        this.moved.add(movedRows);
      });
      made.leftOut = leftOut;
    } catch (thrown) {
      this.rethrowUnlessBusy(thrown, 'inbox partitions not made');
    } finally {
      // Earlier partitions are committed even if a later one failed.
      if (made.partitions > 0) log.debug({ inbox: names.table, ...made }, 'inbox partitions made');
    }
    return made.partitions;
  }

  private async readHorizon(): Promise<LiveHorizon | undefined> {
    const { sources, parts, ttlMs, unsafe, log } = this.options;
    let horizon: LiveHorizon;
    try {
      horizon = liveHorizon(await readHorizon(sources, parts.clockSkewMs), parts, ttlMs, unsafe);
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error === undefined) throw thrown;
      this.stopped.set(1, this.series);
      if (this.loggedState !== 'unknown') {
        log.warn(
          { code: error.code, error: error.message },
          'redelivery horizon unknown; no key expires until it is known',
        );
      }
      this.loggedState = 'unknown';
      return undefined;
    }
    this.stopped.set(0, this.series);
    this.setMargin(horizon.marginMs / 1000);
    for (const [bound, age] of horizon.ages)
      this.horizonAge.set(Math.max(0, age) / 1000, this.horizonAge.series(this.options.names.table, bound));
    this.logMargin(horizon);
    return horizon;
  }

  /** Sets the gauge to the smallest margin of all inboxes in this process, because it has no label.
   */
  private setMargin(seconds: number): void {
    const { metrics, names } = this.options;
    const margins = MARGINS.get(metrics) ?? new Map<string, number>();
    MARGINS.set(metrics, margins.set(names.table, seconds));
    this.margin.set(Math.min(...margins.values()));
  }

  private logMargin(horizon: LiveHorizon): void {
    const { log, ttlMs, unsafe } = this.options;
    const state = horizon.marginMs < 0 ? 'below' : 'covered';
    if (state === this.loggedState) return;
    const fields = {
      ttl: formatDuration(ttlMs),
      horizon: horizonText(horizon),
      margin_seconds: horizon.marginMs / 1000,
    };
    if (state === 'covered') {
      if (this.loggedState !== undefined) log.info(fields, 'dedup TTL covers the redelivery horizon');
    } else if (unsafe) {
      log.warn(fields, 'the dedup TTL is below the redelivery horizon: a late duplicate may come as unseen');
    } else {
      log.warn(fields, 'the dedup TTL is below the redelivery horizon: keys are kept beyond their TTL');
    }
    this.loggedState = state;
  }

  private async drop(cutoffMs: number): Promise<number> {
    const { pool, names, log } = this.options;
    if (!Number.isFinite(cutoffMs)) return 0;
    let partitions = 0;
    try {
      for (;;) {
        const dropped = await pool.transaction((session) => dropPartitions(session, names, cutoffMs));
        if (dropped.partitions === 0) break;
        partitions += dropped.partitions;
        this.dropped.add(dropped.partitions);
        this.expired.add(Math.max(0, dropped.rowsEstimate - dropped.movedRows));
        this.moved.add(dropped.movedRows);
        log.info({ inbox: names.table, ...dropped }, 'inbox partitions dropped');
      }
    } catch (thrown) {
      this.rethrowUnlessBusy(thrown, 'inbox partitions not dropped');
    }
    return partitions;
  }

  private async deleteTimeless(cutoffMs: number): Promise<number> {
    const { pool, names, drain } = this.options;
    if (!Number.isFinite(cutoffMs) || cutoffMs <= 0) return 0;
    let deleted = 0;
    try {
      for (const partition of [names.low, names.rest, names.high]) {
        let afterProcessedAt = '-infinity';
        for (let chunk = 0; chunk < CHUNKS_MAX && !drain.aborted; chunk++) {
          const { rows, lastProcessedAt } = await expireTimeless(pool, names, partition, {
            beforeMs: cutoffMs,
            afterProcessedAt,
            rowsMax: CHUNK_ROWS,
          });
          deleted += rows;
          this.expired.add(rows);
          if (lastProcessedAt === undefined || rows < CHUNK_ROWS) break;
          afterProcessedAt = lastProcessedAt;
        }
      }
    } catch (thrown) {
      this.rethrowUnlessBusy(thrown, 'inbox keys not deleted');
    }
    return deleted;
  }

  private rethrowUnlessBusy(thrown: unknown, what: string): void {
    if (!isBusy(thrown)) throw thrown;
    this.options.log.debug({ error: (thrown as Error).message }, `${what}; the next turn retries`);
  }
}

/** Returns the time of the database's clock at this statement (not at the start of the
 *  transaction), ms since the epoch. */
export async function readDatabaseNowMs(pool: SqlPool): Promise<number> {
  const { rows } = await pool.query<{ ms: number }>(
    'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS ms',
  );
  return (rows[0] as { ms: number }).ms;
}

/** Returns created_at of the oldest unmarked outbox row, ms since the epoch; undefined: there is
 *  none.
 *  @throws bad_table_name */
export async function readOldestUnmarkedMs(pool: SqlPool, outbox: string): Promise<number | undefined> {
  plainTableName(outbox, 'a plain name of an outbox table');
  // Ids nearly follow the start times of their transactions, within the clock skew. Scanning a
  // large backlog for the exact minimum would cost more.
  const { rows } = await pool.query<{ ms: number | null }>(
    `SELECT (extract(epoch FROM min(created_at)) * 1000)::float8 AS ms
     FROM (SELECT created_at FROM ${outbox} WHERE published_at IS NULL ORDER BY id LIMIT 1000) AS pending`,
  );
  return rows[0]?.ms ?? undefined;
}
