/** Finds replication slots of this outbox that no process reads while its relay polls. A relay in
 *  wal mode leaves its slot behind, so that its successor misses nothing. Under a relay that polls,
 *  the server then retains WAL that no process reads, until its disk is full.
 *
 *  Candidates are the slot whose name derives from the table's name, and the slots in relay_slots,
 *  which may have another name. relay_slots does not record the outbox of a slot. So a slot whose
 *  name derives from another table is left out.
 */
import type { Clock } from '../../core/clock.ts';
import type { Logger } from '../../core/log.ts';
import type { Gauge, Metrics } from '../../core/metrics.ts';
import type { SqlPool, SqlRow } from '../../io/postgres/sql/port.ts';
import type { OutboxTable } from './store.ts';
import { SLOT_DIGEST_SQL, slotName } from './wal/slot.ts';

const WARN_AGAIN_MS = 600_000;

interface IdleSlot {
  readonly slot: string;
  readonly retained: number;
}

export class IdleSlots {
  private readonly pool: SqlPool;
  private readonly table: OutboxTable;
  private readonly clock: Clock;
  private readonly log: Logger;
  private readonly retained: Gauge;
  private readonly warnedMs = new Map<string, number>();
  private shown: readonly string[] = [];

  constructor(pool: SqlPool, table: OutboxTable, clock: Clock, metrics: Metrics, log: Logger) {
    this.pool = pool;
    this.table = table;
    this.clock = clock;
    this.log = log;
    this.retained = metrics.gauge(
      'relay_idle_slot_retained_bytes',
      'WAL that the server retains for a replication slot of an earlier relay in wal mode, while this relay polls; 0 once the slot is gone.',
      ['slot'],
    );
  }

  async check(): Promise<readonly IdleSlot[]> {
    const found = await this.read();
    for (const slot of this.shown) this.retained.set(0, this.retained.series(slot));
    this.shown = found.map(({ slot }) => slot);
    const nowMs = this.clock.monotonicMs();
    for (const { slot, retained } of found) {
      this.retained.set(retained, this.retained.series(slot));
      if (nowMs - (this.warnedMs.get(slot) ?? Number.NEGATIVE_INFINITY) < WARN_AGAIN_MS) continue;
      this.warnedMs.set(slot, nowMs);
      this.log.warn(
        { slot, retained_bytes: retained, drop: `SELECT pg_drop_replication_slot('${slot}')` },
        'a replication slot of an earlier relay in wal mode retains WAL and no process reads it; drop it, unless a relay in wal mode will run again',
      );
    }
    return found;
  }

  private async read(): Promise<readonly IdleSlot[]> {
    const { rows } = await this.pool.query<IdleSlot & SqlRow>(
      `WITH tables AS (
         SELECT c.oid, ${SLOT_DIGEST_SQL} AS digest
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p'))
       SELECT s.slot_name::text AS slot, greatest(0, pg_current_wal_lsn() - s.restart_lsn)::float8 AS retained
       FROM pg_replication_slots s
       WHERE s.slot_type = 'logical' AND s.plugin = 'pgoutput' AND s.database = current_database()
         AND NOT s.active AND s.restart_lsn IS NOT NULL
         AND (s.slot_name = $2 OR s.slot_name::text IN (SELECT slot_name FROM relay_slots))
         AND NOT EXISTS (SELECT FROM tables t WHERE t.oid <> to_regclass($1) AND right(s.slot_name, 9) = '_' || t.digest)
       ORDER BY s.slot_name`,
      [this.table.name, await this.ownName()],
    );
    return rows;
  }

  private async ownName(): Promise<string> {
    const { rows } = await this.pool.query<{ schema: string; name: string; digest: string }>(
      `SELECT n.nspname::text AS schema, c.relname::text AS name, ${SLOT_DIGEST_SQL} AS digest
       FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)`,
      [this.table.name],
    );
    const [own] = rows;
    return own === undefined ? '' : slotName(own.schema, own.name, own.digest);
  }
}
