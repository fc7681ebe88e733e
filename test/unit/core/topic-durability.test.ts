/** Acknowledged records survive the loss of one broker: the configuration of new topics, and the
 *  warning about existing topics. */
import type { IAdminClient, Producer } from 'node-rdkafka';
import { describe, expect, it } from 'vitest';
import { newTopicConfig, warnOfThinTopic } from '../../../src/core/topics.ts';
import { NodeAdmin } from '../../../src/io/kafka/node-rdkafka/admin.ts';
import { prepareTopics } from '../../../src/registry/store/kafka/topic.ts';
import { systemClock } from '../../../src/shell/clock.ts';
import { makeTopics } from '../../../src/shell/topics.ts';
import { simBrokerDriver } from '../../../src/sim/broker.ts';
import { logLines } from '../access/access-kit.ts';

const IN_SYNC = 'min.insync.replicas';

/** Admin client of three brokers that have these topics, and the requests to create others. */
function clusterOf(existing: readonly string[]) {
  const asked: unknown[] = [];
  const topics = [...existing];
  const partition = { id: 0, leader: 1, replicas: [1, 2, 3], isrs: [1, 2, 3] };
  const client = {
    getMetadata: (_: unknown, done: (error: null, metadata: unknown) => void) =>
      done(null, {
        brokers: [{ id: 1 }, { id: 2 }, { id: 3 }],
        topics: topics.map((name) => ({ name, partitions: [partition] })),
      }),
  } as unknown as Producer;
  const control = {
    createTopic: (spec: { readonly topic: string }, _timeoutMs: number, done: () => void) => {
      asked.push(spec);
      topics.push(spec.topic);
      done();
    },
  } as unknown as IAdminClient;
  const admin = new NodeAdmin(
    client,
    () => control,
    () => Promise.reject(new Error('unexpected request')),
    () => Promise.reject(new Error('unexpected request')),
    () => Promise.reject(new Error('unexpected request')),
    {
      brokers: 'ssl-host:9093',
      clientId: 'test',
      properties: { 'security.protocol': 'ssl' },
    },
  );
  return { admin, asked };
}

describe('created topic', () => {
  it('a created topic requires two in-sync replicas of three, unless the caller sets otherwise', () => {
    expect([1, 2, 3, 5].map((replicas) => newTopicConfig(replicas)[IN_SYNC])).toEqual([
      undefined,
      undefined,
      '2',
      '2',
    ]);
    expect(newTopicConfig(3, { [IN_SYNC]: '1', 'cleanup.policy': 'compact' })).toEqual({
      [IN_SYNC]: '1',
      'cleanup.policy': 'compact',
    });
  });

  it('a created topic has that setting, whether the broker or the caller decides the replicas', async () => {
    const { admin, asked } = clusterOf([]);
    await admin.createTopics([
      { topic: 'a', partitions: 1 },
      { topic: 'b', partitions: 1, replicationFactor: 3, config: { 'retention.ms': '1' } },
      { topic: 'c', partitions: 1, replicationFactor: 1 },
    ]);
    expect(asked).toEqual([
      { topic: 'a', num_partitions: 1, replication_factor: 3, config: { [IN_SYNC]: '2' } },
      {
        topic: 'b',
        num_partitions: 1,
        replication_factor: 3,
        config: { [IN_SYNC]: '2', 'retention.ms': '1' },
      },
      { topic: 'c', num_partitions: 1, replication_factor: 1, config: {} },
    ]);
    expect(await admin.describeTopic('a')).toEqual({ partitions: 1, replicas: 3, config: undefined });
  });

  it('only a missing topic is requested, because a user of existing topics may lack the right to create', async () => {
    const { admin, asked } = clusterOf(['a', 'c']);
    const topics = ['a', 'b', 'c'].map((topic) => ({ topic, partitions: 1 }));
    expect(await admin.createTopics(topics)).toEqual([false, true, false]);
    expect(asked).toMatchObject([{ topic: 'b' }]);
    expect(await admin.createTopics(topics)).toEqual([false, false, false]);
    expect(asked).toHaveLength(1);
  });
});

describe('existing topic', () => {
  it('an existing topic causes a warning only with three replicas and one in sync', () => {
    const cases = [
      [3, '1', true],
      [3, '2', false],
      [2, '1', false],
      [3, undefined, false],
    ] as const;
    for (const [replicas, inSync, warned] of cases) {
      const log = logLines();
      const config = new Map(inSync === undefined ? [] : [[IN_SYNC, inSync]]);
      warnOfThinTopic(log, 'orders', { replicas, config });
      expect([replicas, inSync, log.lines.length]).toEqual([replicas, inSync, warned ? 1 : 0]);
    }
    const log = logLines();
    warnOfThinTopic(log, 'orders', { replicas: 3, config: undefined });
    warnOfThinTopic(log, 'orders', undefined);
    expect(log.lines).toEqual([]);
  });

  it('an existing topic with fewer replicas than three, or than the brokers, causes a warning', () => {
    const cases = [
      [1, 3, true],
      [2, 3, true],
      [3, 3, false],
      [1, 2, true],
      [2, 2, false],
      [1, 1, false],
      [3, 5, false],
      [0, 3, false],
    ] as const;
    for (const [replicas, brokers, warned] of cases) {
      const log = logLines();
      warnOfThinTopic(log, 'orders', { replicas, config: new Map([[IN_SYNC, '2']]) }, brokers);
      expect([replicas, brokers, log.lines.length]).toEqual([replicas, brokers, warned ? 1 : 0]);
    }
  });

  it('an existing topic causes the warning in a command that would create it and in a registry', async () => {
    const driver = simBrokerDriver({ clock: systemClock, seed: 1, brokers: 'sim' });
    const admin = await driver.admin({ brokers: 'sim', clientId: 'test' });
    const thin = {
      partitions: 1,
      replicationFactor: 3,
      config: { [IN_SYNC]: '1', 'cleanup.policy': 'compact' },
    };
    await admin.createTopics([
      { topic: 'orders', ...thin },
      { topic: '_schemas', ...thin },
    ]);
    const log = logLines();
    await makeTopics(log, admin, [
      { topic: 'orders', partitions: 1 },
      { topic: 'new', partitions: 1, replicationFactor: 3 },
    ]);
    await prepareTopics(admin, '_schemas', log, systemClock);
    expect(log.lines.filter(({ level }) => level === 'warn').map(({ fields }) => fields)).toEqual([
      { topic: 'orders', replicas: 3, [IN_SYNC]: 1 },
      { topic: '_schemas', replicas: 3, [IN_SYNC]: 1 },
    ]);
    expect((await admin.describeTopic('new'))?.config?.get(IN_SYNC)).toBe('2');
  });
});
