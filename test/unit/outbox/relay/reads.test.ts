/** Intervals between the reads of a polling relay, under virtual time. */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { sleep } from '../../../../src/core/clock.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import type { SqlPool } from '../../../../src/io/postgres/sql/port.ts';
import type { CountingPipeline } from '../../../../src/outbox/relay/pipeline/contract.ts';
import { PollSource } from '../../../../src/outbox/relay/poll/source.ts';
import { VirtualClock } from '../../../../src/sim/clock.ts';

/** Rows that arrive in a ms. */
const RATE = 5;
const ROWS_MAX = 1000;
const TABLE = {
  name: 'outbox',
  fullName: 'public.outbox',
  hasTraceparent: true,
  hasRecordColumns: false,
  sequence: undefined,
} as const;

/** Pipeline without work: each row is published and marked immediately. */
const pipelineOf = (paceMs: number): CountingPipeline => ({
  deliver: async (rows) => ({ published: rows.length, left: [], known: 0, marked: Promise.resolve() }),
  owns: () => true,
  isInFlight: () => false,
  inFlight: () => 0,
  leftSoFar: () => 0,
  paceMs: () => paceMs,
  room: async () => {},
  idle: async () => {},
});

/** Runs a source for `ms` while rows arrive, each of which wakes it.
 *  @returns the number of its reads, and the longest wait of a row */
async function readsOf(spacingMs: number, ms: number, backlogRows = 0, paceMs = 0) {
  const clock = new VirtualClock();
  const drain = new AbortController();
  const waiting = Array.from({ length: backlogRows }, () => 0);
  let [reads, longestMs, lastId] = [0, 0, 0n];
  let wake = (): void => {};
  clock.every(1, () => {
    for (let i = 0; i < RATE; i++) waiting.push(clock.monotonicMs());
    wake();
  });
  const query = async (): Promise<unknown> => {
    reads++;
    const now = clock.monotonicMs();
    const rows = waiting.splice(0, ROWS_MAX).map((sinceMs) => {
      longestMs = Math.max(longestMs, now - sinceMs);
      const ids = { id: ++lastId, aggregate_id: randomUUID(), msg_id: randomUUID() };
      const rest = { payload: new Uint8Array(0), created_ms: now, traceparent: null, followed: false };
      return { ...ids, ...rest, event_type: 't' };
    });
    return { rows };
  };
  const parts = {
    pool: { query } as unknown as SqlPool,
    table: 'outbox',
    pipeline: pipelineOf(paceMs),
    ownership: { shards: 1, owned: () => [0], generation: () => 1 },
    metrics: new Metrics(),
    log: silentLogger,
    clock,
    sleep: (restMs: number) => sleep(clock, restMs),
    sleepUntilWoken: (restMs: number) =>
      new Promise<void>((resolve) => {
        const cancel = clock.after(restMs, resolve);
        wake = () => {
          cancel();
          resolve();
        };
      }),
    drain: drain.signal,
    bytesMax: 1 << 20,
    crashAt: () => {},
    exitWhenDrained: false,
  };
  const settings = { rowsMax: ROWS_MAX, bytesMax: 1 << 20, intervalMs: 20, rescanMs: 60_000 };
  const times = { spacingMs, stragglerAfterMs: 1000, backoffMaxMs: 100 };
  const run = new PollSource(parts, TABLE, { ...settings, ...times }).run();
  await clock.advance(ms);
  const found = { reads, longestMs };
  drain.abort();
  await clock.run(run);
  return found;
}

describe('reads of a polling relay', () => {
  it('reads that are not full are the configured time apart, however often rows wake the relay', async () => {
    for (const spacingMs of [5, 20]) {
      const { reads, longestMs } = await readsOf(spacingMs, 200);
      expect(Math.abs(reads - 200 / spacingMs)).toBeLessThanOrEqual(1);
      expect(longestMs).toBeLessThanOrEqual(spacingMs);
    }
  });

  it('reads are no closer than the batches for the broker, and a full read does not wait for them', async () => {
    const { reads, longestMs } = await readsOf(5, 200, 0, 40);
    expect(Math.abs(reads - 200 / 40)).toBeLessThanOrEqual(1);
    expect(longestMs).toBeLessThanOrEqual(40);
    expect((await readsOf(5, 4, 10 * ROWS_MAX, 40)).reads).toBe(11);
  });

  it('a full read is followed by the next immediately', async () => {
    const { reads } = await readsOf(100, 50, 10 * ROWS_MAX);
    expect(reads).toBe(11);
  });
});
