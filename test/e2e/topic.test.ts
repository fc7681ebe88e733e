/** `millrace topic` against a real broker. */
import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';

const own = launcher();
const { brokers } = await sharedStack();

async function topic(...args: readonly string[]) {
  const { code: status, stdout, stderr } = await own.run(['topic', ...args, `-brokers=${brokers}`]);
  return { status, stdout, stderr };
}

test('millrace topic creates topics, leaves existing ones unchanged, lists and deletes', async () => {
  const first = `topic-test-${randomUUID()}`;
  const second = `topic-test-${randomUUID()}`;
  const create = await topic(
    'create',
    `-topic=${first},${second}`,
    '-partitions=3',
    '-config-entry=cleanup.policy=compact,delete,retention.ms=3600000',
  );
  expect(create).toEqual({
    status: 0,
    stdout: `created ${first} with 3 partitions\ncreated ${second} with 3 partitions\n`,
    stderr: '',
  });

  const again = await topic('create', `-topic=${first}`, '-partitions=5', '-json');
  expect([again.status, JSON.parse(again.stdout)]).toEqual([
    0,
    { topics: [{ topic: first, created: false }] },
  ]);

  const list = await topic('list', '-json', '-topic', first, '-topic', second);
  const sorted = [first, second].sort();
  expect(JSON.parse(list.stdout)).toEqual({ topics: sorted.map((name) => ({ topic: name, partitions: 3 })) });
  expect((await topic('list')).stdout).toContain(`${first} 3\n`);

  expect(await topic('delete', `-topic=${first}`)).toEqual({
    status: 0,
    stdout: `deleted ${first}\n`,
    stderr: '',
  });
  await expect.poll(async () => (await topic('list')).stdout, { interval: 200 }).not.toContain(first);
  await topic('delete', `-topic=${second}`);
});

test('a setting that the broker refuses is reported in one line and not as a bug', async () => {
  const { status, stderr } = await topic(
    'create',
    `-topic=topic-test-${randomUUID()}`,
    '-config-entry=no.such.setting=1',
  );
  expect(status).not.toBe(70);
  expect(status).not.toBe(0);
  expect(stderr.trim().split('\n')).toHaveLength(1);
});

test("millrace topic names a missing topic and the reason of a broker's refusal", async () => {
  const missing = `topic-test-${randomUUID()}`;
  expect(await topic('delete', `-topic=${missing}`)).toEqual({
    status: 0,
    stdout: `${missing} does not exist\n`,
    stderr: '',
  });
  const refused = await topic('create', `-topic=${missing}`, '-replication-factor=5');
  expect(refused.status).toBe(2);
  expect(refused.stderr).toMatch(
    /^error: .*replication factor.*; mend what the broker names.* \[broker_refused\]\n$/i,
  );
});
