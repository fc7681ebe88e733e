/** /ready of payments, which reports whether a broker answers and whether the group has the member,
 *  and a drain during a delayed rebalance. */
import { afterAll, describe, expect, it } from 'vitest';
import { START_TIMEOUT_MS } from '../../src/devstack/stack.ts';
import { SilentLeader } from '../contract/broker-leader.ts';
import { ownStack } from '../fixtures/own-stack.ts';
import { startPayments } from '../fixtures/payments.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { pause, realClock, until } from '../wait.ts';
import { events, paymentsKit, recordOf, type World } from './payments-kit.ts';
import { brokerProbe, watchedPostgres } from './silence.ts';

const own = launcher();
const stack = await sharedStack();
const postgres = await watchedPostgres(stack.postgres);
const broker = brokerProbe(stack.brokers);
afterAll(() => broker.close());
const { world } = await paymentsKit(own, { ...stack, postgres: postgres.url });
const LIMIT_MS = 60_000;
/** The drain timeout is long enough for a refused commit and the departure from the group, and
 *  shorter than the session. A member that waited for the group would therefore exit with 70. */
const LONG_SESSION = ['-drain-timeout=60s', '-session-timeout=5m'];
/** Time before a failed check, in ms, during which its server may have been silent: a check takes 2
 *  s, and a broker is given 3 s before that. */
const BEFORE_MS = 6000;

interface Ready {
  readonly ready: boolean;
  readonly draining: boolean;
  readonly started: boolean;
  readonly checks: ReadonlyArray<{ readonly name: string; readonly ok: boolean; readonly why?: string }>;
}

async function readyOf(address: string): Promise<Ready & { readonly status: number }> {
  const response = await fetch(`http://${address}/ready`);
  return { status: response.status, ...((await response.json()) as Ready) };
}

/** Reason that a check gives for a silent server, and the observation that the server was
 *  silent. */
const SILENT: Readonly<Record<string, { readonly why: RegExp; was(sinceMs: number): boolean }>> = {
  postgres: { why: /^no answer within 2000 ms$/, was: (sinceMs) => postgres.wasSilent(sinceMs) },
  group: { why: /^no broker answers/, was: (sinceMs) => broker.silentMs(sinceMs) > 0 },
};

/** Returns a report that is not ready without a valid reason. A failed check is valid if its server
 *  was also silent toward this test. */
async function invalidReport(address: string): Promise<unknown> {
  const sinceMs = realClock.monotonicMs() - BEFORE_MS;
  const report = await readyOf(address);
  if (report.status === 200) return undefined;
  const bad = report.checks.filter(({ ok }) => !ok);
  const isValid =
    report.started &&
    !report.draining &&
    bad.length > 0 &&
    bad.every(({ name, why = '' }) => SILENT[name]?.why.test(why) === true && SILENT[name].was(sinceMs));
  return isValid ? undefined : report;
}

const untilReady = (address: string): Promise<true> =>
  until(
    '/ready with status 200',
    async () => ((await readyOf(address)).status === 200 ? true : undefined),
    LIMIT_MS,
  );

/** Waits until /ready answers 503 because of the group, with this reason. */
const untilNotReady = (address: string, why: RegExp): Promise<true> =>
  until(
    `/ready with status 503 for ${why}`,
    async () => {
      const { status, checks } = await readyOf(address);
      return status === 503 &&
        checks.some(({ name, why: reason = '' }) => name === 'group' && why.test(reason))
        ? true
        : undefined;
    },
    LIMIT_MS,
  );

const untilCharged = (at: World, count: number): Promise<true> =>
  until(`${count} charges`, async () => ((await at.count('charges')) >= count ? true : undefined), LIMIT_MS);

