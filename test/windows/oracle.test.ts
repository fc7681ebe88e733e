/** Hand-computed answers of the oracle, with one small log per rule, so that each rule has its
 *  numbers here. */
import { describe, expect, it } from 'vitest';
import { parseArrivalOrder, replay } from '../../bench/peers/oracle/arrival-order.ts';
import { rowText } from '../../bench/peers/oracle/difference.ts';
import { digestOf, ResultDigest } from '../../bench/peers/oracle/digest.ts';
import type { LogEntry, OracleRow, OracleRules } from '../../bench/peers/oracle/rules.ts';
import { Oracle, oracleOf } from '../../bench/peers/oracle/windows.ts';

const at = (eventTs: bigint, partition = 0, accountId = 1n, value = 1n): LogEntry => ({
  kind: 'event',
  partition,
  accountId,
  value,
  eventTs,
});
const EXACT = { skewMs: 0n, latenessMs: 0n } as const;
/** Formats each row as start..end:count. */
const format = (rows: Iterable<OracleRow>): string =>
  [...rows].map((row) => `${row.windowStart}..${row.windowEnd}:${row.count}`).join(' ');
const final = (rules: OracleRules, log: readonly LogEntry[], partitions = 1): string =>
  format(oracleOf(rules, partitions, log).rows(true));
const whole = (rules: OracleRules, log: readonly LogEntry[], partitions = 1): string =>
  format(oracleOf(rules, partitions, log).rows());

describe('oracle windows', () => {
  it('windows are half-open and aligned to the epoch, also below zero', () => {
    const rules = { ...EXACT, skewMs: 100n, sizeMs: 10n };
    expect(whole(rules, [at(-11n), at(-10n), at(-1n), at(0n), at(9n), at(10n)])).toBe(
      '-20..-10:1 -10..0:2 0..10:2 10..20:1',
    );
  });

  it('sliding windows slide by any step up to their size', () => {
    const rules = { ...EXACT, skewMs: 100n, window: 'sliding', sizeMs: 5n, slideMs: 2n } as const;
    expect(whole(rules, [at(0n)])).toBe('-4..1:1 -2..3:1 0..5:1');
    expect(whole(rules, [at(1n)])).toBe('-2..3:1 0..5:1');
    expect(whole(rules, [at(-1n), at(4n)])).toBe('-4..1:1 -2..3:1 0..5:1 2..7:1 4..9:1');
    expect(whole({ ...rules, sizeMs: 2n }, [at(-1n), at(4n)])).toBe('-2..0:1 4..6:1');
    expect(() => new Oracle({ ...rules, slideMs: 6n }, 1)).toThrow('longer than the size');
  });

  it('a session ends a gap after its last event, a distance of the gap makes two sessions, and a bridging event merges them', () => {
    const rules = { ...EXACT, skewMs: 100n, window: 'session', gapMs: 10n } as const;
    expect(whole(rules, [at(0n), at(9n)])).toBe('0..19:2');
    expect(whole(rules, [at(0n), at(10n)])).toBe('0..10:1 10..20:1');
    expect(whole(rules, [at(0n), at(18n)])).toBe('0..10:1 18..28:1');
    expect(whole(rules, [at(0n), at(18n), at(9n)])).toBe('0..28:3');
    expect(whole(rules, [at(0n), at(20n), at(10n)])).toBe('0..10:1 10..20:1 20..30:1');
    expect(whole(rules, [at(0n, 0, 1n), at(5n, 0, 2n)])).toBe('0..10:1 5..15:1');
  });

  it('window sums are exact and report an overflow of 64 bits, and rows are in the order of unsigned keys', () => {
    const max = (1n << 63n) - 1n;
    const log = [
      at(0n, 0, 1n << 63n, max),
      at(1n, 0, 1n << 63n, max),
      at(2n, 0, 1n << 63n, 2n),
      at(0n, 0, 5n, -1n),
    ];
    const rows = [...oracleOf({ ...EXACT, skewMs: 9n, sizeMs: 10n }, 1, log).rows()];
    expect(rows.map(rowText)).toEqual([
      '5,0,10,1,-1,-1,-1,0,false',
      `9223372036854775808,0,10,3,0,2,${max},2,true`,
    ]);
    const back = [...log, at(3n, 0, 1n << 63n, -max), at(4n, 0, 1n << 63n, -2n)];
    expect([...oracleOf({ ...EXACT, skewMs: 9n, sizeMs: 10n }, 1, back).rows()][1]).toMatchObject({
      sum: max,
      overflow: false,
    });
  });
});

