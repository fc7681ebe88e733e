/** Marks acknowledged rows as published, in batches, each row under the epoch of its shard.
 *
 *  Invariants: (1) an id is marked only after the broker acknowledged it, or together with its copy
 *  as a dead letter; (2) a statement marks no row of a shard whose lease has another epoch, also
 *  when the epoch changes while the statement waits; (3) a row that is missing from the table is
 *  looked for again, because a decoded row may not be visible yet; (4) a row is marked only if its
 *  msg_id was acknowledged: PostgreSQL may have lost the published row and given its id out again.
 */
import type { Cancel, Timers } from '../../../core/clock.ts';
import { findMillraceError, invariant } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { Metrics } from '../../../core/metrics.ts';
import type { SqlPool } from '../../../io/postgres/sql/port.ts';
import type { OutboxTable } from '../store.ts';

export interface MarkerOptions {
  /** Pool whose connections may use synchronous_commit = off: a lost mark costs one duplicate. */
  readonly pool: SqlPool;
  readonly table: OutboxTable;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly clock: Timers;
  readonly rowsMax: number;
  readonly withinMs: number;
  /** Time for which a missing row is looked for. */
  readonly missingAfterMs: number;
  /** Called with the number of acknowledged rows, before and after their mark. */
  readonly crashAt: (point: 'publish' | 'mark', unfinished: number) => void;
}

export interface MarkRow {
  readonly row: { readonly id: bigint; readonly msgId: string };
  readonly shard: number;
  readonly epoch: bigint;
  /** Reason why the row can never be published: one statement marks it and copies it into
   *  relay_dead_letters. */
  readonly dead?: string;
}

const RETRY_MS = 20;
const BACKOFF_MAX_MS = 2000;

export class Marker<T extends MarkRow> {
  private readonly options: MarkerOptions;
  private readonly counters;
  private queue: T[] = [];
  /** Time at which each missing row was first looked for, by its msg_id. */
  private readonly missingSinceMs = new Map<string, number>();
  /** Called with each row that is marked, or that this relay may not mark. */
  onDone: (row: T) => void = () => {};
  /** Cancels the timer of the next statement. */
  private due: Cancel | undefined;
  private running = false;
  private stopped = false;
  private failures = 0;
  private lastFailure = '';

  constructor(options: MarkerOptions) {
    this.options = options;
    const { metrics } = options;
    this.counters = {
      marked: metrics.counter('relay_marked_total', 'Outbox rows marked as published.'),
      batches: metrics.counter('relay_mark_batches_total', 'Statements that marked rows.'),
      refused: metrics.counter(
        'relay_marks_refused_total',
        'Acknowledged rows that were not marked because another relay owns their shard.',
      ),
      missing: metrics.counter(
        'relay_marks_missing_total',
        'Acknowledged rows that did not appear in the table within the time limit.',
      ),
      errors: metrics.counter(
        'relay_mark_errors_total',
        'Statements that failed to mark rows; they are retried.',
      ),
      waiting: metrics.gauge('relay_unmarked_rows', 'Rows that are acknowledged and not yet marked.'),
    };
    metrics.onCollect(() => this.counters.waiting.set(this.queue.length));
  }

  /** Error of the last statement; undefined after a success, or before the first one. */
  failureReason(): string | undefined {
    return this.failures === 0 ? undefined : this.lastFailure;
  }

  add(row: T): void {
    this.queue.push(row);
    if (this.queue.length >= this.options.rowsMax) this.flushSoon(0);
    else this.flushSoon(this.options.withinMs);
  }

  /** Starts no further statement: rows that are not marked stay pending. */
  stop(): void {
    this.stopped = true;
    this.due?.();
    this.due = undefined;
  }

  private flushSoon(ms: number): void {
    if (this.running || this.stopped) return;
    if (this.due !== undefined) {
      if (ms > 0) return;
      this.due();
    }
    this.due = this.options.clock.after(ms, () => {
      this.due = undefined;
      void this.flush();
    });
  }

  private async flush(): Promise<void> {
    if (this.running || this.queue.length === 0) return;
    this.running = true;
    const { rowsMax, withinMs, log } = this.options;
    const batch = this.queue.slice(0, rowsMax);
    this.queue = this.queue.slice(batch.length);
    let waitMs = 0;
    try {
      this.options.crashAt('publish', batch.length);
      const again = await this.mark(batch);
      this.options.crashAt('mark', batch.length - again.length);
      this.failures = 0;
      this.queue.push(...again);
      if (this.queue.length > 0)
        waitMs = this.queue.length >= rowsMax ? 0 : again.length > 0 ? RETRY_MS : withinMs;
    } catch (thrown) {
      this.failures++;
      this.counters.errors.add();
      const error = findMillraceError(thrown);
      this.lastFailure = error?.message ?? String(thrown);
      log.warn(
        { code: error?.code, error: this.lastFailure, rows: batch.length },
        'rows were not marked; the statement is retried',
      );
      this.queue.unshift(...batch);
      waitMs = Math.min(BACKOFF_MAX_MS, RETRY_MS * 2 ** Math.min(this.failures, 16));
    } finally {
      this.running = false;
    }
    if (this.queue.length > 0) this.flushSoon(waitMs);
  }

