/** Smoke run of the relay bench: both modes drain a backlog and follow a load, and every row is in
 *  the topic at the end. */
import { expect, it } from 'vitest';
import { bench } from '../../bench/relay.ts';
import { goalsOf, smoke } from './effects-bench-kit.ts';

it('the relay bench measures a drain and latency from the commit, in both modes', async () => {
  const results = await smoke(bench);
  expect(goalsOf(results)).toEqual([
    ['millrace relay -relay=poll, drain of 2000 rows', 'value >= 25000'],
    ['millrace relay -relay=wal, drain of 2000 rows', 'value >= 25000'],
  ]);
  for (const mode of ['poll', 'wal']) {
    const ours = results.filter(({ metric }) => metric.startsWith(`millrace relay -relay=${mode}`));
    expect(ours.map(({ metric }) => metric.replace(/^.*?, /, ''))).toEqual([
      'drain of 2000 rows',
      'drain, CPU of relay a million rows',
      'drain, CPU of postgres a million rows',
      'drain, CPU of broker a million rows',
      'commit to append, p50',
      'commit to append, p99',
      'commit to consumer, p50',
      'commit to consumer, p99',
      'CPU of relay a row',
    ]);
    for (const { metric, value } of ours) expect(Number.isFinite(value), metric).toBe(true);
    const arrive = ours.find(({ metric }) => metric.endsWith('commit to consumer, p99'));
    expect(arrive?.value).toBeGreaterThan(0);
  }
});
