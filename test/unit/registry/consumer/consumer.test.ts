/** The consumer over the simulated broker and a simulated registry, under virtual time. */
import { describe, expect, it } from 'vitest';
import { parseSchema, type Schema } from '../../../../src/formats/schema.ts';
import type { RecordKeys } from '../../../../src/registry/consumer/line.ts';
import { TopicSink } from '../../../../src/registry/consumer/sink.ts';
import { UNKNOWN_IDS_BURST } from '../../../../src/serde/unknown-ids.ts';
import { type MemberHandle, MemberWorld, QUARANTINE_TOPIC, SCHEMA } from './consumer-kit.ts';

describe('lag gauge', () => {
  it('the lag gauge counts records that wait for an unreachable registry, and records that arrive meanwhile', async () => {
    const world = await MemberWorld.open({ partitions: 1 });
    world.registry.isUnavailable = true;
    await world.append(
      0,
      Array.from({ length: 5 }, () => world.good()),
    );
    const member = world.member();
    await world.until('the pause', () => member.metrics.registryWaits.value() === 1);
    await world.append(
      0,
      Array.from({ length: 10 }, () => world.good()),
    );
    await world.until('the lag of all records', () => member.lag().get('0') === 15);
    world.registry.isUnavailable = false;
    await world.until('all records decoded', () => member.metrics.decoded.value() === 15);
    await world.until('no lag', () => member.lag().get('0') === 0);
    await member.stop();
  });

  it('the lag gauge omits a partition that was revoked', async () => {
    const world = await MemberWorld.open({ partitions: 2 });
    for (const partition of [0, 1]) await world.append(partition, [world.good()]);
    const first = world.member();
    await world.until('the lag of both partitions', () => first.lag().size === 2);
    const second = world.member();
    await world.until(
      'the lag of one partition each',
      () => first.lag().size === 1 && second.lag().size === 1,
    );
    expect(new Set([...first.lag().keys(), ...second.lag().keys()])).toEqual(new Set(['0', '1']));
    await first.stop();
    await second.stop();
  });
});

describe('unknown schema ids', () => {
  const GARBAGE = 1000;
  const storm = (world: MemberWorld, from: number): Buffer[] =>
    Array.from({ length: GARBAGE }, (_, i) => world.frame(from + i, Buffer.of(1)));
  const interleaved = (one: readonly Buffer[], other: readonly Buffer[]): Buffer[] =>
    one.flatMap((value, i) => [value, other[i] as Buffer]);
  const unknown = ({ metrics: { errors } }: MemberHandle): number =>
    errors.value(errors.series('s', 'unknown_schema_id'));

  it('a burst of unknown ids causes a bounded number of requests and hardly delays valid records', async () => {
    const world = await MemberWorld.open({ partitions: 1 });
    const good = Array.from({ length: GARBAGE }, (_, n) => world.good(n));
    await world.append(0, interleaved(storm(world, 1000), good));
    const startMs = world.clock.monotonicMs();
    const member = world.member();
    await world.until('all records', () => member.metrics.consumed.value() === 2 * GARBAGE);
    const tookMs = world.clock.monotonicMs() - startMs;
    expect(member.decoded).toEqual(good.map((_, n) => ({ n })));
    expect(unknown(member)).toBe(GARBAGE);
    const asked = world.registry.asked.length;
    expect(asked).toBeGreaterThan(UNKNOWN_IDS_BURST);
    expect(asked).toBeLessThan(UNKNOWN_IDS_BURST + 100);
    expect(member.skipped()).toBe(GARBAGE - (asked - 1));
    expect(world.registry.inFlightMax).toBe(8);
    // The lookups alone take 3,000 ms if they run one after the other.
    expect(tookMs).toBeLessThan(500);
    await member.stop();
  });

  it('a burst of unknown ids does not displace the ids of real records, and omitted ids are requested later', async () => {
    const world = await MemberWorld.open({ partitions: 1 });
    world.registry.schemas.set(7, SCHEMA).set(900_000, SCHEMA);
    const member = world.member();
    await world.append(0, storm(world, 1000));
    await world.until('the storm', () => unknown(member) === GARBAGE);
    const values = [...storm(world, 2000), world.good(1, 7), world.good(2, 900_000), world.good(3, 900_000)];
    await world.append(0, values);
    await world.until('the second storm', () => unknown(member) === 2 * GARBAGE);
    await world.until('the real records', () => member.decoded.length === 3);
    expect(world.registry.asked).not.toContain('/schemas/ids/2900');
    await world.sleep(10_000);
    await world.append(0, [world.frame(2900, Buffer.of(1))]);
    await world.until('an id that was left out', () => unknown(member) === 2 * GARBAGE + 1);
    expect(world.registry.asked).toContain('/schemas/ids/2900');
    await member.stop();
  });
});

