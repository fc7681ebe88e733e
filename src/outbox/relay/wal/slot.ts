/** Replication slot and publication of one outbox: creates, reads and drops them.
 *
 *  The confirmed position of the slot is the only cursor. The table relay_slots also records the
 *  position up to which this project allowed the slot to move, and it is written before the slot
 *  moves. A slot above that position was moved or created by another program, and rows may lie
 *  between the two. `unswept` is the reason why the table must be swept before the stream is
 *  trusted; it survives a crash.
 *
 *  Invariant: only the relay that claimed the record in relay_slots last writes it. An owner that
 *  was silent for one lease time may still run. Its writes after the claim of its successor are
 *  refused, so it cannot move the slot either.
 */
import { coreError, findMillraceError } from '../../../core/errors.ts';
import type { SqlPool, SqlRow, SqlValue } from '../../../io/postgres/sql/port.ts';
import { hasRecordColumnsSql, RECORD_COLUMNS, RECORD_TYPES } from '../../append/record-columns.ts';
import { outboxError } from '../../errors.ts';
import { formatLsn, parseLsn } from './lsn.ts';
import { WAL_COLUMNS } from './row.ts';

export interface WalNames {
  /** Schema and table as the server spells them. */
  readonly schema: string;
  readonly table: string;
  readonly slot: string;
  readonly publication: string;
  /** True when the publication has its default name, so that the relay may replace it. */
  readonly isOwnPublication: boolean;
  readonly hasTraceparent: boolean;
  /** True when the table has the record columns. */
  readonly hasRecordColumns: boolean;
  /** Version number of the server: 170004 for 17.4. */
  readonly serverVersion: number;
}

export interface SlotState {
  readonly activePid: number | null;
  /** wal_status: reserved, extended, unreserved or lost. */
  readonly walStatus: string;
  /** safe_wal_size; undefined without a limit. */
  readonly safeWalBytes: number | undefined;
  readonly confirmed: bigint;
  readonly retainedBytes: number;
  /** Reason why the server invalidated the slot; null for a valid one. */
  readonly invalidation: string | null;
  readonly currentLsn: bigint;
}

/** Reason why rows may be pending that the stream will not deliver. */
export type SweepReason =
  | 'first_start'
  | 'slot_missing'
  | 'slot_lost'
  | 'slot_foreign'
  | 'publication_missing'
  | 'undecodable'
  | 'no_slot'
  | 'parked';

export interface SlotRecord {
  readonly confirmed: bigint;
  /** Decimal identifier of the server; positions of two servers do not compare. */
  readonly systemIdentifier: string;
  /** Ids up to `to` may be pending without a position in the stream; null: none. */
  readonly unswept: { readonly reason: SweepReason; readonly to: bigint } | null;
}

interface SlotRecordRow extends SqlRow {
  readonly confirmed: string;
  readonly system: string;
  readonly reason: SweepReason | null;
  readonly to: bigint | null;
  readonly version: string;
}

const SLOT_RECORD_COLUMNS =
  'confirmed_lsn::text AS confirmed, system_identifier AS system, unswept AS reason, unswept_to AS to, xmin::text AS version';

function recordOf(row: SlotRecordRow | undefined): SlotRecord | undefined {
  if (row === undefined) return undefined;
  return {
    confirmed: parseLsn(row.confirmed) ?? 0n,
    systemIdentifier: row.system,
    unswept: row.reason === null ? null : { reason: row.reason, to: row.to ?? ID_MAX },
  };
}

/** Lowest and highest possible id. */
export const ID_MIN = -(2n ** 63n);
export const ID_MAX = 2n ** 63n - 1n;

/** Names that enter SQL text and replication commands. */
const PLAIN_NAME = /^[a-z_][a-z0-9_]{0,62}$/;
const HOLD_MS_MAX = 5000;
/** Limit of the time to create a slot, which waits for every open transaction. */
const MAKING_MS_MAX = 86_400_000;
const NAME_BYTES_MAX = 63;
const TAIL_BYTES = 9;
const UNDEFINED_OBJECT = '42704';
const ALREADY_THERE = '42710';

export const sqlstateOf = (thrown: unknown): string | undefined => {
  const state = findMillraceError(thrown)?.details['sqlstate'];
  return typeof state === 'string' ? state : undefined;
};

/** Adds the remedy to an error about a privilege, a setting or a limit. */
function refusal(thrown: unknown, doing: string): unknown {
  const next: Readonly<Record<string, string>> = {
    '42501':
      'give the role REPLICATION, CREATE on the database and the ownership of the outbox, or run -migrate as such a role',
    '53400': 'raise max_replication_slots or drop an unused slot (pg_replication_slots)',
    '55000': 'set wal_level=logical and restart the server, or run with -relay=poll',
  };
  const state = sqlstateOf(thrown);
  const cure = state === undefined ? undefined : next[state];
  if (cure === undefined) return thrown;
  return outboxError('wal_not_possible', `${doing} was refused: ${findMillraceError(thrown)?.message}`, {
    next: cure,
    cause: thrown,
    details: { sqlstate: state },
  });
}

