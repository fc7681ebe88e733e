/** The parts of the slo command: parsing of the exposition and of the rules, and verdicts over
 *  recorded pages. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LATENCY_BUCKETS_S, Metrics } from '../../../src/core/metrics.ts';
import { promExposition } from '../../../src/io/metrics/prom.ts';
import { packageRoot } from '../../../src/shell/package.ts';
import { parseExposition, serves } from '../../../src/slo/exposition.ts';
import { judge, type RuleVerdict, type Scraped } from '../../../src/slo/judge.ts';
import { BOUNDS, BUILT_IN, MEASURES, parseRules, readRules, type SloRule } from '../../../src/slo/rules.ts';
import { metricsAddress } from '../../../src/slo/scrape.ts';
import { quantity } from '../../../src/slo/table.ts';
import { runs } from '../../tier.ts';

const page = (text: string) => parseExposition(text, 'page');

describe('metrics exposition', () => {
  it('an exposition is parsed with its labels, times, kinds and empty families', () => {
    const read = page(
      [
        '# HELP a_total Things.',
        '# TYPE a_total counter',
        'a_total{topic="x\\"y\\\\z\\nw",b="},{"} 4 1700000000000',
        'a_total 1e3',
        '# TYPE b_total counter',
        '# TYPE c histogram',
        'c_bucket{le="+Inf",} 2 # {trace="1"} 0.5',
        'd NaN',
        'e -Inf',
        '',
      ].join('\r\n'),
    );
    expect(read.samples.get('a_total')).toEqual([
      { name: 'a_total', labels: { topic: 'x"y\\z\nw', b: '},{' }, value: 4 },
      { name: 'a_total', labels: {}, value: 1000 },
    ]);
    expect(read.samples.get('c_bucket')?.[0]?.value).toBe(2);
    expect(read.samples.get('d')?.[0]?.value).toBeNaN();
    expect(read.samples.get('e')?.[0]?.value).toBe(Number.NEGATIVE_INFINITY);
    expect(['a_total', 'b_total', 'c', 'd'].map((name) => serves(read, name))).toEqual([
      true,
      true,
      true,
      true,
    ]);
    expect(serves(read, 'f')).toBe(false);
  });

  it.each([
    ['<html></html>', 'line 1 is not a sample'],
    ['a{b="c} 1', 'line 1 is not a sample'],
    ['a{b=c} 1', 'line 1 is not a sample'],
    ['a 1\nb', 'line 2 is not a sample'],
    ['a 0x10', 'line 1 is not a sample'],
    ['', 'it has no sample'],
  ])('the text %j is not an exposition', (text, why) => {
    expect(() => page(text)).toThrow(why);
    expect(() => page(text)).toThrow(expect.objectContaining({ code: 'wrong_server' }) as Error);
  });

  it('an exposition of our own metrics is parsed to the counted values', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.string({ unit: 'grapheme', maxLength: 8 }), fc.nat()), {
          minLength: 1,
          maxLength: 5,
        }),
        async (entries) => {
          const metrics = new Metrics();
          const counter = metrics.counter('x_total', 'X.', ['l']);
          const expected = new Map<string, number>();
          for (const [label, value] of entries) {
            counter.add(value, counter.series(label));
            expected.set(label, (expected.get(label) ?? 0) + value);
          }
          const clock = { wallNowMs: () => 0, monotonicMs: () => 0 };
          const text = await promExposition(metrics, clock).text();
          const found = page(text).samples.get('x_total') ?? [];
          expect(new Map(found.map(({ labels, value }) => [labels['l'], value]))).toEqual(expected);
        },
      ),
      { numRuns: runs(30) },
    );
  });

  it('a page with a line that is far too long is refused, whatever the line repeats', () => {
    const hostile = [
      `a{${'b="c",'.repeat(20_000)}`,
      `a{b="${'\\'.repeat(100_001)}"} 1`,
      `a ${'1'.repeat(100_000)}x`,
    ];
    for (const text of hostile) expect(() => page(text)).toThrow('is not a sample');
    // Its length alone is the reason. The work on a line is bounded, because a longer line is not
    // read.
    const sound = (chars: number): string => `a{b="${'x'.repeat(chars - 9)}"} 1`;
    expect(page(sound(65_536)).samples.get('a')).toHaveLength(1);
    expect(() => page(sound(65_537))).toThrow('is not a sample');
  });
});

const base: SloRule = {
  id: 'r',
  says: 'a limit',
  measure: 'total',
  of: [{ metric: 'm_total', where: {} }],
  to: [],
  q: 0,
  each: 'all',
  over: 'window',
  bound: 'atMost',
  limit: 0,
  unit: '',
};
const pages = (target: string, ...texts: readonly string[]): Scraped => ({
  target,
  scrapes: texts.map((text, i) => ({ atMs: i * 1000, page: page(text) })),
});
function one(rule: Partial<SloRule>, ...scraped: readonly Scraped[]): RuleVerdict {
  return judge([{ ...base, ...rule }], scraped)[0] as RuleVerdict;
}
const series = (name: string, ...values: readonly number[]): string[] =>
  values.map((value) => `${name} ${value}`);

describe('verdict', () => {
  it('a verdict sums the processes over the window or over their life', () => {
    const a = pages(
      'a',
      'm_total{x="1"} 5\nm_total{x="2"} 1',
      'm_total{x="1"} 7\nm_total{x="2"} 1\nm_total{x="3"} 4',
    );
    const b = pages('b', 'm_total 10', 'm_total 11');
    expect(one({}, a, b).value).toBe(2 + 4 + 1);
    expect(one({ over: 'life' }, a, b).value).toBe(7 + 1 + 4 + 11);
    expect(one({ of: [{ metric: 'm_total', where: { x: ['1', '3'] } }] }, a, b).value).toBe(6);
    expect(one({ of: [{ metric: 'm_total', where: { x: ['9'] } }], over: 'life' }, a).value).toBe(0);
  });

  it('a restarted process is counted from its start', () => {
    expect(one({}, pages('a', ...series('m_total', 100, 110, 3, 5))).value).toBe(10 + 3 + 2);
  });

  it('a verdict is no_data without the metric, and met if the metric counted nothing', () => {
    expect(one({}, pages('a', 'other 1'))).toMatchObject({
      verdict: 'no_data',
      note: 'no process serves m_total',
    });
    expect(one({}, pages('a', '# TYPE m_total counter'))).toMatchObject({ verdict: 'met', value: 0 });
    expect(one({}, pages('a', 'm_total 1'))).toMatchObject({ verdict: 'missed', value: 1 });
  });

  it.each([
    ['below', 5, 5, 'missed'],
    ['below', 4.9, 5, 'met'],
    ['above', 5, 5, 'missed'],
    ['above', 5.1, 5, 'met'],
    ['atMost', 5, 5, 'met'],
    ['atLeast', 5, 5, 'met'],
    ['atLeast', 4, 5, 'missed'],
  ] as const)('the bound %s compares %d with %d as %s', (bound, value, limit, verdict) => {
    expect(one({ bound, limit, over: 'life' }, pages('a', `m_total ${value}`)).verdict).toBe(verdict);
  });

  it('a rate is taken over the whole time, also of a process that ended early', () => {
    const rule = { measure: 'rate', bound: 'atLeast', limit: 100 } as const;
    const long = pages('a', ...series('m_total', 0, 100, 200, 300, 400));
    const short = pages('b', ...series('m_total', 50, 90));
    expect(one(rule, long, short)).toMatchObject({ verdict: 'met', value: 110 });
    expect(one(rule, pages('a', 'm_total 1'))).toMatchObject({ verdict: 'no_data' });
  });

  it('a ratio is taken over all processes, or of the worst process', () => {
    const rule = {
      measure: 'ratio',
      of: [{ metric: 'asked', where: {} }],
      to: [{ metric: 'known', where: {} }],
      over: 'life',
      limit: 1,
    } as const;
    const a = pages('a', 'asked 3\nknown 2');
    const b = pages('b', 'asked 1\nknown 8');
    const idle = pages('c', 'asked 0\nknown 0');
    expect(one(rule, a, b, idle)).toMatchObject({ verdict: 'met', value: 0.4 });
    expect(one({ ...rule, each: 'process' }, a, b, idle)).toMatchObject({
      verdict: 'missed',
      value: 1.5,
      note: 'at a',
    });
    // No requests meet a limit of at most, and give no data for a limit of at least.
    for (const each of ['process', 'all'] as const) {
      expect(one({ ...rule, each }, idle)).toMatchObject({ verdict: 'met', value: 0 });
      expect(one({ ...rule, each, bound: 'atLeast' }, idle)).toMatchObject({ verdict: 'no_data' });
    }
    expect(one({ ...rule, each: 'process' }, pages('d', 'asked 1\nknown 0'))).toMatchObject({
      verdict: 'missed',
      value: Number.POSITIVE_INFINITY,
    });
  });

  it('a rise is distinguished from a value that only fluctuates', () => {
    const rule = { measure: 'rise', of: [{ metric: 'lag', where: {} }] } as const;
    const gauge = (...values: readonly number[]) => pages('a', ...series('lag', ...values));
    expect(one(rule, gauge(0, 900, 0, 900, 0, 900, 0, 900, 0)).verdict).toBe('met');
    expect(one(rule, gauge(100, 200, 300, 400, 500, 600))).toMatchObject({ verdict: 'missed', value: 300 });
    expect(one(rule, gauge(600, 500, 400, 300, 200, 100))).toMatchObject({ verdict: 'met' });
    expect(one(rule, gauge(1, 2, 3))).toMatchObject({ verdict: 'no_data' });
    const ended: Scraped = { ...gauge(5, 5), target: 'b' };
    expect(one(rule, gauge(0, 0, 0, 0, 0, 0), ended)).toMatchObject({ verdict: 'met', value: 0 });
  });

  it('a spread compares the last values of processes in series of the same labels', () => {
    const rule = { measure: 'spread', of: [{ metric: 'version', where: {} }] } as const;
    const reader = (target: string, ...lines: readonly string[]): Scraped =>
      pages(target, 'version 9', lines.join('\n'));
    const old = reader('a', 'version{s="x"} 1', 'version{s="y"} 5');
    const next = reader('b', 'version{s="x"} 3', 'version{s="y"} 5');
    expect(one(rule, old, next)).toMatchObject({ verdict: 'missed', value: 2, note: '1 at a, 3 at b' });
    expect(one(rule, old, { ...old, target: 'c' })).toMatchObject({ verdict: 'met', value: 0 });
    // Other subjects may have other versions.
    expect(one({ ...rule, of: [{ metric: 'version', where: { s: ['y'] } }] }, old, next)).toMatchObject({
      verdict: 'met',
      note: '5 everywhere',
    });
    expect(one(rule, pages('a', '# TYPE version gauge'))).toMatchObject({
      verdict: 'no_data',
      note: 'no process has a value',
    });
  });
});

const histogram = (...counts: readonly number[]): string => {
  const bounds = ['0.001', '0.0025', '0.025', '+Inf'];
  let seen = 0;
  return bounds
    .map((le, i) => {
      seen += counts[i] as number;
      return `m_bucket{le="${le}"} ${seen}`;
    })
    .join('\n');
};
const quantile = { measure: 'quantile', of: [{ metric: 'm', where: {} }], bound: 'below' } as const;

describe('quantile', () => {
  it('a quantile is between two bounds, and meets a limit with the upper bound', () => {
    const a = pages('a', histogram(0, 0, 0, 0), histogram(98, 1, 1, 0));
    expect(one({ ...quantile, q: 0.98, limit: 0.001 }, a)).toMatchObject({
      verdict: 'met',
      value: 0.001,
      from: 0,
    });
    expect(one({ ...quantile, q: 0.99, limit: 0.001 }, a)).toMatchObject({
      verdict: 'missed',
      value: 0.0025,
      from: 0.001,
      note: "of 100 observations, to the bucket's width",
    });
    // The limit lies inside the bucket, so the quantile may exceed it.
    expect(one({ ...quantile, q: 0.99, limit: 0.002 }, a)).toMatchObject({ verdict: 'missed' });
    expect(one({ ...quantile, q: 1, limit: 0.025 }, a)).toMatchObject({ verdict: 'met', from: 0.0025 });
  });

  it('a quantile over the last bound meets no limit', () => {
    expect(one({ ...quantile, q: 0.5, limit: 1e9 }, pages('a', histogram(1, 0, 0, 9)))).toMatchObject({
      verdict: 'missed',
      value: Number.POSITIVE_INFINITY,
      from: 0.025,
    });
  });

  it('a quantile is taken over all processes together, within the window', () => {
    const a = pages('a', histogram(0, 0, 50, 0), histogram(99, 0, 50, 0));
    const b = pages('b', histogram(0, 0, 0, 0), histogram(0, 0, 1, 0));
    expect(one({ ...quantile, q: 0.99, limit: 0.001 }, a, b)).toMatchObject({ verdict: 'met' });
    expect(one({ ...quantile, q: 0.991, limit: 0.001 }, a, b)).toMatchObject({ verdict: 'missed' });
    expect(one({ ...quantile, q: 0.99, limit: 0.001, over: 'life' }, a, b)).toMatchObject({
      verdict: 'missed',
    });
  });

  it('a quantile needs observations in the same buckets', () => {
    expect(one({ ...quantile, q: 0.5, limit: 1 }, pages('a', '# TYPE m histogram'))).toMatchObject({
      verdict: 'no_data',
      note: 'nothing was observed',
    });
    expect(
      one(
        { ...quantile, q: 0.5, limit: 1 },
        pages('a', histogram(1, 0, 0, 0)),
        pages('b', 'm_bucket{le="+Inf"} 1'),
      ),
    ).toMatchObject({ verdict: 'no_data', note: 'the processes have different buckets' });
  });

  it('a quantile agrees with the sorted observations up to the width of its bucket', () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: 1e-7, max: 50, noNaN: true }), { minLength: 1, maxLength: 300 }),
        fc.constantFrom(0.5, 0.9, 0.99, 1),
        (values, q) => {
          const bounds = [1e-6, 1e-5, 1e-3, 0.1, 1, 10];
          const text = [...bounds, Number.POSITIVE_INFINITY]
            .map(
              (le) =>
                `m_bucket{le="${le === Number.POSITIVE_INFINITY ? '+Inf' : le}"} ${values.filter((v) => v <= le).length}`,
            )
            .join('\n');
          const { value, from } = one({ ...quantile, q, limit: 1 }, pages('a', text));
          const exact = [...values].sort((a, b) => a - b)[Math.ceil(q * values.length) - 1] as number;
          expect(exact).toBeLessThanOrEqual(value as number);
          expect(exact).toBeGreaterThan(from === 0 ? -1 : (from as number));
        },
      ),
      { numRuns: runs(300) },
    );
  });
});

describe('recorded pages', () => {
  const recorded = JSON.parse(
    readFileSync(join(packageRoot(), 'test', 'vectors', 'slo-pages.json'), 'utf8'),
  ) as { readonly processes: Readonly<Record<string, readonly string[]>> };
  const scraped = Object.entries(recorded.processes).map(([name, texts]) => pages(name, ...texts));

  // Source: counted in the texts by hand, without Millrace's code.
  it.each([
    ['lookup_warm_p99', 'met', 1e-6, 0],
    ['lookup_cold_p99', 'met', 0.005, 0.0025],
    ['lookup_once', 'met', 1, undefined],
    ['serde_overhead_median', 'met', 5e-6, 2.5e-6],
    ['serde_overhead_p99', 'met', 3e-5, 1.5e-5],
    ['serde_decode_median', 'met', 5e-6, 2.5e-6],
    ['produce_throughput', 'missed', 12_800 / 5, undefined],
    ['registry_requests_bounded', 'met', 1, undefined],
    // No page of a registry was recorded.
    ['registry_request_rate', 'no_data', undefined, undefined],
    ['broken_consumers', 'met', 0, undefined],
    ['reader_version', 'met', 0, undefined],
    ['consumer_lag', 'met', 200, undefined],
    ['replay_decodes', 'met', 1, undefined],
    ['cache_hit_ratio', 'met', 1, undefined],
  ])('the recorded rule %s is %s with %d', (id, verdict, value, from) => {
    const found = judge(readRules('registry').rules, scraped).find(({ rule }) => rule.id === id);
    expect(found).toMatchObject({ verdict, value, from });
  });

  it('the recorded pages cover every registry rule', () => {
    expect(judge(readRules('registry').rules, scraped)).toHaveLength(14);
  });
});

describe('rules', () => {
  it.each(BUILT_IN)('the rules of the %s are valid', (name) => {
    const { rules, source } = readRules(name);
    expect(source).not.toBe('');
    expect(rules.length).toBeGreaterThan(5);
  });

  it('the registry rules contain every limit that a process can show', () => {
    const limits = readRules('registry').rules.map((rule) => [rule.id, rule.bound, rule.limit]);
    expect(limits).toEqual([
      ['lookup_warm_p99', 'below', 0.001],
      ['lookup_cold_p99', 'below', 0.025],
      ['lookup_once', 'atMost', 1],
      ['serde_overhead_median', 'below', 8e-6],
      ['serde_overhead_p99', 'below', 3e-5],
      ['serde_decode_median', 'below', 8e-6],
      ['produce_throughput', 'atLeast', 200_000],
      ['registry_requests_bounded', 'atMost', 1],
      ['registry_request_rate', 'atMost', 0.0001],
      ['broken_consumers', 'atMost', 0],
      ['reader_version', 'atMost', 0],
      ['consumer_lag', 'atMost', 20_000],
      ['replay_decodes', 'atLeast', 1],
      ['cache_hit_ratio', 'above', 0.9999],
    ]);
  });

  it('each quantile limit of the registry is a bucket bound of its histogram', () => {
    const quantiles = readRules('registry').rules.filter(({ measure }) => measure === 'quantile');
    expect(quantiles).toHaveLength(5);
    for (const { limit } of quantiles) expect(LATENCY_BUCKETS_S).toContain(limit);
  });

  const good = { id: 'a', says: 'b', measure: 'total', of: { metric: 'm' }, atMost: 0 };
  const text = (over: object): string => JSON.stringify({ rules: [{ ...good, ...over }] });
  it.each([
    ['{', 'not JSON'],
    ['[]', 'not a document with a list of rules'],
    ['{"rules":[]}', 'not a document with a list of rules'],
    ['{"rules":[1]}', 'rule 1 is not an object'],
    [text({ id: 'A b' }), 'rule 1 has no id'],
    [text({ says: '' }), 'has no text in "says"'],
    [text({ measure: 'mean' }), 'needs a measure of'],
    [text({ below: 1 }), 'needs exactly one limit'],
    [text({ atMost: '0' }), 'needs exactly one limit'],
    [text({ measure: 'quantile' }), 'has no q'],
    [text({ measure: 'ratio' }), 'does not select metrics'],
    [text({ of: [] }), 'does not select metrics'],
    [text({ measure: 'rate', over: 'life' }), 'cannot measure a rate over life'],
    [text({ over: 'night' }), 'has an over'],
    [text({ each: 'one' }), 'has an each'],
    [text({ limits: 1 }), 'a property "limits" that is not known'],
    [JSON.stringify({ rules: [good, good] }), 'rule 2 repeats the id a'],
  ])('the rules file %j is refused', (document, why) => {
    expect(() => parseRules(document, 'file')).toThrow(`file: `);
    expect(() => parseRules(document, 'file')).toThrow(why);
  });

  it('a missing rules file is reported with its error', () => {
    expect(() => readRules('/nowhere/rules.json')).toThrow('ENOENT');
  });
});

describe('documentation of rules', () => {
  const text = readFileSync(join(packageRoot(), 'docs', 'reference', 'slo', 'README.md'), 'utf8');
  it('the page has an example that parses as a rule', () => {
    const example = /```json\n(.*?)```/s.exec(text)?.[1];
    expect(parseRules(example ?? '', 'README').rules).toHaveLength(1);
  });
  it('the page names every measure and every bound', () => {
    for (const word of [...MEASURES, ...BOUNDS]) expect(text).toContain(`\`${word}\``);
  });
});

describe('formatting', () => {
  it.each([
    [0.001, 's', '1 ms'],
    [0.000008, 's', '8 us'],
    [0.025, 's', '25 ms'],
    [2.5, 's', '2.5 s'],
    [200_000, 'events/s', '200000 events/s'],
    [0.99995, '', '0.99995'],
    [Number.POSITIVE_INFINITY, 's', 'over the last bucket s'],
  ])('the quantity %d %s is formatted as %s', (value, unit, words) => {
    expect(quantity(value, unit)).toBe(words);
  });

  it.each([
    ['127.0.0.1:9', 'http://127.0.0.1:9/metrics'],
    ['http://a:9/', 'http://a:9/metrics'],
    ['http://a:9/x/metrics', 'http://a:9/x/metrics'],
    ['https://a', 'https://a/metrics'],
    ['[::1]:9', 'http://[::1]:9/metrics'],
  ])('the metrics of %s are read at %s', (text, address) => {
    expect(metricsAddress(text)).toBe(address);
  });
  it.each(['a', '', 'http://', 'ftp://a:1'])('the text %j is refused as an address', (text) => {
    expect(() => metricsAddress(text)).toThrow('is not an address');
  });
});
