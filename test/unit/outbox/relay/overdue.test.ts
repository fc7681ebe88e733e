/** The producer watchdog of a relay. It renews the producer when a batch is overdue, the topic has
 *  leaders, and no row is acknowledged. */
import { describe, expect, it } from 'vitest';
import { coreError } from '../../../../src/core/errors.ts';
import { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import { brokerEvent, closedError, ERR, errorOfEvent } from '../../../../src/io/kafka/errors.ts';
import type { BatchProducer, DeliveryReport, TransactionalProducer } from '../../../../src/io/kafka/port.ts';
import { ProducerWatchdog } from '../../../../src/outbox/relay/pipeline/producer-watchdog.ts';
import { PlainSender, TransactionalSender } from '../../../../src/outbox/relay/pipeline/sender.ts';
import { turn, until } from '../../../wait.ts';

const PURGED = -152;

const PATIENCE_MS = 1000;
/** Time between two polls of a relay. */
const POLL_MS = 1000;
/** Number of consecutive polls with leaders after which the watchdog renews the producer. */
const POLLS = 3;

function watch(isLed: () => Promise<boolean>) {
  const metrics = new Metrics();
  const state = { nowMs: 0, waitedMs: 0, published: 0, renewed: 0, isOpen: true };
  const overdue = new ProducerWatchdog({
    publishing: { oldestFlightMs: () => state.waitedMs, publishedSoFar: () => state.published },
    sender: {
      isOpen: () => state.isOpen,
      renew: async () => {
        state.renewed++;
      },
    },
    topicClient: { isLed },
    clock: { wallNowMs: () => 0, monotonicMs: () => state.nowMs },
    metrics,
    log: silentLogger,
    patienceMs: PATIENCE_MS,
  });
  /** Number of renewals in `polls` polls during which the oldest batch waits for `waitedMs`. */
  const renewedAfter = async (waitedMs: number, polls = POLLS): Promise<number> => {
    const before = state.renewed;
    for (let i = 0; i < polls; i++) {
      state.waitedMs = waitedMs;
      await overdue.poll();
      state.nowMs += POLL_MS;
    }
    const [counted] = metrics.snapshot().filter(({ name }) => name === 'relay_producers_renewed_total');
    expect(counted?.samples[0]?.value).toBe(state.renewed);
    return state.renewed - before;
  };
  return { state, renewedAfter };
}

describe('overdue batch', () => {
  it('an overdue batch renews the producer after its patience, then after twice as long, and resets on success', async () => {
    const { state, renewedAfter } = watch(async () => true);
    expect(await renewedAfter(0)).toBe(0);
    expect(await renewedAfter(999)).toBe(0);
    expect(await renewedAfter(1000)).toBe(1);
    expect(await renewedAfter(1999)).toBe(0);
    expect(await renewedAfter(2000)).toBe(1);
    expect(await renewedAfter(3999)).toBe(0);
    expect(await renewedAfter(4000)).toBe(1);
    state.published = 1;
    state.nowMs += 8000;
    expect(await renewedAfter(0, 1)).toBe(0);
    expect(await renewedAfter(1000)).toBe(1);
    expect(await renewedAfter(1000)).toBe(0);
  });

  it('an overdue batch renews the producer less and less often if only its partition is slow', async () => {
    const { state, renewedAfter } = watch(async () => true);
    // A batch waits as long as its producer lives, and each poll sees published rows of other
    // partitions.
    let bornMs = 0;
    const renewals: number[] = [];
    while (state.nowMs < 200_000) {
      state.published++;
      if ((await renewedAfter(state.nowMs - bornMs, 1)) > 0) {
        bornMs = state.nowMs;
        renewals.push(state.nowMs);
      }
    }
    const gaps = renewals.slice(1).map((atMs, i) => atMs - (renewals[i] as number));
    expect(gaps.length).toBeGreaterThan(3);
    for (const [i, gap] of gaps.entries()) expect(gap).toBeGreaterThanOrEqual(PATIENCE_MS * 2 ** (i + 1));
  });

  it('an overdue batch causes no renewal while the topic has no leaders or no broker answers', async () => {
    expect(await watch(async () => false).renewedAfter(1_000_000)).toBe(0);
    const away = watch(() => Promise.reject(coreError('unreachable', 'no broker')));
    expect(await away.renewedAfter(1_000_000)).toBe(0);
    const odd = watch(() => Promise.reject(new TypeError('a bug')));
    await expect(odd.renewedAfter(1_000_000)).rejects.toThrow('a bug');
  });

  it('an overdue batch causes no renewal immediately after its leaders return', async () => {
    let led = false;
    const { renewedAfter } = watch(async () => led);
    expect(await renewedAfter(60_000)).toBe(0);
    led = true;
    expect(await renewedAfter(60_000, POLLS - 1)).toBe(0);
    led = false;
    expect(await renewedAfter(60_000, 1)).toBe(0);
    led = true;
    expect(await renewedAfter(60_000, POLLS - 1)).toBe(0);
    expect(await renewedAfter(60_000, 1)).toBe(1);
  });

  it('a batch that is acknowledged during the leader query is not overdue', async () => {
    const { state, renewedAfter } = watch(async () => {
      state.waitedMs = 0;
      return true;
    });
    expect(await renewedAfter(5000, 10)).toBe(0);
  });

  it('a batch that waits for a producer to open causes no further renewal', async () => {
    const { state, renewedAfter } = watch(async () => true);
    state.isOpen = false;
    expect(await renewedAfter(5000, 10)).toBe(0);
  });

  it('an overdue batch renews the producer every ten minutes at most', async () => {
    const { renewedAfter } = watch(async () => true);
    for (let i = 0; i < 20; i++) expect(await renewedAfter(600_000)).toBe(1);
    expect(await renewedAfter(599_999)).toBe(0);
    expect(await renewedAfter(600_000)).toBe(1);
  });
});

/** Producer whose rows stay in flight until it is closed. */
class HeldProducer implements BatchProducer {
  readonly seen: number[] = [];
  holds = true;
  closed = false;
  fatal = false;
  private readonly releases: Array<() => void> = [];

  async produce(batch: RecordBatch): Promise<DeliveryReport> {
    if (this.closed) throw closedError('producer');
    if (this.fatal) throw errorOfEvent('the producer has failed', brokerEvent(ERR.FATAL, 'fatal', {}, true));
    const rows = batch.rowCount;
    this.seen.push(rows);
    const status = new Int32Array(rows);
    if (this.holds) {
      await new Promise<void>((resolve) => this.releases.push(resolve));
      status.fill(PURGED);
    }
    const failed = this.holds ? rows : 0;
    return { status, offset: new BigInt64Array(rows), delivered: rows - failed, failed, events: [] };
  }

  queuedBytes = (): number => 0;
  flush = async (): Promise<void> => {};

  async close(): Promise<void> {
    for (let i = 0; i < 5; i++) await turn();
    this.closed = true;
    for (const release of this.releases) release();
  }
}

function batchOf(rows: number): RecordBatch {
  const batch = RecordBatch.create(rows, 1000);
  for (let i = 0; i < rows; i++)
    batch.append({ topicIndex: 0, partition: 0, timestamp: 0n, key: null, value: null, headers: [] });
  return batch;
}

const shared = () => ({
  topics: ['t'],
  log: silentLogger,
  sleep: async () => {},
  drain: new AbortController().signal,
});

describe('producer renewal', () => {
  it('a renewal settles the rows of the old producer before the new producer sends', async () => {
    const made: HeldProducer[] = [];
    const sender = new PlainSender(
      async () => {
        const one = new HeldProducer();
        one.holds = made.length === 0;
        made.push(one);
        return one;
      },
      4,
      shared(),
    );
    await sender.open();
    const order: string[] = [];
    const first = [1, 2].map((rows) =>
      sender.send(batchOf(rows)).then(({ status }) => {
        order.push('old');
        return [...status];
      }),
    );
    await new Promise((resolve) => setImmediate(resolve));
    const renewing = Promise.all([sender.renew(), sender.renew()]);
    const next = sender.send(batchOf(3)).then(({ status }) => {
      order.push('new');
      return [...status];
    });
    expect(await Promise.all(first)).toEqual([[PURGED], [PURGED, PURGED]]);
    await renewing;
    expect(await next).toEqual([0, 0, 0]);
    expect(order).toEqual(['old', 'old', 'new']);
    expect(made.map(({ seen, closed }) => [seen, closed])).toEqual([
      [[1, 2], true],
      [[3], false],
    ]);
    await sender.close();
  });

  it('a renewal releases the replaced producer and waits for an opening that never ends', async () => {
    const made: HeldProducer[] = [];
    const sender = new PlainSender(
      async () => {
        const one = new HeldProducer();
        one.holds = made.length === 0;
        made.push(one);
        return one;
      },
      4,
      shared(),
    );
    await sender.open();
    const stuck = sender.send(batchOf(2));
    await new Promise((resolve) => setImmediate(resolve));
    const [first] = made as [HeldProducer];
    first.fatal = true;
    const broken = await sender.send(batchOf(1));
    expect([...broken.status].every((one) => one !== 0)).toBe(true);
    const next = sender.send(batchOf(3));
    await sender.renew();
    expect([...(await stuck).status]).toEqual([PURGED, PURGED]);
    expect([...(await next).status]).toEqual([0, 0, 0]);
    expect(made.map(({ closed }) => closed)).toEqual([true, false]);
    await sender.close();
    expect(made.map(({ closed }) => closed)).toEqual([true, true]);
  });

  it('an immediate close waits for the close of the renewal in flight', async () => {
    const one = new HeldProducer();
    const sender = new PlainSender(async () => one, 4, shared());
    await sender.open();
    const renewing = sender.renew();
    await new Promise((resolve) => setImmediate(resolve));
    await sender.close();
    expect(one.closed).toBe(true);
    await renewing;
    expect(sender.isOpen()).toBe(false);
  });

  it('a renewal during a transaction releases its rows, whatever the step', async () => {
    for (const step of ['produce', 'commit'] as const) {
      let opened = 0;
      let committing = false;
      const made: HeldProducer[] = [];
      class Held extends HeldProducer implements TransactionalProducer {
        init = async () => undefined;
        begin = async () => undefined;
        abort = async () => Promise.reject(closedError('producer'));
        commit = async () => {
          if (opened > 1) return undefined;
          committing = true;
          while (!this.closed) await new Promise((resolve) => setImmediate(resolve));
          throw closedError('producer');
        };
      }
      const sender = new TransactionalSender(async () => {
        const one = new Held();
        opened++;
        one.holds = opened === 1 && step === 'produce';
        made.push(one);
        return one;
      }, shared());
      await sender.open();
      const sent = sender.send(batchOf(2));
      await until(`a transaction at its ${step}`, () =>
        step === 'produce' ? made[0]?.seen.length === 1 : committing,
      );
      await sender.renew();
      const { status, fenced } = await sent;
      expect([...status].every((one) => one !== 0)).toBe(true);
      expect(fenced).toBe(false);
      expect(sender.isHealthy()).toBe(false);
      expect([...(await sender.send(batchOf(1))).status]).toEqual([0]);
      expect(sender.isHealthy()).toBe(true);
      await sender.close();
    }
  });
});