export class WalSlot {
  private readonly pool: SqlPool;
  private readonly names: WalNames;
  /** Version of the `relay_slots` row as this relay claimed or wrote it last: its xmin, which
   *  changes with every write. */
  private version: string | undefined;

  constructor(pool: SqlPool, names: WalNames) {
    this.pool = pool;
    this.names = names;
  }

  private columns(): readonly string[] {
    const { hasTraceparent, hasRecordColumns } = this.names;
    return [
      ...WAL_COLUMNS,
      ...(hasTraceparent ? ['traceparent'] : []),
      ...(hasRecordColumns ? RECORD_COLUMNS : []),
    ];
  }

  /** True when the publication includes all columns of the outbox that the relay needs, and the
   *  table has no further ones that it would need. */
  async isPublished(): Promise<boolean> {
    const { schema, table, publication, hasRecordColumns } = this.names;
    const isSame = hasRecordColumns ? '' : ` AND NOT ${hasRecordColumnsSql('to_regclass($5)')}`;
    const { rows } = await this.pool.query<{ good: boolean }>(
      `SELECT p.pubinsert AND p.pubviaroot AND coalesce($4::text[] <@ t.attnames::text[], false)${isSame} AS good
       FROM pg_publication p LEFT JOIN pg_publication_tables t
         ON t.pubname = p.pubname AND t.schemaname = $2 AND t.tablename = $3
       WHERE p.pubname = $1`,
      [publication, schema, table, this.columns(), ...(hasRecordColumns ? [] : [`"${schema}"."${table}"`])],
    );
    return rows[0]?.good === true;
  }

  /** Creates the publication where it is missing or does not fit the outbox; true when it did.
   *  @throws wal_not_possible, slot_taken when the publication includes other tables */
  async ensurePublication(): Promise<boolean> {
    if (await this.isPublished()) return false;
    const { schema, table, publication } = this.names;
    const { rows } = await this.pool.query<{ others: bigint }>(
      `SELECT count(*) AS others FROM pg_publication_tables
       WHERE pubname = $1 AND (schemaname, tablename) IS DISTINCT FROM ($2::name, $3::name)`,
      [publication, schema, table],
    );
    if (rows[0]?.others !== 0n && !this.names.isOwnPublication)
      throw outboxError(
        'slot_taken',
        `the publication ${publication} includes other tables than ${schema}.${table}`,
        {
          next: 'give another -publication',
        },
      );
    try {
      await this.pool.transaction(async (session) => {
        // A relay that is suspended here holds locks of the table for no longer than this.
        await session.query(`SET LOCAL idle_in_transaction_session_timeout = ${HOLD_MS_MAX}`);
        await session.query(`DROP PUBLICATION IF EXISTS ${publication}`);
        await session.query(
          `CREATE PUBLICATION ${publication} FOR TABLE "${schema}"."${table}" (${this.columns().join(', ')})
           WITH (publish = 'insert', publish_via_partition_root = true)`,
        );
      });
    } catch (thrown) {
      if (sqlstateOf(thrown) === ALREADY_THERE) return this.ensurePublication();
      throw refusal(thrown, `the creation of the publication ${publication}`);
    }
    return true;
  }

  /** Reads the state of the slot; undefined where it does not exist. @throws slot_taken when the
   *  name belongs to another kind of slot or another database */
  async readState(): Promise<SlotState | undefined> {
    const { slot } = this.names;
    // Columns of later server versions are read through JSON, where a missing column is null.
    const { rows } = await this.pool.query<Readonly<Record<string, string | null>>>(
      `SELECT s.j->>'slot_type' AS slot_type, s.j->>'plugin' AS plugin, s.j->>'database' AS database, current_database() AS mine,
              s.j->>'active_pid' AS active_pid, s.j->>'wal_status' AS wal_status, s.j->>'safe_wal_size' AS safe_wal_size,
              s.j->>'confirmed_flush_lsn' AS confirmed, s.j->>'invalidation_reason' AS invalidation,
              (pg_current_wal_lsn() - (s.j->>'restart_lsn')::pg_lsn)::text AS retained, pg_current_wal_lsn()::text AS current
       FROM (SELECT to_jsonb(r) AS j FROM pg_replication_slots r WHERE r.slot_name = $1) s`,
      [slot],
    );
    const row = rows[0];
    if (row === undefined) return undefined;
    if (row['slot_type'] !== 'logical' || row['plugin'] !== 'pgoutput' || row['database'] !== row['mine']) {
      const isLogical = row['slot_type'] === 'logical';
      const found = isLogical
        ? `a slot of ${row['plugin']} in database ${row['database']}`
        : 'a physical slot';
      throw outboxError(
        'slot_taken',
        `the replication slot ${slot} is ${found}, not a slot of pgoutput in database ${row['mine']}`,
        { next: 'give another -slot, or drop that slot if it is not in use' },
      );
    }
    const safe = row['safe_wal_size'];
    return {
      activePid: row['active_pid'] == null ? null : Number(row['active_pid']),
      walStatus: row['wal_status'] ?? 'lost',
      safeWalBytes: safe == null ? undefined : Number(safe),
      confirmed: parseLsn(row['confirmed'] ?? '') ?? 0n,
      retainedBytes: Math.max(0, Number(row['retained'] ?? 0)),
      invalidation: row['invalidation'] ?? null,
      currentLsn: parseLsn(row['current'] ?? '') ?? 0n,
    };
  }

