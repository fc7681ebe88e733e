/** Members of a group with an inbox under virtual time, from seeds. Faults: members that join,
 *  leave, stop and die, revoked and lost partitions, slow transactions, an unavailable database,
 *  COMMITs without an answer, and failing offset commits. The oracle is written from the
 *  requirements: the effect of each message happens once, in the order of its key, and no offset is
 *  committed before its effect. */
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { CONSUMER_DEFAULTS } from '../../src/outbox/defaults.ts';
import { InboxConsumer } from '../../src/outbox/inbox/consumer.ts';
import { isFull } from '../tier.ts';
import { bytes, GroupWorld, groupViolations, type Product, TOPIC } from './rebalance-kit.ts';

const FIRST = process.env['MILLRACE_TEST_SEED'] === 'random' ? Math.floor(Math.random() * 2 ** 31) : 1;
const SEEDS = Array.from({ length: isFull ? 40 : 10 }, (_, i) => FIRST + i);

const PRODUCT: Product = {
  valueOf: (id) => bytes(id),
  idOf: (value) => value,
  consumer(world, { process, ...seat }) {
    const { database, random, clock } = world;
    return new InboxConsumer({
      ...CONSUMER_DEFAULTS,
      ...seat,
      topics: [TOPIC],
      pool: database.pool(process),
      inbox: database.claims,
      parkedTable: 'parked',
      handle: async (_session, { msgId: id, topic, partition, offset, ...record }) => {
        const key = Buffer.from(record.key ?? []).toString();
        const isUnavailable = clock.monotonicMs() < world.unavailableUntilMs && key < 'key-3';
        if (random.fraction() < 0.02 || isUnavailable) throw new Error('503 from the third party');
        database.effect({ id, key, place: `${partition}@${topic}`, offset });
      },
      metrics: new Metrics(),
      log: silentLogger,
      random,
      batchRows: 1 + world.below(8),
    });
  },
};

describe('members of a group with an inbox under faults', () => {
  it('members apply the effect of each message once, in the order of its key, before they commit its offset', async () => {
    for (const seed of SEEDS)
      expect({ seed, violations: await groupViolations(new GroupWorld(seed, PRODUCT)) }).toEqual({
        seed,
        violations: [],
      });
  });
});
