/** The relay on a real database and a real broker: order of a key, gaps of the id sequence, crashes
 *  and standby. */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { runRelay, startRelay } from '../fixtures/relay.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { describeFull, itFull } from '../tier.ts';
import { until } from '../wait.ts';
import { drained, firsts, insert, pending, readTopic, type World, worlds } from './relay-kit.ts';

const own = launcher();
const stack = await sharedStack();
const world = worlds(() => stack, own.suffix);

/** Parses the log line of a crash point. */
function crashLine(logPath: string): { readonly point?: unknown; readonly unfinished?: unknown } {
  const line = readFileSync(logPath, 'utf8')
    .split('\n')
    .find((one) => one.includes('crash point reached'));
  return JSON.parse(line ?? '{}');
}

describe('running relay', () => {
  let main: World;
  beforeAll(async () => {
    main = await world();
  });

  it('a relay publishes the events of a key in order, each once, and marks them all', async () => {
    const keys = Array.from({ length: 40 }, () => randomUUID());
    const sent = new Map<string, string[]>(keys.map((key) => [key, []]));
    const relay = startRelay(own, main.args);
    await relay.address();
    for (let round = 0; round < 5; round++) {
      await Promise.all(
        keys.map(async (key) => sent.get(key)?.push(await insert(main.pool, key, `{"round":${round}}`))),
      );
    }
    await drained(main.pool);
    await relay.drain();
    const seen = await readTopic(main);
    expect(seen.length).toBe(keys.length * 5);
    for (const key of keys) expect(firsts(seen, key)).toEqual(sent.get(key));
  });

  itFull('a relay does not skip a lower id that commits after a higher one', async () => {
    const { pool, args, topic } = await world();
    const relay = startRelay(own, args);
    await relay.address();
    let late = '';
    let early = '';
    await pool.transaction(async (session) => {
      late = await insert(session, randomUUID(), '{}');
      early = await insert(pool, randomUUID(), '{}');
      await until('the higher id', async () => ((await pending(pool)) === 0 ? true : undefined));
    });
    await drained(pool);
    await relay.drain();
    const seen = (await readTopic({ stack, topic })).map(({ msgId }) => msgId);
    expect(new Set(seen)).toEqual(new Set([late, early]));
    expect(seen).toHaveLength(2);
  });

  it('a relay that died before the mark publishes again under the same msg_id', async () => {
    const { pool, args, topic } = await world();
    const key = randomUUID();
    const sent: string[] = [];
    for (let i = 0; i < 20; i++) sent.push(await insert(pool, key, `{"i":${i}}`));
    const dying = startRelay(own, [...args, '-crash-point=publish']);
    expect(await dying.ended).toEqual({ code: null, signal: 'SIGKILL' });
    expect(await pending(pool)).toBe(20);
    expect(crashLine(dying.logPath)).toMatchObject({ point: 'publish', unfinished: 20 });
    const relay = startRelay(own, args);
    await drained(pool);
    await relay.drain();
    const seen = await readTopic({ stack, topic });
    expect(firsts(seen, key)).toEqual(sent);
    expect(seen.length).toBe(40);
    expect(new Set(seen.map(({ partition }) => partition)).size).toBe(1);
  });

  itFull('a relay that dies between a commit and the publish loses nothing', async () => {
    const { pool, args, topic } = await world();
    const sent = await insert(pool, randomUUID(), '{}');
    const dying = startRelay(own, [...args, '-crash-point=commit']);
    expect(await dying.ended).toEqual({ code: null, signal: 'SIGKILL' });
    expect(crashLine(dying.logPath)).toMatchObject({ point: 'commit', unfinished: 1 });
    expect(await readTopic({ stack, topic })).toEqual([]);
    const relay = startRelay(own, args);
    await drained(pool);
    await relay.drain();
    expect((await readTopic({ stack, topic })).map(({ msgId }) => msgId)).toEqual([sent]);
  });

  itFull('a relay that died after the mark publishes nothing twice', async () => {
    const { pool, args, topic } = await world();
    const sent: string[] = [];
    for (let i = 0; i < 20; i++) sent.push(await insert(pool, randomUUID(), '{}'));
    const dying = startRelay(own, [...args, '-crash-point=mark']);
    expect(await dying.ended).toEqual({ code: null, signal: 'SIGKILL' });
    expect(crashLine(dying.logPath)).toMatchObject({ point: 'mark', unfinished: 20 });
    expect(await pending(pool)).toBe(0);
    const relay = startRelay(own, args);
    await relay.address();
    sent.push(await insert(pool, randomUUID(), '{}'));
    await drained(pool);
    await relay.drain();
    expect((await readTopic({ stack, topic })).map(({ msgId }) => msgId).sort()).toEqual(sent.sort());
  });

  itFull('a relay reads a table of another name and schema, and forwards the trace of a row', async () => {
    const { pool, args, topic, schema } = await world();
    const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
    await pool.query('ALTER TABLE outbox ADD COLUMN IF NOT EXISTS traceparent text');
    await pool.query(
      `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload, traceparent)
       VALUES (gen_random_uuid(), gen_random_uuid(), 'shipped', '{"a":1}', $1)`,
      [traceparent],
    );
    await pool.query('ALTER TABLE outbox RENAME TO parcels');
    const result = await runRelay(own, [
      ...args,
      `-table=${schema}.parcels`,
      '-source=/parcels',
      '-exit-when-drained',
    ]);
    expect(result.code).toBe(0);
    const [seen] = await readTopic({ stack, topic });
    expect(seen?.headers).toMatchObject({
      traceparent,
      ce_source: '/parcels',
      ce_type: 'shipped',
      relay_mode: 'poll',
    });
    expect(Number(seen?.headers['relay_epoch'])).toBeGreaterThan(0);
  });

  itFull('a second relay takes over when the first is killed', async () => {
    const { pool, args, topic } = await world();
    const both = [startRelay(own, args), startRelay(own, args)] as const;
    await Promise.all(both.map((one) => one.address()));
    const sent: string[] = [];
    for (let i = 0; i < 100; i++) {
      sent.push(await insert(pool, randomUUID(), '{}'));
      if (i === 50) both[0].kill('SIGKILL');
    }
    await drained(pool);
    await both[1].drain();
    await both[0].ended;
    const seen = await readTopic({ stack, topic });
    expect(new Set(seen.map(({ msgId }) => msgId))).toEqual(new Set(sent));
  });

  itFull('a relay continues after its database connections are cut', async () => {
    const { pool, args, topic, schema } = await world();
    // A separate user, so that no session of another relay on this server is found.
    await pool.query(`CREATE ROLE ${schema} SUPERUSER LOGIN PASSWORD 'cut'`);
    const address = new URL(stack.postgres);
    address.username = schema;
    address.password = 'cut';
    const relay = startRelay(own, withDefaults(args, [`-postgres=${address}`]));
    await relay.address();
    const sent = [await insert(pool, randomUUID(), '{}')];
    await drained(pool);
    const { rows: cut } = await pool.query<{ pid: number }>(
      'SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1',
      [schema],
    );
    expect(cut.length).toBeGreaterThan(1);
    await until('the end of the sessions', async () => {
      const { rows } = await pool.query('SELECT FROM pg_stat_activity WHERE pid = ANY($1::int[])', [
        cut.map(({ pid }) => pid),
      ]);
      return rows.length === 0;
    });
    sent.push(await insert(pool, randomUUID(), '{}'));
    await drained(pool);
    await relay.drain();
    expect(new Set((await readTopic({ stack, topic })).map(({ msgId }) => msgId))).toEqual(new Set(sent));
    await pool.query(`DROP ROLE ${schema}`);
  });
});

