/** A member of a consumer group, over a scripted broker client. */
import { expect, it } from 'vitest';
import type { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import type {
  BatchConsumer,
  CommitOutcome,
  ConsumerOptions,
  Rebalance,
  TopicPartition,
} from '../../../../src/io/kafka/port.ts';
import { Member, type MemberOptions, RecordIntake } from '../../../../src/outbox/inbox/member.ts';
import { realClock, turn } from '../../../wait.ts';

const notUsed = (): Promise<never> => Promise.reject(new Error('not used'));
const A: TopicPartition = { topic: 't', partition: 0 };
const B: TopicPartition = { topic: 'u', partition: 0 };

class Client implements BatchConsumer {
  readonly topics = ['t', 'u'];
  readonly commits: string[] = [];
  readonly moves: string[] = [];
  answers: CommitOutcome[] = [];
  owned: readonly TopicPartition[] = [A, B];
  onRebalance: NonNullable<ConsumerOptions['onRebalance']> = () => {};
  arrives: TopicPartition | undefined;
  commit: BatchConsumer['commit'] = async (offsets) => {
    this.commits.push(offsets.map((at) => `${at.topic}=${at.offset}`).join());
    return this.answers.shift() ?? 'committed';
  };
  async consume(into: RecordBatch): ReturnType<BatchConsumer['consume']> {
    into.clear();
    if (this.arrives !== undefined)
      into.append({ topicIndex: this.topics.indexOf(this.arrives.topic), partition: 0, offset: 40n });
    this.arrives = undefined;
    return { rowCount: into.rowCount, ends: [], events: [] };
  }
  pause = async (at: readonly TopicPartition[]): Promise<void> =>
    void this.moves.push(`pause ${at.map(({ topic }) => topic)}`);
  resume = async (at: readonly TopicPartition[]): Promise<void> =>
    void this.moves.push(`resume ${at.map(({ topic }) => topic)}`);
  seek: BatchConsumer['seek'] = async (at) => void this.moves.push(`seek ${at.topic}=${at.offset}`);
  assignment = (): readonly TopicPartition[] => this.owned;
  reach: BatchConsumer['reach'] = () => Promise.resolve();
  subscribe = async (): Promise<void> => {};
  close = async (): Promise<void> => {};
  assign = notUsed;
  committed = notUsed;
  lag = notUsed;
  watermarkOffsets = notUsed;
}

async function joined(options: Partial<MemberOptions> = {}) {
  const client = new Client();
  const moved: Rebalance[] = [];
  const member = new Member({
    connect: async ({ onRebalance }) => {
      client.onRebalance = onRebalance;
      return client;
    },
    topics: ['t', 'u'],
    clock: realClock,
    log: silentLogger,
    drain: new AbortController().signal,
    batchRows: 4,
    batchBytes: 1024,
    batchWaitMs: 1,
    inFlight: () => undefined,
    onMoved: (kind, partitions) => void moved.push({ kind, partitions }),
    ...options,
  });
  await member.join();
  return { client, member, moved };
}

it('a member commits the offsets again that a rebalance refused, and reports them once they are committed', async () => {
  const calls: string[] = [];
  const { client, member } = await joined({
    onCommit: async () => {
      calls.push('before');
      return () => void calls.push('after');
    },
  });
  await member.commit();
  expect(client.commits).toEqual([]);
  member.finished(A, 7n);
  member.finished(A, 5n);
  client.answers = ['not_now'];
  await member.commit();
  member.finished(B, 3n);
  await member.commit();
  await member.commit();
  expect(client.commits).toEqual(['t=7', 't=7,u=3']);
  expect(calls).toEqual(['before', 'before', 'after']);
});

it('a member commits the finished offsets of revoked partitions before they leave, and drops them', async () => {
  let end = (_: unknown): void => {};
  const inFlight = new Promise((resolve) => {
    end = resolve;
  });
  const { client, member, moved } = await joined({ inFlight: () => inFlight });
  member.finished(A, 7n);
  const revoking = client.onRebalance({ kind: 'revoked', partitions: [A] });
  for (let i = 0; i < 20; i++) await turn();
  expect(client.commits).toEqual([]);
  member.finished(A, 9n);
  end(undefined);
  await revoking;
  expect(client.commits).toEqual(['t=9']);
  expect(moved).toEqual([{ kind: 'revoked', partitions: [A] }]);
  expect(member.doneOf(A)).toBeUndefined();
});

it('a rebalance does not wait for a batch that waits for the database, nor for the next batch', async () => {
  const { client, member } = await joined({ inFlight: () => new Promise(() => {}) });
  await member.wait(true);
  await client.onRebalance({ kind: 'revoked', partitions: [A] });
  await member.wait(false);
  await client.onRebalance({ kind: 'revoked', partitions: [B] });
  expect(member.isWaiting).toBe(false);
});

it('a member waits for a first record in several reads up to its limit, and a drain ends the wait', async () => {
  const stop = new AbortController();
  let nowMs = 0;
  const waits: number[] = [];
  const { client, member } = await joined({
    batchWaitMs: 600,
    drain: stop.signal,
    clock: { ...realClock, wallNowMs: () => nowMs, monotonicMs: () => nowMs },
  });
  Object.assign(client, {
    consume: async (into: RecordBatch, waitMs: number) => {
      into.clear();
      waits.push(waitMs);
      nowMs += waitMs;
      if (waits.length === 5) stop.abort();
      return { rowCount: 0, ends: [], events: [] };
    },
  });
  const intake = new RecordIntake(4, 1024);
  expect(await member.read(intake)).toMatchObject({ rowCount: 0 });
  expect(waits).toEqual([250, 250, 100]);
  await member.read(intake);
  expect(waits.slice(3)).toEqual([250, 250]);
});

it('a member pauses the partitions whose position it knows, and resumes at these positions', async () => {
  const { client, member } = await joined();
  member.took(A, 12n);
  await member.wait(true);
  client.arrives = B;
  await member.idle(1);
  expect(client.moves).toEqual(['pause t', 'pause u']);
  await member.wait(false);
  expect(client.moves.slice(2)).toEqual(['resume t,u', 'seek t=12', 'seek u=40']);
});

it('a consumer is a member from its first assignment until its session is lost, and reports why it is not', async () => {
  const { client, member } = await joined();
  expect(await member.unhealthyReason()).toMatch(
    /^not a member of the consumer group: no partitions were assigned yet$/,
  );
  client.consume = async (into) => {
    into.clear();
    const refused = { name: 'x', retriable: false, fatal: false };
    const events = [
      { ...refused, code: -195, message: 'no connection' },
      { ...refused, code: 26, message: 'JoinGroup failed: Broker: Invalid session timeout' },
      { ...refused, code: 29, message: 'of one topic', topic: 't' },
    ];
    return { rowCount: 0, ends: [], events };
  };
  await member.read(new RecordIntake(4, 1024));
  expect(await member.unhealthyReason()).toMatch(/group: JoinGroup failed: Broker: Invalid session timeout$/);
  await client.onRebalance({ kind: 'assigned', partitions: [] });
  expect(await member.unhealthyReason()).toBeUndefined();
  await client.onRebalance({ kind: 'revoked', partitions: [A] });
  expect(await member.unhealthyReason()).toBeUndefined();
  await client.onRebalance({ kind: 'lost', partitions: [B] });
  expect(await member.unhealthyReason()).toMatch(/no partitions were assigned yet$/);
  await client.onRebalance({ kind: 'assigned', partitions: [A, B] });
  expect(await member.unhealthyReason()).toBeUndefined();
});

it('a member reports a broker after a silence that no commit explains, and recovers with its next answer', async () => {
  let nowMs = 0;
  const { client, member } = await joined({
    clock: { ...realClock, wallNowMs: () => 0, monotonicMs: () => nowMs },
  });
  await client.onRebalance({ kind: 'assigned', partitions: [A] });
  client.reach = () => Promise.reject(new Error('no broker answers at nowhere:1'));
  nowMs = 3000;
  expect(await member.unhealthyReason()).toBeUndefined();
  nowMs = 3001;
  expect(await member.unhealthyReason()).toBe('no broker answers at nowhere:1');
  client.arrives = A;
  await member.read(new RecordIntake(4, 1024));
  expect(await member.unhealthyReason()).toBeUndefined();
  nowMs = 9000;
  expect(await member.unhealthyReason()).toBe('no broker answers at nowhere:1');
  member.finished(A, 41n);
  await member.commit();
  expect(await member.unhealthyReason()).toBeUndefined();
  nowMs = 20_000;
  client.reach = () => Promise.resolve();
  expect(await member.unhealthyReason()).toBeUndefined();
});

it('a member reads into a larger batch once a record does not fit', async () => {
  const { client, member } = await joined();
  client.consume = async (into) => {
    into.clear();
    const event = { code: -10_000, name: 'MILLRACE_OVERSIZE', message: '', retriable: false, fatal: false };
    return { rowCount: 0, ends: [], events: [event] };
  };
  const intake = new RecordIntake(4, 1024);
  await member.read(intake);
  expect(intake.records.arenaCapacity).toBe(2048);
  expect(intake.records.rowCapacity).toBe(4);
});
