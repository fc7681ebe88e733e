/** The engine with texts as keys and crashes compared with the oracle, which has one number for
 *  each text: any windows, stream, batch sizes, shards, moment of the crash and bits of the
 *  hash. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import type { Job } from '../../src/engine/job.ts';
import type { LateEvent } from '../../src/engine/output/late/events.ts';
import type { LatePage } from '../../src/engine/output/late/store.ts';
import type { EngineParts } from '../../src/engine/parts.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { runs } from '../tier.ts';
import {
  dictionaryIn,
  ShortHash,
  TEXT_KEYS,
  TextSink,
  TextSource,
  textInput,
  textKey,
} from './engine-keys-kit.ts';
import {
  crashFields,
  drawFrom,
  engineIn,
  jobs,
  onDisk,
  oracleRows,
  rulesOf,
  SPILL_FOLDER,
  streams,
  type TestEvent,
  untilKilled,
} from './engine-kit.ts';

const PARTITIONS = 3;

/** Late events that can be queried, by place. */
class KeptEvents {
  readonly texts = new Map<string, string>();
  changed = 0;
  async send(copies: readonly LateEvent[]): Promise<void> {
    for (const { partition, offset, reason, accountId, key, value, eventTs } of copies) {
      const text = `${reason} ${Buffer.from(key ?? [])} ${accountId} ${value} ${eventTs}`;
      const place = `${partition}@${offset}`;
      if ((this.texts.get(place) ?? text) !== text) this.changed++;
      this.texts.set(place, text);
    }
  }
  async find(): Promise<LatePage> {
    return { rows: [], next: undefined };
  }
}

/** Verdicts of the oracle; returns its late events as KeptEvents has them. */
function lateTexts(oracle: Oracle, events: readonly TestEvent[]): ReadonlyMap<string, string> {
  const late = new Map<string, string>();
  const next = new Array<number>(PARTITIONS).fill(0);
  for (const { partition, broken, accountId, value, eventTs } of events) {
    const offset = next[partition] as number;
    next[partition] = offset + 1;
    if (broken === true) {
      oracle.value(partition, new Uint8Array(3));
      continue;
    }
    const verdict = oracle.event(partition, accountId, value, eventTs).replaceAll(' ', '_');
    if (verdict.startsWith('late'))
      late.set(`${partition}@${offset}`, `${verdict} ${textKey(accountId)} 0 ${value} ${eventTs}`);
  }
  return late;
}

const lives = fc.array(
  fc.record({
    ...crashFields,
    sinkTurns: fc.constantFrom(0, 20, 200),
  }),
  { maxLength: 4 },
);

describe.each(['memory', 'disk'] as const)('engine with texts as keys, state in %s', (where) => {
  it('the results and the late events are those of the texts through crashes, whatever bits the hash has', async () => {
    let collisions = 0;
    let lateCount = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(1, 2, 30),
        jobs,
        streams(PARTITIONS),
        lives,
        async (bits, job, events, crashes) => {
          const [disk, sink, kv, kept] = [new SimDisk(), new TextSink(), new SimKv(), new KeptEvents()];
          const textJob: Job = { ...job, input: TEXT_KEYS };
          const engineOf = async (source: TextSource, shards: number, checkpointIntervalMs: number) => {
            const world = { job: textJob, partitions: PARTITIONS, shards, disk, sink, source };
            const over: Partial<EngineParts> = where === 'disk' ? await onDisk(kv, world, 3000) : {};
            const spanMs = job.window === 'session' ? job.gapMs : job.sizeMs;
            const keys = dictionaryIn(kv, { hash: () => new ShortHash(bits), spanMs });
            source.keys = keys;
            const input = textInput(TEXT_KEYS);
            return engineIn({ ...world, checkpointIntervalMs }, { ...over, keys, input, lateEvents: kept });
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
            await untilKilled(lived());
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
          const late = lateTexts(oracle, events);
          expect(sink.sorted()).toEqual(oracleRows(oracle).sort());
          expect(new Map([...kept.texts].sort())).toEqual(new Map([...late].sort()));
          expect([sink.changed, kept.changed]).toEqual([0, 0]);
          lateCount += late.size;
          if (bits < 3 && sink.ids.size > 4) collisions++;
        },
      ),
      { numRuns: runs(100) },
    );
    expect(collisions).toBeGreaterThan(0);
    expect(lateCount).toBeGreaterThan(runs(500));
  });
});
