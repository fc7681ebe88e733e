/** Metrics of a user's instance: selectors, and pages that cannot be used. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type FleetMetrics, MetricsPage, SILENT_MS_MAX } from '../../../src/bin/rollout/page.ts';
import {
  type MetricSelector,
  metricSelector,
  missingReason,
  sumOf,
} from '../../../src/bin/rollout/selector.ts';
import { parseExposition } from '../../../src/slo/exposition.ts';
import { realClock } from '../../wait.ts';

const selector = (text: string): MetricSelector => metricSelector('-errors-metric', text) as MetricSelector;
const PAGE = `
# TYPE failed_total counter
failed_total{topic="orders",reason="bad \\"quote\\""} 3
failed_total{topic="orders",reason="tombstone"} 5
failed_total{topic="test",reason="bad"} 7
# TYPE idle_total counter
lag_records NaN
lag_records{partition="1"} 4
`;
const page = parseExposition(PAGE, 'the page');

describe('a metric selector', () => {
  test.each([
    ['failed_total', 15],
    ['failed_total{}', 15],
    ['failed_total{topic="orders"}', 8],
    [`failed_total{ topic = 'orders' , reason != "tombstone" }`, 3],
    [`failed_total{reason="bad \\"quote\\""}`, 3],
    ['failed_total{topic!="orders",reason!="bad"}', 0],
    ['idle_total', 0],
    ['lag_records', 4],
  ])('the selector %s sums the samples that match to %i', (text, sum) => {
    expect(missingReason(selector(text), page)).toBeUndefined();
    expect(sumOf(selector(text), page)).toBe(sum);
  });

  test('an empty text selects nothing', () => {
    expect(metricSelector('-lag-metric', ' ')).toBeUndefined();
  });

  test.each([
    '9lives',
    'failed total',
    'failed_total{topic}',
    'failed_total{topic=~"a.*"}',
    'failed_total{topic="a"',
  ])('the selector %s is refused with an example', (text) => {
    expect(() => selector(text)).toThrow(
      expect.objectContaining({
        code: 'bad_value',
        next: expect.stringContaining('orders_failed_total{topic="orders"'),
      }),
    );
  });

  test.each([
    ['failed_totals', 'it has no metric failed_totals (-errors-metric); did you mean failed_total?'],
    ['other', 'it has no metric other (-errors-metric); it has failed_total, idle_total, lag_records'],
    ['failed_total{topc="orders"}', 'its metric failed_total has no label topc (-errors-metric)'],
  ])('the selector %s is not on the page, and the reason says what is', (text, why) => {
    expect(missingReason(selector(text), page)).toBe(why);
  });
});

describe('the page of an instance', () => {
  let answer = { status: 200, body: PAGE };
  let nowMs = 0;
  const clock = { ...realClock, monotonicMs: () => nowMs };
  const server = createServer((_, response) => {
    response.writeHead(answer.status).end(answer.body);
  });
  const metrics: FleetMetrics = {
    errors: selector('failed_total{topic="orders"}'),
    lag: metricSelector('-lag-metric', 'lag_records'),
    consumed: undefined,
    produced: metricSelector('-produced-metric', 'sent_total'),
  };
  let url = '';

  beforeAll(async () => {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/metrics`;
  });
  afterAll(() => void server.close());
  beforeEach(() => {
    answer = { status: 200, body: PAGE };
    nowMs = 0;
  });

  test('a consumer has errors and lag, and counts that are not measured are 0', async () => {
    const own = new MetricsPage(url, 'consumer', metrics, clock);
    expect(await own.read()).toEqual({ errors: 8, produced: 0, consumed: 0, lag: 4 });
    expect(own.countsWork).toBe(false);
    expect(own.failure).toBeUndefined();
  });

  test('a producer without its metric has failed immediately, with the name of the flag', async () => {
    const own = new MetricsPage(url, 'producer', metrics, clock);
    expect(await own.read()).toBeUndefined();
    expect(own.failure).toBe(
      `its page ${url} cannot be read: it has no metric sent_total (-produced-metric); it has failed_total, idle_total`,
    );
  });

  test('a page of another format has failed immediately, with the line', async () => {
    answer = { status: 200, body: '<html>\n<p>hello' };
    const own = new MetricsPage(url, 'consumer', metrics, clock);
    expect(await own.read()).toBeUndefined();
    expect(own.failure).toContain('it is not a Prometheus metrics page: line 1 is not a sample');
  });

  test('a page that does not answer has failed only after its longest silence, and an answer ends that', async () => {
    const own = new MetricsPage(url, 'consumer', metrics, clock);
    answer = { status: 503, body: '' };
    nowMs = SILENT_MS_MAX - 1;
    expect(await own.read()).toBeUndefined();
    expect(own.failure).toBeUndefined();
    nowMs = SILENT_MS_MAX;
    expect(own.failure).toContain('it answers 503');
    answer = { status: 200, body: PAGE };
    await own.read();
    expect(own.failure).toBeUndefined();
  });
});
