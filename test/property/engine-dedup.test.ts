/** Duplicates: results, and the number of events that were folded, are those of a brute-force
 *  oracle, through crashes anywhere, with state in memory and on disk. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { EVENT_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { EventIds } from '../../src/engine/dedup/ids.ts';
import type { Job } from '../../src/engine/job.ts';
import type { EventRows } from '../../src/engine/source/events.ts';
import type { InputDefinition } from '../../src/engine/source/input/definition.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { runs } from '../tier.ts';
import { dictionaryIn, ShortHash, TEXT_KEYS, TextSink, TextSource, textInput } from './engine-keys-kit.ts';
import {
  crashFields,
  drawFrom,
  engineIn,
  jobs,
  MemorySink,
  onDisk,
  rulesOf,
  SPILL_FOLDER,
  streams,
  type TestEvent,
  untilKilled,
} from './engine-kit.ts';

type IdEvent = TestEvent & { readonly id: string };

/** Adds the identifiers of its events to each batch. */
class IdSource extends TextSource {
  private readonly idOf: ReadonlyMap<string, string>;

  constructor(events: readonly IdEvent[], partitions: number, batchRows: number) {
    super(events, partitions, batchRows);
    const next = new Array<number>(partitions).fill(0);
    this.idOf = new Map(
      events.map(({ partition, id }) => {
        const offset = next[partition] as number;
        next[partition] = offset + 1;
        return [`${partition}@${offset}`, id];
      }),
    );
  }

  override async next(): Promise<EventRows | undefined> {
    const rows = await super.next();
    if (rows === undefined) return undefined;
    const { partition, offset } = rows.records.columns;
    const ids = EventIds.of(rows.events);
    for (let row = 0; row < rows.records.rowCount; row++)
      if (rows.events.columns.status[row] === EVENT_STATUS.OK)
        ids.set(row, this.idOf.get(`${partition[row]}@${offset[row]}`) as string);
    return rows;
  }
}

/** All starts of windows that contain a time. */
function startsOf(time: bigint, sizeMs: number, slideMs: number): readonly bigint[] {
  const [size, slide] = [BigInt(sizeMs), BigInt(slideMs)];
  const starts: bigint[] = [];
  for (let start = time - size + 1n; start <= time; start++) if (start % slide === 0n) starts.push(start);
  return starts;
}

/** Events of the key that are connected with the event by distances below the gap. */
function sessionOf(event: IdEvent, folded: readonly IdEvent[], gapMs: number): readonly IdEvent[] {
  const found: IdEvent[] = [event];
  const left = folded.filter(({ accountId }) => accountId === event.accountId);
  for (let at = 0; at < found.length; at++) {
    const { eventTs } = found[at] as IdEvent;
    for (let i = left.length - 1; i >= 0; i--) {
      const other = left[i] as IdEvent;
      const distance = other.eventTs > eventTs ? other.eventTs - eventTs : eventTs - other.eventTs;
      if (distance < BigInt(gapMs)) found.push(...left.splice(i, 1));
    }
  }
  return found.slice(1);
}

function isDuplicate(event: IdEvent, folded: readonly IdEvent[], job: Job): boolean {
  const same = folded.filter(({ accountId, id }) => accountId === event.accountId && id === event.id);
  if (job.window === 'session')
    return sessionOf(event, folded, job.gapMs).some((other) => same.includes(other));
  const slideMs = job.window === 'sliding' ? job.slideMs : job.sizeMs;
  const own = new Set(startsOf(event.eventTs, job.sizeMs, slideMs));
  return same.some(({ eventTs }) => startsOf(eventTs, job.sizeMs, slideMs).some((start) => own.has(start)));
}

interface Row {
  count: bigint;
  sum: bigint;
}

/** Windows of the folded events by key and bounds, with count and low 64 bits of the sum. */
function windowsOf(folded: readonly IdEvent[], job: Job): ReadonlyMap<string, string> {
  const rows = new Map<string, Row>();
  const add = (name: string, events: readonly IdEvent[]): void => {
    const row = rows.get(name) ?? { count: 0n, sum: 0n };
    for (const { value } of events) {
      row.count++;
      row.sum += value;
    }
    rows.set(name, row);
  };
  if (job.window === 'session') {
    const left = [...folded];
    for (let event = left.pop(); event !== undefined; event = left.pop()) {
      const session = [event, ...sessionOf(event, left, job.gapMs)];
      for (const one of session) if (left.includes(one)) left.splice(left.indexOf(one), 1);
      const times = session.map(({ eventTs }) => Number(eventTs));
      add(`${event.accountId},${Math.min(...times)},${Math.max(...times) + job.gapMs}`, session);
    }
  } else {
    const slideMs = job.window === 'sliding' ? job.slideMs : job.sizeMs;
    for (const event of folded)
      for (const start of startsOf(event.eventTs, job.sizeMs, slideMs))
        add(`${event.accountId},${start},${start + BigInt(job.sizeMs)}`, [event]);
  }
  return new Map([...rows].map(([name, { count, sum }]) => [name, `${count} ${BigInt.asIntN(64, sum)}`]));
}

