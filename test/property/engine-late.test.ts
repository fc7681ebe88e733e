/** Side output of refused events: wherever lives end, the topic has a copy of each refused event
 *  with its reason, and never a copy of an accepted event. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { EVENT_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { engineError } from '../../src/engine/errors.ts';
import type { Job } from '../../src/engine/job.ts';
import type { LateCopy } from '../../src/engine/output/late/rows.ts';
import { LATE_REASONS } from '../../src/engine/output/late/topic.ts';
import type { SideTopic } from '../../src/engine/output/side/sender.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { runs } from '../tier.ts';
import {
  crashFields,
  drawFrom,
  engineIn,
  jobs,
  MemorySink,
  MemorySource,
  onDisk,
  oracleRows,
  rulesOf,
  SPILL_FOLDER,
  streams,
  type TestEvent,
} from './engine-kit.ts';

const PARTITIONS = 3;
type Refusal = {
  readonly reason: string;
  readonly boundMs: bigint | undefined;
  readonly text: string;
};

interface Copied {
  readonly partition: number;
  readonly offset: bigint;
  /** REFUSAL.*, or the reason of an invalid record. */
  readonly reason: number | string;
  readonly boundMs?: bigint | undefined;
  /** Fields of late events that can be queried. */
  readonly watermarkMs?: number;
  readonly accountId?: bigint;
  readonly value?: unknown;
  readonly eventTs?: number;
}

/** Keeps the copies that it received, by partition and offset. */
class MemoryTopic implements SideTopic<Copied> {
  readonly copies = new Map<string, Refusal>();
  changed = 0;
  /** Number of sends that fail before a send succeeds. */
  failures = 0;
  turns = 0;
  private life = 0;
  crash(): void {
    this.life++;
  }
  async send(copies: readonly Copied[]): Promise<void> {
    const { life } = this;
    for (let turn = 0; turn < this.turns; turn++) await Promise.resolve();
    if (life !== this.life) throw new Error('killed');
    if (this.failures-- > 0) throw engineError('late_failed', 'the topic is unavailable');
    for (const { partition, offset, reason, boundMs, ...event } of copies) {
      const key = `${partition}@${offset}`;
      const text = typeof reason === 'string' ? reason : (LATE_REASONS.get(reason) as string);
      const refusal = { reason: text, boundMs, text: textOf(event) };
      const before = this.copies.get(key);
      const isSame =
        before?.reason === refusal.reason &&
        before.boundMs === refusal.boundMs &&
        before.text === refusal.text;
      if (before !== undefined && !isSame) this.changed++;
      this.copies.set(key, refusal);
    }
  }
}

const lives = fc.array(
  fc.record({
    ...crashFields,
    topicTurns: fc.constantFrom(0, 20, 500),
    failures: fc.nat({ max: 3 }),
  }),
  { maxLength: 4 },
);

/** Fields of a late event that can be queried; empty for a copy of a record. */
const textOf = ({ accountId, value, eventTs }: Pick<Copied, 'accountId' | 'value' | 'eventTs'>): string =>
  accountId === undefined ? '' : ` ${accountId} ${value} ${eventTs}`;

/** Faults of broken events: the first is of the fixed layout and is not quarantined. */
const FAULTS = [
  [EVENT_STATUS.BAD_LENGTH, undefined],
  [EVENT_STATUS.MISSING_FIELD, 'missing_field'],
  [EVENT_STATUS.MALFORMED_PAYLOAD, 'malformed_payload'],
] as const;
const faultOf = (at: number) => FAULTS[at % FAULTS.length] as (typeof FAULTS)[number];