describe('refused schema id', () => {
  it.each([401, 403])(
    'a schema id refused with %d has its records quarantined while other ids are answered',
    async (status) => {
      const world = await MemberWorld.open({ partitions: 1 });
      world.registry.refused.set(9, status);
      await world.append(0, [world.good(1), world.good(2, 9), world.good(3)]);
      const member = world.member();
      await world.until('all records', () => member.metrics.consumed.value() === 3);
      expect(member.decoded).toEqual([{ n: 1 }, { n: 3 }]);
      expect(member.metrics.registryWaits.value()).toBe(0);
      const { errors } = member.metrics;
      expect(errors.value(errors.series('s', 'unknown_schema_id'))).toBe(1);
      const [quarantined] = await world.read(QUARANTINE_TOPIC);
      expect(quarantined?.value).toEqual(world.good(2, 9));
      expect(quarantined?.headers['millrace.error']).toMatch(
        new RegExp(`refuses /schemas/ids/9 to this client with ${status} and answers for /schemas/ids/1`),
      );
      await member.stop();
    },
  );

  it('a registry that refuses every id makes the consumer wait, because the credentials are at fault', async () => {
    const world = await MemberWorld.open({ partitions: 1 });
    await world.append(0, [world.good(1)]);
    const member = world.member();
    await world.until('the first record', () => member.metrics.consumed.value() === 1);
    world.registry.refused.set(1, 401).set(9, 401);
    world.registry.schemas.set(9, SCHEMA);
    await world.append(0, [world.good(2, 9)]);
    await world.until('the pause', () => member.metrics.registryWaits.value() === 1);
    world.registry.refused.clear();
    await world.until('the second record', () => member.decoded.length === 2);
    await member.stop();
    expect(await world.read(QUARANTINE_TOPIC)).toEqual([]);
  });
});

it('the consumer decides for each record of a Protobuf writer whose schema the rules refuse', async () => {
  const world = await MemberWorld.open({ partitions: 1 });
  const proto = (field: string): Schema =>
    parseSchema('PROTOBUF', `syntax = "proto3"; message M { ${field} a = 1; string s = 2; }`);
  world.registry.schemas.set(5, proto('int32'));
  /** Message index 0 precedes the payload. */
  const frame = (...payload: number[]): Buffer => world.frame(5, Buffer.of(0, ...payload));
  const changed = frame(0x08, 5, 0x12, 1, 0x78);
  await world.append(0, [frame(0x12, 1, 0x78), changed, frame(0x12, 1, 0x79)]);
  const member = world.member({ reader: proto('sint32') });
  await world.until('all records', () => member.metrics.consumed.value() === 3);
  await member.stop();
  expect(member.decoded).toEqual([
    { a: 0, s: 'x' },
    { a: 0, s: 'y' },
  ]);
  const stored = await world.read(QUARANTINE_TOPIC);
  expect(stored.map(({ value }) => value)).toEqual([changed]);
  expect(stored[0]?.headers).toMatchObject({
    'millrace.reason': 'incompatible_schema',
    'millrace.error': expect.stringMatching(/a: 5 as int32 is no value of sint32/),
  });
});