describe('oracle lateness', () => {
  const rules = { sizeMs: 10n, skewMs: 5n, latenessMs: 3n };

  it('the oracle drops events below the watermark minus the lateness and fires windows at it', () => {
    const log = [at(17n), at(9n), at(8n), at(18n), at(9n)];
    const oracle = oracleOf(rules, 1, log);
    expect(oracle.droppedLate).toEqual([2n]);
    expect(format(oracle.rows())).toBe('0..10:1 10..20:2');
    expect(format(oracle.rows(true))).toBe('0..10:1');
    expect(final(rules, log.slice(0, 3))).toBe('');
  });

  it('the oracle decides lateness by the watermark of the partition and fires at the least watermark', () => {
    const log = [at(30n, 0), at(2n, 1), at(1n, 1)];
    expect(oracleOf(rules, 2, log).droppedLate).toEqual([0n, 0n]);
    expect(final(rules, log, 2)).toBe('');
    expect(final(rules, [...log, at(20n, 1)], 2)).toBe('0..10:2');
    expect(oracleOf({ ...rules, watermark: 'global' }, 2, log).droppedLate).toEqual([0n, 2n]);
  });

  it('the oracle waits for every partition that is not idle', () => {
    const idle = (partition: number): LogEntry => ({ kind: 'idle', partition });
    const log = [at(3n, 0), at(40n, 0)];
    expect(final(rules, log, 2)).toBe('');
    const oracle = oracleOf(rules, 2, [...log, idle(1)]);
    expect(format(oracle.rows(true))).toBe('0..10:1');
    expect(oracle.frontier).toBe(32n);
    // All partitions are idle: the frontier does not move.
    expect(oracleOf(rules, 2, [...log, idle(1), idle(0)]).frontier).toBe(32n);
    // The partition returns: the frontier decides its events, and the partition holds the frontier
    // back.
    const back = oracleOf(rules, 2, [...log, idle(1), at(31n, 1), at(32n, 1), at(20n, 1), at(60n, 0)]);
    expect(back.counters[1]).toMatchObject({
      consumed: 3n,
      accepted: 1n,
      droppedLate: 2n,
      droppedAfterIdle: 1n,
    });
    expect(back.frontier).toBe(32n);
  });

  it('the oracle lets an added partition start at the current watermark', () => {
    const log: LogEntry[] = [at(3n, 0), at(40n, 0), { kind: 'added' }, at(31n, 1), at(32n, 1), at(70n, 0)];
    const oracle = oracleOf(rules, 1, log);
    expect(oracle.counters[1]).toMatchObject({ accepted: 1n, droppedLate: 1n, droppedAfterIdle: 0n });
    expect(oracle.frontier).toBe(32n);
  });

  it('an event from far ahead is accepted and moves the watermark to append time + max-future only', () => {
    const ahead: LogEntry = { ...at(1000n), appendTs: 20n } as LogEntry;
    const oracle = oracleOf({ ...rules, maxFutureMs: 10n }, 1, [at(25n), ahead, at(23n), at(21n)]);
    expect(oracle.counters[0]).toMatchObject({ accepted: 3n, droppedLate: 1n, futureClamped: 1n });
    expect(oracle.frontier).toBe(22n);
    expect(format(oracle.rows())).toBe('20..30:2 1000..1010:1');
  });
});