describe.each(['on', 'off'])('readiness with -native=%s', (native) => {
  const flags = [`-native=${native}`, '-batch-every=0ms'];

  it('a member whose session the broker refuses is not ready, with the broker’s reason', async () => {
    const at = world(`refused_${native}`);
    await at.create();
    const one = startPayments(own, at.args('a', '-session-timeout=1h', ...flags), 'refused');
    await untilNotReady(await one.address(), /not a member of the consumer group: .*session timeout/i);
    await one.drain();
  });

  it('members that join and leave do not disturb the others, and a member without a partition is ready too', async () => {
    const at = world(`churn_${native}`);
    await at.create();
    const one = startPayments(own, at.args('a', ...flags), 'stays');
    const address = await one.address();
    await untilReady(address);
    const invalid: unknown[] = [];
    let watching = true;
    const watch = (async () => {
      while (watching) {
        const report = await invalidReport(address);
        if (report !== undefined) invalid.push(report);
        await pause(100);
      }
    })();
    // There are three partitions, so the last member has none.
    const others = [];
    for (const name of ['second', 'third', 'spare']) {
      const other = startPayments(own, at.args('a', ...flags), name);
      others.push(other);
      await untilReady(await other.address());
    }
    const orders = events(300);
    await at.publish(orders.map(recordOf));
    for (const other of others) {
      await other.drain();
    }
    await untilCharged(at, 300);
    watching = false;
    await watch;
    expect(invalid).toEqual([]);
    await one.drain();
    await at.expectCharged(orders);
  });
});

describe.each(['on', 'off'])('delayed rebalance, with -native=%s', (native) => {
  it('a delayed rebalance keeps a member ready and charging, and lets it end before the group does', async () => {
    const at = world(`held_${native}`);
    await at.create();
    const leader = new SilentLeader(stack.brokers, `${at.topic}-a`, at.topic, 3);
    try {
      await leader.enter();
      const flags = [...LONG_SESSION, `-native=${native}`, '-batch-every=0ms'];
      const one = startPayments(own, at.args('a', ...flags), 'held');
      await leader.gather();
      const address = await one.address();
      await untilReady(address);
      const orders = events(90);
      await at.publish(orders.slice(0, 30).map(recordOf));
      await untilCharged(at, 30);
      await leader.stall();
      // The stall is longer than the silence after which a broker counts as down.
      for (let round = 0; round < 15; round++) {
        expect(await invalidReport(address)).toBeUndefined();
        await at.publish(orders.slice(30 + 4 * round, 34 + 4 * round).map(recordOf));
        await pause(250);
      }
      await untilCharged(at, 90);
      await one.drain();
      await at.expectCharged(orders);
    } finally {
      await leader.close();
    }
  });
});

describe('killed broker', () => {
  const brokers = ownStack('ready');
  afterAll(() => brokers.close());

  it('members report a killed broker until it returns, then continue, and can drain without it', {
    timeout: START_TIMEOUT_MS + 240_000,
  }, async () => {
    const away = await brokers.start(undefined);
    const port = Number(away.brokers.split(':').at(-1));
    const kit = await paymentsKit(own, { ...stack, brokers: away.brokers });
    const at = kit.world('killed');
    await at.create();
    const members = ['on', 'off'].map((native) =>
      startPayments(own, at.args('a', `-native=${native}`), `native-${native}`),
    );
    const addresses = await Promise.all(members.map((one) => one.address()));
    await Promise.all(addresses.map(untilReady));
    const orders = events(400);
    await at.publish(orders.slice(0, 200).map(recordOf));
    await untilCharged(at, 200);
    await brokers.killBroker();
    await Promise.all(addresses.map((address) => untilNotReady(address, /no broker answers at /)));
    await brokers.start(port);
    await Promise.all(addresses.map(untilReady));
    await at.publish(orders.slice(200).map(recordOf));
    await untilCharged(at, 400);
    await brokers.killBroker();
    await Promise.all(addresses.map((address) => untilNotReady(address, /no broker answers at /)));
    await Promise.all(members.map((one) => one.drain()));
    await at.expectCharged(orders);
  });
});
