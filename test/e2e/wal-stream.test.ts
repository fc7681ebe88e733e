/** The decoder on messages of a real server, in both formats and streamed; the driver with servers
 *  that refuse, become silent or send garbage. */

import { createHash, randomBytes } from 'node:crypto';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { afterAll, describe, expect, it } from 'vitest';
import { findMillraceError, type MillraceError } from '../../src/core/errors.ts';
import { pgReplicationDriver } from '../../src/io/postgres/replication/pg.ts';
import type { ReplicationSession, StreamOptions } from '../../src/io/postgres/replication/port.ts';
import {
  CELL,
  PgOutputDecoder,
  type PgOutputMessage,
  type Tuple,
} from '../../src/outbox/relay/wal/pgoutput.ts';
import { WalRowReader } from '../../src/outbox/relay/wal/row.ts';
import { StreamedTransactions } from '../../src/outbox/relay/wal/streamed.ts';
import { connectPool } from '../fixtures/database.ts';
import { gateBefore } from '../fixtures/gate.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const stack = await sharedStack();
const name = `walstream_${randomBytes(4).toString('hex')}`;
const pool = await connectPool(stack.postgres, { schema: name, connections: 4, name: 'wal stream test' });
await pool.query(`CREATE SCHEMA ${name}`);
await pool.query(`CREATE TABLE outbox (created_at timestamptz NOT NULL, payload bytea NOT NULL, id bigserial PRIMARY KEY,
  published_at timestamptz, msg_id uuid NOT NULL, event_type text NOT NULL, aggregate_id uuid NOT NULL, traceparent text)`);
await pool.query(`CREATE TABLE other (a int, b text, c numeric, d jsonb, e point)`);
await pool.query('ALTER TABLE other REPLICA IDENTITY FULL');
await pool.query(`CREATE PUBLICATION ${name} FOR TABLE outbox, other`);
const slots: string[] = [];
afterAll(async () => {
  for (const slot of slots) {
    await until('a dropped slot', async () => {
      await pool.query(
        'SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active',
        [slot],
      );
      await pool.query('SELECT pg_drop_replication_slot($1::name)::text', [slot]);
      return true;
    });
  }
  await pool.query(`DROP PUBLICATION ${name}`);
  await pool.query(`DROP SCHEMA ${name} CASCADE`);
  await pool.close();
});

async function makeSlot(): Promise<string> {
  const slot = `${name}_${slots.length}`;
  await pool.query(`SELECT pg_create_logical_replication_slot($1::name, 'pgoutput')::text`, [slot]);
  slots.push(slot);
  return slot;
}

async function peek(slot: string, options: Readonly<Record<string, string>>): Promise<readonly Buffer[]> {
  const given = { publication_names: name, messages: 'true', ...options };
  const { rows } = await pool.query<{ data: Uint8Array }>(
    'SELECT data FROM pg_logical_slot_peek_binary_changes($1::name, NULL, NULL, VARIADIC $2::text[])',
    [slot, Object.entries(given).flat()],
  );
  return rows.map(({ data }) => Buffer.from(data));
}

const cellText = (tuple: Tuple, i: number): string | null =>
  tuple.kind[i] === CELL.null ? null : tuple.bytes.toString('utf8', tuple.start[i], tuple.end[i]);

interface Read {
  readonly kinds: string[];
  readonly rows: unknown[];
  readonly others: Array<Record<string, string | null>>;
}

