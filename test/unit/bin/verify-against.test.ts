/** `engine verify -against=flink` over two sinks in memory: what counts as a difference, the list
 *  of differences, and the range. */
import { describe, expect, it } from 'vitest';
import { verifyAgainstFlink } from '../../../src/bin/engine/verify/against.ts';
import type { KeyType } from '../../../src/engine/keys/type.ts';
import type { WindowResult } from '../../../src/engine/window/accumulator.ts';

type Context = Parameters<typeof verifyAgainstFlink>[0];
type Read = NonNullable<Parameters<typeof verifyAgainstFlink>[1]>;

const result = (account: bigint, start: number, over: Partial<WindowResult> = {}): WindowResult => ({
  ...{ accountId: account, windowStart: start, windowEnd: start + 10 },
  ...{ count: 2n, sum: 30n, min: 10n, max: 20n, lastUpdateTs: BigInt(start + 5), overflow: false },
  ...over,
});

interface Report {
  readonly equal: boolean;
  readonly windows: number;
  readonly digest: string;
  readonly flink_windows: number;
  readonly flink_digest: string;
  readonly differing: number;
  readonly differences: readonly string[];
}

/** Compares the results of the engine with those of Flink. */
async function compare(
  here: readonly WindowResult[],
  there: readonly WindowResult[],
  settings: Readonly<Record<string, unknown>> = {},
  keyType?: KeyType,
): Promise<{ readonly code: number; readonly text: string; readonly report: Report }> {
  const printed: Array<readonly [string, unknown]> = [];
  const context = {
    settings: {
      ...{ sink: 'postgres:postgres://db/shop', 'sink-table': 'own', 'flink-table': 'flink' },
      ...{ 'verify-windows-max': 100, ...settings },
    },
    print: (text: string, document: unknown) => printed.push([text, document]),
  };
  const read = async (asked: { readonly settings: { readonly 'sink-table': string } }) => {
    const rows = asked.settings['sink-table'] === 'own' ? here : there;
    const pages = async function* () {
      // Pages of two rows: a page ends in the middle of the results.
      for (let at = 0; at < rows.length; at += 2) yield rows.slice(at, at + 2);
    };
    return { pages: pages(), keyType: () => keyType, aggregate: undefined };
  };
  const code = await verifyAgainstFlink(context as unknown as Context, read as unknown as Read);
  expect(printed).toHaveLength(1);
  const [text, report] = printed[0] as readonly [string, Report];
  return { code, text, report };
}

const THREE = [result(1n, 0), result(2n, 0), result(1n, 10)];

describe('equal results', () => {
  it('results in another order are equal, and the exit code is 0', async () => {
    const { code, text, report } = await compare(THREE, [...THREE].reverse());
    expect(code).toBe(0);
    expect(text).toBe(`equal: 3 windows, digest ${report.digest}`);
    expect(report).toMatchObject({ equal: true, windows: 3, flink_windows: 3, differing: 0 });
    expect(report).toMatchObject({ flink_digest: report.digest, differences: [] });
  });

  it('two sinks without a result are equal', async () => {
    const { code, report } = await compare([], []);
    expect({ code, ...report }).toMatchObject({ code: 0, equal: true, windows: 0, flink_windows: 0 });
  });
});

