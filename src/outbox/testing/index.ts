/** Entry point `millrace/outbox/testing`: the contract of an OpenTransaction as test cases. Every
 *  adapter of `millrace/outbox/adapters` passes it. It needs a PostgreSQL server and no test
 *  framework.
 */
import { effectCases } from './effects.ts';
import { type AdapterCase, type AdapterHarness, ContractTables } from './harness.ts';
import { transactionCases } from './transactions.ts';
import { valueCases } from './values.ts';

export type { OpenTransaction, TransactionValue } from '../database/transaction.ts';
export type { AdapterCase, AdapterHarness } from './harness.ts';

/** Contract suite of one adapter. */
export interface AdapterContract {
  /** Creates the tables of the suite. Call it before the first case. */
  setUp(): Promise<void>;
  /** Independent cases. */
  readonly cases: readonly AdapterCase[];
  /** Drops the tables of the suite. */
  tearDown(): Promise<void>;
}

/** Returns the contract suite of an adapter, for any test runner.
 *  @example
 *  const { setUp, cases, tearDown } = adapterContract({ transaction, outside, observer: pool });
 *  before(setUp);
 *  for (const { name, run } of cases) test(name, run);
 *  after(tearDown);
 */
export function adapterContract(harness: AdapterHarness): AdapterContract {
  const tables = new ContractTables(harness);
  return {
    setUp: () => tables.create(),
    cases: [...transactionCases(tables), ...valueCases(tables), ...effectCases(tables)],
    tearDown: () => tables.drop(),
  };
}
