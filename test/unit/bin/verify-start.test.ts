/** `-start` of `engine verify`: a place that is the same one as when the engine began, or an
 *  error. */
import { describe, expect, it } from 'vitest';
import { firstOffsets, fixedStart, type KeptOffsets } from '../../../src/bin/engine/verify/start.ts';
import type { BrokerDriver } from '../../../src/io/kafka/port.ts';

/** Driver whose topic has in each partition the given offset for every time. */
const driverOf = (...offsets: readonly bigint[]): BrokerDriver =>
  ({
    admin: async () => ({
      offsetsForTime: async (all: readonly { readonly topic: string; readonly partition: number }[]) =>
        all.map((one) => ({ ...one, offset: offsets[one.partition] })),
      close: async () => {},
    }),
  }) as unknown as BrokerDriver;

const offsetsFrom = (start: string, bounds: readonly KeptOffsets[], fromMs?: bigint, ...times: bigint[]) =>
  firstOffsets(
    fixedStart(start),
    driverOf(...times),
    { brokers: 'none', topic: 'orders' },
    { bounds, fromMs },
  );

const whole = [
  { low: 0, high: 900 },
  { low: 0, high: 100 },
];
const cut = [
  { low: 0, high: 900 },
  { low: 40, high: 100 },
];

describe('start of a verification', () => {
  it.each(['latest', '-50'])('the start %s, which moves with the topic, is refused', (start) => {
    expect(() => fixedStart(start)).toThrowError(
      expect.objectContaining({
        code: 'usage',
        message: expect.stringContaining(`-start=${start} depends on the end of the topic`),
      }),
    );
  });

  it('a fixed start is the same place in every verification', async () => {
    expect(await offsetsFrom('earliest', whole)).toEqual([0, 0]);
    expect(await offsetsFrom('80', whole)).toEqual([80, 80]);
    expect(await offsetsFrom('@1750000000000', whole, undefined, 7n, 9n)).toEqual([7, 9]);
  });

  it.each([
    ['earliest', [] as bigint[]],
    ['39', []],
    ['@1750000000000', [7n, 40n]],
  ])('records that are gone behind the start %s need -verify-from', async (start, times) => {
    await expect(offsetsFrom(start, cut, undefined, ...times)).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining('partition 1 of orders begins at offset 40'),
    });
    expect(await offsetsFrom(start, cut, 5n, ...times)).toHaveLength(2);
  });

  it('records that are gone before the start are not missed', async () => {
    expect(await offsetsFrom('40', cut)).toEqual([40, 40]);
    expect(await offsetsFrom('@1750000000000', cut, undefined, 7n, 41n)).toEqual([7, 41]);
  });
});
