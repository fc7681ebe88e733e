/** Redrive of a quarantine into topics, on a simulated broker under virtual time. */
import { describe, expect, it } from 'vitest';
import { RECORD_ID_HEADER } from '../../../../src/registry/quarantine/record.ts';
import { redriveMetrics, sumOf } from '../../../../src/registry/quarantine/redrive.ts';
import { QUARANTINE_HEADER } from '../../../../src/serde/quarantine.ts';
import { type Bad, type Kill, PROGRESS, QUARANTINE, RedriveWorld, TOPIC, textOf } from './redrive-kit.ts';

const bads = (count: number, bad: Bad['bad'] = 'malformed_payload', from = 0): readonly Bad[] =>
  Array.from({ length: count }, (_, n) => ({ n: from + n, bad }));
const sorted = (records: readonly Bad[]): readonly string[] => records.map(textOf).sort();
const opened = (): Promise<RedriveWorld> => new RedriveWorld().open();

describe('redriven record', () => {
  it('a redriven record comes back with its key, timestamp, partition and headers, and its id instead of the headers of the quarantine', async () => {
    const world = await opened();
    await world.quarantine(bads(1, 'unknown_schema_id', 5));
    await world.complete();
    const [record, ...more] = await world.read(TOPIC);
    expect(more).toEqual([]);
    expect(record).toMatchObject({
      partition: 2,
      key: 'k5',
      value: textOf({ n: 5, bad: 'unknown_schema_id' }),
      timestamp: 1005n,
    });
    expect(Object.keys(record?.headers ?? {})).toEqual(['trace', RECORD_ID_HEADER]);
    expect(record?.headers[RECORD_ID_HEADER]).toMatch(/^orders\/2\/0\/[\da-f]{16}$/);
  });

  it('headers of the record that have the names of the quarantine come back', async () => {
    const world = await opened();
    const own = [[QUARANTINE_HEADER.reason, Buffer.from('its own')]] as const;
    await world.quarantine(bads(1), { headers: own });
    await world.complete();
    expect((await world.read(TOPIC))[0]?.headers).toMatchObject({ [QUARANTINE_HEADER.reason]: 'its own' });
  });

  it('a record of a partition that the topic no longer has goes where its key belongs', async () => {
    const world = await opened();
    await world.quarantine(bads(1), { partition: 7 });
    await world.complete();
    const [record] = await world.read(TOPIC);
    expect(record?.partition).toBeLessThan(3);
  });

  it('a record that is quarantined again after its redrive keeps its first id, and is redriven again', async () => {
    const world = await opened();
    await world.quarantine(bads(1));
    await world.complete();
    const [first] = await world.read(TOPIC);
    const id = first?.headers[RECORD_ID_HEADER] as string;
    await world.quarantine(bads(1), { headers: [[RECORD_ID_HEADER, Buffer.from(id)]], place: 900n });
    expect(sumOf((await world.complete()).tally, 'redriven')).toBe(1);
    const ids = (await world.read(TOPIC)).map(({ headers }) => headers[RECORD_ID_HEADER]);
    expect(ids).toEqual([id, id]);
  });

  it('an id that a program copied to another record is replaced', async () => {
    const world = await opened();
    const copied = 'orders/0/1/0123456789abcdef';
    await world.quarantine(bads(1), { headers: [[RECORD_ID_HEADER, Buffer.from(copied)]] });
    await world.complete();
    expect((await world.read(TOPIC))[0]?.headers[RECORD_ID_HEADER]).not.toBe(copied);
  });

  it('an output topic gets lines under the keys of the records, with the id in a header', async () => {
    const world = await opened();
    await world.quarantine(bads(1, 'bad_magic', 4));
    await world.complete({ out: 'kafka:lines' });
    const [line] = await world.read('lines');
    expect(line?.key).toBe('k4');
    expect(JSON.parse(line?.value ?? '')).toMatchObject({
      topic: TOPIC,
      partition: 1,
      offset: 0,
      value: { n: 4 },
    });
    expect(line?.headers[RECORD_ID_HEADER]).toMatch(/^orders\/1\/0\//);
  });
});

describe('each record once', () => {
  it('a second redrive repeats nothing', async () => {
    const world = await opened();
    await world.quarantine(bads(10));
    expect(sumOf((await world.complete()).tally, 'redriven')).toBe(10);
    const again = await world.complete();
    expect(sumOf(again.tally, 'redriven')).toBe(0);
    expect(sumOf(again.tally, 'repeated')).toBe(10);
    expect(await world.values(TOPIC)).toEqual(sorted(bads(10)));
  });

  it('copies of a record in the quarantine are redriven once', async () => {
    const world = await opened();
    for (let copy = 0; copy < 3; copy++) await world.quarantine(bads(1), { place: 7n });
    expect(sumOf((await world.complete()).tally, 'redriven')).toBe(1);
    expect(await world.values(TOPIC)).toEqual(sorted(bads(1)));
  });

  it('records with the same position and other content, as of a recreated topic, are both redriven', async () => {
    const world = await opened();
    await world.quarantine(bads(1, 'bad_magic', 0), { place: 7n });
    await world.quarantine(bads(1, 'bad_magic', 3), { place: 7n });
    expect(sumOf((await world.complete()).tally, 'redriven')).toBe(2);
  });

  it('each output gets each record once, whatever the others have', async () => {
    const world = await opened();
    await world.quarantine(bads(6));
    await world.complete();
    expect(sumOf((await world.complete({ out: 'kafka:lines' })).tally, 'redriven')).toBe(6);
    expect(sumOf((await world.complete({ out: 'kafka:lines' })).tally, 'repeated')).toBe(6);
    expect((await world.read('lines')).length).toBe(6);
    expect((await world.read(TOPIC)).length).toBe(6);
  });

  it('records that one redrive does not select are found by the next one with another selection', async () => {
    const world = await opened();
    const magic = bads(9, 'bad_magic');
    const payload = bads(9, 'malformed_payload', 9);
    for (let n = 0; n < 9; n++) {
      await world.quarantine([magic[n] as Bad]);
      await world.quarantine([payload[n] as Bad]);
    }
    const first = await world.complete({ filter: { reasons: ['malformed_payload'], partitions: [0] } });
    expect(sumOf(first.tally, 'redriven')).toBe(3);
    expect(first.tally.skipped).toBe(15);
    const second = await world.complete({ filter: { sinceMs: 1000, untilMs: 1009 } });
    expect(sumOf(second.tally, 'redriven')).toBe(9);
    const third = await world.complete();
    expect(sumOf(third.tally, 'redriven')).toBe(6);
    expect(await world.values(TOPIC)).toEqual(sorted([...magic, ...payload]));
  });

  it('a record that still cannot be read stays quarantined once, and is redriven after its fix', async () => {
    const world = await opened();
    await world.quarantine([...bads(4, 'bad_magic'), ...bads(4, 'unknown_schema_id', 4)]);
    const before = (await world.read(QUARANTINE)).length;
    const first = await world.complete({ fixed: ['bad_magic'] });
    expect(sumOf(first.tally, 'redriven')).toBe(4);
    expect(sumOf(first.tally, 'failed')).toBe(4);
    expect((await world.read(QUARANTINE)).length).toBe(before);
    expect(sumOf((await world.complete()).tally, 'redriven')).toBe(4);
    expect(await world.values(TOPIC)).toEqual(
      sorted([...bads(4, 'bad_magic'), ...bads(4, 'unknown_schema_id', 4)]),
    );
  });

  it('a redrive with a count stops after so many records, and the next one continues', async () => {
    const world = await opened();
    await world.quarantine(bads(10));
    const first = await world.complete({ count: 6 });
    expect(sumOf(first.tally, 'redriven')).toBe(6);
    expect(first.isWhole).toBe(false);
    expect(sumOf((await world.complete()).tally, 'redriven')).toBe(4);
    expect(await world.values(TOPIC)).toEqual(sorted(bads(10)));
  });

  it('a record that the topic refuses as too large is reported and stays, and the records beside it are redriven', async () => {
    const world = await new RedriveWorld({ bytesMax: 2000 }).open();
    const records = bads(7);
    await world.quarantine(records.slice(0, 3));
    await world.quarantine([{ n: 100, bad: 'bad_magic' }], { headers: [['large', Buffer.alloc(3000)]] });
    await world.quarantine(records.slice(3));
    const { tally } = await world.complete();
    expect(sumOf(tally, 'redriven')).toBe(7);
    expect(sumOf(tally, 'refused')).toBe(1);
    expect(await world.values(TOPIC)).toEqual(sorted(records));
    expect((await world.read(PROGRESS)).length).toBe(7);
  });
});

describe('dry run', () => {
  it('a dry run counts what a redrive would do, and writes nothing', async () => {
    const world = await opened();
    await world.quarantine([...bads(6), ...bads(2, 'bad_magic', 6)]);
    await world.quarantine(bads(1), { place: 0n });
    await world.complete({ count: 2 });
    const stored = [TOPIC, PROGRESS].map((topic) =>
      world.cluster.topics.get(topic)?.map(({ length }) => length),
    );
    const { tally } = await world.complete({ dry: true, fixed: ['malformed_payload'] });
    expect(sumOf(tally, 'redriven')).toBe(4);
    expect(sumOf(tally, 'repeated')).toBe(3);
    expect(sumOf(tally, 'failed')).toBe(2);
    expect(
      [TOPIC, PROGRESS].map((topic) => world.cluster.topics.get(topic)?.map(({ length }) => length)),
    ).toEqual(stored);
  });

  it('a dry run beside a redrive does not fence it', async () => {
    const world = await opened();
    await world.quarantine(bads(20));
    const running = world.start();
    await world.clock.until('a redriven record', () =>
      world.cluster.topics.get(TOPIC)?.some((log) => log.length > 0),
    );
    await world.complete({ dry: true });
    expect(sumOf((await world.clock.run(running.ran)).tally, 'redriven')).toBe(20);
  });
});

describe('an unreachable registry', () => {
  it('a redrive waits for the registry, judges no record meanwhile, and opens no transaction', async () => {
    const world = await opened();
    await world.quarantine(bads(3));
    const { ran } = world.start({ absences: 50 });
    await world.clock.advance(60_000);
    expect(await world.values(TOPIC)).toEqual([]);
    const { tally } = await world.clock.run(ran);
    expect(sumOf(tally, 'redriven')).toBe(3);
    expect(sumOf(tally, 'failed')).toBe(0);
    expect(world.metrics.counter('registry_unavailable_total', '').value()).toBe(1);
  });
});

describe('metrics', () => {
  it('redriven_total counts each selected record by its reason and outcome', async () => {
    const world = await opened();
    await world.quarantine([...bads(3, 'bad_magic'), ...bads(2, 'unknown_schema_id', 3)]);
    await world.append(QUARANTINE, [{ value: Buffer.from('from elsewhere') }]);
    await world.complete({ fixed: ['bad_magic'] });
    await world.complete({ fixed: ['bad_magic'] });
    const { redriven, foreign } = redriveMetrics(world.metrics);
    const of = (...labels: readonly string[]): number => redriven.value(redriven.series(...labels));
    expect(of('bad_magic', 'redriven')).toBe(3);
    expect(of('bad_magic', 'repeated')).toBe(3);
    expect(of('unknown_schema_id', 'failed')).toBe(4);
    expect(of('unknown_schema_id', 'redriven')).toBe(0);
    expect(foreign.value()).toBe(2);
  });
});

describe('records that are no quarantined records of the topic', () => {
  it('records without the headers of a quarantine are reported and left alone', async () => {
    const world = await opened();
    await world.append(QUARANTINE, [{ value: Buffer.from('from elsewhere') }]);
    await world.append(QUARANTINE, [
      { value: Buffer.from('half'), headers: [[QUARANTINE_HEADER.reason, Buffer.from('bad_magic')]] },
    ]);
    await world.quarantine(bads(2));
    const { tally } = await world.complete();
    expect(tally).toMatchObject({ read: 4, foreign: 2 });
    expect(sumOf(tally, 'redriven')).toBe(2);
  });

  it('an empty quarantine is redriven without an error', async () => {
    const { tally, isWhole } = await (await opened()).complete();
    expect(tally.read).toBe(0);
    expect(isWhole).toBe(true);
  });
});

describe('kills and fences', () => {
  const records = [...bads(10), ...bads(2, 'bad_magic', 10)];
  const filled = async (): Promise<RedriveWorld> => {
    const world = await new RedriveWorld().open(2);
    await world.quarantine(records);
    return world;
  };

  it.each(['before', 'after'] as const)(
    'a redrive that is killed %s any step of its broker client is continued without loss and repetition',
    async (when) => {
      let kills = 0;
      for (let step = 1; ; step++) {
        const world = await filled();
        const kill: Kill = { step, when };
        const first = await world.run({ kill, fixed: ['malformed_payload'] });
        if (first !== 'killed') break;
        kills++;
        const seen = await world.values(TOPIC);
        expect(new Set(seen).size, `after the kill at step ${step}`).toBe(seen.length);
        await world.complete({ fixed: ['malformed_payload'] });
        expect(await world.values(TOPIC), `after a kill at step ${step}`).toEqual(
          sorted(records.slice(0, 10)),
        );
        await world.complete();
        expect(await world.values(TOPIC), `after a kill at step ${step}`).toEqual(sorted(records));
        expect((await world.read(PROGRESS)).length).toBe(records.length);
      }
      // Each of the three batches has a read and the steps of a transaction.
      expect(kills).toBeGreaterThan(12);
    },
  );

  it('a second redrive fences the first one, which stops with a clear error, and each record is redriven once', async () => {
    const world = await new RedriveWorld().open();
    await world.quarantine(bads(40));
    const first = world.start();
    const failure = first.ran.then(
      () => undefined,
      (thrown: Error & { readonly code?: string }) => thrown,
    );
    await world.clock.until('a redriven record', () =>
      world.cluster.topics.get(TOPIC)?.some((log) => log.length > 0),
    );
    await world.complete({ filter: { partitions: [1] } });
    expect(await world.clock.run(failure)).toMatchObject({
      code: 'redrive_fenced',
      message: expect.stringContaining('another redrive of this quarantine started'),
    });
    await world.complete();
    expect(await world.values(TOPIC)).toEqual(sorted(bads(40)));
  });

  it('a redrive whose commits are not answered learns their outcome from a new producer, and completes', async () => {
    const world = await new RedriveWorld({ seed: 3, faults: { lostReply: 0.4 } }).open();
    await world.quarantine(bads(40));
    expect((await world.complete()).isWhole).toBe(true);
    expect(await world.values(TOPIC)).toEqual(sorted(bads(40)));
  });

  it('a drain ends a redrive after the batch in flight', async () => {
    const world = await filled();
    const drain = new AbortController();
    const { ran } = world.start({ drain: drain.signal });
    await world.clock.until('a redriven record', () =>
      world.cluster.topics.get(TOPIC)?.some((log) => log.length > 0),
    );
    drain.abort();
    const { isWhole } = await world.clock.run(ran);
    expect(isWhole).toBe(false);
    await world.complete();
    expect(await world.values(TOPIC)).toEqual(sorted(records));
  });
});