describe('oracle records', () => {
  it('records are invalid without a value, at another length and outside the limits of time', () => {
    const oracle = new Oracle({ ...EXACT, sizeMs: 10n }, 1);
    const limit = 1n << 52n;
    oracle.value(0, null);
    oracle.value(0, new Uint8Array(255));
    for (const ts of [limit, -limit - 1n, limit - 1n]) oracle.apply(at(ts));
    expect(oracle.counters[0]).toMatchObject({ consumed: 5n, accepted: 1n, invalid: 4n });
  });

  it('the oracle reads the fields of a record at their offsets in 256 bytes', () => {
    const bytes = new Uint8Array(300);
    const view = new DataView(bytes.buffer, 20, 256);
    view.setBigUint64(0, (1n << 64n) - 2n, true);
    view.setBigInt64(8, -3n, true);
    view.setBigInt64(16, -7n, true);
    const oracle = new Oracle({ ...EXACT, sizeMs: 10n }, 1);
    expect(oracle.value(0, bytes.subarray(20, 276))).toBe('accepted');
    expect([...oracle.rows()].map(rowText)).toEqual(['18446744073709551614,-10,0,1,-3,-3,-3,-7,false']);
  });
});

describe('result digest', () => {
  const rules = { ...EXACT, skewMs: 50n, sizeMs: 10n };
  const oracle = oracleOf(rules, 1, [at(1n), at(12n), at(23n, 0, 9n, -4n)]);
  const rows = [...oracle.rows()];

  it('the digest ignores the order of rows and changes with every cell and count', () => {
    const one = digestOf(rows, oracle.counters);
    expect(one).toMatch(/^[0-9a-f]{32}$/);
    expect(digestOf([...rows].reverse(), oracle.counters)).toBe(one);
    const [first, ...rest] = rows as [OracleRow, ...OracleRow[]];
    const changed: Partial<OracleRow>[] = [
      { accountId: 2n },
      { windowStart: 1n },
      { windowEnd: 11n },
      { count: 2n },
      { sum: 2n },
      { min: 0n },
      { max: 2n },
      { lastUpdateTs: 2n },
      { overflow: true },
    ];
    const digests = changed.map((change) => digestOf([{ ...first, ...change }, ...rest], oracle.counters));
    const counts = oracle.counters.map((counters) => ({ ...counters, droppedLate: 1n }));
    const all = [
      one,
      ...digests,
      digestOf(rows, counts),
      digestOf(rest, oracle.counters),
      digestOf(rows, []),
    ];
    expect(new Set(all).size).toBe(all.length);
  });

  it('the digest distinguishes a row that occurs once, twice, three or four times', () => {
    const times = (n: number): string => {
      const digest = new ResultDigest();
      for (let i = 0; i < n; i++) digest.row(rows[0] as OracleRow);
      return digest.text();
    };
    expect(new Set([0, 1, 2, 3, 4].map(times)).size).toBe(5);
    expect(times(0)).toBe('0'.repeat(32));
  });
});

describe('arrival order', () => {
  const records = [
    [at(1n, 0), at(2n, 0)],
    [at(3n, 1), at(4n, 1)],
  ];

  it('an arrival order is replayed with its decisions', () => {
    const order = parseArrivalOrder('run 0 1\nadded\nrun 1 1\nidle 1\nrun 0 1\nrun 1 1\n');
    const log = [...replay(order, records)];
    expect(log.map((entry) => (entry.kind === 'event' ? entry.eventTs : entry.kind))).toEqual([
      1n,
      'added',
      3n,
      'idle',
      2n,
      4n,
    ]);
  });

  it('an arrival order that does not fit the records is refused', () => {
    expect(() => parseArrivalOrder('run 0 1\nwalk 0 1')).toThrow('line 2 of the arrival order is "walk 0 1"');
    expect(() => [...replay(parseArrivalOrder('run 0 3'), records)]).toThrow(
      'needs more than the 2 records of partition 0',
    );
    expect(() => [...replay(parseArrivalOrder('run 0 2'), records)]).toThrow(
      'omits 2 records of partition 1',
    );
  });
});
