/** Members of the payments group that come, leave, die and stand still in the middle of batches:
 *  every order is charged once, and nothing waits for the dead. */
import { describe, expect, it } from 'vitest';
import { startPayments } from '../fixtures/payments.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { pause, until } from '../wait.ts';
import { openTransactions } from './crash-kit.ts';
import { type Event, events, MORTAL, paymentsKit, recordOf, type World } from './payments-kit.ts';

const own = launcher();
const stack = await sharedStack();
const { pool, world } = await paymentsKit(own, stack);
const LATE_MS = 60_000;

/** Publishes a few records at a time until it is told to stop. */
function publishing(at: World): { readonly sent: Event[]; stop(): Promise<void> } {
  const sent: Event[] = [];
  let stopped = false;
  const done = (async () => {
    while (!stopped) {
      const some = events(60);
      await at.publish(some.map(recordOf));
      sent.push(...some);
      await pause(30);
    }
  })();
  return {
    sent,
    stop: () => {
      stopped = true;
      return done;
    },
  };
}

/** Waits for so many charges more than there are; the first member may still be making its tables.
 */
async function charged(at: World, more: number): Promise<void> {
  const before = await at.count('charges').catch(() => 0);
  await until(
    'more charges',
    async () => ((await at.count('charges')) >= before + more ? true : undefined),
    LATE_MS,
  );
}

async function leave(one: Running): Promise<void> {
  // Others may have done the work before it was up.
  await one.address();
  await one.drain();
}

/** Everything that was sent has its charge, each one. */
async function settled(at: World, sent: readonly Event[]): Promise<void> {
  await until(
    'a charge for each order',
    async () => ((await at.count('charges')) >= sent.length ? true : undefined),
    LATE_MS,
  );
  await at.expectCharged(sent);
}

describe('rebalance during a batch', () => {
  it('payments charges every order once while members join, leave and die', async () => {
    const at = world('churn');
    await at.create();
    const member = (name: string): Running =>
      startPayments(own, at.args('a', MORTAL, '-batch-rows=25', '-batch-every=0ms', '-dup-rate=0.1'), name);
    const feed = publishing(at);
    const one = member('one');
    await charged(at, 50);
    const two = member('two');
    await charged(at, 100);
    const three = member('three');
    await charged(at, 100);
    two.kill('SIGKILL');
    await charged(at, 100);
    const four = member('four');
    await leave(three);
    await charged(at, 100);
    one.kill('SIGKILL');
    await charged(at, 200);
    await feed.stop();
    await settled(at, feed.sent);
    await leave(four);
    // What one member had charged and not committed came to another and was absorbed.
    expect(await at.count(`payments_suppressed WHERE NOT injected AND reason <> 'seen'`)).toBe(0);
    expect(await at.run('a')).toMatchObject({ charged: 0, parked: 0 });
  });

  it('a member takes over from one suspended in an open transaction, which may return later', async () => {
    const at = world('zombie');
    await at.create();
    const flags = [MORTAL, '-batch-rows=25', '-batch-every=0ms', '-max-poll-interval=6s'];
    const zombie = startPayments(own, at.args('a', ...flags), 'zombie');
    const feed = publishing(at);
    await charged(at, 50);
    // Its transactions alone are asked for: it is the only member.
    await until('a member amid a transaction', async () => {
      zombie.kill('SIGSTOP');
      const open = await openTransactions(pool, 'millrace payments', `${at.schema}.inbox`);
      if (open !== undefined) return true;
      zombie.kill('SIGCONT');
      await pause(5);
      return undefined;
    });
    const before = [...feed.sent];
    const other = startPayments(own, at.args('a', ...flags), 'other');
    // Its partitions, and the rows that it holds, are free before it moves again.
    await until(
      'all that was sent by then',
      async () => {
        const rows = await at.query<{ n: number }>('SELECT count(*)::int AS n FROM SCHEMA.charges');
        return (rows[0]?.n ?? 0) >= before.length + 200 ? true : undefined;
      },
      LATE_MS,
    );
    zombie.kill('SIGCONT');
    await charged(at, 200);
    await feed.stop();
    await settled(at, feed.sent);
    // It is a member again: alone, it goes on.
    await leave(other);
    const last = events(90);
    await at.publish(last.map(recordOf));
    await settled(at, [...feed.sent, ...last]);
    await leave(zombie);
    expect(await at.count('payments_parked')).toBe(0);
  });
});
