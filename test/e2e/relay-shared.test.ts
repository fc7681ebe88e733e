/** Several relays on one outbox: they share it, take over the shards of dead relays, and release
 *  shards when they end. A relay that was stopped past its lease breaks nothing when it wakes. Real
 *  processes, real signals. */
import { describe, expect, it } from 'vitest';
import { metric } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { runRelay, startRelay } from '../fixtures/relay.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { asAdmin } from '../fixtures/topic.ts';
import { until } from '../wait.ts';
import { drained, inMode, pending, readTopic, Sent, worlds } from './relay-kit.ts';

const own = launcher();
const stack = await sharedStack();
const world = worlds(() => stack, own.suffix);

const owned = (address: string): Promise<number> => metric(address, 'relay_owned_shards');

/** Resolves when the relays own these numbers of shards, in any order. */
const shared = (addresses: readonly string[], wanted: readonly number[]): Promise<true> =>
  until(`shards ${wanted.join()}`, async () => {
    const shards = await Promise.all(addresses.map(owned));
    return shards.sort((a, b) => a - b).join() === wanted.join() ? true : undefined;
  });

function withAnotherTopic(args: readonly string[], topic: string) {
  const other = `${topic}.other`;
  return { other, otherArgs: args.map((flag) => (flag === `-topic=${topic}` ? `-topic=${other}` : flag)) };
}

