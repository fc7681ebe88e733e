/** The limits of the window engine as rules: a healthy run meets each rule, and a run that violates
 *  one misses it. */
import { describe, expect, it } from 'vitest';
import { LATENCY_BUCKETS_S } from '../../../src/core/metrics.ts';
import { STAGE_BUCKETS_S } from '../../../src/engine/metrics.ts';
import { parseExposition } from '../../../src/slo/exposition.ts';
import { judge, type RuleVerdict, type Scraped } from '../../../src/slo/judge.ts';
import { readRules } from '../../../src/slo/rules.ts';

const { rules } = readRules('engine');
const SCRAPES = 13;

interface Minute {
  readonly invalid: number;
  /** Bounds of the buckets that contain the slowest hundredth. */
  readonly accumulateS: number;
  readonly sinkS: number;
  readonly checkpointS: number;
  readonly memory: number;
  /** Growth over the minute. */
  readonly lagMs: number;
  readonly waiting: number;
  readonly recoveryS: number;
  readonly ready: number;
}

const HEALTHY: Minute = {
  invalid: 0,
  accumulateS: 0.0025,
  sinkS: 0.5,
  checkpointS: 5,
  memory: 3e9,
  lagMs: 0,
  waiting: 50_000,
  recoveryS: 2.5,
  ready: 1,
};

const boundsOf = (name: string): readonly number[] =>
  name === 'engine_stage_seconds' ? STAGE_BUCKETS_S : LATENCY_BUCKETS_S;

function histogram(name: string, labels: string, count: number, slowS: number): string {
  const bounds = [...boundsOf(name).map(String), '+Inf'];
  const lines = bounds.map((le) => {
    const at = Number(le.replace('+Inf', 'Infinity')) >= slowS ? count : count * 0.98;
    return `${name}_bucket{${labels}le="${le}"} ${Math.round(at)}`;
  });
  return [...lines, `${name}_count{${labels.replace(/,$/, '')}} ${count}`].join('\n');
}

const page = (minute: Minute, share: number): string =>
  [
    histogram('engine_stage_seconds', 'stage="accumulate",', 9e6 * share, minute.accumulateS),
    histogram('engine_stage_seconds', 'stage="sink",', 1e6 * share, minute.sinkS),
    histogram('engine_stage_seconds', 'stage="changelog",', 1e6 * share, 60),
    histogram('engine_checkpoint_duration_seconds', '', Math.round(1000 * share), minute.checkpointS),
    `process_resident_memory_bytes ${minute.memory}`,
    `engine_watermark_lag_ms ${5000 + 300 * Math.sin(40 * share) + minute.lagMs * share}`,
    `engine_invalid_events_total ${Math.round(minute.invalid * share)}`,
    `engine_sink_waiting_rows ${minute.waiting * share}`,
    `engine_recovery_seconds ${minute.recoveryS}`,
    `engine_ready ${minute.ready}`,
    '',
  ].join('\n');

function verdicts(minute: Minute): ReadonlyMap<string, RuleVerdict['verdict']> {
  const scraped: Scraped = {
    target: 'http://engine/metrics',
    scrapes: Array.from({ length: SCRAPES }, (_, look) => ({
      atMs: (60_000 * look) / (SCRAPES - 1),
      page: parseExposition(page(minute, look / (SCRAPES - 1)), 'page'),
    })),
  };
  return new Map(judge(rules, [scraped]).map(({ rule, verdict }) => [rule.id, verdict]));
}

describe('engine rules', () => {
  it('the engine rules contain every limit that a process can show', () => {
    expect(rules.map((rule) => [rule.id, rule.bound, rule.limit])).toEqual([
      ['accumulate_p99', 'below', 0.005],
      ['fire_to_sink_p99', 'below', 1],
      ['engine_memory', 'atMost', 4 * 1024 ** 3],
      ['engine_keeps_up', 'atMost', 1000],
      ['engine_reads_all', 'atMost', 0],
      ['engine_sink_flat', 'atMost', 1_000_000],
      ['checkpoint_p99', 'atMost', 30],
      ['engine_recovery', 'below', 5],
      ['engine_is_ready', 'atLeast', 1],
    ]);
  });

  it('each quantile limit is a bucket bound of its histogram', () => {
    for (const { measure, limit, of } of rules)
      for (const { metric } of of) if (measure === 'quantile') expect(boundsOf(metric)).toContain(limit);
  });

  it('the latency buckets resolve whether an event met its limit, and by how much it missed', () => {
    const around = (ms: number): readonly number[] => {
      const at = STAGE_BUCKETS_S.findIndex((bound) => bound * 1000 >= ms);
      return STAGE_BUCKETS_S.slice(at - 1, at + 1);
    };
    expect(around(4.2)).toEqual([0.004, 0.0045]);
    expect(around(5.1)).toEqual([0.005, 0.006]);
    expect(around(2999)).toEqual([2.5, 3]);
    expect(new Set(STAGE_BUCKETS_S).size).toBe(STAGE_BUCKETS_S.length);
    expect(STAGE_BUCKETS_S.length).toBeLessThanOrEqual(35);
  });

  it('a healthy minute meets every engine rule', () => {
    expect([...verdicts(HEALTHY)].filter(([, verdict]) => verdict !== 'met')).toEqual([]);
  });

  it.each<[string, Partial<Minute>]>([
    ['accumulate_p99', { accumulateS: 0.01 }],
    ['fire_to_sink_p99', { sinkS: 2.5 }],
    ['engine_memory', { memory: 4.5e9 }],
    ['engine_keeps_up', { lagMs: 20_000 }],
    ['engine_reads_all', { invalid: 3 }],
    ['engine_sink_flat', { waiting: 4e6 }],
    ['checkpoint_p99', { checkpointS: 60 }],
    ['engine_recovery', { recoveryS: 8 }],
    ['engine_is_ready', { ready: 0 }],
  ])('only the rule %s is missed by a minute that violates it', (id, broken) => {
    const missed = [...verdicts({ ...HEALTHY, ...broken })].filter(([, verdict]) => verdict !== 'met');
    expect(missed).toEqual([[id, 'missed']]);
  });
});
