/** The limits of orders, relay and payments as rules: a healthy run meets each rule, and a run that
 *  violates one misses it. */
import { describe, expect, it } from 'vitest';
import { LATENCY_BUCKETS_S } from '../../../src/core/metrics.ts';
import { EFFECT_BUCKETS_S } from '../../../src/outbox/payments/metrics.ts';
import { parseExposition } from '../../../src/slo/exposition.ts';
import { judge, type RuleVerdict, type Scraped } from '../../../src/slo/judge.ts';
import { readRules } from '../../../src/slo/rules.ts';

const { rules } = readRules('outbox');
const SECONDS = 60;
const SCRAPES = 13;

/** A minute with 5,200 requests per second, of which a fifth are repeats. */
interface Minute {
  readonly created: number;
  readonly replayed: number;
  readonly overloaded: number;
  readonly published: number;
  /** Pending rows at the start, and their growth over the minute. */
  readonly lag: number;
  readonly lagGrowth: number;
  /** Bound of the bucket that contains the slowest hundredth of the requests. */
  readonly slowS: number;
  readonly effectS: number;
  readonly parked: number;
  readonly gaps: number;
  readonly marginS: number;
}

const HEALTHY: Minute = {
  created: 250_000,
  replayed: 62_000,
  overloaded: 10,
  published: 249_800,
  lag: 40,
  lagGrowth: 0,
  slowS: 0.01,
  effectS: 0.25,
  parked: 0,
  gaps: 0,
  marginS: 0,
};

function histogram(
  name: string,
  labels: string,
  bounds: readonly number[],
  count: number,
  slowS: number,
): string {
  const at = (le: number): number => (le >= slowS ? count : le >= 0.0025 ? count * 0.98 : 0);
  const lines = [...bounds, Number.POSITIVE_INFINITY].map((le) => {
    const text = le === Number.POSITIVE_INFINITY ? '+Inf' : String(le);
    return `${name}_bucket{${labels}le="${text}"} ${Math.round(at(le))}`;
  });
  return [...lines, `${name}_count{${labels.replace(/,$/, '')}} ${count}`].join('\n');
}

function page(minute: Minute, share: number): string {
  const part = (value: number): number => Math.round(value * share);
  const requests = part(minute.created + minute.replayed + minute.overloaded);
  return [
    `orders_requests_total{outcome="created"} ${part(minute.created)}`,
    `orders_requests_total{outcome="replayed"} ${part(minute.replayed)}`,
    `orders_requests_total{outcome="overloaded"} ${part(minute.overloaded)}`,
    histogram('http_request_duration_seconds', 'route="/orders",', LATENCY_BUCKETS_S, requests, minute.slowS),
    histogram('http_request_duration_seconds', 'route="/metrics",', LATENCY_BUCKETS_S, 100, 60),
    histogram(
      'payments_commit_to_effect_seconds',
      '',
      EFFECT_BUCKETS_S,
      part(minute.created),
      minute.effectS,
    ),
    `relay_published_total ${part(minute.published)}`,
    `relay_lag_rows ${Math.round(minute.lag + minute.lagGrowth * share)}`,
    `relay_order_gaps_total ${part(minute.gaps)}`,
    `payments_parked_total{reason="refused"} ${part(minute.parked)}`,
    `dedup_ttl_margin_seconds ${minute.marginS}`,
    '',
  ].join('\n');
}

function verdicts(minute: Minute): ReadonlyMap<string, RuleVerdict['verdict']> {
  const scraped: Scraped = {
    target: 'http://all/metrics',
    scrapes: Array.from({ length: SCRAPES }, (_, look) => ({
      atMs: (1000 * SECONDS * look) / (SCRAPES - 1),
      page: parseExposition(page(minute, look / (SCRAPES - 1)), 'page'),
    })),
  };
  return new Map(judge(rules, [scraped]).map(({ rule, verdict }) => [rule.id, verdict]));
}

describe('outbox rules', () => {
  it('the outbox rules contain every limit that a process can show', () => {
    expect(rules.map((rule) => [rule.id, rule.bound, rule.limit])).toEqual([
      ['orders_p99', 'below', 0.025],
      ['orders_rate', 'atLeast', 5000],
      ['orders_answered', 'atMost', 0.001],
      ['relay_keeps_up', 'atLeast', 0.99],
      ['relay_lag_flat', 'atMost', 5000],
      ['relay_order_kept', 'atMost', 0],
      ['commit_to_effect_p99', 'below', 2],
      ['payments_parks_nothing', 'atMost', 0],
      ['inbox_remembers', 'atLeast', 0],
    ]);
  });

  it('each quantile limit is a bucket bound of its histogram', () => {
    const limit = (id: string): number => rules.find((rule) => rule.id === id)?.limit as number;
    expect(LATENCY_BUCKETS_S).toContain(limit('orders_p99'));
    expect(EFFECT_BUCKETS_S).toContain(limit('commit_to_effect_p99'));
  });

  it('a healthy minute meets every outbox rule', () => {
    expect([...verdicts(HEALTHY)].filter(([, verdict]) => verdict !== 'met')).toEqual([]);
  });

  it.each<[string, Partial<Minute>]>([
    ['orders_p99', { slowS: 0.05 }],
    ['orders_rate', { created: 200_000, published: 200_000 }],
    ['orders_answered', { overloaded: 1000 }],
    ['relay_keeps_up', { published: 240_000 }],
    ['relay_lag_flat', { lagGrowth: 60_000 }],
    ['relay_order_kept', { gaps: 2 }],
    ['commit_to_effect_p99', { effectS: 2.5 }],
    ['payments_parks_nothing', { parked: 1 }],
    ['inbox_remembers', { marginS: -60 }],
  ])('only the rule %s is missed by a minute that violates it', (id, broken) => {
    const missed = [...verdicts({ ...HEALTHY, ...broken })].filter(([, verdict]) => verdict !== 'met');
    expect(missed).toEqual([[id, 'missed']]);
  });

  it('a ratio between two processes has no verdict from one scrape, because a restarted relay counts from its restart', () => {
    const scraped = (target: string, text: string): Scraped => ({
      target,
      scrapes: [{ atMs: 0, page: parseExposition(text, target) }],
    });
    const orders = scraped('orders', 'orders_requests_total{outcome="created"} 250000');
    const relay = scraped('relay', 'relay_published_total 1200');
    const keepsUp = rules.filter(({ id }) => id === 'relay_keeps_up');
    const [verdict] = judge(keepsUp, [orders, relay]);
    expect(verdict).toMatchObject({ verdict: 'no_data', note: expect.stringContaining('give -for') });
    // One process that has counted both over the same time.
    const both = scraped('both', 'orders_requests_total{outcome="created"} 1000\nrelay_published_total 900');
    expect(judge(keepsUp, [both])[0]).toMatchObject({ verdict: 'missed', value: 0.9 });
  });
});