describe('relays on one outbox', () => {
  it('relays share an outbox, take over from a killed one, and hand over at the end without a duplicate', async () => {
    const { pool, args, ...rest } = await world();
    const three = [1, 2, 3].map(() => startRelay(own, [...args, '-lease=3s']));
    const addresses = await Promise.all(three.map((one) => one.address()));
    await shared(addresses, [4, 6, 6]);
    const sent = new Sent(pool, 64);
    for (let round = 0; round < 5; round++) await sent.round();
    await drained(pool);
    // A relay that was slow past its lease at the start has published no row yet, and gets its
    // share here. A page of metrics may be a quarter of a second old.
    await until('rows from each of the three', async () => {
      const published = await Promise.all(addresses.map((at) => metric(at, 'relay_published_total')));
      if (published.every((rows) => rows > 0)) return true;
      await sent.round();
      return undefined;
    });
    await drained(pool);
    three[0]?.kill('SIGKILL');
    for (let round = 0; round < 5; round++) await sent.round();
    await drained(pool);
    await shared(addresses.slice(1), [8, 8]);
    const beforeHandOver = (await readTopic({ ...rest })).length;
    // A drain releases finished shards: no row is published twice.
    await three[1]?.drain();
    for (let round = 0; round < 5; round++) await sent.round();
    await drained(pool);
    await three[2]?.drain();
    const seen = await readTopic(rest);
    sent.expectOrdered(seen);
    expect(seen.length - beforeHandOver).toBe(5 * 64);
  });

  it.each(['mark', 'broker'])(
    'an owner suspended past its lease breaks no order and marks nothing (-fence=%s)',
    async (fence) => {
      const { pool, args, ...rest } = await world();
      // Long enough that the running relays miss no heartbeat while the machine is busy with other
      // tests.
      const flags = [...args, '-lease=3s', `-fence=${fence}`, '-batch-rows=50'];
      const first = startRelay(own, flags);
      const firstAt = await first.address();
      await shared([firstAt], [16]);
      const sent = new Sent(pool, 40);
      for (let round = 0; round < 5; round++) await sent.round();
      await until('a first row', async () =>
        (await metric(firstAt, 'relay_published_total')) > 0 ? true : undefined,
      );
      // More rows than it can publish before it is stopped.
      for (let round = 0; round < 40; round++) await sent.round('{"n":1}');
      first.kill('SIGSTOP');
      const second = startRelay(own, flags);
      const secondAt = await second.address();
      await shared([secondAt], [16]);
      for (let round = 0; round < 5; round++) await sent.round();
      await drained(pool);
      const markedBefore = await pool.query<{ n: bigint; last: string }>(
        `SELECT count(*) AS n, md5(string_agg(id || published_at::text, ',' ORDER BY id)) AS last FROM outbox`,
      );
      first.kill('SIGCONT');
      // It learns which shards it lost, then gets its share of the others.
      await shared([firstAt, secondAt], [8, 8]);
      const markedAfter = await pool.query<{ n: bigint; last: string }>(
        `SELECT count(*) AS n, md5(string_agg(id || published_at::text, ',' ORDER BY id)) AS last FROM outbox`,
      );
      expect(markedAfter.rows).toEqual(markedBefore.rows);
      const lost = await until('equal numbers of lost and taken shards', async () => {
        const [by, to] = await Promise.all([
          metric(firstAt, 'relay_shards_lost_total'),
          metric(secondAt, 'relay_takeovers_total'),
        ]);
        return by === to ? by : undefined;
      });
      // All shards of the stopped relay. There are more only if a relay was slow past its lease
      // once more, which the epochs show: otherwise each shard was taken by the first and by the
      // second relay, and half of them by the first again.
      const { rows } = await pool.query<{ taken: bigint }>(
        'SELECT sum(epoch)::bigint AS taken FROM relay_leases',
      );
      if (rows[0]?.taken === 16n + 16n + 8n) expect(lost).toBe(16);
      else expect(lost).toBeGreaterThanOrEqual(16);
      for (let round = 0; round < 5; round++) await sent.round();
      await drained(pool);
      await until('each row to be marked by one of them', async () => {
        const marks = await Promise.all([firstAt, secondAt].map((at) => metric(at, 'relay_marked_total')));
        return marks.reduce((a, b) => a + b) === sent.rows ? true : undefined;
      });
      await Promise.all([first, second].map((one) => one.drain()));
      const seen = await readTopic(rest);
      sent.expectOrdered(seen);
      const epochs = new Set(seen.map(({ headers }) => headers['relay_epoch']));
      expect(epochs.size).toBeGreaterThan(1);
    },
  );

  it('a relay refuses another number of shards than the running relays have', async () => {
    const { args } = await world();
    const first = startRelay(own, args);
    await first.address();
    await shared([await first.address()], [16]);
    const result = await runRelay(own, [...args, '-shards=8']);
    expect(result.code).toBe(2);
    expect(result.stderr).toMatch(/error: .*16 shards, not 8; .*\[lease_mismatch\]/);
    expect((await runRelay(own, [...args, '-shards=12'])).code).toBe(2);
    await first.drain();
  });

  it('a relay refuses another topic than the running relays have, and accepts it once none runs', async () => {
    const { pool, args, topic, ...rest } = await world();
    const { otherArgs, other } = withAnotherTopic(args, topic);
    const first = startRelay(own, args);
    await shared([await first.address()], [16]);
    for (const mode of ['poll', 'wal']) {
      const refused = await runRelay(own, inMode(otherArgs, mode));
      expect(refused.code).toBe(2);
      expect(refused.stderr.split('\n').filter((line) => line.startsWith('error: '))).toEqual([
        expect.stringMatching(
          /^error: the relays of \S+ publish it to the topic \S+\.events, not \S+\.other; start with -topic=\S+, or stop the others first \[lease_mismatch\]$/,
        ),
      ]);
    }
    const before = new Sent(pool, 10);
    for (let round = 0; round < 5; round++) await before.round();
    await drained(pool);
    await first.drain();
    // The refused relay created no topic.
    const listed = await asAdmin(stack.brokers, (admin) => admin.listTopics());
    const topics = listed.map((one) => one.topic);
    expect([topics.includes(topic), topics.includes(other)]).toEqual([true, false]);

    const after = new Sent(pool, 10);
    for (let round = 0; round < 5; round++) await after.round();
    const changed = await runRelay(own, [...otherArgs, '-exit-when-drained']);
    expect(changed.code).toBe(0);
    expect(changed.stderr).toContain('the outbox is published to another topic from now on');
    expect((await runRelay(own, [...otherArgs, '-exit-when-drained'])).stderr).not.toContain('another topic');
    before.expectOrdered(await readTopic({ ...rest, topic }));
    const seen = await readTopic({ ...rest, topic: other });
    after.expectOrdered(seen);
    expect(seen.length).toBe(50);
  });

  it('a relay refuses the leases of an earlier release, and after -migrate it fences their silent owners', async () => {
    const { pool, schema, args, topic, ...rest } = await world();
    await pool.query('ALTER TABLE relay_leases DROP COLUMN unfenced');
    await pool.query(`DELETE FROM millrace_migrations WHERE owner = 'relay' AND number = 5`);
    await pool.query(
      `INSERT INTO relay_leases (outbox, shard, owner, epoch, transactional_id, topic)
       VALUES ($1, 0, 'silent', 7, 'millrace-relay-silent', $2), ($1, 99, 'removed', 7, 'millrace-relay-removed', $2)`,
      [`${schema}.outbox`, topic],
    );
    const drain = [...args, '-fence=broker', '-exit-when-drained'];
    const refused = await runRelay(own, drain);
    expect([refused.code, refused.stderr]).toEqual([
      3,
      expect.stringContaining('relay_leases has no column unfenced; run `millrace relay -migrate'),
    ]);
    const sent = new Sent(pool, 10);
    await sent.round();
    const upgraded = await runRelay(own, [...drain, '-migrate']);
    expect(upgraded.code, upgraded.stderr).toBe(0);
    for (const id of ['millrace-relay-silent', 'millrace-relay-removed'])
      expect(upgraded.stderr).toMatch(new RegExp(`"transactional_id":"${id}".*fenced the producer`));
    const { rows } = await pool.query('SELECT epoch, unfenced FROM relay_leases WHERE shard = 0');
    expect(rows).toEqual([{ epoch: 8n, unfenced: [] }]);
    sent.expectOrdered(await readTopic({ ...rest, topic }));
  });

  it('a suspended relay ends when another topic was adopted meanwhile', async () => {
    const { args, topic } = await world();
    const { otherArgs } = withAnotherTopic(args, topic);
    const first = startRelay(own, args);
    await shared([await first.address()], [16]);
    first.kill('SIGSTOP');
    // Refused as long as the first relay may still be alive.
    const second = await until('a relay that takes the outbox over', async () => {
      const one = startRelay(own, otherArgs);
      const address = await one.address();
      return (await Promise.race([one.ended, shared([address], [16])])) === true ? one : undefined;
    });
    first.kill('SIGCONT');
    expect((await first.ended).code).toBe(2);
    expect(first.log()).toMatch(/error: .* publish it to the topic \S+\.other, not /);
    await second.drain();
  });

  it('a relay that starts while the disk of its database is full ends with 3, as without a database', async () => {
    const { pool, args, ...rest } = await world();
    const sent = new Sent(pool, 10);
    await sent.round();
    await pool.query(
      `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
       $$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END $$`,
    );
    await pool.query(
      'CREATE TRIGGER full_disk BEFORE INSERT ON relay_members FOR EACH ROW EXECUTE FUNCTION full_disk()',
    );
    const refused = await runRelay(own, [...args, '-exit-when-drained']);
    expect([refused.code, refused.stderr]).toEqual([3, expect.stringContaining('No space left on device')]);
    await pool.query('DROP TRIGGER full_disk ON relay_members');
    expect((await runRelay(own, [...args, '-exit-when-drained'])).code).toBe(0);
    sent.expectOrdered(await readTopic(rest));
  });

  it('a relay ends by itself once nothing is pending, on request', async () => {
    const { pool, args, ...rest } = await world();
    const sent = new Sent(pool, 30);
    for (let round = 0; round < 5; round++) await sent.round();
    const result = await runRelay(own, [...args, '-exit-when-drained']);
    expect(result.code).toBe(0);
    expect(await pending(pool)).toBe(0);
    sent.expectOrdered(await readTopic(rest));
  });
});