/** Reads messages like the relay, which holds streamed transactions until their end. */
function read(messages: readonly Buffer[]): Read {
  const decoder = new PgOutputDecoder();
  const streamed = new StreamedTransactions(1_000_000);
  const found: Read = { kinds: [], rows: [], others: [] };
  for (const bytes of messages) {
    const message: PgOutputMessage = decoder.decode(bytes, 0, bytes.length);
    found.kinds.push(message.kind);
    if (message.kind === 'insert' && message.relation.name === 'outbox') {
      const row = new WalRowReader(message.relation).read(message.tuple);
      if (streamed.isOpen) streamed.add(row, message.xid ?? 0);
      else found.rows.push(row);
    } else if (message.kind === 'insert') {
      const { columns } = message.relation;
      found.others.push(
        Object.fromEntries(columns.map((column, i) => [column.name, cellText(message.tuple, i)])),
      );
    } else if (message.kind === 'stream_start') streamed.start(message.xid);
    else if (message.kind === 'stream_stop') streamed.stop();
    else if (message.kind === 'stream_abort') streamed.abort(message.xid, message.subXid);
    else if (message.kind === 'stream_commit') found.rows.push(...streamed.commit(message.xid));
  }
  return found;
}

async function table(): Promise<unknown[]> {
  const { rows } = await pool.query<Readonly<Record<string, unknown>>>(
    'SELECT id, aggregate_id, msg_id, event_type, payload, created_at, traceparent FROM outbox ORDER BY id',
  );
  return rows.map((row) => ({
    id: row['id'],
    aggregateId: row['aggregate_id'],
    msgId: row['msg_id'],
    eventType: row['event_type'],
    payload: Buffer.from(row['payload'] as Uint8Array),
    createdAt: row['created_at'],
    ...(row['traceparent'] === null ? {} : { traceparent: row['traceparent'] }),
  }));
}

describe('decoder on a real log', () => {
  it('the decoder reads every row as in the table, in binary, in text and streamed, and no row that was rolled back', async () => {
    const slot = await makeSlot();
    await pool.query(
      `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload, created_at, traceparent)
       SELECT gen_random_uuid(), gen_random_uuid(), 'typ€ ' || n, decode(md5(n::text), 'hex'),
              timestamptz '1999-12-31 23:59:59.999+00' + n * interval '123 days 1.001 seconds', CASE n % 2 WHEN 0 THEN '00-' || n END
       FROM generate_series(-20, 200) AS n`,
    );
    await pool.query(`INSERT INTO other VALUES (-7, NULL, 1.50, '{"a": [1]}', '(1,2)')`);
    await pool.query(`UPDATE other SET b = 'x'`);
    await pool.query('DELETE FROM other');
    await pool.query('TRUNCATE other');
    await pool.query(`SELECT pg_logical_emit_message(true, 'millrace', 'inside')`);
    await pool.query(`SELECT pg_logical_emit_message(false, 'millrace', 'outside')`);
    await pool
      .transaction(async (session) => {
        await session.query(`INSERT INTO outbox SELECT * FROM outbox LIMIT 0`);
        await session.query(
          `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload, created_at) VALUES (gen_random_uuid(), gen_random_uuid(), 'gone', '', now())`,
        );
        throw new RangeError('rolled back');
      })
      .catch(() => {});
    // Large enough to be streamed before it ends, with a part that is rolled back.
    await pool.transaction(async (session) => {
      await session.query(`SET LOCAL logical_decoding_work_mem = '64kB'`);
      const many = (from: number, to: number) =>
        session.query(
          `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload, created_at)
           SELECT gen_random_uuid(), gen_random_uuid(), 'many', decode(repeat('ab', 300), 'hex'), now() FROM generate_series(${from}, ${to})`,
        );
      await many(1, 600);
      await session.query('SAVEPOINT a');
      await many(601, 1200);
      await session.query('ROLLBACK TO SAVEPOINT a');
      await many(1201, 1300);
    });
    const expected = await table();
    expect(expected.length).toBe(221 + 700);
    const inBinary = read(await peek(slot, { proto_version: '1', binary: 'true' }));
    expect(inBinary.rows).toEqual(expected);
    const inText = read(await peek(slot, { proto_version: '1', binary: 'false' }));
    expect(inText.rows).toEqual(expected);
    expect(inText.others).toEqual([{ a: '-7', b: null, c: '1.50', d: '{"a": [1]}', e: '(1,2)' }]);
    expect(new Set(inText.kinds)).toEqual(
      new Set(['begin', 'relation', 'insert', 'update', 'delete', 'commit', 'truncate', 'message']),
    );
    await pool.query(
      `ALTER DATABASE ${new URL(stack.postgres).pathname.slice(1)} SET logical_decoding_work_mem = '64kB'`,
    );
    try {
      const other = await connectPool(stack.postgres, { schema: name, connections: 1, name: 't' });
      const { rows } = await other.query<{ data: Uint8Array }>(
        `SELECT data FROM pg_logical_slot_peek_binary_changes($1::name, NULL, NULL, 'proto_version', '2', 'publication_names', $2, 'streaming', 'true', 'binary', 'true', 'messages', 'true')`,
        [slot, name],
      );
      await other.close();
      const streamed = read(rows.map(({ data }) => Buffer.from(data)));
      expect(streamed.kinds).toEqual(
        expect.arrayContaining(['stream_start', 'stream_stop', 'stream_commit']),
      );
      const sorted = [...streamed.rows].sort((a, b) =>
        Number((a as { id: bigint }).id - (b as { id: bigint }).id),
      );
      expect(sorted).toEqual(expected);
    } finally {
      await pool.query(
        `ALTER DATABASE ${new URL(stack.postgres).pathname.slice(1)} RESET logical_decoding_work_mem`,
      );
    }
  });
});

