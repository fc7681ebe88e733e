/** The engine with texts as keys and crashes compared with the oracle, which has one number for
 *  each text: any windows, stream, batch sizes, shards, moment of the crash and bits of the
 *  hash. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { ACCUMULATOR, EVENT_STATUS } from '../../src/core/layout/layouts.gen.ts';
import type { Job } from '../../src/engine/job.ts';
import type { KeyDictionary } from '../../src/engine/keys/dictionary.ts';
import { KeySpans } from '../../src/engine/keys/spans.ts';
import type { EngineParts } from '../../src/engine/run.ts';
import type { EventRows } from '../../src/engine/source/events.ts';
import type { InputDefinition } from '../../src/engine/source/input/definition.ts';
import type { FiredPage } from '../../src/engine/window/firing.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { runs } from '../tier.ts';
import { dictionaryIn, ShortHash } from './engine-keys-kit.ts';
import {
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
} from './engine-kit.ts';

const PARTITIONS = 3;
const INPUT: InputDefinition = { format: 'json', key: 'k:string', time: 't:ms' };

/** Source whose events have the decimal digits of their account as key, some of them long. */
class TextSource extends MemorySource {
  keys: KeyDictionary | undefined;
  private readonly spans = new KeySpans();

  override async next(): Promise<EventRows | undefined> {
    const rows = await super.next();
    if (rows === undefined || this.keys === undefined) return rows;
    const { accountId, status } = rows.events.columns;
    this.spans.reset(rows.events.rowCapacity);
    for (let row = 0; row < rows.events.rowCount; row++) {
      if (status[row] !== EVENT_STATUS.OK) continue;
      const id = accountId[row] as bigint;
      const key = Buffer.from(String(id).padStart(id % 3n === 0n ? 700 : 1, '0'));
      this.spans.begin();
      this.spans.put(key, 0, key.length);
      this.spans.end(row);
    }
    await this.keys.open();
    await this.keys.intern(rows.events, this.spans);
    return rows;
  }
}

/** Sink that writes the number of the text as the account. */
class TextSink extends MemorySink {
  readonly ids = new Set<bigint>();

  override async write(pages: readonly FiredPage[]): Promise<void> {
    const numbered = pages.map((page): FiredPage => {
      const rows = page.rows.slice(0, page.rowCount * ACCUMULATOR.BYTES);
      const view = new DataView(rows.buffer);
      for (let row = 0; row < page.rowCount; row++) {
        const at = row * ACCUMULATOR.BYTES + ACCUMULATOR.ACCOUNT_ID;
        this.ids.add(view.getBigUint64(at, true));
        view.setBigUint64(at, BigInt(Buffer.from(page.keys?.key(row) ?? []).toString()), true);
      }
      return { bounds: page.bounds, rows, rowCount: page.rowCount };
    });
    await super.write(numbered);
  }
}

const lives = fc.array(
  fc.record({
    shards: fc.integer({ min: 1, max: 4 }),
    batchRows: fc.integer({ min: 1, max: 12 }),
    batches: fc.integer({ min: 0, max: 12 }),
    diskChanges: fc.oneof(fc.constant(1_000_000), fc.integer({ min: 0, max: 30 })),
    left: fc.nat(),
    sinkTurns: fc.constantFrom(0, 20, 200),
    interval: fc.constantFrom(1, 20, 1000),
  }),
  { maxLength: 4 },
);

describe.each(['memory', 'disk'] as const)('engine with texts as keys, state in %s', (where) => {
  it('the results are those of the texts through crashes, whatever bits the hash has', async () => {
    let collisions = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(1, 2, 30),
        jobs,
        streams(PARTITIONS),
        lives,
        async (bits, job, events, crashes) => {
          const [disk, sink, kv] = [new SimDisk(), new TextSink(), new SimKv()];
          const textJob: Job = { ...job, input: INPUT };
          const engineOf = async (source: TextSource, shards: number, checkpointIntervalMs: number) => {
            const world = { job: textJob, partitions: PARTITIONS, shards, disk, sink, source };
            const over: Partial<EngineParts> = where === 'disk' ? await onDisk(kv, world, 3000) : {};
            const spanMs = job.window === 'session' ? job.gapMs : job.sizeMs;
            const keys = dictionaryIn(kv, { hash: () => new ShortHash(bits), spanMs });
            source.keys = keys;
            const input = {
              definition: INPUT,
              resume() {},
              isReady: true,
              takeWaitedMs: () => 0,
              describe: () => undefined,
            };
            return engineIn({ ...world, checkpointIntervalMs }, { ...over, keys, input });
          };
          for (const crash of crashes) {
            const source = new TextSource(events, PARTITIONS, crash.batchRows);
            source.batchesLeft = crash.batches;
            disk.changesLeft = crash.diskChanges;
            sink.turns = crash.sinkTurns;
            const engine = await engineOf(source, crash.shards, crash.interval);
            const lived = async (): Promise<unknown> => {
              await engine.restore();
              return engine.run(new AbortController().signal);
            };
            await lived().catch((thrown: unknown) => {
              if (!/killed|the process is gone|the machine is off/.test(String(thrown))) throw thrown;
            });
            sink.crash();
            disk.crash(drawFrom(crash.left));
            kv.crash(SPILL_FOLDER);
            kv.crash('keys');
          }
          disk.changesLeft = Number.POSITIVE_INFINITY;
          const engine = await engineOf(new TextSource(events, PARTITIONS, 5), 2, 50);
          await engine.restore();
          await engine.run(new AbortController().signal);
          const oracle = new Oracle(rulesOf(job), PARTITIONS);
          feedOracle(oracle, events);
          expect(sink.sorted()).toEqual(oracleRows(oracle).sort());
          expect(sink.changed).toBe(0);
          if (bits < 3 && sink.ids.size > 4) collisions++;
        },
      ),
      { numRuns: runs(100) },
    );
    expect(collisions).toBeGreaterThan(0);
  });
});
