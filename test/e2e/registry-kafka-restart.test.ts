/** A broker is killed under two registries and started again: every acknowledged write is stored,
 *  and writes and reads resume by themselves. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { START_TIMEOUT_MS } from '../../src/devstack/stack.ts';
import { scrape } from '../fixtures/metrics.ts';
import { ownStack } from '../fixtures/own-stack.ts';
import { launcher } from '../fixtures/process.ts';
import { until } from '../wait.ts';
import {
  expectStored,
  type Instance,
  recordSchema,
  startInstances,
  verifyTopic,
} from './registry-kafka-kit.ts';

const launch = launcher();
const own = ownStack('registry-restart');
let brokers: string;

beforeAll(async () => {
  brokers = (await own.start(undefined)).brokers;
}, START_TIMEOUT_MS);
afterAll(() => own.close());

it('two registries continue after their broker was killed and started again', async () => {
  const topic = '_schemas';
  const instances = await startInstances(launch, brokers, topic, 2);
  const [first, second] = instances as [Instance, Instance];
  const acknowledged: Array<{ subject: string; schema: string; id: number }> = [];
  const register = async (via: Instance, name: string): Promise<boolean> => {
    const schema = recordSchema(name);
    const subject = `subject-${name}`;
    const id = await via.register(subject, schema);
    if (id !== undefined) acknowledged.push({ subject, schema, id });
    return id !== undefined;
  };
  // A new broker may abort the first transaction; the registry then refuses the write.
  for (const [n, via] of instances.entries())
    await until('a write before the kill', () => register(via, `Before${n}`));
  await own.killBroker();
  // Lookups by id need no broker. A read that must see every write waits for it, and then reports
  // that it is stale or fails.
  const [known] = acknowledged;
  const byId = await first.ask('GET', `/schemas/ids/${known?.id}`);
  expect(byId).toMatchObject({ status: 200, body: { schema: known?.schema } });
  const old = await fetch(`${second.url}/subjects`);
  expect([old.status, old.headers.get('warning')]).toEqual([200, '110 - "Response is Stale"']);
  expect(await old.json()).toContain('subject-Before0');
  expect(await second.ask('GET', '/subjects/absent/versions')).toMatchObject({
    status: 500,
    body: { error_code: 50002 },
  });
  expect(await scrape(second.url)).toMatch(/registry_stale_reads_total [1-9]/);
  const during = [register(first, 'During1'), register(second, 'During2')];
  await own.start(Number(brokers.split(':')[1]));
  await Promise.all(during);
  let attempts = 0;
  await until('a write after the restart', () => register(first, `Again${attempts++}`), 200_000);
  // Stale reads end by themselves.
  await until(
    'reads that see every write',
    async () => {
      const answers = await Promise.all(instances.map((one) => fetch(`${one.url}/subjects`)));
      return answers.every(({ headers }) => !headers.has('warning')) ? true : undefined;
    },
    200_000,
  );
  for (const [n, via] of instances.entries()) {
    expect(await register(via, `After${n}`)).toBe(true);
    for (const one of instances) {
      const answer = await one.read(`/subjects/subject-After${n}/versions`);
      expect(answer).toMatchObject({ status: 200, body: [1] });
    }
  }
  expectStored(await verifyTopic(brokers, topic), acknowledged);
});
