/** Interfaces of the contract suite for adapters, and the tables of one run. */
import { ok } from 'node:assert/strict';
import { outboxRecordSql, outboxTableSql } from '../append/table.ts';
import type { OpenTransaction } from '../database/transaction.ts';
import { effectsTableSql } from '../effects/table.ts';
import { idempotencyTableSql } from '../idempotency/table.ts';
import { inboxTableSql } from '../inbox/table.ts';
import { systemIds } from '../system.ts';

/** An adapter under test, over a client that is connected to a PostgreSQL server. */
export interface AdapterHarness {
  /** Runs `work` in one transaction of the client. Commits after it; rolls back when it rejects,
   *  and rejects with its error. */
  transaction<T>(work: (tx: OpenTransaction) => Promise<T>): Promise<T>;
  /** Runs `work` with the adapter where no transaction is open: over a connection in autocommit
   *  mode, a pool, or both in turn. */
  outside(work: (tx: OpenTransaction) => Promise<unknown>): Promise<void>;
  /** Another client in autocommit mode, on the same database and search path: a pool of `pg`. Its
   *  role may create tables. */
  readonly observer: OpenTransaction;
}

/** Test of the suite. `run` rejects if the adapter breaks the promise of the name. */
export interface AdapterCase {
  /** Sentence about the promise. */
  readonly name: string;
  run(): Promise<void>;
}

/** Tables of one run of the suite. Their names are unique, so that runs share a schema. */
export class ContractTables {
  readonly harness: AdapterHarness;
  readonly notes: string;
  readonly outbox: string;
  readonly inbox: string;
  readonly keys: string;
  readonly effects: string;

  constructor(harness: AdapterHarness) {
    this.harness = harness;
    const run = `millrace_${systemIds.next().replaceAll('-', '').slice(-16)}`;
    this.notes = `${run}_notes`;
    this.outbox = `${run}_outbox`;
    this.inbox = `${run}_in`;
    this.keys = `${run}_keys`;
    this.effects = `${run}_effects`;
  }

  async create(): Promise<void> {
    const statements = [
      `CREATE TABLE ${this.notes} (id int NOT NULL, note text)`,
      outboxTableSql(this.outbox),
      outboxRecordSql(this.outbox),
      inboxTableSql(this.inbox),
      idempotencyTableSql(this.keys),
      effectsTableSql(this.effects),
    ];
    for (const sql of statements) await this.harness.observer.query(sql, []);
  }

  async drop(): Promise<void> {
    const { notes, outbox, inbox, keys, effects } = this;
    const tables = [notes, outbox, inbox, `${inbox}_floor`, keys, effects];
    const sql = `DROP TABLE IF EXISTS ${tables.join(', ')}`;
    await this.harness.observer.query(sql, []);
  }

  /** Number of committed rows of a table, as the other client reads it. */
  async committed(table: string): Promise<number> {
    const { rows } = await this.harness.observer.query(`SELECT count(*)::text AS count FROM ${table}`, []);
    return Number((rows[0] as { readonly count: string }).count);
  }

  /** Rows of a query of the other client. */
  async observed(sql: string): Promise<ReadonlyArray<Readonly<Record<string, unknown>>>> {
    return (await this.harness.observer.query(sql, [])).rows;
  }

  note(tx: OpenTransaction, id: number, note: string | null = null): Promise<unknown> {
    return tx.query(`INSERT INTO ${this.notes} (id, note) VALUES ($1::int, $2::text)`, [id, note]);
  }
}

/** Error of a promise that must reject. */
export async function rejection(promise: Promise<unknown>): Promise<unknown> {
  const outcome = await promise.then(
    () => undefined,
    (thrown: unknown) => ({ thrown }),
  );
  ok(outcome !== undefined, 'the call must reject');
  return outcome.thrown;
}