  /** Marks rows; returns those to retry. */
  private async mark(batch: readonly T[]): Promise<T[]> {
    const again: T[] = [];
    for (const reason of new Set(batch.map(({ dead }) => dead)))
      again.push(
        ...(await this.markAll(
          batch.filter(({ dead }) => dead === reason),
          reason,
        )),
      );
    return again;
  }

  private async markAll(batch: readonly T[], dead: string | undefined): Promise<T[]> {
    const { pool, table } = this.options;
    const byLease = new Map<string, T>();
    for (const one of batch) byLease.set(`${one.shard} ${one.epoch}`, one);
    const leases = [...byLease.values()];
    // All or nothing: if one lease has changed, `sort` checks each row below.
    const held = `held AS MATERIALIZED (
         SELECT l.shard FROM relay_leases l
         JOIN unnest($2::int[], $3::bigint[]) AS h(shard, epoch) ON h.shard = l.shard AND h.epoch = l.epoch
         WHERE l.outbox = $4 FOR SHARE OF l)`;
    // IS TRUE keeps the second condition a hashed subplan: the ids alone choose the index scan. An
    // acknowledged msg_id may have got another id since; its event is published all the same.
    const mark = `UPDATE ${table.name} SET published_at = now()
       WHERE id = ANY($1::bigint[]) AND published_at IS NULL AND (SELECT count(*) FROM held) = $5::int
         AND (msg_id IN (SELECT unnest($6::uuid[]))) IS TRUE`;
    const { rowCount } = await pool.query(
      dead === undefined
        ? `WITH ${held} ${mark}`
        : `WITH ${held}, dead AS (${mark} RETURNING id, msg_id, aggregate_id, event_type, payload)
       INSERT INTO relay_dead_letters AS known (outbox, id, msg_id, aggregate_id, event_type, payload, reason)
       SELECT $4, id, msg_id, aggregate_id, event_type, payload, $7 FROM dead
       ON CONFLICT (outbox, id) DO UPDATE SET msg_id = excluded.msg_id, aggregate_id = excluded.aggregate_id,
         event_type = excluded.event_type, payload = excluded.payload, reason = excluded.reason, dead_at = now()`,
      [
        `{${batch.map(({ row }) => row.id).join()}}`,
        leases.map(({ shard }) => shard),
        leases.map(({ epoch }) => epoch),
        table.fullName,
        leases.length,
        `{${batch.map(({ row }) => row.msgId).join()}}`,
        ...(dead === undefined ? [] : [dead]),
      ],
    );
    invariant(rowCount <= batch.length, 'a statement marks only the rows that it names');
    this.counters.batches.add();
    this.counters.marked.add(rowCount);
    if (rowCount !== batch.length) return this.sort(batch);
    for (const one of batch) this.onDone(one);
    return [];
  }

  /** Sorts rows that were not all marked into done, owned by another relay, and to be retried. */
  private async sort(batch: readonly T[]): Promise<T[]> {
    const { pool, table, clock, missingAfterMs, log } = this.options;
    const { rows: leases } = await pool.query<{ shard: number; epoch: bigint }>(
      'SELECT shard, epoch FROM relay_leases WHERE outbox = $1',
      [table.fullName],
    );
    const epochs = new Map(leases.map(({ shard, epoch }) => [shard, epoch]));
    const { rows: seen } = await pool.query<{ id: bigint; msg_id: string; pending: boolean }>(
      `SELECT id, msg_id, published_at IS NULL AS pending FROM ${table.name} WHERE id = ANY($1::bigint[])`,
      [`{${batch.map(({ row }) => row.id).join()}}`],
    );
    const found = new Map(seen.map((row) => [row.id, row]));
    const nowMs = clock.monotonicMs();
    const again: T[] = [];
    for (const one of batch) {
      const { id, msgId } = one.row;
      const stored = found.get(id);
      const isReissued = stored !== undefined && stored.msg_id !== msgId;
      const state = isReissued ? undefined : stored?.pending;
      if (state !== undefined) this.missingSinceMs.delete(msgId);
      if (state !== false && epochs.get(one.shard) !== one.epoch) this.counters.refused.add();
      else if (state === true) {
        again.push(one);
        continue;
      } else if (state === undefined) {
        const sinceMs = this.missingSinceMs.get(msgId) ?? nowMs;
        if (!isReissued && nowMs - sinceMs < missingAfterMs) {
          this.missingSinceMs.set(msgId, sinceMs);
          again.push(one);
          continue;
        }
        this.counters.missing.add();
        log.warn(
          { id: id.toString(), msg_id: msgId },
          isReissued
            ? 'a published row is not in the table: the database lost its transaction and gave its id to another row'
            : 'a published row is not in the table',
        );
      }
      this.missingSinceMs.delete(msgId);
      this.onDone(one);
    }
    return again;
  }
}
