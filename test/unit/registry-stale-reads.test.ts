/** Reads while the broker is silent: when they wait, what they say, and when it is over. */
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import type { HttpRequest, HttpResponse } from '../../src/io/http/port.ts';
import { warnOfStale } from '../../src/registry/api/stale.ts';
import { registryError } from '../../src/registry/errors.ts';
import { KafkaReads } from '../../src/registry/store/kafka-reads.ts';

const late = registryError('store_timeout', 'no answer');

function readsOf(answers: Array<() => Promise<void>>) {
  const told = { stale: 0, asked: 0 };
  const reads = new KafkaReads({
    log: silentLogger,
    silentMs: 20,
    catchUp: () => {
      told.asked++;
      return (answers.shift() ?? (() => Promise.resolve()))();
    },
    staleRead: () => told.stale++,
  });
  return { reads, told };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('reads', () => {
  it('see every write while the log answers', async () => {
    const { reads, told } = readsOf([]);
    await reads.ready();
    expect([reads.stale, told]).toEqual([false, { stale: 0, asked: 1 }]);
  });

  it('wait once a stretch, are counted, and see every write again when the log answers', async () => {
    let answer = (): void => {};
    const held = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const { reads, told } = readsOf([() => new Promise(() => {}), () => held]);
    await reads.ready();
    for (let i = 0; i < 3; i++) await reads.ready();
    // One question is under way, whoever reads.
    expect([reads.stale, told]).toEqual([true, { stale: 4, asked: 2 }]);
    answer();
    await turn();
    await reads.ready();
    expect([reads.stale, told]).toEqual([false, { stale: 4, asked: 3 }]);
  });

  it('go on through a broker that says at once that it is away', async () => {
    const { reads, told } = readsOf(Array.from({ length: 100 }, () => () => Promise.reject(late)));
    await reads.ready();
    await turn();
    expect([reads.stale, told.stale]).toEqual([true, 1]);
    reads.close();
  });

  it('see every write again though nobody read since the broker came back', async () => {
    const { reads, told } = readsOf([() => Promise.reject(late), () => Promise.reject(late)]);
    await reads.ready();
    while (reads.stale) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(told).toEqual({ stale: 1, asked: 3 });
  });

  it('ask no more once the log is closed', async () => {
    const away = Array.from({ length: 100 }, () => () => Promise.reject(late));
    const { reads, told } = readsOf(away);
    await reads.ready();
    reads.close();
    await turn();
    const { asked } = told;
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(told.asked).toBe(asked);
  });

  it('do not take a stall of this process for silence of the broker', async () => {
    const reads = new KafkaReads({
      log: silentLogger,
      silentMs: 400,
      catchUp: async () => {
        const until = performance.now() + 900;
        while (performance.now() < until);
        await turn();
        await turn();
      },
    });
    await reads.ready();
    expect(reads.stale).toBe(false);
  });

  it('fail where the log cannot be applied, in a stretch too', async () => {
    const corrupt = registryError('store_corrupt', 'broken');
    const broken = () => Promise.reject(corrupt);
    await expect(readsOf([broken]).reads.ready()).rejects.toBe(corrupt);
    const { reads } = readsOf([() => Promise.reject(late), broken, broken]);
    await reads.ready();
    await turn();
    await expect(reads.ready()).rejects.toBe(corrupt);
  });
});

describe('an answer', () => {
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

  it('says that it may be old, where it may', async () => {
    for (const later of [false, true]) {
      expect((await ask('GET', 200, true, later)).headers).toEqual({
        'x-kept': 'y',
        warning: '110 - "Response is Stale"',
      });
      expect((await ask('GET', 200, false, later)).headers).toEqual({ 'x-kept': 'y' });
    }
  });

  it('never says of what may be old that something is not there, but a write may', async () => {
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
