import { Counter, Registry } from 'prom-client';
import { describe, expect, test } from 'vitest';
import type { Clock } from '../../../../src/core/clock.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import { CACHE_MS, promExposition, registerIn } from '../../../../src/io/metrics/prom.ts';

function fixture() {
  let nowMs = 0;
  const clock: Clock = { wallNowMs: () => nowMs, monotonicMs: () => nowMs };
  const metrics = new Metrics();
  const exposition = promExposition(metrics, clock, {
    build: { version: '1.2.3', command: 'probe', node: 'v20.0.0' },
  });
  return {
    metrics,
    exposition,
    advance: (ms: number) => {
      nowMs += ms;
    },
  };
}

interface Parsed {
  readonly types: ReadonlyMap<string, string>;
  readonly samples: ReadonlyMap<string, string>;
}

/** Parses the text format by its grammar; fails on an invalid line, a repeated sample, or a sample
 *  without a type. */
function parse(text: string): Parsed {
  const types = new Map<string, string>();
  const samples = new Map<string, string>();
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('# HELP ')) continue;
    const type = /^# TYPE ([a-zA-Z_:][\w:]*) (counter|gauge|histogram|summary|untyped)$/.exec(line);
    if (type !== null) {
      expect(types.has(type[1] as string), `${line} twice`).toBe(false);
      types.set(type[1] as string, type[2] as string);
      continue;
    }
    const label = String.raw`[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*"`;
    const sample = new RegExp(
      String.raw`^(([a-zA-Z_:][\w:]*)(?:\{${label}(?:,${label})*\})?) (NaN|Nan|[+-]Inf|-?[\d.eE+-]+)$`,
    ).exec(line);
    expect(sample, line).not.toBeNull();
    const [, key, name, value] = sample as RegExpExecArray;
    expect(samples.has(key as string), `${key} twice`).toBe(false);
    const family = types.has(name as string) ? name : (name as string).replace(/_(bucket|sum|count)$/, '');
    expect(types.has(family as string), `${name} has a type`).toBe(true);
    samples.set(key as string, value as string);
  }
  return { types, samples };
}

describe('exposition', () => {
  test('counters, gauges and histograms are exposed in the text format', async () => {
    const { metrics, exposition } = fixture();
    metrics.counter('orders_total', 'Orders.').add(3);
    metrics.gauge('lag', 'Lag.', ['partition']);
    const lag = metrics.gauge('lag', 'Lag.', ['partition']);
    lag.set(-1.5, lag.series('0'));
    const seconds = metrics.histogram('wait_seconds', 'Wait.', ['route'], [0.1, 1]);
    const route = seconds.series('/a');
    for (const one of [0.05, 0.1, 0.5, 5]) seconds.observe(one, route);
    const { types, samples } = parse(await exposition.text());
    expect([types.get('orders_total'), types.get('lag'), types.get('wait_seconds')]).toEqual([
      'counter',
      'gauge',
      'histogram',
    ]);
    const expected = {
      orders_total: '3',
      'lag{partition="0"}': '-1.5',
      'wait_seconds_bucket{route="/a",le="0.1"}': '2',
      'wait_seconds_bucket{route="/a",le="1"}': '3',
      'wait_seconds_bucket{route="/a",le="+Inf"}': '4',
      'wait_seconds_sum{route="/a"}': '5.65',
      'wait_seconds_count{route="/a"}': '4',
      'build_info{version="1.2.3",command="probe",node="v20.0.0"}': '1',
    };
    for (const [key, value] of Object.entries(expected))
      expect([key, samples.get(key)]).toEqual([key, value]);
    expect(samples.has('process_resident_memory_bytes')).toBe(true);
    expect([...types.keys()].some((name) => name.startsWith('nodejs_eventloop_lag'))).toBe(true);
  });

  test('label values and help with quotes, backslashes and line feeds stay one sample', async () => {
    const { metrics, exposition } = fixture();
    const counter = metrics.counter('odd_total', 'Two\nlines \\ here.', ['topic']);
    counter.add(1, counter.series('a"b\\c\nd'));
    const text = await exposition.text();
    expect(text).toContain('# HELP odd_total Two\\nlines \\\\ here.\n');
    expect(parse(text).samples.get('odd_total{topic="a\\"b\\\\c\\nd"}')).toBe('1');
  });

  test('infinities and NaN are exposed by their names', async () => {
    const { metrics, exposition } = fixture();
    const gauge = metrics.gauge('odd', 'Odd.', ['n']);
    gauge.set(Number.POSITIVE_INFINITY, gauge.series('inf'));
    gauge.set(Number.NEGATIVE_INFINITY, gauge.series('ninf'));
    gauge.set(Number.NaN, gauge.series('nan'));
    const { samples } = parse(await exposition.text());
    expect([samples.get('odd{n="inf"}'), samples.get('odd{n="ninf"}'), samples.get('odd{n="nan"}')]).toEqual([
      '+Inf',
      '-Inf',
      expect.stringMatching(/^nan$/i),
    ]);
  });

  test('a metric without a series still has its type', async () => {
    const { metrics, exposition } = fixture();
    metrics.counter('none_total', 'None.', ['x']);
    expect(parse(await exposition.text()).types.get('none_total')).toBe('counter');
  });

  test('an exposed text is cached for a moment and then rebuilt', async () => {
    const { metrics, exposition, advance } = fixture();
    const counter = metrics.counter('n_total', 'N.');
    const value = async (): Promise<string | undefined> =>
      parse(await exposition.text()).samples.get('n_total');
    expect(await value()).toBe('0');
    counter.add();
    advance(CACHE_MS - 1);
    expect(await value()).toBe('0');
    advance(1);
    expect(await value()).toBe('1');
  });

  test('a collector that throws fails one scrape and not the next', async () => {
    const { metrics, exposition, advance } = fixture();
    let broken = true;
    metrics.onCollect(() => {
      if (broken) throw new Error('gone');
    });
    await expect(exposition.text()).rejects.toThrow('gone');
    broken = false;
    advance(CACHE_MS);
    expect(parse(await exposition.text()).types.size).toBeGreaterThan(5);
  });

  test('two expositions in one process share no state', async () => {
    const first = fixture();
    const second = fixture();
    first.metrics.counter('only_first_total', '').add(1);
    expect(parse(await second.exposition.text()).types.has('only_first_total')).toBe(false);
  });
});

