/** Cases about transactions: the statements of an adapter commit and roll back together, and
 *  nothing is written without an open transaction. */
import { deepEqual, equal, notEqual } from 'node:assert/strict';
import { findMillraceError } from '../../core/errors.ts';
import { append, lockAggregates } from '../append/events.ts';
import type { OpenTransaction } from '../database/transaction.ts';
import { effect } from '../effects/add.ts';
import { Inbox } from '../inbox/once.ts';
import { systemIds } from '../system.ts';
import { request } from './effects.ts';
import { type AdapterCase, type ContractTables, rejection } from './harness.ts';

const eventOf = () => ({ aggregateId: systemIds.next(), eventType: 'contract.v1', payload: { at: 1 } });

/** Refused calls, and their names. */
const WRITES = {
  append: (tables: ContractTables, tx: OpenTransaction) => append(tx, tables.outbox, [eventOf()]),
  once: (tables: ContractTables, tx: OpenTransaction) =>
    new Inbox(tables.inbox).once(tx, systemIds.next(), async () => {
      throw new Error('the effect ran');
    }),
  lockAggregates: (tables: ContractTables, tx: OpenTransaction) =>
    lockAggregates(tx, tables.outbox, [systemIds.next()]),
  idempotent: (tables: ContractTables, tx: OpenTransaction) => request(tables, tx, systemIds.next(), 41),
  effect: (tables: ContractTables, tx: OpenTransaction) =>
    effect(tx, tables.effects, { name: 'contract', key: 'k', input: 1 }),
} as const;

async function commits(tables: ContractTables): Promise<void> {
  const before = await tables.committed(tables.notes);
  const value = await tables.harness.transaction(async (tx) => {
    await tables.note(tx, 1);
    await tables.note(tx, 2);
    equal(await tables.committed(tables.notes), before, 'rows of an open transaction are not visible');
    return 'value';
  });
  equal(value, 'value', 'transaction() resolves with the value of the work');
  equal(await tables.committed(tables.notes), before + 2);
}

async function rollsBack(tables: ContractTables): Promise<void> {
  const before = [await tables.committed(tables.notes), await tables.committed(tables.outbox)];
  const failure = new Error('the work fails');
  const thrown = await rejection(
    tables.harness.transaction(async (tx) => {
      await tables.note(tx, 11);
      await append(tx, tables.outbox, [eventOf()]);
      throw failure;
    }),
  );
  equal(thrown, failure, 'transaction() rejects with the error of the work');
  deepEqual([await tables.committed(tables.notes), await tables.committed(tables.outbox)], before);
}

async function isOneTransaction(tables: ContractTables): Promise<void> {
  const sql = 'SELECT pg_backend_pid()::text AS pid, pg_current_xact_id()::text AS xid';
  const read = async (tx: OpenTransaction) => {
    const { pid, xid } = (await tx.query(sql, [])).rows[0] as Record<string, string>;
    return `${pid} ${xid}`;
  };
  const [first, second] = await tables.harness.transaction(async (tx) => [await read(tx), await read(tx)]);
  equal(second, first, 'two statements run in the same transaction of the same connection');
  const next = await tables.harness.transaction(read);
  notEqual(next, first, 'the next transaction is another one');
}

async function aborts(tables: ContractTables): Promise<void> {
  const before = await tables.committed(tables.notes);
  const outcomes: string[] = [];
  const attempt = (statement: Promise<unknown>) =>
    statement.then(
      () => outcomes.push('answered'),
      () => outcomes.push('rejected'),
    );
  await tables.harness
    .transaction(async (tx) => {
      await attempt(tables.note(tx, 21));
      await attempt(tx.query('SELECT (1 / $1::int)::text AS never', [0]));
      await attempt(tables.note(tx, 22));
    })
    .catch(() => {
      // A client may report that the COMMIT of the aborted transaction rolled back.
    });
  deepEqual(
    outcomes,
    ['answered', 'rejected', 'rejected'],
    'the statements before, at and after the failure',
  );
  equal(await tables.committed(tables.notes), before, 'a transaction with a failed statement writes nothing');
}

async function refusesOutside(tables: ContractTables, name: keyof typeof WRITES): Promise<void> {
  const { outbox, inbox, keys, effects, notes } = tables;
  const counts = () =>
    Promise.all([outbox, inbox, keys, effects, notes].map((table) => tables.committed(table)));
  const before = await counts();
  await tables.harness.outside(async (tx) => {
    // A connection that wrote before must not pass for a transaction.
    for (let turn = 0; turn < 2; turn++) {
      const thrown = await rejection(WRITES[name](tables, tx));
      equal(findMillraceError(thrown)?.code, 'not_in_transaction', `${name} fails with: ${thrown}`);
    }
  });
  deepEqual(await counts(), before);
}

/** The first statement of a transaction, and one after a write, both count as in a transaction. */
async function acceptsEvery(tables: ContractTables, name: 'append' | 'lockAggregates'): Promise<void> {
  for (const writesFirst of [false, true]) {
    await tables.harness.transaction(async (tx) => {
      if (writesFirst) await tables.note(tx, name === 'append' ? 31 : 32);
      await WRITES[name](tables, tx);
      await WRITES[name](tables, tx);
    });
  }
}

export function transactionCases(tables: ContractTables): readonly AdapterCase[] {
  return [
    {
      name: 'the rows of a transaction are visible to others after its commit and not before',
      run: () => commits(tables),
    },
    { name: 'a transaction that fails leaves no row', run: () => rollsBack(tables) },
    {
      name: 'all statements of a transaction run on one connection in one transaction',
      run: () => isOneTransaction(tables),
    },
    { name: 'a statement that fails rejects and aborts its transaction', run: () => aborts(tables) },
    ...(Object.keys(WRITES) as Array<keyof typeof WRITES>).map((name) => ({
      name: `${name} is refused outside of a transaction and writes nothing`,
      run: () => refusesOutside(tables, name),
    })),
    ...(['append', 'lockAggregates'] as const).map((name) => ({
      name: `${name} is accepted as the first statement of a transaction and after a write`,
      run: () => acceptsEvery(tables, name),
    })),
  ];
}
