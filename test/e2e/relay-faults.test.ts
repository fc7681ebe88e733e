/** Broker faults under a relay: pauses, crashes, a deleted topic, a refused row. The first
 *  occurrences of a key stay in order. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { signalProcess } from '../../src/devstack/process.ts';
import { START_TIMEOUT_MS, type Stack } from '../../src/devstack/stack.ts';
import { metric } from '../fixtures/metrics.ts';
import { ownStack, suspendServer } from '../fixtures/own-stack.ts';
import { launcher } from '../fixtures/process.ts';
import { startRelay } from '../fixtures/relay.ts';
import { createTopic, deleteTopic } from '../fixtures/topic.ts';
import { until } from '../wait.ts';
import { drained, firsts, insert, pending, readTopic, Sent, worlds } from './relay-kit.ts';

const own = launcher();
const servers = ownStack('relay');
let stack: Stack;
beforeAll(async () => {
  stack = await servers.start(undefined);
}, START_TIMEOUT_MS);
afterAll(() => servers.close());
const world = worlds(() => stack, own.suffix);
/** Time limit for a relay and a broker to recover, on a machine that may be slow. */
const BACK_MS = 200_000;

async function refuseAbove(topic: string, bytes: number): Promise<true> {
  await createTopic(stack.brokers, topic, 3, { 'max.message.bytes': String(bytes) });
  return true;
}

describe('broker faults', () => {
  it('a relay whose broker pauses and then dies resumes in order', async () => {
    const { pool, args, ...rest } = await world();
    const relay = startRelay(own, [...args, '-batch-rows=20', '-delivery-timeout=1s']);
    const address = await relay.address();
    const sent = new Sent(pool, 25);
    for (let round = 0; round < 5; round++) await sent.round();
    await drained(pool);
    const kafka = servers.broker();
    await suspendServer(kafka);
    for (let round = 0; round < 5; round++) await sent.round();
    await until('a relay that reports that it is not ready', async () =>
      (await fetch(`http://${address}/ready`)).status === 503 ? true : undefined,
    );
    expect(await pending(pool)).toBe(125);
    signalProcess(kafka, 'SIGCONT');
    await drained(pool);
    for (let round = 0; round < 5; round++) await sent.round();
    await servers.killBroker();
    for (let round = 0; round < 5; round++) await sent.round();
    stack = await servers.start(Number(stack.brokers.split(':').at(-1)));
    await drained(pool, BACK_MS);
    await relay.drain();
    sent.expectOrdered(await readTopic({ ...rest, stack }));
  });

  it('a relay whose broker refuses a row holds back its key, and publishes all others', async () => {
    const { pool, args, topic, ...rest } = await world();
    await refuseAbove(topic, 20_000);
    const relay = startRelay(own, [...args, '-create-topics=false']);
    const address = await relay.address();
    const sent = new Sent(pool, 10);
    const [stuck] = sent.byKey.keys() as unknown as [string];
    await sent.round();
    const large = await insert(pool, stuck, JSON.stringify({ text: 'x'.repeat(30_000) }));
    const behind: string[] = [];
    for (let i = 0; i < 4; i++) behind.push(await insert(pool, stuck, '{}'));
    for (let round = 0; round < 5; round++)
      for (const [key, ids] of sent.byKey) if (key !== stuck) ids.push(await insert(pool, key, '{}'));
    await until('only the stuck key to be pending', async () =>
      (await pending(pool)) === 5 ? true : undefined,
    );
    expect(await metric(address, 'relay_oversize_total')).toBeGreaterThan(0);
    expect(await metric(address, 'relay_held_keys')).toBe(1);
    expect(await metric(address, 'relay_order_gaps_total')).toBe(0);
    // The row becomes smaller, and its key continues without further help.
    await pool.query(`UPDATE outbox SET payload = '{}' WHERE msg_id = $1::uuid`, [large]);
    await drained(pool);
    await relay.drain();
    const seen = await readTopic({ ...rest, topic });
    sent.byKey.get(stuck)?.push(large, ...behind);
    for (const [key, ids] of sent.byKey) expect(firsts(seen, key)).toEqual(ids);
  });

  it('a relay adapts to a smaller record limit by smaller batches and without a gap', async () => {
    const { pool, args, topic, ...rest } = await world();
    const relay = startRelay(own, [...args, '-create-topics=false']);
    await relay.ended;
    await refuseAbove(topic, 1_000_000);
    const one = startRelay(own, [...args, '-create-topics=false']);
    const address = await one.address();
    const before = new Sent(pool, 2);
    await before.round();
    await drained(pool);
    await deleteTopic(stack, topic);
    await until('a topic of smaller records', () => refuseAbove(topic, 3000));
    const sent = new Sent(pool, 20);
    for (let round = 0; round < 5; round++) await sent.round(JSON.stringify({ text: 'y'.repeat(300) }));
    await drained(pool, BACK_MS);
    expect(await metric(address, 'relay_order_gaps_total')).toBe(0);
    await one.drain();
    sent.expectOrdered(await readTopic({ ...rest, topic }));
  });

  it('a relay whose topic is deleted recreates the topic and continues in order', async () => {
    const { pool, args, topic, ...rest } = await world();
    const relay = startRelay(own, args);
    await relay.address();
    const before = new Sent(pool, 10);
    for (let round = 0; round < 5; round++) await before.round();
    await drained(pool);
    await deleteTopic(stack, topic);
    const after = new Sent(pool, 10);
    for (let round = 0; round < 5; round++) await after.round();
    await drained(pool, BACK_MS);
    await relay.drain();
    // The records of the old topic were deleted with it.
    after.expectOrdered(await readTopic({ ...rest, topic }));
  });
});