describe('registry of the service', () => {
  function shared(prefix?: string) {
    const { metrics, advance } = fixture();
    const registry = new Registry();
    new Counter({ name: 'own_total', help: 'Own.', registers: [registry] }).inc(2);
    let nowMs = 0;
    const clock: Clock = { wallNowMs: () => nowMs, monotonicMs: () => nowMs };
    const pass = (ms: number): void => {
      nowMs += ms;
      advance(ms);
    };
    const register = () => registerIn(metrics, registry, clock, prefix);
    return { metrics, registry, register, pass };
  }

  test('one registry renders its own metrics and those of the library, also of parts that start later', async () => {
    const { metrics, registry, register, pass } = shared();
    const early = metrics.counter('relay_published_total', 'Rows.');
    register();
    early.add(3);
    const late = metrics.histogram('inbox_batch_seconds', 'Time.', ['kind'], [0.1, 1]);
    late.observe(0.5, late.series('a'));
    let collected = 0;
    metrics.onCollect(() => collected++);
    const { types, samples } = parse(await registry.metrics());
    expect(Object.fromEntries(types)).toMatchObject({
      own_total: 'counter',
      relay_published_total: 'counter',
      inbox_batch_seconds: 'histogram',
    });
    expect(samples.get('own_total')).toBe('2');
    expect(samples.get('relay_published_total')).toBe('3');
    expect(samples.get('inbox_batch_seconds_bucket{kind="a",le="1"}')).toBe('1');
    expect(samples.get('inbox_batch_seconds_count{kind="a"}')).toBe('1');
    expect(collected, 'one snapshot serves a scrape').toBe(1);
    early.add(1);
    pass(CACHE_MS);
    expect(parse(await registry.metrics()).samples.get('relay_published_total')).toBe('4');
    expect(await registry.getMetricsAsJSON()).toHaveLength(4);
    registry.resetMetrics();
    expect(early.value()).toBe(4);
  });

  test('a name that the registry has is refused, also when a part starts later; a prefix avoids it', async () => {
    const { metrics, register } = shared();
    register();
    expect(() => metrics.counter('own_total', 'Other.')).toThrow('has another metric own_total');
    const prefixed = shared('millrace_');
    prefixed.register();
    prefixed.metrics.counter('own_total', 'Other.').add(5);
    const { samples } = parse(await prefixed.registry.metrics());
    expect([samples.get('own_total'), samples.get('millrace_own_total')]).toEqual(['2', '5']);
  });
});
