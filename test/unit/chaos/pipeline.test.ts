/** Flags of the processes of a chaos run. */
import { expect, it } from 'vitest';
import { ttlFlags } from '../../../src/bin/chaos/pipeline.ts';

it.each([
  ['1ms', 1, '1000ms', '1000ms'],
  ['5s', 5000, '2000ms', '2000ms'],
  ['1m', 60_000, '15000ms', '15000ms'],
  ['1h', 3_600_000, '900000ms', '60000ms'],
  ['48h', 172_800_000, '3600000ms', '60000ms'],
])('the inbox of a TTL of %s has partitions that expire soon after it', (_, ttlMs, width, every) => {
  expect(ttlFlags(ttlMs, true)).toEqual([
    `-dedup-ttl=${ttlMs}ms`,
    '-unsafe-ttl=true',
    `-inbox-width=${width}`,
    `-inbox-every=${every}`,
  ]);
});