/** True for messages outside of the test's transaction: heartbeats of other relays on the database,
 *  and a repeated description of the table. */
const isBeside = (bytes: Buffer, start: number): boolean => bytes[start] === 0x4d || bytes[start] === 0x52;
const nothing = (): void => {};
const streamOptions = (slot: string, over: Partial<StreamOptions> = {}): StreamOptions => ({
  slot,
  publication: name,
  feedbackMs: 50,
  silenceMs: 60_000,
  messageBytesMax: 1 << 24,
  onMessage: nothing,
  onKeepalive: nothing,
  onOversize: nothing,
  ...over,
});
const open = (url = stack.postgres): Promise<ReplicationSession> =>
  pgReplicationDriver.connect({ url, applicationName: 'wal stream test', connectTimeoutMs: 60_000 });
async function failure(promise: Promise<unknown>): Promise<MillraceError> {
  const thrown: unknown = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  const error = findMillraceError(thrown);
  if (error === undefined) throw thrown;
  return error;
}

describe('replication driver', () => {
  it('the driver names the server, refuses invalid slot names, and forwards slot errors of the server', async () => {
    const session = await open();
    expect(session.identity.systemIdentifier).toBe(await pool.systemIdentifier());
    expect(session.senderTimeoutMs).toBe(60_000);
    expect((await failure(session.start(streamOptions(`a'; DROP`)))).code).toBe('bad_value');
    const missing = await failure(session.start(streamOptions('no_such_slot')));
    expect([missing.code, missing.details['sqlstate']]).toEqual(['replication_failed', '42704']);
    await session.close();
    const slot = await makeSlot();
    const first = await open();
    const stream = await first.start(streamOptions(slot));
    const second = await open();
    const used = await failure(second.start(streamOptions(slot)));
    expect([used.code, used.details['sqlstate']]).toEqual(['replication_failed', '55006']);
    await second.close();
    await stream.close();
    await stream.close();
    await stream.ended;
    await first.close();
  });

  it("the driver delivers every message once across any packets, reports the position, and ends with a handler's error", async () => {
    const slot = await makeSlot();
    const hash = createHash('sha256');
    let count = 0;
    let walEnd = 0n;
    const session = await open();
    const stream = await session.start(
      streamOptions(slot, {
        onMessage: (bytes, start, end) => {
          if (isBeside(bytes, start)) return;
          count++;
          hash.update(bytes.subarray(start, end));
        },
        onKeepalive: (at) => {
          walEnd = at;
        },
      }),
    );
    await pool.query(
      `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload, created_at)
       SELECT gen_random_uuid(), gen_random_uuid(), 'x', decode(repeat('cd', n * 37 % 5000), 'hex'), now() FROM generate_series(1, 3000) AS n`,
    );
    await until('all messages', async () => (count >= 3002 ? true : undefined));
    expect(count).toBe(3002);
    const { rows } = await pool.query<{ lsn: string }>('SELECT pg_current_wal_lsn()::text AS lsn');
    const [high, low] = (rows[0]?.lsn ?? '').split('/') as [string, string];
    const now = (BigInt(`0x${high}`) << 32n) | BigInt(`0x${low}`);
    await until('a keepalive', async () => (walEnd >= now ? true : undefined));
    // Nothing was confirmed, so the slot still has all messages.
    await stream.close();
    const again = createHash('sha256');
    const kept = await until('the slot', () => peek(slot, { proto_version: '1', binary: 'true' }));
    const own = kept.filter((message) => !isBeside(message, 0));
    for (const message of own) again.update(message);
    expect(own.length).toBe(3002);
    expect(again.digest('hex')).toBe(hash.digest('hex'));
    const broken = await open();
    const stopped = await until('a stream', () =>
      broken.start(
        streamOptions(slot, {
          onMessage: () => {
            throw new RangeError('mine');
          },
        }),
      ),
    );
    await expect(stopped.ended).rejects.toThrow(RangeError);
    await broken.close();
  });

  it('the driver confirms the requested position, also while it is paused', async () => {
    const slot = await makeSlot();
    const session = await open();
    const stream = await session.start(streamOptions(slot));
    stream.pause();
    const { rows } = await pool.query<{ lsn: string; n: string }>(
      `SELECT pg_current_wal_lsn()::text AS lsn, (pg_current_wal_lsn() - '0/0')::text AS n`,
    );
    stream.confirm(BigInt(rows[0]?.n ?? '0'));
    stream.confirm(1n);
    await until('the position', async () => {
      const found = await pool.query<{ yes: boolean }>(
        'SELECT confirmed_flush_lsn >= $2::pg_lsn AS yes FROM pg_replication_slots WHERE slot_name = $1',
        [slot, rows[0]?.lsn ?? ''],
      );
      return found.rows[0]?.yes === true ? true : undefined;
    });
    stream.resume();
    await stream.close();
  });

  it('the driver drops a server that becomes silent, and a server that disconnects', async () => {
    const slot = await makeSlot();
    const gate = await gateBefore(stack.postgres);
    const session = await open(gate.url);
    const stream = await session.start(streamOptions(slot, { silenceMs: 300 }));
    gate.swallowAnswers();
    const silent = await failure(stream.ended);
    expect([silent.code, silent.message]).toEqual([
      'unreachable',
      expect.stringContaining('no bytes arrived for 300 ms'),
    ]);
    await session.close();
    gate.open();
    // The server may need a moment to notice the end of the first session; a refused session has
    // ended.
    const [next, cut] = await until('a stream', async () => {
      const one = await open(gate.url);
      const stream = await one.start(streamOptions(slot)).catch(() => one.close());
      return stream === undefined ? undefined : ([one, stream] as const);
    });
    gate.cut();
    expect((await failure(cut.ended)).code).toBe('unreachable');
    await next.close();
    gate.close();
    expect((await failure(open(gate.url))).code).toBe('unreachable');
  });

  it('the driver reports a foreign server and a missing one', async () => {
    const sockets: Socket[] = [];
    const server = createServer((socket) => {
      sockets.push(socket);
      socket.on('error', nothing);
      socket.write('HTTP/1.1 400 Bad Request\r\n\r\n');
      socket.end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `postgres://me@127.0.0.1:${(server.address() as AddressInfo).port}/x`;
    const error = await failure(open(url));
    expect(error.code).toBe('unreachable');
    server.close();
    for (const socket of sockets) socket.destroy();
    expect((await failure(open('postgres://me@127.0.0.1:1/x'))).code).toBe('unreachable');
  });
});
