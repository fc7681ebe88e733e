/** The relay on a real database and a real broker: order of a key, gaps of the id sequence, crashes and standby. */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { describeFull, itFull } from '../tier.ts';
import { launcher, until } from './engine-kit.ts';
import { drained, firsts, insert, pending, readTopic, type World, worlds } from './relay-kit.ts';
import { sharedStack } from './stack.ts';

const own = launcher();
const stack = await sharedStack();
const world = worlds(() => stack, own.suffix);

/** The line a crash point leaves. */
function crashLine(logPath: string): { readonly point?: unknown; readonly unfinished?: unknown } {
  const line = readFileSync(logPath, 'utf8')
    .split('\n')
    .find((one) => one.includes('crash point reached'));
  return JSON.parse(line ?? '{}');
}

describe('relay', () => {
  let main: World;
  beforeAll(async () => {
    main = await world();
  });

  it('publishes five events a key from separate transactions in order, each once, and marks them all', async () => {
    const keys = Array.from({ length: 40 }, () => randomUUID());
    const sent = new Map<string, string[]>(keys.map((key) => [key, []]));
    const relay = own.spawn('relay', main.args);
    await relay.address();
    for (let round = 0; round < 5; round++) {
      await Promise.all(
        keys.map(async (key) => sent.get(key)?.push(await insert(main.pool, key, `{"round":${round}}`))),
      );
    }
    await drained(main.pool);
    relay.kill('SIGTERM');
    expect(await relay.ended).toEqual({ code: 0, signal: null });
    const seen = await readTopic(main);
    expect(seen.length).toBe(keys.length * 5);
    for (const key of keys) expect(firsts(seen, key)).toEqual(sent.get(key));
  });

  itFull('does not skip a lower id that commits after a higher one', async () => {
    const { pool, args, topic } = await world();
    const relay = own.spawn('relay', args);
    await relay.address();
    let late = '';
    let early = '';
    await pool.transaction(async (session) => {
      late = await insert(session, randomUUID(), '{}');
      early = await insert(pool, randomUUID(), '{}');
      await until('the higher id', async () => ((await pending(pool)) === 0 ? true : undefined));
    });
    await drained(pool);
    relay.kill('SIGTERM');
    await relay.ended;
    const seen = (await readTopic({ stack, topic })).map(({ msgId }) => msgId);
    expect(new Set(seen)).toEqual(new Set([late, early]));
    expect(seen).toHaveLength(2);
  });

  it('publishes again under the same msg_id what it had published when it died before the mark', async () => {
    const { pool, args, topic } = await world();
    const key = randomUUID();
    const sent: string[] = [];
    for (let i = 0; i < 20; i++) sent.push(await insert(pool, key, `{"i":${i}}`));
    const dying = own.spawn('relay', [...args, '-crash-point=publish']);
    expect(await dying.ended).toEqual({ code: null, signal: 'SIGKILL' });
    expect(await pending(pool)).toBe(20);
    expect(crashLine(dying.logPath)).toMatchObject({ point: 'publish', unfinished: 20 });
    const relay = own.spawn('relay', args);
    await drained(pool);
    relay.kill('SIGTERM');
    await relay.ended;
    const seen = await readTopic({ stack, topic });
    expect(firsts(seen, key)).toEqual(sent);
    expect(seen.length).toBe(40);
    expect(new Set(seen.map(({ partition }) => partition)).size).toBe(1);
  });

  itFull('loses nothing when it dies between a commit and the publish', async () => {
    const { pool, args, topic } = await world();
    const sent = await insert(pool, randomUUID(), '{}');
    const dying = own.spawn('relay', [...args, '-crash-point=commit']);
    expect(await dying.ended).toEqual({ code: null, signal: 'SIGKILL' });
    expect(crashLine(dying.logPath)).toMatchObject({ point: 'commit', unfinished: 1 });
    expect(await readTopic({ stack, topic })).toEqual([]);
    const relay = own.spawn('relay', args);
    await drained(pool);
    relay.kill('SIGTERM');
    await relay.ended;
    expect((await readTopic({ stack, topic })).map(({ msgId }) => msgId)).toEqual([sent]);
  });

  itFull('publishes nothing twice that it had marked when it died', async () => {
    const { pool, args, topic } = await world();
    const sent: string[] = [];
    for (let i = 0; i < 20; i++) sent.push(await insert(pool, randomUUID(), '{}'));
    const dying = own.spawn('relay', [...args, '-crash-point=mark']);
    expect(await dying.ended).toEqual({ code: null, signal: 'SIGKILL' });
    expect(crashLine(dying.logPath)).toMatchObject({ point: 'mark', unfinished: 20 });
    expect(await pending(pool)).toBe(0);
    const relay = own.spawn('relay', args);
    await relay.address();
    sent.push(await insert(pool, randomUUID(), '{}'));
    await drained(pool);
    relay.kill('SIGTERM');
    await relay.ended;
    expect((await readTopic({ stack, topic })).map(({ msgId }) => msgId).sort()).toEqual(sent.sort());
  });

  itFull(
    'works on a table of another name and schema, and carries the trace of the row that has one',
    async () => {
      const { pool, args, topic, schema } = await world();
      const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
      await pool.query('ALTER TABLE outbox ADD COLUMN IF NOT EXISTS traceparent text');
      await pool.query(
        `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload, traceparent)
       VALUES (gen_random_uuid(), gen_random_uuid(), 'shipped', '{"a":1}', $1)`,
        [traceparent],
      );
      await pool.query('ALTER TABLE outbox RENAME TO parcels');
      const result = await own.run([
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
    },
  );

  itFull('lets a second relay stand by and take over when the first is killed', async () => {
    const { pool, args, topic } = await world();
    const both = [own.spawn('relay', args), own.spawn('relay', args)];
    await Promise.all(both.map((one) => one.address()));
    const sent: string[] = [];
    for (let i = 0; i < 100; i++) {
      sent.push(await insert(pool, randomUUID(), '{}'));
      if (i === 50) both[0]?.kill('SIGKILL');
    }
    await drained(pool);
    both[1]?.kill('SIGTERM');
    await Promise.all(both.map((one) => one.ended));
    const seen = await readTopic({ stack, topic });
    expect(new Set(seen.map(({ msgId }) => msgId))).toEqual(new Set(sent));
  });

  itFull('goes on after its database connections are cut', async () => {
    const { pool, args, topic, schema } = await world();
    // A user of its own, so that no other relay on this server is met.
    await pool.query(`CREATE ROLE ${schema} SUPERUSER LOGIN PASSWORD 'cut'`);
    const address = new URL(stack.postgres);
    address.username = schema;
    address.password = 'cut';
    const relay = own.spawn('relay', [
      ...args.filter((arg) => !arg.startsWith('-postgres=')),
      `-postgres=${address}`,
    ]);
    await relay.address();
    const sent = [await insert(pool, randomUUID(), '{}')];
    await drained(pool);
    const { rowCount } = await pool.query(
      'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1',
      [schema],
    );
    expect(rowCount).toBeGreaterThan(1);
    await sleep(50);
    sent.push(await insert(pool, randomUUID(), '{}'));
    await drained(pool);
    relay.kill('SIGTERM');
    expect(await relay.ended, schema).toEqual({ code: 0, signal: null });
    expect(new Set((await readTopic({ stack, topic })).map(({ msgId }) => msgId))).toEqual(new Set(sent));
    await pool.query(`DROP ROLE ${schema}`);
  });
});

describeFull('relay, refused', () => {
  const oneLine = /^error: .+ \[\w+\]$/m;

  it.concurrent.each([
    { what: 'an unknown mode', more: ['-relay=wall'], code: 2 },
    { what: 'an unknown flag', more: ['-pol-interval=5ms'], code: 2 },
    { what: 'a slot in poll mode', more: ['-slot=mine'], code: 2 },
    { what: 'a poll interval in wal mode', more: ['-relay=wal'], code: 2 },
    { what: 'a crash that has no point', more: ['-crash-after=1'], code: 2 },
    { what: 'an unreachable broker', more: ['-brokers=127.0.0.1:1'], code: 3, replaces: '-brokers' },
    {
      what: 'an unreachable database',
      more: ['-postgres=postgres://me@127.0.0.1:1/x'],
      code: 3,
      replaces: '-postgres',
    },
    { what: 'a schema without tables', more: ['-schema=nothing_here'], code: 3, replaces: '-schema' },
    { what: 'a schema name that needs quoting', more: ['-schema=No;'], code: 2, replaces: '-schema' },
  ])('answers $what in one line', async ({ more, code, replaces }) => {
    const { args } = await world();
    const kept = args.filter((arg) => replaces === undefined || !arg.startsWith(`${replaces}=`));
    const result = await own.run([...kept, ...more]);
    expect({ code: result.code, stderr: result.stderr }).toEqual({
      code,
      stderr: expect.stringMatching(oneLine),
    });
  });
});
