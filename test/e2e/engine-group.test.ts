/** -source=group on real Kafka with real processes: readiness, committed offsets, and takeover
 *  after a SIGKILL. Faults of the group, the disk and the clock are tested under virtual time
 *  (test/property/engine-members.test.ts). */
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import { consumedAt, exportedRows, runEngine, startEngine } from '../fixtures/engine.ts';
import { generateEvents } from '../fixtures/gen.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import { oracleOf } from './engine-kit.ts';

const own = launcher();
const stack = await sharedStack();
const BASE_MS = 1_750_000_000_000;
const EVENTS = 8_000;
const PARTITIONS = 3;
const WITHIN_MS = 60_000;

type Process = Running;

const stateDir = (name: string): string => join(own.dir, `state-${name}`);
const topicOf = (name: string): string => `group-${name}-${own.suffix}`;
const groupOf = (name: string): string => `engine-${name}-${own.suffix}`;
const argsIn = (name: string, folder: string, ...more: readonly string[]): readonly string[] => [
  `-brokers=${stack.brokers}`,
  `-topic=${topicOf(name)}`,
  '-size=1s',
  '-allowed-skew=500ms',
  '-allowed-lateness=500ms',
  '-idle-timeout=0',
  '-checkpoint-interval=100ms',
  `-state-dir=${stateDir(folder)}`,
  ...more,
];
const args = (name: string, ...more: readonly string[]): readonly string[] => argsIn(name, name, ...more);
const member = (name: string, folder = name): readonly string[] =>
  argsIn(name, folder, '-source=group', `-group=${groupOf(name)}`);

async function generate(name: string, part: number): Promise<void> {
  await generateEvents(own, { brokers: stack.brokers, topic: topicOf(name) }, [
    `-count=${EVENTS}`,
    `-base=${BASE_MS + part * 60_000}`,
    '-per-ms=2',
    '-accounts=200',
    '-stragglers=0',
    `-partitions=${PARTITIONS}`,
  ]);
}

const readyAt = async (address: string): Promise<number> => (await fetch(`http://${address}/ready`)).status;
const untilConsumed = (address: string, count: number): Promise<true> =>
  until(`${count} events`, async () => ((await consumedAt(address)) === count ? true : undefined), WITHIN_MS);
const untilReadyAnswers = (address: string, status: number): Promise<true> =>
  until(
    `/ready status ${status}`,
    async () => ((await readyAt(address)) === status ? true : undefined),
    WITHIN_MS,
  );
const untilLogged = (one: Process, text: string): Promise<true> =>
  until(text, async () => (one.log().includes(text) ? true : undefined), WITHIN_MS);

/** Returns the committed offsets of the group, summed over all partitions, read by a client that
 *  does not join the group. */
async function committed(name: string): Promise<number> {
  const tool = await librdkafkaDriver.consumer({
    brokers: stack.brokers,
    clientId: 'group-test',
    connectTimeoutMs: 60_000,
    group: groupOf(name),
  });
  try {
    const topic = topicOf(name);
    const places = Array.from({ length: PARTITIONS }, (_, partition) => ({ topic, partition }));
    return (await tool.committed(places)).reduce((sum, { offset }) => sum + Math.max(0, Number(offset)), 0);
  } finally {
    await tool.close();
  }
}

async function expectOracle(name: string): Promise<void> {
  const oracle = await oracleOf(stack.brokers, topicOf(name), {
    sizeMs: 1000n,
    skewMs: 500n,
    latenessMs: 500n,
  });
  const rows = (await exportedRows(own, [`-state-dir=${stateDir(name)}`])).sort();
  expect(rows).toEqual([...oracle.rows(true)].map((row) => Object.values(row).join(',')).sort());
}

it('an engine commits the offsets that a restart resumes from, and a standby takes over the folder after SIGKILL', async () => {
  const name = 'standby';
  await generate(name, 0);
  const first = startEngine(own, member(name), 'first');
  const address = await first.address();
  await untilConsumed(address, EVENTS);
  await until('the commit', async () => ((await committed(name)) === EVENTS ? true : undefined), WITHIN_MS);
  const second = startEngine(own, member(name), 'second');
  const standby = await second.address();
  await untilLogged(second, 'standby: the folder is in use');
  expect(await readyAt(standby)).toBe(503);
  await untilReadyAnswers(address, 200);
  await first.die();
  await generate(name, 1);
  await untilConsumed(standby, 2 * EVENTS);
  await untilReadyAnswers(standby, 200);
  await second.drain();
  expect(await committed(name)).toBe(2 * EVENTS);
  await expectOracle(name);
});

it('a standby that waits for the folder ends when it is told to', async () => {
  const first = startEngine(own, member('standby'), 'holder');
  await first.address();
  await untilLogged(first, 'restored from a checkpoint');
  const second = startEngine(own, member('standby'), 'waiter');
  await untilLogged(second, 'standby: the folder is in use');
  await second.drain();
  // Without -source=group the folder lock is an error.
  const refused = await runEngine(own, args('standby', '-exit-at-end', '-log-level=error'));
  expect(refused).toMatchObject({ code: 3, stderr: expect.stringContaining('[state_locked]') });
  await first.drain();
});

it('the member with the state folder stops reading when another member takes partitions, resumes when that member leaves, and yields to no newcomer', async () => {
  const name = 'shared';
  await generate(name, 0);
  const engine = startEngine(own, member(name));
  const address = await engine.address();
  await untilConsumed(address, EVENTS);
  const otherMember = await librdkafkaDriver.consumer({
    brokers: stack.brokers,
    clientId: 'group-test',
    connectTimeoutMs: 60_000,
    group: groupOf(name),
    autoOffsetReset: 'latest',
  });
  let isDone = false;
  const reading = (async () => {
    await otherMember.subscribe([topicOf(name)]);
    const batch = RecordBatch.create(100, 1 << 20);
    while (!isDone) await otherMember.consume(batch, 100);
  })();
  // The finally block below awaits `reading` and reports its error.
  reading.catch(() => {});
  try {
    await untilLogged(engine, 'the group revoked partitions; reading stops');
    await untilReadyAnswers(address, 503);
    await until(
      'partitions of the other member',
      async () => (otherMember.assignment().length > 0 ? true : undefined),
      WITHIN_MS,
    );
    await generate(name, 1);
  } finally {
    isDone = true;
    await reading.finally(() => otherMember.close());
  }
  await untilConsumed(address, 2 * EVENTS);
  await untilReadyAnswers(address, 200);

  // An engine with its own state folder: it leaves the group until the first engine leaves.
  const other = startEngine(own, member(name, 'other'), 'other');
  const otherAddress = await other.address();
  await untilLogged(other, 'leaving the group');
  expect(await readyAt(otherAddress)).toBe(503);
  await untilReadyAnswers(address, 200);
  await engine.drain();
  await expectOracle(name);
  // The other state folder has no checkpoint of the committed events: the engine reads them again.
  await untilConsumed(otherAddress, 2 * EVENTS);
  await other.drain();
});

it.each([
  ['a group without -source=group', ['-group=g'], /-group changes nothing without -source=group/],
  ['-source=group without a group', ['-source=group'], /-source=group needs -group/],
] as const)('an engine refuses %s', async (_, flags, line) => {
  const refused = await runEngine(own, args('refused', ...flags));
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringMatching(line) });
});
