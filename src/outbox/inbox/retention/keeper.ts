/** Keeps an inbox: makes partitions ahead, and forgets what can no longer be delivered again.
 *
 *  Invariants: (1) nothing is forgotten that is younger than the TTL or the redelivery horizon,
 *  whichever reaches back further, unless that was overridden; (2) who cannot be asked about the
 *  horizon, or clocks that disagree, stop the forgetting and never shorten the horizon. Several
 *  keepers of one inbox may run: what one did, the next finds done.
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
  /** Connections that see the inbox under its name; two are enough. */
  readonly pool: SqlPool;
  readonly names: InboxNames;
  readonly sources: HorizonSources;
  readonly ttlMs: number;
  readonly parts: Omit<HorizonParts, 'topicRetentionMs'>;
  /** Forget by the TTL alone. */
  readonly unsafe: boolean;
  /** Time in one partition. */
  readonly widthMs: number;
  /** How far ahead of the database's clock partitions are there. */
  readonly aheadMs: number;
  readonly everyMs: number;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly drain: AbortSignal;
  /** Resolves after the time, or at once when the drain starts. */
  readonly sleep: (ms: number) => Promise<void>;
}

/** Rows without a partition by time that one statement deletes. */
const CHUNK_ROWS = 10_000;
/** Statements of that kind in one turn and partition: what is left waits for the next. */
const CHUNKS_MAX = 100;
const BUSY = new Set(['55P03', '40P01', '40001']);