  /** Creates the slot, which waits for all open transactions, without a limit, or until `giveUp` is
   *  aborted. @throws wal_not_possible */
  async create(giveUp: AbortSignal): Promise<void> {
    const { slot, serverVersion } = this.names;
    // From version 17 on, a standby that is promoted can have the slot too.
    const failover = serverVersion >= 170_000 ? ', failover => true' : '';
    try {
      await this.pool.transaction(async (session) => {
        await session.query('SET LOCAL statement_timeout = 0');
        await session.query(
          `SELECT lsn::text FROM pg_create_logical_replication_slot($1::name, 'pgoutput'${failover})`,
          [slot],
          { answerTimeoutMs: MAKING_MS_MAX, giveUp },
        );
      });
    } catch (thrown) {
      if (sqlstateOf(thrown) !== ALREADY_THERE)
        throw refusal(thrown, `the creation of the replication slot ${slot}`);
    }
  }

  async drop(): Promise<void> {
    try {
      await this.endHolder();
      await this.pool.query('SELECT pg_drop_replication_slot($1::name)', [this.names.slot]);
    } catch (thrown) {
      if (sqlstateOf(thrown) !== UNDEFINED_OBJECT) throw thrown;
    }
  }

  /** Terminates the walsender that reads the slot; returns its pid. Only for the relay that owns
   *  the outbox. */
  async endHolder(): Promise<number | undefined> {
    const { rows } = await this.pool.query<{ pid: number }>(
      'SELECT active_pid AS pid, pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active_pid IS NOT NULL',
      [this.names.slot],
    );
    return rows[0]?.pid;
  }

  async systemIdentifier(): Promise<string> {
    return this.pool.systemIdentifier();
  }

  /** Highest visible pending id; null where no row is pending. */
  async pendingMax(): Promise<bigint | null> {
    const { schema, table } = this.names;
    const { rows } = await this.pool.query<{ id: bigint | null }>(
      `SELECT max(id) AS id FROM "${schema}"."${table}" WHERE published_at IS NULL`,
    );
    return rows[0]?.id ?? null;
  }

  /** Claims the record and reads it: other relays cannot write it from now on without a claim.
   *  Undefined where it does not exist. */
  async claim(): Promise<SlotRecord | undefined> {
    const { rows } = await this.pool.query<SlotRecordRow>(
      `UPDATE relay_slots SET updated_at = now() WHERE slot_name = $1 RETURNING ${SLOT_RECORD_COLUMNS}`,
      [this.names.slot],
    );
    this.version = rows[0]?.version;
    return recordOf(rows[0]);
  }

  /** Reads the record that this relay claimed; undefined where another relay has claimed it
   *  since. */
  async readRecord(): Promise<SlotRecord | undefined> {
    const { rows } = await this.pool.query<SlotRecordRow>(
      `SELECT ${SLOT_RECORD_COLUMNS} FROM relay_slots WHERE slot_name = $1 AND xmin::text = $2`,
      [this.names.slot, this.version ?? null],
    );
    return recordOf(rows[0]);
  }

  /** Records a slot that was found or created, and the sweep that its stream needs first.
   *  @throws slot_claimed when another relay has claimed the record */
  async saveRecord(record: SlotRecord): Promise<void> {
    await this.write(
      `INSERT INTO relay_slots (slot_name, system_identifier, confirmed_lsn, unswept, unswept_to)
       VALUES ($1, $3, $4::pg_lsn, $5, $6)
       ON CONFLICT (slot_name) DO UPDATE SET system_identifier = excluded.system_identifier,
         confirmed_lsn = excluded.confirmed_lsn, unswept = excluded.unswept, unswept_to = excluded.unswept_to, updated_at = now()
       WHERE relay_slots.xmin::text = $2`,
      [
        record.systemIdentifier,
        formatLsn(record.confirmed),
        record.unswept?.reason ?? null,
        record.unswept?.to ?? null,
      ],
    );
  }

