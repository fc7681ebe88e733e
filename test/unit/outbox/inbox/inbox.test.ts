/** The inbox's pure parts: spans of partitions, the arithmetic of the live horizon, ids and
 *  names. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HORIZON_DEFAULTS, KEEPER_DEFAULTS, RELAY_DEFAULTS } from '../../../../src/outbox/defaults.ts';
import { UuidV7 } from '../../../../src/outbox/ids.ts';
import {
  inboxNames,
  isUuidV7,
  leading48,
  partitionName,
  uuidAt,
} from '../../../../src/outbox/inbox/names.ts';
import {
  type HorizonReading,
  horizonText,
  liveHorizon,
} from '../../../../src/outbox/inbox/retention/live-horizon.ts';
import { missingSpans } from '../../../../src/outbox/inbox/retention/partitions.ts';

const HOUR = 3_600_000;
const NOW = Date.UTC(2026, 10, 21, 14);

describe('missing partitions', () => {
  const taken = fc
    .uniqueArray(fc.integer({ min: 0, max: 60 }), { maxLength: 12 })
    .map((edges) => edges.sort((a, b) => a - b))
    .map((edges) => {
      const spans: Array<{ fromMs: number; toMs: number }> = [];
      for (let i = 0; i + 1 < edges.length; i += 2)
        spans.push({ fromMs: edges[i] as number, toMs: edges[i + 1] as number });
      return spans;
    });

  it('the planned spans cover the requested range once, no wider than the width and aligned to it', () => {
    fc.assert(
      fc.property(
        taken,
        fc.integer({ min: 0, max: 50 }),
        fc.integer({ min: 0, max: 30 }),
        fc.integer({ min: 1, max: 9 }),
        (there, fromMs, length, widthMs) => {
          const spans = missingSpans(there, fromMs, fromMs + length, widthMs);
          const all = [...there, ...spans];
          for (let at = fromMs; at < fromMs + length; at++)
            expect(all.filter((one) => one.fromMs <= at && at < one.toMs)).toHaveLength(1);
          for (const one of spans) {
            expect(one.toMs - one.fromMs).toBeLessThanOrEqual(widthMs);
            expect(one.toMs).toBeGreaterThan(one.fromMs);
            expect(Math.floor(one.fromMs / widthMs)).toBe(Math.floor((one.toMs - 1) / widthMs));
            expect(there.some((other) => other.fromMs < one.toMs && one.fromMs < other.toMs)).toBe(false);
          }
        },
      ),
    );
  });
});

describe('live horizon', () => {
  const parts = { relayOutageMs: 2 * HOUR, consumerOutageMs: 3 * HOUR, clockSkewMs: HOUR };
  const reading = (over: Partial<HorizonReading>): HorizonReading => ({
    nowMs: NOW,
    retentionMs: 24 * HOUR,
    oldestRecordMs: undefined,
    oldestUncommittedMs: undefined,
    oldestUnmarkedMs: undefined,
    ...over,
  });

  it.each<[string, Partial<HorizonReading>, string, number]>([
    ['an empty topic', {}, 'retention', 30],
    ['a young record', { oldestRecordMs: NOW - HOUR }, 'retention', 30],
    ['a record beyond the retention', { oldestRecordMs: NOW - 28 * HOUR }, 'record', 31],
    ['a group that lags', { oldestUncommittedMs: NOW - 40 * HOUR }, 'group', 43],
    ['a row that is not marked', { oldestUnmarkedMs: NOW - 30 * HOUR }, 'outbox', 31],
    ['times of a clock that is ahead', { oldestRecordMs: NOW + 5 * HOUR }, 'retention', 30],
    [
      'a topic that keeps all',
      { retentionMs: Number.POSITIVE_INFINITY },
      'retention',
      Number.POSITIVE_INFINITY,
    ],
  ])('the live horizon is bounded as expected with %s', (_, over, bound, hours) => {
    const horizon = liveHorizon(reading(over), parts, 30 * HOUR, false);
    expect([horizon.bound, horizon.horizonMs / HOUR]).toEqual([bound, hours]);
    expect(horizon.marginMs).toBe((30 - hours) * HOUR);
    expect(horizon.cutoffMs).toBe(NOW - Math.max(30, hours) * HOUR);
    expect(liveHorizon(reading(over), parts, HOUR, true).cutoffMs).toBe(NOW - HOUR);
  });

  it('the live horizon never expires ids that are younger than the TTL or can be redelivered', () => {
    const ago = fc.option(fc.integer({ min: -HOUR, max: 100 * HOUR }), { nil: undefined });
    fc.assert(
      fc.property(ago, ago, ago, fc.integer({ min: 0, max: 90 * HOUR }), (record, group, row, ttlMs) => {
        const time = (ms: number | undefined): number | undefined =>
          ms === undefined ? undefined : NOW - ms;
        const given = reading({
          oldestRecordMs: time(record),
          oldestUncommittedMs: time(group),
          oldestUnmarkedMs: time(row),
        });
        const { cutoffMs } = liveHorizon(given, parts, ttlMs, false);
        expect(cutoffMs).toBeLessThanOrEqual(NOW - ttlMs);
        // The message of a readable record was created at most a relay outage before the record, by
        // a clock that is off by at most the skew.
        for (const at of [given.oldestRecordMs, given.oldestUncommittedMs])
          if (at !== undefined)
            expect(cutoffMs).toBeLessThanOrEqual(at - parts.relayOutageMs - parts.clockSkewMs);
        if (given.oldestUnmarkedMs !== undefined)
          expect(cutoffMs).toBeLessThanOrEqual(given.oldestUnmarkedMs - parts.clockSkewMs);
      }),
    );
  });

  it('the live horizon is described by the age of each bound', () => {
    const horizon = liveHorizon(
      reading({ retentionMs: Number.POSITIVE_INFINITY, oldestRecordMs: NOW - HOUR }),
      parts,
      HOUR,
      false,
    );
    expect(horizonText(horizon)).toBe('retention for ever, record 4h');
  });
});

describe('ids and names', () => {
  it('a UUIDv7 is recognised by version and variant, and gives its time', () => {
    const ids = new UuidV7(
      { wallNowMs: () => NOW, monotonicMs: () => 0 },
      {
        fraction: () => 0,
        fill: (into) => void into.fill(0xff),
      },
    );
    expect([isUuidV7(ids.next()), leading48(ids.next())]).toEqual([true, NOW]);
    for (const [at, other] of [
      [14, '0'],
      [14, '4'],
      [14, '8'],
      [19, '7'],
      [19, 'c'],
      [19, '0'],
    ] as const) {
      const id = ids.next();
      expect(isUuidV7(`${id.slice(0, at)}${other}${id.slice(at + 1)}`)).toBe(false);
    }
  });

  it('UUIDv7 ids have the same order as text as their times', () => {
    fc.assert(
      fc.property(fc.nat({ max: 2 ** 31 - 1 }), fc.nat({ max: 2 ** 31 - 1 }), (a, b) => {
        expect(uuidAt(a * 100) < uuidAt(b * 100)).toBe(a < b);
        expect(leading48(uuidAt(a * 100))).toBe(a * 100);
      }),
    );
  });

  it('partition names fit into 63 bytes, with their index', () => {
    const names = inboxNames(`${'s'.repeat(63)}.${'x'.repeat(40)}`);
    expect(`${partitionName(names, NOW)}_other`.length).toBeLessThanOrEqual(63);
    expect(partitionName(inboxNames('shop.seen'), NOW)).toBe('seen_20261121_140000');
    expect(inboxNames('shop.seen')).toMatchObject({ rest: 'shop.seen_default', floor: 'shop.seen_floor' });
  });
});

describe('keeper defaults', () => {
  it("the defaults match the relay's topic retention and cut the horizon into few partitions", () => {
    const { relayOutageMs, consumerOutageMs, clockSkewMs } = HORIZON_DEFAULTS;
    const horizonMs = RELAY_DEFAULTS.createTopic.retentionMs + relayOutageMs + consumerOutageMs + clockSkewMs;
    expect(horizonMs / KEEPER_DEFAULTS.widthMs).toBeLessThan(100);
    expect(KEEPER_DEFAULTS.aheadMs).toBeGreaterThan(2 * KEEPER_DEFAULTS.everyMs);
  });
});
