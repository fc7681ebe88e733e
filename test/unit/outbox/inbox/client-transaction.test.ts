/** Transactions of a service's own client: the errors of each phase, for clients that wrap errors
 *  in different ways. */
import { describe, expect, it } from 'vitest';
import type { OpenTransaction } from '../../../../src/outbox/database/transaction.ts';
import { outboxError } from '../../../../src/outbox/errors.ts';
import { faultOfEffect } from '../../../../src/outbox/inbox/batch-committer.ts';
import {
  runInClient,
  sqlstateOf,
  type TransactionRunner,
} from '../../../../src/outbox/inbox/client-transaction.ts';

/** Transaction in which the server answers as `answer` says. */
const txOf = (answer: (text: string) => unknown = () => undefined): OpenTransaction => ({
  async query(text) {
    const failure = answer(text);
    if (failure !== undefined) throw failure;
    return { rows: [{ open: 'true' }] };
  },
});

interface Failures {
  readonly begin?: unknown;
  readonly query?: (text: string) => unknown;
  readonly rollback?: unknown;
  readonly commit?: unknown;
}

const runnerOf =
  ({ begin, query, rollback, commit }: Failures): TransactionRunner<string> =>
  async (work) => {
    if (begin !== undefined) throw begin;
    const value = await work(txOf(query), 'own').catch((thrown) => {
      throw rollback ?? thrown;
    });
    if (commit !== undefined) throw commit;
    return value;
  };

/** Fault of a batch with one effect. */
const faultOf = (failures: Failures, effect: () => Promise<void> = async () => {}): Promise<string> =>
  runInClient(runnerOf(failures), (client) => client.effect(effect)).then(
    () => 'none',
    (thrown) => faultOfEffect(thrown),
  );
const lost = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
const sql = (code: string): Error => Object.assign(new Error(`state ${code}`), { code });

describe('SQLSTATE of an error', () => {
  it.each([
    ['pg, postgres.js and knex', sql('23505')],
    ['drizzle', new Error('Failed query', { cause: sql('23505') })],
    ['TypeORM', Object.assign(new Error('x'), { driverError: sql('23505'), code: undefined })],
    ['sequelize', Object.assign(new Error('x'), { parent: sql('23505'), original: sql('23505') })],
    [
      'Prisma',
      Object.assign(new Error('x'), {
        code: 'P2010',
        meta: { driverAdapterError: Object.assign(new Error('y'), { cause: { originalCode: '23505' } }) },
      }),
    ],
  ])('the SQLSTATE of an error of %s is found', (_, error) => {
    expect(sqlstateOf(error)).toBe('23505');
  });

  it.each([
    ['a code of Node.js', sql('EPIPE')],
    ['a code of Prisma', sql('P2002')],
    [
      'an error that is its own cause',
      Object.assign(new Error('x'), {
        get cause(): unknown {
          return this;
        },
      }),
    ],
    ['a text', '23505'],
    ['undefined', undefined],
  ])('an error has no SQLSTATE: %s', (_, error) => {
    expect(sqlstateOf(error)).toBeUndefined();
  });
});

describe('faults of a client transaction', () => {
  it('a batch without an error commits, and its work gets the handle of the client', async () => {
    expect(await runInClient(runnerOf({}), async ({ own }) => own)).toBe('own');
  });

  it.each([
    ['a connection that cannot be opened', { begin: lost }, 'away'],
    ['a lost connection of a statement of the library', { query: () => lost }, 'away'],
    ['a COMMIT without an answer', { commit: lost }, 'away'],
    ['a serialization failure at COMMIT', { commit: sql('40001') }, 'contention'],
    ['a deferred constraint at COMMIT', { commit: sql('23503') }, 'record'],
    ['a missing table', { query: () => sql('42P01') }, 'fatal'],
    ['a server that is shutting down', { query: () => sql('57P01') }, 'away'],
  ] as const)('a batch has the fault of %s', async (_, failures, fault) => {
    expect(await faultOf(failures)).toBe(fault);
  });

  it.each([
    ['a constraint', sql('23505'), 'record'],
    ['a deadlock', sql('40P01'), 'contention'],
    ['a third party', lost, 'effect'],
    ['a poison record', outboxError('poison_record', 'no'), 'poison'],
  ] as const)(
    'an effect that fails by %s has its own fault, also if the rollback fails',
    async (_, thrown, fault) => {
      expect(await faultOf({}, () => Promise.reject(thrown))).toBe(fault);
      expect(await faultOf({ rollback: lost }, () => Promise.reject(thrown))).toBe(fault);
    },
  );

  it('an aborted transaction whose effect ignored the error is a fault of the record', async () => {
    let isAborted = false;
    const query = () => (isAborted ? sql('25P02') : undefined);
    const effect = async (): Promise<void> => {
      isAborted = true;
    };
    expect(await faultOf({ query }, effect)).toBe('record');
  });

  it('a runner that opens no transaction ends the consumer, and no effect runs', async () => {
    let effects = 0;
    const runner: TransactionRunner<null> = (work) =>
      work({ query: async () => ({ rows: [{ open: 'false' }] }) }, null);
    const thrown = await runInClient(runner, ({ effect }) => effect(async () => void effects++)).catch(
      (error: unknown) => error,
    );
    expect([faultOfEffect(thrown), effects]).toEqual(['fatal', 0]);
    expect(thrown).toMatchObject({ code: 'not_in_transaction' });
  });
});