describe('results that differ', () => {
  it('a window that Flink lacks is named', async () => {
    const { code, text, report } = await compare(THREE, THREE.slice(0, 2));
    expect(code).toBe(1);
    expect(report).toMatchObject({ equal: false, windows: 3, flink_windows: 2, differing: 1 });
    expect(report.differences).toEqual(['key 1 [10, 20): of this engine alone (2,30,10,20,15,false)']);
    expect(text.split('\n')).toEqual([
      `different: 1 windows; digest ${report.digest} of 3 here, ${report.flink_digest} of 2 in Flink`,
      `  ${report.differences[0]}`,
    ]);
    expect(report.flink_digest).not.toBe(report.digest);
  });

  it('a window of a key that Flink alone has is named', async () => {
    const { code, report } = await compare(THREE, [...THREE, result(-3n, 0)]);
    expect({ code, ...report }).toMatchObject({ code: 1, equal: false, windows: 3, flink_windows: 4 });
    expect(report.differences).toEqual(['key -3 [0, 10): of Flink alone (2,30,10,20,5,false)']);
  });

  it.each<readonly [string, Partial<WindowResult>]>([
    ['count', { count: 3n }],
    ['sum', { sum: 31n }],
    ['min', { min: 9n }],
    ['max', { max: 21n }],
    ['last_update_ts', { lastUpdateTs: 6n }],
    ['overflow', { overflow: true }],
    ['an aggregate', { aggregates: [2n, 30n, 10n, 21n] }],
  ])('another value of %s is a difference with both values', async (_what, over) => {
    const other = result(2n, 0, over);
    const { code, report } = await compare(THREE, [result(1n, 0), other, result(1n, 10)]);
    expect({ code, ...report }).toMatchObject({ code: 1, equal: false, windows: 3, flink_windows: 3 });
    const { count, sum, min, max, aggregates = [count, sum, min, max], lastUpdateTs, overflow } = other;
    const values = [...aggregates, lastUpdateTs, overflow].join();
    expect(report.differences).toEqual([`key 2 [0, 10): ${values} in Flink, 2,30,10,20,5,false here`]);
  });

  it('a window with another end is a window of each engine alone', async () => {
    const { report } = await compare([result(1n, 0)], [result(1n, 0, { windowEnd: 11 })]);
    expect(report.differences).toEqual([
      'key 1 [0, 11): of Flink alone (2,30,10,20,5,false)',
      'key 1 [0, 10): of this engine alone (2,30,10,20,5,false)',
    ]);
  });

  it('a window that Flink has twice is a difference', async () => {
    const { code, report } = await compare(THREE, [...THREE, result(1n, 0)]);
    expect({ code, ...report }).toMatchObject({ code: 1, equal: false, differing: 1 });
  });

  it('keys of text are named by their values', async () => {
    const key = (text: string): Partial<WindowResult> => ({ key: Buffer.from(text) });
    const type: KeyType = [{ name: 'country', kind: 'string' }];
    const { report } = await compare([result(1n, 0, key('CH'))], [result(1n, 0, key('DE'))], {}, type);
    expect(report.differences.map((line) => line.slice(0, 6))).toEqual(['key DE', 'key CH']);
  });

  it('an unsigned key is named as the job has it', async () => {
    const here = [result(2n ** 64n - 1n, 0)];
    const signed = await compare(here, []);
    const unsigned = await compare(here, [], { key: 'id:u64' });
    expect(signed.report.differences[0]).toMatch(/^key -1 \[/);
    expect(unsigned.report.differences[0]).toMatch(/^key 18446744073709551615 \[/);
  });

  it('the first 20 differences are listed, and the others are counted', async () => {
    const many = Array.from({ length: 25 }, (_, i) => result(BigInt(i), 0));
    const { code, text, report } = await compare(many, []);
    expect({ code, differing: report.differing }).toEqual({ code: 1, differing: 25 });
    expect(report.differences).toHaveLength(20);
    expect(text.split('\n')).toHaveLength(22);
    expect(text).toMatch(/\n {2}and 5 more$/);
  });
});

describe('the range of the comparison', () => {
  const outside = [...THREE, result(1n, 20)];

  it('a window that starts before -verify-from is not compared', async () => {
    const there = outside.map((row) => (row.windowStart < 10 ? result(9n, 0) : row));
    expect((await compare(outside, there)).report.equal).toBe(false);
    const { report } = await compare(outside, there, { 'verify-from': '10' });
    expect(report).toMatchObject({ equal: true, windows: 2, flink_windows: 2 });
    expect((await compare(outside, there, { 'verify-from': '0' })).report.equal).toBe(false);
  });

  it('a window that ends after -verify-to is not compared', async () => {
    expect((await compare(outside, THREE)).report.equal).toBe(false);
    const { report } = await compare(outside, THREE, { 'verify-to': '1970-01-01T00:00:00.020Z' });
    expect(report).toMatchObject({ equal: true, windows: 3, flink_windows: 3 });
    expect((await compare(outside, THREE, { 'verify-to': '30' })).report.equal).toBe(false);
  });

  it('a range with more windows than -verify-windows-max is refused', async () => {
    await expect(compare(THREE, THREE, { 'verify-windows-max': 2 })).rejects.toMatchObject({
      code: 'usage',
      message: 'the range has more than 2 windows',
      next: expect.stringContaining('a larger -verify-windows-max'),
    });
    expect((await compare(THREE, THREE, { 'verify-windows-max': 3 })).report.equal).toBe(true);
    const ranged = await compare(THREE, THREE, { 'verify-windows-max': 2, 'verify-to': '10' });
    expect(ranged.report).toMatchObject({ equal: true, windows: 2 });
  });

  it('a comparison of a sink with itself is refused', async () => {
    await expect(compare(THREE, THREE, { 'flink-table': undefined })).rejects.toMatchObject({
      code: 'usage',
      details: { setting: 'against' },
    });
  });
});
