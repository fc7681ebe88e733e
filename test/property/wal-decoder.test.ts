/** Compares the decoder and the frame reader with an encoder written from the documentation.
 *  Messages are decoded as they were encoded, at any split. For any bytes, the readers stay inside
 *  their message, allocate no excess memory, and throw only their own errors. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { ReplicationFrameReader } from '../../src/io/postgres/replication/frames.ts';
import { PgOutputDecoder, type PgOutputMessage } from '../../src/outbox/relay/wal/pgoutput.ts';
import { runs } from '../tier.ts';
import * as wire from './wal-encode.ts';

const name = fc.stringMatching(/^[a-zé_"]{0,20}$/);
const oid = fc.integer({ min: 1, max: 0xffff_ffff });
const lsn = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
const us = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
const bytes = fc.uint8Array({ maxLength: 40 });
const cell: fc.Arbitrary<wire.WireCell> = fc.oneof(
  fc.constantFrom({ kind: 'n' as const }, { kind: 'u' as const }),
  fc.record({ kind: fc.constantFrom('t' as const, 'b' as const), bytes }),
);
const column = fc.record({ name, typeOid: oid, isKey: fc.boolean() });
const table = fc.record({ oid, schema: name, name, columns: fc.array(column, { maxLength: 8 }) });
const rowOf = (columns: readonly wire.WireColumn[]): fc.Arbitrary<wire.WireCell[]> =>
  fc.array(cell, { minLength: columns.length, maxLength: columns.length });

const decode = (decoder: PgOutputDecoder, message: Buffer): PgOutputMessage => {
  // The bytes around the message must not matter.
  const around = Buffer.concat([Buffer.from([0x49, 0xff]), message, Buffer.from([0xff, 0x49])]);
  return decoder.decode(around, 2, 2 + message.length);
};

const cellsOf = (decoded: PgOutputMessage): unknown => {
  if (decoded.kind !== 'insert') throw new Error(decoded.kind);
  const { tuple } = decoded;
  return Array.from({ length: tuple.count }, (_, i) => {
    const kind = String.fromCharCode(tuple.kind[i] as number);
    return kind === 'n' || kind === 'u'
      ? { kind }
      : { kind, bytes: new Uint8Array(tuple.bytes.subarray(tuple.start[i], tuple.end[i])) };
  });
};

const failure = (run: () => unknown): string => {
  try {
    run();
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    return error.code;
  }
  return 'decoded';
};

describe('pgoutput decoder', () => {
  it('the decoder reads the messages around rows', () => {
    fc.assert(
      fc.property(
        lsn,
        lsn,
        us,
        oid,
        name,
        bytes,
        fc.boolean(),
        (first, second, at, xid, text, content, yes) => {
          const decoder = new PgOutputDecoder();
          expect(decode(decoder, wire.begin(first, at, xid))).toEqual({
            kind: 'begin',
            finalLsn: first,
            committedUs: at,
            xid,
          });
          expect(decode(decoder, wire.commit(first, second, at))).toEqual({
            kind: 'commit',
            commitLsn: first,
            endLsn: second,
            committedUs: at,
          });
          expect(decode(decoder, wire.origin(first, text))).toEqual({ kind: 'origin', name: text });
          expect(decode(decoder, wire.type(xid, 's', text))).toMatchObject({
            kind: 'type',
            oid: xid,
            name: text,
          });
          expect(decode(decoder, wire.message(yes, second, text, content))).toMatchObject({
            kind: 'message',
            transactional: yes,
            lsn: second,
            prefix: text,
          });
          expect(decode(decoder, wire.truncate([xid, 7]))).toMatchObject({
            kind: 'truncate',
            relations: [xid, 7],
          });
        },
      ),
    );
  });

  it('the decoder reads rows of any table, cells of every kind, inside and outside of streamed blocks', () => {
    const scene = table.chain((one) =>
      fc.record({
        one: fc.constant(one),
        row: rowOf(one.columns),
        old: rowOf(one.columns),
        xid: oid,
        streamed: fc.boolean(),
      }),
    );
    fc.assert(
      fc.property(scene, ({ one, row, old, xid, streamed }) => {
        const decoder = new PgOutputDecoder();
        const inside = streamed ? xid : undefined;
        if (streamed)
          expect(decode(decoder, wire.streamStart(xid, true))).toEqual({
            kind: 'stream_start',
            xid,
            first: true,
          });
        const described = decode(decoder, wire.relation(one.oid, one.schema, one.name, one.columns, inside));
        expect(described).toMatchObject({
          kind: 'relation',
          xid: inside,
          relation: { ...one, schema: one.schema === '' ? 'pg_catalog' : one.schema },
        });
        const inserted = decode(decoder, wire.insert(one.oid, row, inside));
        expect(cellsOf(inserted)).toEqual(row.map((one_) => ({ ...one_ })));
        for (const mark of ['K', 'O'] as const) {
          expect(decode(decoder, wire.update(one.oid, { mark, row: old }, row, inside))).toMatchObject({
            kind: 'update',
          });
          expect(decode(decoder, wire.remove(one.oid, mark, old, inside))).toMatchObject({ kind: 'delete' });
        }
        expect(decode(decoder, wire.update(one.oid, undefined, row, inside))).toMatchObject({
          kind: 'update',
          xid: inside,
        });
        if (!streamed) return;
        expect(decode(decoder, wire.streamStop())).toEqual({ kind: 'stream_stop' });
        expect(decode(decoder, wire.streamCommit(xid, 1n, 2n, 3n))).toMatchObject({
          kind: 'stream_commit',
          xid,
          endLsn: 2n,
        });
        expect(decode(decoder, wire.streamAbort(xid, 9))).toEqual({ kind: 'stream_abort', xid, subXid: 9 });
      }),
    );
  });

  it('the decoder returns its error or a message for cut, overlong and random bytes', () => {
    const whole = [
      wire.relation(5, 'public', 'outbox', [{ name: 'id', typeOid: 20, isKey: true }]),
      wire.insert(5, [{ kind: 'b', bytes: new Uint8Array(8) }]),
      wire.update(5, { mark: 'K', row: [{ kind: 'n' }] }, [{ kind: 't', bytes: new Uint8Array([49]) }]),
      wire.message(false, 1n, 'p', new Uint8Array([1, 2])),
      wire.truncate([5]),
      wire.begin(1n, 2n, 3),
      wire.commit(1n, 2n, 3n),
    ];
    for (const message of whole) {
      for (let cut = 0; cut < message.length; cut++) {
        const decoder = new PgOutputDecoder();
        decoder.decode(whole[0] as Buffer, 0, (whole[0] as Buffer).length);
        expect(
          failure(() => decoder.decode(message, 0, cut)),
          `${message.toString('hex')} cut at ${cut}`,
        ).toBe('wal_undecodable');
      }
      const long = Buffer.concat([message, Buffer.from([0])]);
      const decoder = new PgOutputDecoder();
      decoder.decode(whole[0] as Buffer, 0, (whole[0] as Buffer).length);
      expect(failure(() => decoder.decode(long, 0, long.length))).toBe('wal_undecodable');
    }
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), fc.nat(), fc.nat(255), (noise, where, what) => {
        const decoder = new PgOutputDecoder();
        decoder.decode(whole[0] as Buffer, 0, (whole[0] as Buffer).length);
        const any = Buffer.from(noise);
        expect(['decoded', 'wal_undecodable']).toContain(failure(() => decoder.decode(any, 0, any.length)));
        for (const message of whole) {
          const bent = Buffer.from(message);
          bent[where % bent.length] = what;
          expect(['decoded', 'wal_undecodable']).toContain(
            failure(() => decoder.decode(bent, 0, bent.length)),
          );
        }
      }),
      { numRuns: runs(500) },
    );
  });

  it('the decoder reports the bytes that it cannot read, and a relation that was never described', () => {
    const unknown = wire.insert(77, []);
    expect(() => new PgOutputDecoder().decode(unknown, 0, unknown.length)).toThrow(
      /relation 77 was never described/,
    );
    expect(() => new PgOutputDecoder().decode(Buffer.from('Zabc'), 0, 4)).toThrow(
      /4 bytes cannot be read: its type is unknown/,
    );
  });
});

interface Received {
  readonly messages: string[];
  readonly keepalives: Array<readonly [bigint, boolean]>;
  readonly oversize: number[];
  readonly plain: Array<readonly [string, string]>;
}

function receive(chunks: readonly Buffer[], messageBytesMax = 1 << 16): Received {
  const heard: Received = { messages: [], keepalives: [], oversize: [], plain: [] };
  const reader = new ReplicationFrameReader({
    messageBytesMax,
    onMessage: (chunk, start, end) => heard.messages.push(chunk.toString('hex', start, end)),
    onKeepalive: (walEnd, replyWanted) => heard.keepalives.push([walEnd, replyWanted]),
    onOversize: (count) => heard.oversize.push(count),
    onPlain: (kind, chunk, start, end) =>
      heard.plain.push([String.fromCharCode(kind), chunk.toString('hex', start, end)]),
  });
  for (const chunk of chunks) reader.push(chunk);
  return heard;
}

function split(whole: Buffer, at: readonly number[]): Buffer[] {
  const cuts = [...new Set(at.map((cut) => cut % (whole.length + 1)))].sort((a, b) => a - b);
  return [0, ...cuts].map((from, i) => whole.subarray(from, cuts[i] ?? whole.length));
}

describe('frame reader', () => {
  const one = fc.oneof(
    bytes.filter((payload) => payload.length > 0).map((payload) => wire.xlogData(1n, payload)),
    fc.record({ end: lsn, reply: fc.boolean() }).map(({ end, reply }) => wire.keepalive(end, reply)),
    fc
      .record({ letter: fc.constantFrom('N', 'S', 'C', 'Z'), body: bytes })
      .map(({ letter, body }) => wire.frame(letter, body)),
  );

  it('the frame reader delivers the same messages at every split', () => {
    fc.assert(
      fc.property(fc.array(one, { maxLength: 12 }), fc.array(fc.nat(), { maxLength: 12 }), (frames, cuts) => {
        const whole = Buffer.concat(frames);
        const heard = receive([whole]);
        expect(heard.messages.length + heard.keepalives.length + heard.plain.length).toBe(frames.length);
        expect(receive(split(whole, cuts))).toEqual(heard);
      }),
    );
  });

  it('the frame reader discards a message above the limit while it arrives, and delivers the next ones', () => {
    const big = wire.xlogData(1n, new Uint8Array(5000));
    const whole = Buffer.concat([wire.keepalive(7n, true), big, wire.keepalive(8n, false)]);
    for (const chunks of [
      [whole],
      split(whole, [3, 30, 31, 100, 2000, 5040]),
      [...whole].map((byte) => Buffer.from([byte])),
    ]) {
      const heard = receive(chunks, 1000);
      expect(heard.keepalives).toEqual([
        [7n, true],
        [8n, false],
      ]);
      expect(heard.oversize).toEqual([5025]);
      expect(heard.messages).toEqual([]);
    }
  });

  it('the frame reader refuses impossible lengths before it allocates memory for them', () => {
    const length = (type: string, bytesLong: number): Buffer =>
      new wire.Bytes().letter(type).u32(bytesLong).done();
    for (const bad of [length('d', 3), length('d', 0), length('E', 0x7fff_ffff), length('Z', 2 ** 20 + 1)])
      expect(failure(() => receive([bad]))).toBe('replication_protocol');
    for (const bad of [
      wire.frame('d', Buffer.from('x')),
      wire.frame('d', Buffer.alloc(0)),
      wire.frame('d', Buffer.from('w123')),
    ])
      expect(failure(() => receive([bad]))).toBe('replication_protocol');
  });

  it('the frame reader throws its own error or nothing for any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (noise) => {
        expect(['decoded', 'replication_protocol']).toContain(failure(() => receive([Buffer.from(noise)])));
      }),
      { numRuns: runs(500) },
    );
  });
});