describe('side outputs', () => {
  it("each refused event is in its side output with the oracle's reason, through crashes anywhere", async () => {
    let copies = 0;
    let quarantined = 0;
    const worlds = fc.tuple(jobs, fc.constantFrom('partition' as const, 'global' as const));
    const anyWorld = worlds.chain(([any, watermark]) => {
      // With a global watermark over several partitions, the order of arrival decides the results,
      // and it differs in each life. So that case uses a single partition.
      const job: Job = { ...any, watermark };
      return streams(watermark === 'global' ? 1 : PARTITIONS).map((events) => ({
        job,
        events: events.map((event, i) => ({ ...event, fault: faultOf(i)[0] })),
      }));
    });
    await fc.assert(
      fc.asyncProperty(anyWorld, lives, async ({ job, events }, crashes) => {
        const disk = new SimDisk();
        const sink = new MemorySink();
        const topic = new MemoryTopic();
        const quarantine = new MemoryTopic();
        const kept = new MemoryTopic();
        const kv = new SimKv();
        const isOnDisk = events.length % 2 === 0;
        const life = async (
          source: MemorySource,
          shards: number,
          checkpointIntervalMs: number,
        ): Promise<void> => {
          const world = { job, partitions: PARTITIONS, shards, disk, sink, source, checkpointIntervalMs };
          const engine = engineIn(world, {
            late: topic,
            quarantine,
            lateEvents: {
              send: (copies) => kept.send(copies),
              find: async () => ({ rows: [], next: undefined }),
            },
            ...(isOnDisk ? await onDisk(kv, { job, shards }, 0) : {}),
          });
          await engine.restore();
          await engine.run(new AbortController().signal);
        };
        for (const crash of crashes) {
          const source = new MemorySource(events, PARTITIONS, crash.batchRows);
          source.batchesLeft = crash.batches;
          disk.changesLeft = crash.diskChanges;
          for (const one of [topic, quarantine, kept]) {
            one.turns = crash.topicTurns;
            one.failures = crash.failures;
          }
          await life(source, crash.shards, crash.interval).catch((thrown: unknown) => {
            if (!/killed|machine is off/.test(String(thrown))) throw thrown;
          });
          sink.crash();
          topic.crash();
          quarantine.crash();
          kept.crash();
          disk.crash(drawFrom(crash.left));
          kv.crash(SPILL_FOLDER);
        }
        disk.changesLeft = Number.POSITIVE_INFINITY;
        for (const one of [topic, quarantine, kept]) {
          one.turns = 0;
          one.failures = 1;
        }
        await life(new MemorySource(events, PARTITIONS, 5), 2, 50);
        const oracle = new Oracle(rulesOf(job), PARTITIONS);
        const expected = new Map<string, string>();
        const invalid = new Map<string, string>();
        const late = new Map<string, string>();
        const next = new Array<number>(PARTITIONS).fill(0);
        const verdictOf = (event: TestEvent): string =>
          event.broken === true
            ? oracle.value(event.partition, new Uint8Array(3))
            : oracle.event(event.partition, event.accountId, event.value, event.eventTs);
        for (const [i, event] of events.entries()) {
          const offset = next[event.partition] as number;
          next[event.partition] = offset + 1;
          const verdict = verdictOf(event);
          const reason = event.broken === true ? faultOf(i)[1] : undefined;
          const place = `${event.partition}@${offset}`;
          if (reason !== undefined) invalid.set(place, reason);
          else if (verdict !== 'accepted') expected.set(place, verdict.replaceAll(' ', '_'));
          if (event.broken !== true && verdict !== 'accepted' && verdict !== 'invalid')
            late.set(place, `${expected.get(place)} ${event.accountId} ${event.value} ${event.eventTs}`);
        }
        const reasonsIn = ({ copies: all }: MemoryTopic): Map<string, string> =>
          new Map([...all].map(([key, { reason }]) => [key, reason] as const).sort());
        expect(reasonsIn(topic)).toEqual(new Map([...expected].sort()));
        expect(reasonsIn(quarantine)).toEqual(new Map([...invalid].sort()));
        const keptTexts = [...kept.copies].map(
          ([key, { reason, text }]) => [key, `${reason}${text}`] as const,
        );
        expect(new Map(keptTexts.sort())).toEqual(new Map([...late].sort()));
        expect([topic.changed, quarantine.changed, kept.changed]).toEqual([0, 0, 0]);
        expect(sink.sorted()).toEqual(oracleRows(oracle).sort());
        copies += expected.size;
        quarantined += invalid.size;
      }),
      { numRuns: runs(120) },
    );
    expect(copies).toBeGreaterThan(runs(600));
    expect(quarantined).toBeGreaterThan(runs(20));
  });

  it('a start without the late topic is refused while copies are pending', async () => {
    const job: Job = {
      ...{ topic: 'events', window: 'tumbling', sizeMs: 10, skewMs: 0, latenessMs: 0 },
      watermark: 'partition',
    };
    const events = [100n, 5n, 200n].map((eventTs) => ({ partition: 0, accountId: 1n, value: 1n, eventTs }));
    const [disk, sink, topic] = [new SimDisk(), new MemorySink(), new MemoryTopic()];
    const sleep = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
    const start = (over: { readonly late?: SideTopic<LateCopy> }) =>
      engineIn(
        {
          ...{ job, partitions: 1, shards: 1, disk, sink, checkpointIntervalMs: 1000 },
          source: new MemorySource(events, 1, 10),
        },
        { ...over, sleep },
      );
    topic.failures = Number.POSITIVE_INFINITY;
    const stopped = new AbortController();
    const away = start({ late: topic });
    await away.restore();
    const run = away.run(stopped.signal);
    while (away.isReady('late')) await sleep();
    stopped.abort();
    await expect(run).rejects.toMatchObject({ code: 'late_failed' });
    expect(topic.copies.size).toBe(0);
    await expect(start({}).restore()).rejects.toMatchObject({ code: 'late_waiting' });
    topic.failures = 0;
    const back = start({ late: topic });
    await back.restore();
    await back.run(new AbortController().signal);
    expect([...topic.copies]).toEqual([['0@1', { reason: 'late', boundMs: 100n, text: '' }]]);
    const without = start({});
    await without.restore();
    await without.run(new AbortController().signal);
    expect(topic.copies.size).toBe(1);
  });
});
