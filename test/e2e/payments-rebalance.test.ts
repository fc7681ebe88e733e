/** Members of the payments group join, leave, die and are suspended in the middle of batches: every
 *  order is charged once, and no member waits for a dead one. */
import { describe, expect, it } from 'vitest';
import { startPayments } from '../fixtures/payments.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { pause, until } from '../wait.ts';
import { openTransactions } from './crash-kit.ts';
import { type Event, events, paymentsKit, recordOf, SHORT_SESSION, type World } from './payments-kit.ts';

const own = launcher();
const stack = await sharedStack();
const { pool, world } = await paymentsKit(own, stack);
const LIMIT_MS = 60_000;

/** Publishes a few records at a time until `stop` is called. */
function startPublishing(at: World): { readonly sent: Event[]; stop(): Promise<void> } {
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

/** Waits for `more` additional charges. The table may not exist yet, because the first member
 *  creates it. */
async function untilMoreCharges(at: World, more: number): Promise<void> {
  const before = await at.count('charges').catch(() => 0);
  await until(
    'more charges',
    async () => ((await at.count('charges')) >= before + more ? true : undefined),
    LIMIT_MS,
  );
}

async function drainMember(one: Running): Promise<void> {
  // The other members may have done all the work before this member was up.
  await one.address();
  await one.drain();
}

/** Waits until every sent order has a charge, and asserts that each has exactly one. */
async function untilAllCharged(at: World, sent: readonly Event[]): Promise<void> {
  await until(
    'a charge for each order',
    async () => ((await at.count('charges')) >= sent.length ? true : undefined),
    LIMIT_MS,
  );
  await at.expectCharged(sent);
}

describe('rebalance during a batch', () => {
  it('payments charges every order once while members join, leave and die', async () => {
    const at = world('churn');
    await at.create();
    const member = (name: string): Running =>
      startPayments(
        own,
        at.args('a', SHORT_SESSION, '-batch-rows=25', '-batch-every=0ms', '-dup-rate=0.1'),
        name,
      );
    const feed = startPublishing(at);
    const one = member('one');
    await untilMoreCharges(at, 50);
    const two = member('two');
    await untilMoreCharges(at, 100);
    const three = member('three');
    await untilMoreCharges(at, 100);
    two.kill('SIGKILL');
    await untilMoreCharges(at, 100);
    const four = member('four');
    await drainMember(three);
    await untilMoreCharges(at, 100);
    one.kill('SIGKILL');
    await untilMoreCharges(at, 200);
    await feed.stop();
    await untilAllCharged(at, feed.sent);
    await drainMember(four);
    // Orders that a member charged without committing the offset were redelivered and suppressed as
    // seen.
    expect(await at.count(`payments_suppressed WHERE NOT injected AND reason <> 'seen'`)).toBe(0);
    expect(await at.run('a')).toMatchObject({ charged: 0, parked: 0 });
  });

  it('a member takes over from a member that is suspended in an open transaction and resumes later', async () => {
    const at = world('zombie');
    await at.create();
    const flags = [SHORT_SESSION, '-batch-rows=25', '-batch-every=0ms', '-max-poll-interval=6s'];
    const zombie = startPayments(own, at.args('a', ...flags), 'zombie');
    const feed = startPublishing(at);
    await untilMoreCharges(at, 50);
    // Only the transactions of this member are counted: it is the only member.
    await until('a member suspended in a transaction', async () => {
      zombie.kill('SIGSTOP');
      const open = await openTransactions(pool, 'millrace payments', `${at.schema}.inbox`);
      if (open !== undefined) return true;
      zombie.kill('SIGCONT');
      await pause(5);
      return undefined;
    });
    const before = [...feed.sent];
    const other = startPayments(own, at.args('a', ...flags), 'other');
    // The partitions and row locks of the suspended member are free before it resumes.
    await until(
      'charges of all orders sent before the takeover',
      async () => {
        const rows = await at.query<{ n: number }>('SELECT count(*)::int AS n FROM SCHEMA.charges');
        return (rows[0]?.n ?? 0) >= before.length + 200 ? true : undefined;
      },
      LIMIT_MS,
    );
    zombie.kill('SIGCONT');
    await untilMoreCharges(at, 200);
    await feed.stop();
    await untilAllCharged(at, feed.sent);
    // The resumed member joins again and continues alone.
    await drainMember(other);
    const last = events(90);
    await at.publish(last.map(recordOf));
    await untilAllCharged(at, [...feed.sent, ...last]);
    await drainMember(zombie);
    expect(await at.count('payments_parked')).toBe(0);
  });
});
