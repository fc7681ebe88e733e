/** Restart detector: tells whether the database may have lost transactions since the last read.
 *
 *  A crash loses commits that were not flushed, and a failover those that the standby did not have.
 *  The sequence may go back with them, so that ids below the highest one read are given out again.
 *  Both end every session of the server. So a further connection of the pool is the sign, unless a
 *  session that was known before, a witness, still exists. Witnesses are the sessions of this user
 *  with the same application name: those of this relay's pools and of other relays. They are known
 *  by their pid and their start, so that a clock that jumps is no witness.
 */
import type { SqlPool, SqlRow } from '../../../io/postgres/sql/port.ts';

interface Found extends SqlRow {
  readonly sessions: readonly string[];
  readonly lives: boolean;
}

const NOT_KNOWN = -1;

export class RestartDetector {
  private readonly pool: SqlPool;
  private readonly connections: () => number;
  private checked = NOT_KNOWN;
  private witnesses: readonly string[] = [];

  /** @param connections number of connections that the pool has opened so far; default: not known,
   *    so that no check is ever due */
  constructor(pool: SqlPool, connections: () => number = () => NOT_KNOWN) {
    this.pool = pool;
    this.connections = connections;
  }

  /** True if a connection was opened since the last check: what was read since may be the answer of
   *  another server, or of this one after a crash. */
  isDue(): boolean {
    return this.connections() !== this.checked;
  }

  /** True if the server may have lost transactions since the last check. */
  async mayHaveLost(): Promise<boolean> {
    if (!this.isDue()) return false;
    // A connection that is opened meanwhile makes the next check due.
    const checked = this.connections();
    const { rows } = await this.pool.query<Found>(
      `SELECT array_agg(session) AS sessions, bool_or(session = ANY($1::text[])) AS lives
       FROM (SELECT pid || ' ' || backend_start AS session FROM pg_stat_activity
         WHERE usename = current_user AND application_name = current_setting('application_name')
           AND backend_start IS NOT NULL) AS own`,
      [this.witnesses],
    );
    const { sessions, lives } = rows[0] as Found;
    this.checked = checked;
    this.witnesses = sessions;
    return !lives;
  }
}