/** Count and sum of the rows of a sink. */
const sunk = (sink: MemorySink): ReadonlyMap<string, string> =>
  new Map(
    [...sink.rows].map(([name, text]) => {
      const [, , , count, sum] = text.split(',');
      return [name, `${count} ${sum}`];
    }),
  );

/** Interns the keys of a source, with so few bits of hash that ids are displaced. */
function keysOf(kv: SimKv, job: Job, definition: InputDefinition, source: IdSource) {
  const spanMs = job.window === 'session' ? job.gapMs : job.sizeMs;
  const keys = dictionaryIn(kv, { hash: () => new ShortHash(2), spanMs });
  source.keys = keys;
  return { keys, input: textInput(definition) };
}

const lives = fc.array(
  fc.record({
    ...crashFields,
  }),
  { maxLength: 4 },
);

describe.each(['integers', 'texts'] as const)('-dedup with keys that are %s', (keyed) => {
  it("results are those of the oracle's first events of each identifier, through crashes anywhere", async () => {
    let duplicates = 0;
    let folds = 0;
    const worlds = fc.tuple(jobs, streams(1), fc.array(fc.nat({ max: 4 }), { minLength: 80, maxLength: 80 }));
    await fc.assert(
      fc.asyncProperty(worlds, lives, async ([base, stream, draws], crashes) => {
        const isText = keyed === 'texts';
        const definition: InputDefinition = isText
          ? { ...TEXT_KEYS, dedup: 'id' }
          : { format: 'json', dedup: 'id' };
        const job: Job = { ...base, input: definition };
        const events = stream.map(
          (event, i): IdEvent => ({
            ...{ ...event, accountId: event.accountId % 3n, id: `s${(draws[i] as number) % 3}` },
          }),
        );
        const [disk, kv] = [new SimDisk(), new SimKv()];
        const sink = isText ? new TextSink() : new MemorySink();
        const isOnDisk = events.length % 2 === 0;
        const life = async (source: IdSource, shards: number, checkpointIntervalMs: number) => {
          const world = { job, partitions: 1, shards, disk, sink, source, checkpointIntervalMs };
          const where = isOnDisk ? await onDisk(kv, { job, shards }, 0) : {};
          const engine = engineIn(world, {
            ...where,
            ...(isText ? keysOf(kv, job, definition, source) : {}),
          });
          await engine.restore();
          return engine.run(new AbortController().signal);
        };
        for (const crash of crashes) {
          const source = new IdSource(events, 1, crash.batchRows);
          source.batchesLeft = crash.batches;
          disk.changesLeft = crash.diskChanges;
          await untilKilled(life(source, crash.shards, crash.interval));
          sink.crash();
          disk.crash(drawFrom(crash.left));
          kv.crash(SPILL_FOLDER);
          kv.crash('keys');
        }
        disk.changesLeft = Number.POSITIVE_INFINITY;
        const summary = await life(new IdSource(events, 1, 5), 2, 50);

        const oracle = new Oracle(rulesOf(job), 1);
        const folded: IdEvent[] = [];
        let found = 0;
        for (const event of events) {
          // The verdict depends on the times of all events, duplicates included.
          const verdict =
            event.broken === true
              ? oracle.value(0, new Uint8Array(3))
              : oracle.event(0, event.accountId, event.value, event.eventTs);
          if (verdict !== 'accepted') continue;
          if (isDuplicate(event, folded, job)) found++;
          else folded.push(event);
        }
        expect(sunk(sink)).toEqual(windowsOf(folded, job));
        if (crashes.length === 0) expect(summary.duplicates).toBe(found);
        duplicates += found;
        folds += folded.length;
      }),
      { numRuns: runs(150) },
    );
    expect(duplicates).toBeGreaterThan(runs(100));
    expect(folds).toBeGreaterThan(runs(500));
  });
});