  /** Clears the need for a sweep. @throws slot_claimed */
  async swept(): Promise<void> {
    await this.write(
      'UPDATE relay_slots SET unswept = NULL, unswept_to = NULL, updated_at = now() WHERE slot_name = $1 AND xmin::text = $2',
      [],
    );
  }

  /** Records that the slot may move up to `confirmed`; must precede the move. `parkedTo`: parked
   *  rows up to this id are pending.
   *  @throws slot_claimed */
  async allow(confirmed: bigint, parkedTo: bigint | null): Promise<void> {
    const reason: SweepReason | null = parkedTo === null ? null : 'parked';
    await this.write(
      `UPDATE relay_slots SET confirmed_lsn = greatest(confirmed_lsn, $3::pg_lsn), unswept = $4, unswept_to = $5, updated_at = now()
       WHERE slot_name = $1 AND xmin::text = $2`,
      [formatLsn(confirmed), reason, parkedTo],
    );
  }

  /** Writes the record if its version is the one of this relay. @param text statement with the
   *  version as $2 */
  private async write(text: string, values: readonly SqlValue[]): Promise<void> {
    const { rows } = await this.pool.query<{ version: string }>(`${text} RETURNING xmin::text AS version`, [
      this.names.slot,
      this.version ?? null,
      ...values,
    ]);
    const version = rows[0]?.version;
    if (version === undefined)
      throw outboxError('slot_claimed', `another relay has claimed the slot ${this.names.slot}`, {
        next: 'nothing: the relay that owns the outbox continues at the position of the slot',
      });
    this.version = version;
  }

  /** Writes a message into the log, so that the slot moves while the table has no writes. */
  async heartbeat(): Promise<void> {
    await this.pool.query("SELECT pg_logical_emit_message(false, 'millrace', 'heartbeat')");
  }
}

/** Digest of a table, from pg_class `c` and pg_namespace `n`. It covers the database too, because
 *  slots belong to the whole server. */
export const SLOT_DIGEST_SQL = `substr(md5(current_database() || '.' || coalesce(n.nspname, '') || '.' || coalesce(c.relname, '')), 1, 8)`;

/** Default name of the slot and of the publication of a table. */
export const slotName = (schema: string, table: string, digest: string): string =>
  `millrace_${schema}_${table}`.slice(0, NAME_BYTES_MAX - TAIL_BYTES).concat('_', digest);

export interface NameOptions {
  readonly slot?: string;
  readonly publication?: string;
}

/** Reads the names of a table, its slot and its publication. @throws bad_value, tables_missing,
 *  wal_not_possible where wal_level is not logical */
export async function walNames(pool: SqlPool, table: string, options: NameOptions): Promise<WalNames> {
  const { rows } = await pool.query<{
    level: string;
    version: number;
    schema: string | null;
    name: string | null;
    optional: readonly string[] | null;
    tail: string;
  }>(
    `SELECT current_setting('wal_level') AS level, current_setting('server_version_num')::int AS version,
            n.nspname::text AS schema, c.relname::text AS name,
            (SELECT array_agg(a.attname::text) FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attname = ANY($2::text[]) AND NOT a.attisdropped
               AND a.atttypid = ANY('{${RECORD_TYPES.join(',')}}'::regtype[])) AS optional,
            ${SLOT_DIGEST_SQL} AS tail
     FROM (SELECT to_regclass($1) AS oid) t LEFT JOIN pg_class c ON c.oid = t.oid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace`,
    [table, ['traceparent', ...RECORD_COLUMNS]],
  );
  const row = rows[0];
  if (row === undefined || row.schema === null || row.name === null)
    throw outboxError('tables_missing', `there is no table ${table}`, {
      next: 'run `millrace orders -migrate` on this database first, or give -table',
    });
  if (row.level !== 'logical')
    throw outboxError('wal_not_possible', `the server runs with wal_level=${row.level}`, {
      next: 'set wal_level=logical and restart the server, or run with -relay=poll',
    });
  for (const [flag, name] of [
    ['slot', options.slot],
    ['publication', options.publication],
  ]) {
    if (name !== undefined && !PLAIN_NAME.test(name))
      throw coreError('bad_value', `-${flag}=${name} is not a plain name`, {
        next: 'use lower-case letters, digits and _ (at most 63)',
      });
  }
  const name = slotName(row.schema, row.name, row.tail);
  return {
    schema: row.schema,
    table: row.name,
    slot: options.slot ?? name,
    publication: options.publication ?? name,
    isOwnPublication: options.publication === undefined,
    hasTraceparent: row.optional?.includes('traceparent') === true,
    hasRecordColumns: RECORD_COLUMNS.every((column) => row.optional?.includes(column) === true),
    serverVersion: row.version,
  };
}
