/** Cause of a failed batch of the inbox consumer: the record, the tables or the database. */
import { expect, it } from 'vitest';
import { silentLogger } from '../../../../src/core/log.ts';
import { sqlError } from '../../../../src/io/postgres/sql/port.ts';
import { BatchCommitter, faultOfEffect } from '../../../../src/outbox/inbox/batch-committer.ts';

const MSG = '01890a5d-ac96-774b-bcce-b302099a8057';
const record = (n: number) => ({
  topic: 't',
  partition: 0,
  offset: BigInt(n),
  key: null,
  value: null,
  timestampMs: 0,
  headers: [],
  msgId: MSG,
});

interface Outcome {
  done: number;
  parked: number;
  waits: boolean[];
  transactions: number;
}

/** Settles one record whose effect fails `failures` times with this SQLSTATE. */
async function settle(sqlstate: string | undefined, failures: number, isOurs = () => true): Promise<Outcome> {
  const outcome: Outcome = { done: 0, parked: 0, waits: [], transactions: 0 };
  let left = failures;
  const committer = new BatchCommitter<ReturnType<typeof record>, string, { done: number; parked: number }>({
    commit: ({ records, parked }) => {
      outcome.transactions++;
      if (records.length > 0 && left-- > 0)
        return Promise.reject(sqlError('sql_failed', 'no', { details: { sqlstate } }));
      return Promise.resolve({ done: records.length, parked: parked.length });
    },
    faultOf: faultOfEffect,
    park: (_record, why) => why,
    log: silentLogger,
    attempts: 2,
    idle: () => Promise.resolve(),
    shouldStop: () => false,
    isOurs,
    onWait: (waiting) => {
      outcome.waits.push(waiting);
      return Promise.resolve();
    },
    onCommitted: ({ done, parked }) => {
      outcome.done += done;
      outcome.parked += parked;
    },
    monotonicMs: () => 0,
  });
  expect(await committer.settle({ records: [record(1)], parked: [] })).toBe(true);
  return outcome;
}

it.each(['22003', '23505', '44000', '54000', 'P0001', '25P02', undefined])(
  'sqlstate %s is the fault of the record, which is parked after its attempts',
  async (sqlstate) => {
    expect(await settle(sqlstate, 9)).toEqual({ done: 0, parked: 1, waits: [], transactions: 3 });
  },
);

it.each(['25006', '57P01', '53300', '40003', 'XX000', '08006', '72000', 'ZZ999'])(
  'sqlstate %s is not the fault of the record, so the consumer waits for the database',
  async (sqlstate) => {
    expect(await settle(sqlstate, 9)).toEqual({ done: 1, parked: 0, waits: [true, false], transactions: 10 });
  },
);

it('a batch is retried soon after lock conflicts, and pauses when the conflicts last long', async () => {
  expect(await settle('40001', 3)).toEqual({ done: 1, parked: 0, waits: [], transactions: 4 });
  expect(await settle('55P03', 9)).toEqual({ done: 1, parked: 0, waits: [true, false], transactions: 10 });
});

it.each(['42P01', '0A000', '28000', '3D000'])(
  'sqlstate %s stops the consumer, because no retry can fix it',
  async (sqlstate) => {
    await expect(settle(sqlstate, 1)).rejects.toMatchObject({ code: 'sql_failed' });
  },
);

it('a batch continues with its remaining records when the waiting record has moved to another member', async () => {
  let asked = 0;
  const outcome = await settle('57P01', 9, () => asked++ < 3);
  expect(outcome).toEqual({ done: 0, parked: 0, waits: [true, false], transactions: 3 });
});
