/** Metrics of the outbox and its database: the lag of the relay, and the session that holds the
 *  xmin horizon. Vacuum removes dead rows only below that horizon, so a held horizon slows every
 *  index scan over marked rows. */
import type { Clock } from '../../core/clock.ts';
import type { Logger } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { SqlPool, SqlRow } from '../../io/postgres/sql/port.ts';
import type { OutboxTable } from './store.ts';

/** Pending rows that are counted exactly; above this number the distance of ids is the estimate. */
const COUNTED_MAX = 10_000;
/** Time between two full scans. The scans between them start at the lowest pending row of the
 *  previous scan. */
const WHOLE_EVERY_MS = 60_000;

export class LagMeter {
  private readonly pool: SqlPool;
  private readonly table: OutboxTable;
  private readonly clock: Clock;
  private readonly rows;
  private readonly seconds;
  private floor = -1n;
  private wholeMs = Number.NEGATIVE_INFINITY;

  constructor(pool: SqlPool, table: OutboxTable, clock: Clock, metrics: Metrics) {
    this.pool = pool;
    this.table = table;
    this.clock = clock;
    this.rows = metrics.gauge(
      'relay_lag_rows',
      `Outbox rows that are pending; above ${COUNTED_MAX} the distance between the lowest pending and the highest id.`,
    );
    this.seconds = metrics.gauge('relay_lag_seconds', 'Age of the oldest pending outbox row.');
  }

  async poll(): Promise<void> {
    const nowMs = this.clock.monotonicMs();
    if (nowMs - this.wholeMs >= WHOLE_EVERY_MS) {
      this.wholeMs = nowMs;
      this.floor = -1n;
    }
    const { rows } = await this.pool.query<{
      top: bigint | null;
      low: bigint | null;
      n: bigint;
      age: number | null;
    }>(
      `SELECT (SELECT max(id) FROM ${this.table.name}) AS top, min(id) AS low, count(*) AS n,
         extract(epoch FROM now() - min(created_at))::float8 AS age
       FROM (SELECT id, created_at FROM ${this.table.name} WHERE published_at IS NULL AND id > $1 ORDER BY id LIMIT ${COUNTED_MAX + 1}) AS pending`,
      [this.floor],
    );
    const { top, low, n, age } = rows[0] as (typeof rows)[number];
    const distance = Number((top ?? 0n) - (low ?? top ?? 0n)) + 1;
    this.rows.set(n > COUNTED_MAX ? distance : Number(n));
    this.seconds.set(Math.max(0, age ?? 0));
    // A row that commits late has a lower id; the next full scan finds it.
    if (low !== null) this.floor = low - 1n;
    else if (top !== null) this.floor = top;
  }
}

interface HolderRow extends SqlRow {
  readonly kind: string;
  readonly holder: string;
  readonly transactions: number;
  readonly seconds: number | null;
  readonly xmin: string;
}

export interface HorizonHolder {
  readonly kind: string;
  readonly holder: string;
  readonly seconds: number;
  readonly transactions: number;
}

/** Holders younger than this are normal. */
const HELD_LEAST_S = 1;
const WARN_AGAIN_MS = 60_000;

export class XminMonitor {
  private readonly pool: SqlPool;
  private readonly clock: Clock;
  private readonly log: Logger;
  private readonly warnAfterMs: number;
  private readonly gauges;
  /** Time at which a holder without a known start was first seen, by name and xmin. */
  private firstSeenMs = new Map<string, number>();
  private warnedMs = new Map<string, number>();
  private shown: number | undefined;

  constructor(pool: SqlPool, clock: Clock, metrics: Metrics, log: Logger, warnAfterMs: number) {
    this.pool = pool;
    this.clock = clock;
    this.log = log;
    this.warnAfterMs = warnAfterMs;
    this.gauges = {
      seconds: metrics.gauge(
        'relay_horizon_seconds',
        'Time for which the oldest snapshot of the database has been held.',
      ),
      transactions: metrics.gauge(
        'relay_horizon_transactions',
        'Transactions that began since the oldest snapshot of the database.',
      ),
      holder: metrics.gauge(
        'relay_horizon_holder',
        'Seconds for which the named holder has held the oldest snapshot; 0 once it does not.',
        ['kind', 'holder'],
      ),
    };
  }

  /** Holder of the lowest xmin, once it has held it for a second. */
  async poll(): Promise<HorizonHolder | undefined> {
    const { rows } = await this.pool.query<HolderRow>(
      `SELECT 'session' AS kind, 'pid ' || pid || coalesce(nullif(' ' || application_name, ' '), '') AS holder,
         age(backend_xmin) AS transactions, extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds,
         backend_xmin::text AS xmin
       FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()
       UNION ALL
       SELECT 'standby', 'pid ' || pid || coalesce(nullif(' ' || application_name, ' '), ''), age(backend_xmin), NULL, backend_xmin::text
       FROM pg_stat_replication WHERE backend_xmin IS NOT NULL
       UNION ALL
       SELECT 'slot', slot_name, age(xmin), NULL, xmin::text FROM pg_replication_slots WHERE xmin IS NOT NULL
       UNION ALL
       SELECT 'prepared', gid, age(transaction), extract(epoch FROM clock_timestamp() - prepared)::float8, transaction::text
       FROM pg_prepared_xacts WHERE database = current_database()`,
    );
    const nowMs = this.clock.monotonicMs();
    const seen = new Map<string, number>();
    const found = rows.map((row) => {
      const key = `${row.kind} ${row.holder} ${row.xmin}`;
      const sinceMs = this.firstSeenMs.get(key) ?? nowMs;
      seen.set(key, sinceMs);
      return { ...row, seconds: row.seconds ?? (nowMs - sinceMs) / 1000 };
    });
    this.firstSeenMs = seen;
    const worst = found
      .filter(({ seconds }) => seconds >= HELD_LEAST_S)
      .sort((a, b) => b.transactions - a.transactions || b.seconds - a.seconds)[0];
    this.gauges.seconds.set(worst?.seconds ?? 0);
    this.gauges.transactions.set(worst?.transactions ?? 0);
    if (this.shown !== undefined) this.gauges.holder.set(0, this.shown);
    this.shown = undefined;
    if (worst === undefined) return undefined;
    this.shown = this.gauges.holder.series(worst.kind, worst.holder);
    this.gauges.holder.set(worst.seconds, this.shown);
    const { kind, holder, seconds, transactions } = worst;
    if (
      seconds * 1000 >= this.warnAfterMs &&
      nowMs - (this.warnedMs.get(holder) ?? Number.NEGATIVE_INFINITY) >= WARN_AGAIN_MS
    ) {
      this.warnedMs = new Map([[holder, nowMs]]);
      this.log.warn(
        { kind, holder, seconds: Math.round(seconds), transactions },
        'the horizon is held: vacuum cannot remove marked rows, and scans become slower',
      );
    }
    return { kind, holder, seconds, transactions };
  }
}