/** A lock that was not to be had, a deadlock, a transaction that came in between: nothing was
 *  changed, and a later attempt does it. */
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
  /** undefined: it could not be read, and nothing was forgotten. */
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
  private readonly forgotten: Counter;
  private readonly moved: Counter;
  /** Of this inbox, in the metrics with that label alone. */
  private readonly series: number;
  /** What was last said, so that it is said once. */
  private said: 'covered' | 'below' | 'unknown' | undefined;

  constructor(options: InboxKeeperOptions) {
    this.options = options;
    const { metrics } = options;
    this.margin = metrics.gauge('dedup_ttl_margin_seconds', 'Dedup TTL less the redelivery horizon.');
    this.stopped = metrics.gauge(
      'inbox_expiry_stopped',
      '1 while a source of the redelivery horizon cannot be asked and nothing expires.',
      ['inbox'],
    );
    this.horizonAge = metrics.gauge(
      'inbox_horizon_seconds',
      'How far back a message may still be delivered again, by what says so.',
      ['inbox', 'bound'],
    );
    this.floorAge = metrics.gauge(
      'inbox_floor_age_seconds',
      'Age of the youngest message time that was dropped; 0 while nothing was.',
      ['inbox'],
    );
    this.series = this.stopped.series(options.names.table);
    this.floorAge.series(options.names.table);
    this.made = metrics.counter('inbox_partitions_made_total', 'Partitions made ahead.');
    this.dropped = metrics.counter('inbox_partitions_dropped_total', 'Partitions dropped with their keys.');
    this.forgotten = metrics.counter(
      'inbox_expired_keys_total',
      'Keys forgotten: dropped ones as the statistics estimate them, others counted.',
    );
    this.moved = metrics.counter(
      'inbox_moved_keys_total',
      'Keys moved between a partition by time and the default partition.',
    );
  }

  /** Takes a turn every `everyMs` until the drain; what fails is said and tried again. */
  async run(): Promise<void> {
    const { drain, sleep, everyMs, log } = this.options;
    const drained = new Promise<void>((resolve) =>
      drain.addEventListener('abort', () => resolve(), { once: true }),
    );
    while (!drain.aborted) {
      try {
        const turn = this.turn();
        // A turn waits for a broker that may be away; what is left undone at the drain is found by
        // the next process.
        turn.catch(() => {});
        await Promise.race([turn, drained]);
      } catch (thrown) {
        const error = findMillraceError(thrown);
        if (error === undefined) throw thrown;
        log.warn({ code: error.code, error: error.message }, 'the inbox was not kept; tried again');
      }
      await sleep(everyMs);
    }
  }

  /** @throws too_many_partitions, tables_missing, unreachable, sql_failed */
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
      this.laterIfBusy(thrown, 'inbox partitions not made');
    } finally {
      // Those before the one that failed are there.
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
      if (this.said !== 'unknown') {
        log.warn(
          { code: error.code, error: error.message },
          'the redelivery horizon is not known; no key expires until it is',
        );
      }
      this.said = 'unknown';
      return undefined;
    }
    this.stopped.set(0, this.series);
    this.setMargin(horizon.marginMs / 1000);
    for (const [bound, age] of horizon.ages)
      this.horizonAge.set(Math.max(0, age) / 1000, this.horizonAge.series(this.options.names.table, bound));
    this.sayMargin(horizon);
    return horizon;
  }

  /** The gauge has no label: of several inboxes in a process it shows the one that has least. */
  private setMargin(seconds: number): void {
    const { metrics, names } = this.options;
    const margins = MARGINS.get(metrics) ?? new Map<string, number>();
    MARGINS.set(metrics, margins.set(names.table, seconds));
    this.margin.set(Math.min(...margins.values()));
  }

  private sayMargin(horizon: LiveHorizon): void {
    const { log, ttlMs, unsafe } = this.options;
    const state = horizon.marginMs < 0 ? 'below' : 'covered';
    if (state === this.said) return;
    const fields = {
      ttl: formatDuration(ttlMs),
      horizon: horizonText(horizon),
      margin_seconds: horizon.marginMs / 1000,
    };
    if (state === 'covered') {
      if (this.said !== undefined) log.info(fields, 'dedup TTL covers the redelivery horizon');
    } else if (unsafe) {
      log.warn(fields, 'the dedup TTL is below the redelivery horizon: a late duplicate may come as unseen');
    } else {
      log.warn(fields, 'the dedup TTL is below the redelivery horizon: keys are kept beyond their TTL');
    }
    this.said = state;
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
        this.forgotten.add(Math.max(0, dropped.rowsEstimate - dropped.movedRows));
        this.moved.add(dropped.movedRows);
        log.info({ inbox: names.table, ...dropped }, 'inbox partitions dropped');
      }
    } catch (thrown) {
      this.laterIfBusy(thrown, 'inbox partitions not dropped');
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
          this.forgotten.add(rows);
          if (lastProcessedAt === undefined || rows < CHUNK_ROWS) break;
          afterProcessedAt = lastProcessedAt;
        }
      }
    } catch (thrown) {
      this.laterIfBusy(thrown, 'inbox keys not deleted');
    }
    return deleted;
  }

  private laterIfBusy(thrown: unknown, what: string): void {
    if (!isBusy(thrown)) throw thrown;
    this.options.log.debug({ error: (thrown as Error).message }, `${what}; the next turn tries again`);
  }
}

/** The database's own clock, of the statement rather than of its transaction. */
export async function readDatabaseNowMs(pool: SqlPool): Promise<number> {
  const { rows } = await pool.query<{ ms: number }>(
    'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS ms',
  );
  return (rows[0] as { ms: number }).ms;
}

/** created_at of the oldest outbox row without a mark, ms since the epoch; undefined: there is
 *  none.
 *  @throws bad_table_name */
export async function readOldestUnmarkedMs(pool: SqlPool, outbox: string): Promise<number | undefined> {
  plainTableName(outbox, 'a plain name of an outbox table');
  // Ids follow their transactions' starts closely; a full scan of a large backlog would cost more
  // than the clock skew allows for.
  const { rows } = await pool.query<{ ms: number | null }>(
    `SELECT (extract(epoch FROM min(created_at)) * 1000)::float8 AS ms
     FROM (SELECT created_at FROM ${outbox} WHERE published_at IS NULL ORDER BY id LIMIT 1000) AS pending`,
  );
  return rows[0]?.ms ?? undefined;
}
