/** Reads while the broker is silent: when they wait, what they return, and how the silence ends. */
import { describe, expect, it, vi } from 'vitest';
import { silentLogger } from '../../../src/core/log.ts';
import type { HttpRequest, HttpResponse } from '../../../src/io/http/port.ts';
import { warnOfStale } from '../../../src/registry/api/stale.ts';
import { registryError } from '../../../src/registry/errors.ts';
import { KafkaReads } from '../../../src/registry/store/kafka/reads.ts';
import { realClock, turn, until } from '../../wait.ts';
import { resumeAfterStall, withFakeIntervals } from '../stall.ts';

const late = registryError('store_timeout', 'no answer');

function readsOf(answers: Array<() => Promise<void>>) {
  const counts = { stale: 0, asked: 0 };
  const reads = new KafkaReads({
    clock: realClock,
    log: silentLogger,
    silentMs: 20,
    catchUp: () => {
      counts.asked++;
      return (answers.shift() ?? (() => Promise.resolve()))();
    },
    staleRead: () => counts.stale++,
  });
  return { reads, counts };
}

describe('reads during broker silence', () => {
  it('reads see every write while the log answers', async () => {
    const { reads, counts } = readsOf([]);
    await reads.ready();
    expect([reads.stale, counts]).toEqual([false, { stale: 0, asked: 1 }]);
  });

  it('reads wait once per period of silence, are counted, and see every write again when the log answers', async () => {
    let answer = (): void => {};
    const held = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const { reads, counts } = readsOf([() => new Promise(() => {}), () => held]);
    await reads.ready();
    for (let i = 0; i < 3; i++) await reads.ready();
    // Only one query of the broker is in flight, however many reads there are.
    expect([reads.stale, counts]).toEqual([true, { stale: 4, asked: 2 }]);
    answer();
    await turn();
    await reads.ready();
    expect([reads.stale, counts]).toEqual([false, { stale: 4, asked: 3 }]);
  });

  it('reads are answered although the broker reports immediately that it is unreachable', async () => {
    const { reads, counts } = readsOf(Array.from({ length: 100 }, () => () => Promise.reject(late)));
    await reads.ready();
    await turn();
    expect([reads.stale, counts.stale]).toEqual([true, 1]);
    reads.close();
  });

  it('reads see every write again although none arrived since the broker returned', async () => {
    const { reads, counts } = readsOf([() => Promise.reject(late), () => Promise.reject(late)]);
    await reads.ready();
    await until('fresh reads', () => !reads.stale);
    expect(counts).toEqual({ stale: 1, asked: 3 });
  });

  it('reads stop probing the broker once the log is closed', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout'] });
    try {
      const away = Array.from({ length: 100 }, () => () => Promise.reject(late));
      const { reads, counts } = readsOf(away);
      await reads.ready();
      await vi.advanceTimersByTimeAsync(300);
      expect(counts.asked).toBe(5);
      reads.close();
      await vi.advanceTimersByTimeAsync(10_000);
      expect(counts.asked).toBe(5);
    } finally {
      vi.useRealTimers();
    }
  });

  it('a stall of this process does not count as silence of the broker', async () => {
    await withFakeIntervals(async () => {
      let answer = (): void => {};
      const { reads } = readsOf([
        () =>
          new Promise((resolve) => {
            answer = resolve;
          }),
      ]);
      const ready = reads.ready();
      resumeAfterStall();
      await turn();
      answer();
      await ready;
      expect(reads.stale).toBe(false);
    });
  });

  it('reads fail if the log cannot be applied, also during broker silence', async () => {
    const corrupt = registryError('store_corrupt', 'broken');
    const broken = () => Promise.reject(corrupt);
    await expect(readsOf([broken]).reads.ready()).rejects.toBe(corrupt);
    const { reads } = readsOf([() => Promise.reject(late), broken, broken]);
    await reads.ready();
    await turn();
    await expect(reads.ready()).rejects.toBe(corrupt);
  });
});

describe('stale-read warnings', () => {
  const ask = async (
    method: string,
    status: number,
    stale: boolean,
    later = false,
  ): Promise<HttpResponse> => {
    const response = { status, headers: { 'x-kept': 'y' }, body: 'b' };
    const handler = () => (later ? Promise.resolve(response) : response);
    const [route] = warnOfStale([{ method, path: '/', handler }], () => stale, 7);
    return (await route?.handler({ method } as HttpRequest)) as HttpResponse;
  };

  it('an answer that may be stale carries a warning', async () => {
    for (const later of [false, true]) {
      expect((await ask('GET', 200, true, later)).headers).toEqual({
        'x-kept': 'y',
        warning: '110 - "Response is Stale"',
      });
      expect((await ask('GET', 200, false, later)).headers).toEqual({ 'x-kept': 'y' });
    }
  });

  it('a stale read never reports a missing item, but a write may', async () => {
    for (const method of ['GET', 'POST']) {
      const { status, body } = await ask(method, 404, true);
      expect([status, JSON.parse(String(body))]).toEqual([
        500,
        expect.objectContaining({ error_code: 50002 }),
      ]);
      expect((await ask(method, 404, false)).status).toBe(404);
    }
    expect((await ask('DELETE', 404, true)).status).toBe(404);
    expect((await ask('GET', 403, true)).headers).toEqual({ 'x-kept': 'y' });
  });
});
