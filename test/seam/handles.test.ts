/** Handles are type-tagged, may be closed more than once, are unusable after that, and are closed
 *  by the garbage collector when unreachable. */
import { readdirSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { turns, until } from '../wait.ts';
import { type RawFunction, raw, thrownBy } from './kit.ts';

const f = (name: string): RawFunction => raw[name] as RawFunction;
const WRONG_TYPE = { name: 'TypeError', code: 'ERR_INVALID_ARG_TYPE' };
const CLOSED = { name: 'Error', code: 'closed' };
const openConsumer = (): unknown => f('brokerConsumerOpen')(['group.id', 'seam'], () => undefined);
const openProducer = (): unknown => f('brokerProducerOpen')([]);

const KINDS = [
  ['consumer', openConsumer, 'brokerConsumerClose', 'brokerConsumerPositions'],
  ['producer', openProducer, 'brokerProducerClose', 'brokerProducerFatal'],
] as const;

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;

describe.each(KINDS)('a %s handle', (_, open, close, use) => {
  it('an addon handle can be closed twice and is unusable afterwards', async () => {
    const handle = open();
    // A call in flight when its handle closes must only end; its result may be either.
    const inFlight = Promise.resolve(f(use)(handle)).then(
      () => undefined,
      (error: Error & { code?: string }) => expect(error.code).toBe('closed'),
    );
    expect(f(close)(handle)).toBeUndefined();
    expect(f(close)(handle)).toBeUndefined();
    expect(thrownBy(() => f(use)(handle))).toEqual(CLOSED);
    await inFlight;
  });

  it('an addon function refuses a handle of another kind and every imitation of a handle', () => {
    const handle = open() as object;
    const other = close === 'brokerProducerClose' ? openConsumer() : openProducer();
    const foreign = [
      other,
      {},
      Object.create(handle),
      { ...handle },
      null,
      undefined,
      1,
      'handle',
      [],
      () => 0,
    ];
    for (const name of [close, use])
      for (const value of foreign)
        expect(
          thrownBy(() => f(name)(value)),
          String(value),
        ).toEqual(WRONG_TYPE);
    expect(thrownBy(() => f(close)(new Proxy(handle, {})))).toEqual(WRONG_TYPE);
    expect(thrownBy(() => f(close)())).toEqual(WRONG_TYPE);
    f(close)(handle);
    f(close === 'brokerProducerClose' ? 'brokerConsumerClose' : 'brokerProducerClose')(other);
  });

  it('the garbage collector closes an unreachable handle', async () => {
    const threads = (): number => readdirSync('/proc/self/task').length;
    f(close)(open());
    // Threads of the handles of other tests end first: the baseline is the least of a hundred
    // counts, each after a collection.
    let before = threads();
    for (let i = 0; i < 100; i++) {
      gc();
      await turns(5);
      before = Math.min(before, threads());
    }
    (() => {
      for (let i = 0; i < 5; i++) open();
    })();
    expect(threads()).toBeGreaterThan(before);
    await until('no thread of a forgotten handle', () => {
      gc();
      return threads() <= before;
    });
  });
});

it('a closed consumer releases its rebalance function and everything the function refers to', async () => {
  let collected = 0;
  const registry = new FinalizationRegistry(() => {
    collected++;
  });
  (() => {
    for (let i = 0; i < 20; i++) {
      const onRebalance = () => i;
      registry.register(onRebalance, undefined);
      f('brokerConsumerClose')(f('brokerConsumerOpen')(['group.id', 'seam'], onRebalance));
    }
  })();
  // The last function may still be referenced from the stack.
  await until('a collection of the functions', () => {
    gc();
    return collected >= 19;
  });
});
