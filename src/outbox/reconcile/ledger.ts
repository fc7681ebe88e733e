/** Ledgers as a temporary table: entries go into SQL by COPY, in chunks, and SQL aggregates them.
 *  Memory does not grow with the ledger. */
import { coreError } from '../../core/errors.ts';
import type { SqlSession, SqlValue } from '../../io/postgres/sql/port.ts';
import { isFinalStatus, type LedgerEntry } from './client-ledger.ts';

/** Number of rows in one COPY. */
const CHUNK_ROWS = 8192;

/** One client's ledger, in the order it was written. */
export type LedgerEntries = AsyncIterable<LedgerEntry> | Iterable<LedgerEntry>;

const CREATE = `
CREATE TEMP TABLE ledger_intents (
  ledger int NOT NULL, intent bigint NOT NULL, key text NOT NULL, account_id bigint NOT NULL, amount_cents bigint NOT NULL,
  sent_at timestamptz NOT NULL
) ON COMMIT DROP;
CREATE TEMP TABLE ledger_replies (
  ledger int NOT NULL, intent bigint NOT NULL, status int NOT NULL, sha256 text NOT NULL
) ON COMMIT DROP`;

/** Replies that are not final (5xx, 429, ...) do not count: the client sent the request again. */
const FOLD = `
CREATE TEMP TABLE ledger ON COMMIT DROP AS
SELECT i.key, i.account_id, i.amount_cents, max(i.sent_at) AS sent_at,
  count(*) FILTER (WHERE r.status BETWEEN 200 AND 299) AS acknowledged,
  count(*) FILTER (WHERE r.status NOT BETWEEN 200 AND 299) AS refused,
  min(r.status || ' ' || r.sha256) FILTER (WHERE r.status BETWEEN 200 AND 299) AS answer,
  max(r.status || ' ' || r.sha256) FILTER (WHERE r.status BETWEEN 200 AND 299) AS other_answer
FROM ledger_intents i LEFT JOIN ledger_replies r USING (ledger, intent)
GROUP BY i.key, i.account_id, i.amount_cents`;

interface Target {
  readonly table: string;
  readonly columns: readonly string[];
  readonly rows: SqlValue[][];
}

/** Fills the temporary table `ledger` of this transaction.
 *  @throws bad_file for an invalid ledger */
export async function loadLedgers(
  session: SqlSession,
  ledgers: readonly LedgerEntries[],
  onEntry: () => void,
): Promise<void> {
  await session.query(CREATE);
  const intents: Target = {
    table: 'pg_temp.ledger_intents',
    columns: ['ledger', 'intent', 'key', 'account_id', 'amount_cents', 'sent_at'],
    rows: [],
  };
  const replies: Target = {
    table: 'pg_temp.ledger_replies',
    columns: ['ledger', 'intent', 'status', 'sha256'],
    rows: [],
  };
  const copy = async ({ table, columns, rows }: Target): Promise<void> => {
    if (rows.length > 0) await session.copyIn(table, columns, rows);
    rows.length = 0;
  };
  for (const [number, entries] of ledgers.entries()) {
    let startedMs: number | undefined;
    for await (const entry of entries) {
      onEntry();
      if (entry.type === 'start') startedMs = entry.started_ms;
      const target = entry.type === 'intent' ? intents : replies;
      if (entry.type === 'intent')
        intents.rows.push([
          number,
          entry.intent,
          entry.key,
          entry.account_id,
          entry.amount_cents,
          new Date((startedMs ?? 0) + entry.due_ms),
        ]);
      if (entry.type === 'reply' && isFinalStatus(entry.status))
        replies.rows.push([number, entry.intent, entry.status, entry.sha256]);
      if (target.rows.length >= CHUNK_ROWS) await copy(target);
    }
    if (startedMs === undefined) {
      throw coreError('bad_file', `ledger ${number + 1} has no start`, {
        next: 'give a ledger that millrace load wrote',
      });
    }
  }
  await copy(intents);
  await copy(replies);
  await session.query('ANALYZE ledger_intents; ANALYZE ledger_replies');
  await checkIntents(session);
  await session.query(FOLD);
  await session.query('ANALYZE ledger');
}

/** Refuses a file that was combined from parts of several ledgers. */
async function checkIntents(session: SqlSession): Promise<void> {
  // No LIMIT: with it, the planner would choose a nested loop to find the first row, and a valid
  // ledger has none.
  const { rows } = await session.query<{ bad: readonly bigint[] | null }>(
    `SELECT min(ARRAY[ledger, intent]) AS bad FROM (
       SELECT r.ledger, r.intent FROM ledger_replies r
       WHERE NOT EXISTS (SELECT FROM ledger_intents i WHERE i.ledger = r.ledger AND i.intent = r.intent)
       UNION ALL SELECT ledger, intent FROM ledger_intents GROUP BY ledger, intent HAVING count(*) > 1) AS found`,
  );
  const bad = rows[0]?.bad ?? null;
  if (bad === null) return;
  const [ledger = 0n, intent] = bad;
  throw coreError('bad_file', `ledger ${ledger + 1n} does not have intent ${intent} exactly once`, {
    next: 'give a complete ledger that millrace load wrote',
  });
}
