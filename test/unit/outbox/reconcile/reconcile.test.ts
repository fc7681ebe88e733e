/** The reconciler without a database: loading of ledgers, and the text of its result. */
import { describe, expect, it } from 'vitest';
import type { SqlResult, SqlRow, SqlSession, SqlValue } from '../../../../src/io/postgres/sql/port.ts';
import { LEDGER_FORMAT, type LedgerEntry } from '../../../../src/outbox/reconcile/client-ledger.ts';
import { DELTA_CLASSES } from '../../../../src/outbox/reconcile/deltas.ts';
import { loadLedgers } from '../../../../src/outbox/reconcile/ledger.ts';
import { reconciliationText } from '../../../../src/outbox/reconcile/report.ts';
import type { Reconciliation } from '../../../../src/outbox/reconcile/run.ts';

/** Session that keeps the copied rows, chunk by chunk. */
class Recorder implements SqlSession {
  readonly chunks: Array<{ readonly table: string; readonly rows: readonly (readonly SqlValue[])[] }> = [];
  query<R extends SqlRow = SqlRow>(): Promise<SqlResult<R>> {
    return Promise.resolve({ rows: [], rowCount: 0 });
  }
  copyIn(table: string, _: readonly string[], rows: Iterable<readonly SqlValue[]>): Promise<number> {
    this.chunks.push({ table, rows: [...rows] });
    return Promise.resolve(0);
  }
}

const START: LedgerEntry = { type: 'start', format: LEDGER_FORMAT, target: 't', seed: '1', started_ms: 0 };
const intent = (n: number): LedgerEntry => ({
  type: 'intent',
  intent: n,
  key: `key-${n}`,
  account_id: n,
  amount_cents: 2 * n,
  due_ms: 0,
});
const reply = (n: number, status: number): LedgerEntry => ({
  type: 'reply',
  intent: n,
  kind: 'first',
  status,
  sha256: 'a'.repeat(64),
  replayed: false,
  latency_ms: 1,
});

async function load(...ledgers: readonly (readonly LedgerEntry[])[]) {
  const recorder = new Recorder();
  let entries = 0;
  await loadLedgers(recorder, ledgers, () => entries++);
  const rows = (table: string) =>
    recorder.chunks.filter((chunk) => chunk.table === `pg_temp.${table}`).flatMap((chunk) => chunk.rows);
  return {
    intents: rows('ledger_intents'),
    replies: rows('ledger_replies'),
    chunks: recorder.chunks,
    entries,
  };
}

describe('ledgers', () => {
  it('the reconciler copies intents and their settling replies with the number of their ledger', async () => {
    const first = [START, intent(1), reply(1, 503), reply(1, 201), intent(2)];
    const second = [START, intent(1), reply(1, 409), reply(1, 429)];
    const { intents, replies, entries } = await load(first, second);
    expect(intents.map((row) => row.slice(0, 5))).toEqual([
      [0, 1, 'key-1', 1, 2],
      [0, 2, 'key-2', 2, 4],
      [1, 1, 'key-1', 1, 2],
    ]);
    // Time at which each intent was due, on the client's clock.
    expect(intents.every((row) => row[5] instanceof Date)).toBe(true);
    expect(replies.map((row) => row.slice(0, 3))).toEqual([
      [0, 1, 201],
      [1, 1, 409],
    ]);
    expect(entries).toBe(first.length + second.length);
  });

  it('the reconciler keeps a bounded number of rows in memory, whatever the size of the ledger', async () => {
    const entries = [START, ...Array.from({ length: 30_000 }, (_, n) => [intent(n), reply(n, 201)]).flat()];
    const { intents, replies, chunks } = await load(entries);
    expect(intents).toHaveLength(30_000);
    expect(replies).toHaveLength(30_000);
    expect(Math.max(...chunks.map((chunk) => chunk.rows.length))).toBeLessThanOrEqual(8192);
  });

  it('the reconciler refuses a ledger without a start entry', async () => {
    await expect(load([START], [])).rejects.toMatchObject({ code: 'bad_file' });
  });
});

describe('reconciliationText', () => {
  const clean: Reconciliation = {
    holds: true,
    intents_from: 'ledger',
    produced_intents: 7,
    distinct_orders: 7,
    distinct_charges: 7,
    unanswered_intents: 0,
    refused_intents: 0,
    expired_keys: 0,
    suppressed: {},
    parked: {},
    classes: [],
    deltas: [],
    from: null,
    to: null,
    comparisons: 1,
  };

  it('the reconciliation uses the names of the requirements for the ground truth', () => {
    expect(reconciliationText(clean).split('\n')).toEqual([
      'produced_intents   7  (from the ledger)',
      'distinct_orders    7',
      'distinct_charges   7',
      'deltas             0',
      'The invariant holds: distinct effects equal distinct intents.',
    ]);
  });

  it('the reconciliation counts suppressed and parked records with their reasons', () => {
    const text = reconciliationText({
      ...clean,
      suppressed: { same_batch: 2, seen: 3 },
      parked: { undecidable: 1 },
    });
    expect(text).toContain('suppressed         5  (deliveries absorbed: 2 same_batch, 3 seen)');
    expect(text).toContain('parked             1  (records set aside: 1 undecidable)');
  });

  it('the reconciliation lists ids and the number of unlisted ones', () => {
    const deltas = [
      { class: 'lost_order', meaning: 'm', count: 3, idsOf: 'idempotency key', ids: ['a', 'b'] },
      { class: 'double_charge', meaning: 'n', count: 1, idsOf: 'order_id', ids: ['c'] },
    ] as const;
    const text = reconciliationText({
      ...clean,
      holds: false,
      unanswered_intents: 2,
      refused_intents: 1,
      expired_keys: 9,
      deltas,
    });
    expect(text).toContain('unanswered_intents 2');
    expect(text).toContain('refused_intents    1');
    expect(text).toContain('expired_keys       9');
    expect(text).toContain('deltas             4');
    expect(text).toContain(
      '  lost_order: 3, m\n    idempotency key a\n    idempotency key b\n    and 1 more\n',
    );
    expect(text).toContain('  double_charge: 1, n\n    order_id c\nThe invariant is broken');
  });
});

it('each delta class has one name', () => {
  expect(new Set(DELTA_CLASSES.map((one) => one.name)).size).toBe(DELTA_CLASSES.length);
});