describe('oversized record', () => {
  const GARBAGE = Buffer.alloc(5000, 0x67);

  it('an oversized record blocks only its partition until the quarantine topic accepts it', async () => {
    const world = await MemberWorld.open({ partitions: 2 });
    const quarantine = world.limited(2000);
    await world.append(0, [world.good(0), GARBAGE, world.good(2)]);
    await world.append(1, [world.good(10)]);
    const first = world.member({ quarantine });
    await world.until('the other partition', () => first.decoded.length === 3);
    await world.append(0, [world.good(3)]);
    await world.append(1, [world.good(11)]);
    await world.until('later records of the other partition', () => first.decoded.length === 4);
    expect(first.member.heldReason()).toMatch(
      /^partition 0 waits at offset 1: topic t\.quarantine refuses the record of 5000 bytes as too large/,
    );
    expect(first.metrics.heldPartitions.value()).toBe(1);
    await first.stop();
    expect([await world.committed(0), await world.committed(1)]).toEqual([1n, 2n]);
    expect(await world.read(QUARANTINE_TOPIC)).toEqual([]);

    // After a restart the same record blocks the partition again, until the topic is changed.
    const second = world.member({ quarantine });
    await world.until('the wait', () => second.member.heldReason() !== undefined);
    await world.sleep(60_000);
    quarantine.bytesMax = 10_000;
    await world.until('the end of the wait', () => second.member.heldReason() === undefined);
    await world.until('the records after it', () => second.decoded.length === 2);
    await second.stop();
    expect(second.decoded).toEqual([{ n: 2 }, { n: 3 }]);
    expect(second.metrics.heldPartitions.value()).toBe(0);
    expect(await world.committed(0)).toBe(4n);
    const stored = await world.read(QUARANTINE_TOPIC);
    expect(stored.map(({ value }) => value)).toEqual([GARBAGE]);
    expect(stored[0]?.headers).toMatchObject({
      'millrace.reason': 'bad_magic',
      'millrace.source_offset': '1',
    });
  });

  it('a record is delivered when only the batch it was sent in is too large', async () => {
    const world = await MemberWorld.open({ partitions: 1 });
    const small = [1, 2, 3].map((byte) => Buffer.alloc(100, byte));
    await world.append(0, small);
    const member = world.member({ quarantine: world.limited(600) });
    await world.until('all records', () => member.metrics.consumed.value() === 3);
    await member.stop();
    expect((await world.read(QUARANTINE_TOPIC)).map(({ value }) => value)).toEqual(small);
    expect(member.metrics.heldRecords.value()).toBe(0);
  });

  it('an oversized decoded record blocks its partition until the output topic accepts it', async () => {
    const world = await MemberWorld.open({ partitions: 1 });
    const output = world.limited(40);
    const keys = { of: () => ({ text: 'null', value: null, form: undefined, schemaId: undefined }) };
    const line = { form: 'record', keys: keys as unknown as RecordKeys, topic: 'in' } as const;
    const member = world.member({ sink: new TopicSink(output as never, 'out', line) });
    await world.createTopic('out');
    await world.append(0, [world.good(1)]);
    await world.until('the wait', () => member.member.heldReason() !== undefined);
    output.bytesMax = 1000;
    await world.until('the end of the wait', () => member.member.heldReason() === undefined);
    await member.stop();
    expect((await world.read('out')).map(({ value }) => JSON.parse(value.toString()))).toEqual([
      {
        topic: 'in',
        partition: 0,
        offset: 0,
        timestamp: expect.any(Number),
        key: null,
        schemaId: 1,
        value: { n: 1 },
      },
    ]);
    expect(await world.committed(0)).toBe(1n);
  });

  it('an oversized record does not block a partition after its revocation', async () => {
    const world = await MemberWorld.open({ partitions: 2 });
    const quarantine = world.limited(2000);
    for (const partition of [0, 1]) await world.append(partition, [GARBAGE]);
    const first = world.member({ quarantine });
    await world.until('both to wait', () => first.metrics.heldPartitions.value() === 2);
    const second = world.member({ quarantine });
    await world.until('one each', () =>
      [first, second].every(({ metrics }) => metrics.heldPartitions.value() === 1),
    );
    quarantine.bytesMax = 10_000;
    await world.until('the end of both waits', () =>
      [first, second].every(({ metrics }) => metrics.heldPartitions.value() === 0),
    );
    await first.stop();
    await second.stop();
    expect(await world.read(QUARANTINE_TOPIC)).toHaveLength(2);
  });
});
