/** Faults on a database that answers as a test says. */
import { expect, it } from 'vitest';
import { applyTo } from '../../../src/bin/chaos/apply.ts';
import type { PlannedFault } from '../../../src/chaos/schedule.ts';
import { coreError } from '../../../src/core/errors.ts';
import type { SqlPool } from '../../../src/io/postgres/sql/port.ts';
import { systemTimers } from '../../../src/outbox/system.ts';

const LOCK = 'SELECT 1 FROM rows FOR UPDATE';
const fault: PlannedFault = {
  ...{ id: 1, lane: 'postgres', atMs: 0, kind: 'idle-transaction' },
  ...{ target: 'postgres', durationMs: 1 },
};

/** Applies an idle transaction on a database whose lock statements end in turn as `locks` says.
 *  @returns its evidence, and the number of snapshots */
async function hold(
  locks: ReadonlyArray<number | string>,
): Promise<{ readonly evidence: string; readonly snapshots: number }> {
  let snapshots = 0;
  const session = {
    query: async (text: string) => {
      if (text.includes('pg_current_xact_id')) return { rows: [{ xid: `${++snapshots}` }], rowCount: 1 };
      if (text !== LOCK) return { rows: [], rowCount: 0 };
      const answer = locks[snapshots - 1] as number | string;
      if (typeof answer === 'number') return { rows: [], rowCount: answer };
      throw coreError('internal', 'the statement was refused', { details: { sqlstate: answer } });
    },
  };
  const pool = {
    transaction: (work: (one: typeof session) => Promise<string>) => work(session),
    close: async () => {},
  } as unknown as SqlPool;
  const evidence = await applyTo({
    ...{ services: {}, members: {}, proxies: undefined as never, servers: undefined, disks: undefined },
    ...{ connect: () => Promise.resolve(pool), schema: 's', slot: '', clock: systemTimers },
    ...{ tableOf: (name: string) => name, lockRows: [LOCK] },
  } as never)(fault, new AbortController().signal);
  return { evidence, snapshots };
}

it('an idle transaction takes a later snapshot when a row was changed after the one it has', async () => {
  expect(await hold(['40001', '40001', 7])).toEqual({ evidence: 'transaction 3 held 7 rows', snapshots: 3 });
});

it('an idle transaction reports any other refusal', async () => {
  await expect(hold(['42501'])).rejects.toThrow('the statement was refused');
});