describeFull('refused start', () => {
  const oneLine = /^error: .+ \[\w+\]$/m;

  it.concurrent.each([
    { what: 'an unknown mode', more: ['-relay=wall'], code: 2 },
    { what: 'an unknown flag', more: ['-pol-interval=5ms'], code: 2 },
    { what: 'a slot in poll mode', more: ['-slot=mine'], code: 2 },
    { what: 'a poll interval in wal mode', more: ['-relay=wal'], code: 2 },
    { what: 'a crash count without a crash point', more: ['-crash-after=1'], code: 2 },
    { what: 'an unreachable broker', more: ['-brokers=127.0.0.1:1'], code: 3, replaces: '-brokers' },
    {
      what: 'an unreachable database',
      more: ['-postgres=postgres://me@127.0.0.1:1/x'],
      code: 3,
      replaces: '-postgres',
    },
    { what: 'a schema without tables', more: ['-schema=nothing_here'], code: 3, replaces: '-schema' },
    { what: 'a schema name that needs quoting', more: ['-schema=No;'], code: 2, replaces: '-schema' },
  ])('a relay refuses $what in one line', async ({ more, code, replaces }) => {
    const { args } = await world();
    const kept = args.filter((arg) => replaces === undefined || !arg.startsWith(`${replaces}=`));
    const result = await runRelay(own, [...kept, ...more]);
    expect({ code: result.code, stderr: result.stderr }).toEqual({
      code,
      stderr: expect.stringMatching(oneLine),
    });
  });
});
