/** Early results (`-emit=updates`) compared with the oracle, for any windows, stream, batch sizes,
 *  shards and moment of a crash: they are marked, precede the final result, and are the fold of the
 *  events so far. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { rowText } from '../../bench/peers/oracle/difference.ts';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import type { Job } from '../../src/engine/job.ts';
import { ResultRows } from '../../src/engine/output/sink/rows.ts';
import type { FiredPage } from '../../src/engine/window/firing.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { runs } from '../tier.ts';
import {
  crashFields,
  drawFrom,
  engineIn,
  feedOracle,
  jobs,
  MemorySink,
  MemorySource,
  onDisk,
  oracleRows,
  rulesOf,
  SPILL_FOLDER,
  streams,
  type TestEvent,
  untilKilled,
} from './engine-kit.ts';

const PARTITIONS = 2;

const aligned = jobs
  .filter(({ window }) => window !== 'session')
  .map((job): Job => ({ ...job, emit: 'updates' }));

/** Keeps the newest row of every key with its mark, and each order of writes that must not be. */
class MarkedSink extends MemorySink {
  readonly newest = new Map<string, { readonly text: string; readonly isEarly: boolean }>();
  readonly faults: string[] = [];
  earlyWrites = 0;

  override async write(pages: readonly FiredPage[]): Promise<void> {
    const found = pages.flatMap((page) => {
      const rows = new ResultRows({ ...page, rows: page.rows.slice() });
      return Array.from({ length: rows.rowCount }, (_, row) => rows.result(row));
    });
    await this.arrive();
    const inWrite = new Set<string>();
    for (const { isEarly = false, ...row } of found) {
      const key = `${row.accountId},${row.windowStart},${row.windowEnd}`;
      const text = rowText({
        ...row,
        windowStart: BigInt(row.windowStart),
        windowEnd: BigInt(row.windowEnd),
      });
      const before = this.newest.get(key);
      if (inWrite.has(key)) this.faults.push(`${key} is twice in one write`);
      if (before !== undefined && !before.isEarly && isEarly) this.faults.push(`${key} was final`);
      if (before !== undefined && !before.isEarly && text !== before.text)
        this.faults.push(`${key} was final and has changed`);
      if (isEarly) this.earlyWrites++;
      inWrite.add(key);
      this.newest.set(key, { text, isEarly });
    }
  }

  /** Rows of one kind, ascending. */
  of(isEarly: boolean): string[] {
    return [...this.newest.values()]
      .filter((row) => row.isEarly === isEarly)
      .map(({ text }) => text)
      .sort();
  }

  /** A write in flight at a crash is lost. */
  private arrive(): Promise<void> {
    return super.write([]);
  }
}

function oracleOf(job: Job, events: readonly TestEvent[]): Oracle {
  const oracle = new Oracle(rulesOf(job), PARTITIONS);
  feedOracle(oracle, events);
  return oracle;
}

const lives = fc.array(fc.record({ ...crashFields, sinkTurns: fc.constantFrom(0, 20, 200) }), {
  maxLength: 3,
});

describe.each(['memory', 'disk'] as const)('early results, state in %s', (where) => {
  it('a crash loop writes no early result over a final one, and every final result of the oracle', async () => {
    let early = 0;
    await fc.assert(
      fc.asyncProperty(aligned, streams(PARTITIONS), lives, async (job, events, crashes) => {
        const [disk, sink, kv] = [new SimDisk(), new MarkedSink(), new SimKv()];
        const run = async (shards: number, source: MemorySource, checkpointIntervalMs: number) => {
          const setup = { job, partitions: PARTITIONS, shards, disk, sink, source, checkpointIntervalMs };
          const engine = engineIn(setup, {
            ...(where === 'disk' ? await onDisk(kv, setup, events.length % 2 === 0 ? 0 : 3000) : {}),
            emitIntervalMs: 1,
            stop: 'end',
          });
          await engine.restore();
          await engine.run(new AbortController().signal);
        };
        for (const crash of crashes) {
          const source = new MemorySource(events, PARTITIONS, crash.batchRows);
          source.batchesLeft = crash.batches;
          disk.changesLeft = crash.diskChanges;
          sink.turns = crash.sinkTurns;
          await untilKilled(run(crash.shards, source, crash.interval));
          sink.crash();
          disk.crash(drawFrom(crash.left));
          kv.crash(SPILL_FOLDER);
        }
        disk.changesLeft = Number.POSITIVE_INFINITY;
        await run(2, new MemorySource(events, PARTITIONS, 5), 1000);
        const oracle = oracleOf(job, events);
        const final = oracleRows(oracle, true).sort();
        expect(sink.faults).toEqual([]);
        expect(sink.of(false)).toEqual(final);
        const open = oracleRows(oracle).filter((row) => !final.includes(row));
        // Without a crash the last round has every open window; else those that changed since.
        if (crashes.length === 0) expect(sink.of(true)).toEqual(open.sort());
        early += sink.earlyWrites;
      }),
      { numRuns: runs(100) },
    );
    expect(early).toBeGreaterThan(runs(300));
  });
});

it('an early result is the fold of a prefix of the events, and grows', async () => {
  await fc.assert(
    fc.asyncProperty(aligned, streams(1), async (job, events) => {
      const mine = events.map((event) => ({ ...event, partition: 0 }));
      const sink = new MarkedSink();
      const seen = new Map<string, bigint>();
      const prefixes = new Set<string>();
      for (let to = 1; to <= mine.length; to++) {
        const oracle = new Oracle(rulesOf(job), 1);
        feedOracle(oracle, mine.slice(0, to));
        for (const row of oracleRows(oracle)) prefixes.add(row);
      }
      const write = sink.write.bind(sink);
      sink.write = async (pages) => {
        await write(pages);
        for (const [key, { text }] of sink.newest) {
          expect(prefixes).toContain(text);
          const count = BigInt(text.split(',')[3] as string);
          expect(count).toBeGreaterThanOrEqual(seen.get(key) ?? 0n);
          seen.set(key, count);
        }
      };
      const source = new MemorySource(mine, 1, 3);
      const setup = { job, partitions: 1, shards: 2, disk: new SimDisk(), sink, source };
      const engine = engineIn({ ...setup, checkpointIntervalMs: 1000 }, { emitIntervalMs: 1, stop: 'end' });
      await engine.restore();
      await engine.run(new AbortController().signal);
    }),
    { numRuns: runs(50) },
  );
});
