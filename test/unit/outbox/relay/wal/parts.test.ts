/** Single decisions of wal mode: positions, confirmed progress, the check of an existing slot, and
 *  rows from cells. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatLsn, parseLsn } from '../../../../../src/outbox/relay/wal/lsn.ts';
import { PgOutputDecoder } from '../../../../../src/outbox/relay/wal/pgoutput.ts';
import { type Portion, WalProgress } from '../../../../../src/outbox/relay/wal/progress.ts';
import { WalRowReader } from '../../../../../src/outbox/relay/wal/row.ts';
import type { SlotRecord, SlotState } from '../../../../../src/outbox/relay/wal/slot.ts';
import { judge } from '../../../../../src/outbox/relay/wal/start.ts';
import { StreamedTransactions } from '../../../../../src/outbox/relay/wal/streamed.ts';
import * as wire from '../../../../property/wal-encode.ts';

describe('WAL positions', () => {
  it('positions compare as numbers, although their halves have no leading zeros', () => {
    const low = parseLsn('0/FFFFFFFF') as bigint;
    const high = parseLsn('1/8000000') as bigint;
    expect(low < high).toBe(true);
    expect(formatLsn(high)).toBe('1/8000000');
    for (const bad of ['', '/', '1', '1/', '1/G', '1/123456789', '0x1/2', '1/2 ', '-1/2'])
      expect(parseLsn(bad)).toBeUndefined();
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), (lsn) => {
        expect(parseLsn(formatLsn(lsn))).toBe(lsn);
      }),
    );
  });
});

describe('WAL progress', () => {
  it('the progress confirms the end of a transaction whose rows are done, and nothing before', () => {
    const progress = new WalProgress();
    progress.begin();
    progress.row();
    progress.row();
    // Rows of one COPY share a position, so a finished first row confirms nothing.
    const first = progress.portion(1);
    const second = progress.portion(1);
    progress.finish(first);
    progress.commit(100n);
    expect([progress.confirmed, progress.outstanding, progress.unconfirmed]).toEqual([0n, 1, 1]);
    progress.finish(second);
    expect([progress.confirmed, progress.outstanding, progress.unconfirmed]).toEqual([100n, 0, 0]);
  });

  it('the progress waits for received rows that are not yet forwarded, and for the open transaction', () => {
    const progress = new WalProgress();
    progress.keepalive(50n);
    expect(progress.confirmed).toBe(50n);
    progress.begin();
    progress.keepalive(60n);
    expect(progress.confirmed, 'a transaction is open').toBe(50n);
    progress.row();
    progress.commit(70n);
    progress.keepalive(80n);
    expect(progress.confirmed, 'its row waits').toBe(50n);
    progress.finish(progress.portion(1));
    expect(progress.confirmed).toBe(70n);
    progress.keepalive(80n);
    expect(progress.confirmed).toBe(80n);
    progress.keepalive(75n);
    expect(progress.confirmed, 'never back').toBe(80n);
  });

  it('the progress advances past transactions without rows of the table', () => {
    const progress = new WalProgress();
    progress.begin();
    progress.commit(10n);
    expect(progress.confirmed).toBe(10n);
  });

  it('the progress finishes a transaction in parts, and many in one part, in any order', () => {
    const transactions = fc.array(fc.nat(5), { minLength: 1, maxLength: 30 });
    fc.assert(
      fc.property(
        transactions,
        fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 40, maxLength: 40 }),
        fc.infiniteStream(fc.nat()),
        (sizes, cuts, picks) => {
          const progress = new WalProgress();
          const ends: Array<{ readonly rows: number; readonly lsn: bigint }> = [];
          let received = 0;
          for (const [i, size] of sizes.entries()) {
            progress.begin();
            for (let row = 0; row < size; row++) progress.row();
            received += size;
            progress.commit(BigInt(i + 1) * 10n);
            ends.push({ rows: received, lsn: BigInt(i + 1) * 10n });
          }
          const open: Array<{ readonly portion: Portion; readonly from: number; readonly to: number }> = [];
          for (let from = 0, i = 0; from < received; i++) {
            const rows = Math.min(cuts[i % cuts.length] as number, received - from);
            open.push({ portion: progress.portion(rows), from, to: from + rows });
            from += rows;
          }
          const done = new Set<number>();
          while (open.length > 0) {
            const [one] = open.splice((picks.next().value as number) % open.length, 1);
            if (one === undefined) continue;
            progress.finish(one.portion);
            for (let row = one.from; row < one.to; row++) done.add(row);
            let prefix = 0;
            while (done.has(prefix)) prefix++;
            const expected = ends.filter((end) => end.rows <= prefix).at(-1)?.lsn ?? 0n;
            expect(progress.confirmed).toBe(expected);
          }
          expect(progress.confirmed).toBe(ends.at(-1)?.lsn);
          expect(progress.outstanding).toBe(0);
        },
      ),
    );
  });
});

describe('existing slot', () => {
  const state: SlotState = {
    activePid: null,
    walStatus: 'reserved',
    safeWalBytes: undefined,
    confirmed: 100n,
    retainedBytes: 0,
    invalidation: null,
    currentLsn: 200n,
  };
  const record: SlotRecord = { confirmed: 100n, systemIdentifier: '7', unswept: null };
  it.each([
    ['missing, on a first start', undefined, undefined, false, 'first_start', undefined],
    ['missing, although it existed', undefined, record, false, 'slot_missing', undefined],
    ['lost', { ...state, walStatus: 'lost' }, record, false, 'slot_lost', undefined],
    ['invalidated', { ...state, invalidation: 'idle_timeout' }, record, false, 'slot_lost', undefined],
    ['older than its publication', state, record, true, 'publication_missing', undefined],
    ['unknown', state, undefined, false, undefined, 'slot_foreign'],
    ['of another server', state, { ...record, systemIdentifier: '8' }, false, undefined, 'slot_foreign'],
    ['advanced by another process', { ...state, confirmed: 101n }, record, false, undefined, 'slot_foreign'],
    ['at its recorded position', state, record, false, undefined, undefined],
    [
      'before its recorded position, as after a crash',
      { ...state, confirmed: 90n },
      record,
      false,
      undefined,
      undefined,
    ],
    ['about to be lost', { ...state, walStatus: 'unreserved' }, record, false, undefined, undefined],
  ] as const)(
    'the check of the slot has the specified result: %s',
    (_, met, recorded, publicationMade, make, doubt) => {
      expect(judge(met, recorded, '7', publicationMade)).toEqual({ make, doubt });
    },
  );
});

describe('streamed transactions', () => {
  const row = (id: bigint) => ({
    id,
    aggregateId: 'a',
    msgId: 'm',
    eventType: 't',
    payload: new Uint8Array(),
    createdAt: new Date(0),
  });
  it('streamed transactions are held until their commit, without the parts that were rolled back', () => {
    const streamed = new StreamedTransactions(10);
    streamed.start(1);
    streamed.add(row(1n), 1);
    streamed.add(row(2n), 11);
    streamed.stop();
    streamed.start(2);
    streamed.add(row(3n), 2);
    streamed.stop();
    streamed.start(1);
    streamed.add(row(4n), 1);
    streamed.stop();
    streamed.abort(1, 11);
    expect(streamed.commit(1).map(({ id }) => id)).toEqual([1n, 4n]);
    streamed.abort(2, 2);
    expect(streamed.commit(2)).toEqual([]);
    expect([streamed.size, streamed.isOpen]).toEqual([0, false]);
  });

  it('streamed transactions above the limit are refused', () => {
    const streamed = new StreamedTransactions(1);
    streamed.start(1);
    streamed.add(row(1n), 1);
    expect(() => streamed.add(row(2n), 1)).toThrow(/more than 1 rows/);
  });
});

const OIDS = {
  id: 20,
  aggregate_id: 2950,
  msg_id: 2950,
  event_type: 25,
  payload: 17,
  created_at: 1184,
  traceparent: 25,
};
const uuid = '0190b7f0-0000-7000-8000-00000000abcd';
const binary = (value: Uint8Array): wire.WireCell => ({ kind: 'b', bytes: value });
const text = (value: string): wire.WireCell => ({ kind: 't', bytes: Buffer.from(value) });
const int8 = (value: bigint): Buffer => new wire.Bytes().i64(value).done();
const uuidBytes = Buffer.from(uuid.replaceAll('-', ''), 'hex');

function read(cells: Readonly<Record<string, wire.WireCell>>, oids: Readonly<Record<string, number>> = OIDS) {
  const names = Object.keys(cells);
  const decoder = new PgOutputDecoder();
  const columns = names.map((name) => ({ name, typeOid: oids[name] as number, isKey: false }));
  const described = wire.relation(9, 'public', 'outbox', columns);
  const inserted = wire.insert(9, Object.values(cells));
  decoder.decode(described, 0, described.length);
  const message = decoder.decode(inserted, 0, inserted.length);
  if (message.kind !== 'insert') throw new Error(message.kind);
  return new WalRowReader(message.relation).read(message.tuple);
}

describe('row from cells', () => {
  const inBinary = {
    created_at: binary(int8(816_500_000_000_123n)),
    payload: binary(new Uint8Array([0, 255])),
    id: binary(int8(-5n)),
    msg_id: binary(uuidBytes),
    event_type: binary(Buffer.from('order.crëated.v1')),
    aggregate_id: binary(uuidBytes),
  };
  const expected = {
    id: -5n,
    aggregateId: uuid,
    msgId: uuid,
    eventType: 'order.crëated.v1',
    payload: Buffer.from([0, 255]),
    createdAt: new Date('2025-11-15T05:33:20.000Z'),
  };
  const inText = {
    id: text('-5'),
    aggregate_id: text(uuid.toUpperCase()),
    msg_id: text(uuid),
    event_type: text('order.crëated.v1'),
    payload: text('\\x00ff'),
    created_at: text('2025-11-15 05:33:20.000123+00'),
  };

  it('a row is the same in binary and in text, in any order of the columns', () => {
    expect(read(inBinary)).toEqual(expected);
    expect(read(inText)).toEqual(expected);
    expect(read({ ...inText, created_at: text('2025-11-15 11:03:20.000123+05:30') })).toEqual(expected);
  });

  it('a row has a trace if the table has the column', () => {
    expect(read({ ...inText, traceparent: text('00-a-b-01') })).toEqual({
      ...expected,
      traceparent: '00-a-b-01',
    });
    expect(read({ ...inText, traceparent: { kind: 'n' } })).toEqual(expected);
  });

  it('a row has its choices if the table has all columns for them and one is not null', () => {
    const none = {
      aggregate_key: { kind: 'n' as const },
      partition_key: { kind: 'n' as const },
      topic: { kind: 'n' as const },
      headers: { kind: 'n' as const },
      content_type: { kind: 'n' as const },
    };
    expect(read({ ...inText, ...none })).toEqual(expected);
    const chosen = { ...none, aggregate_key: text('Kunde/ä'), headers: binary(Buffer.from('{"a":"b"}')) };
    expect(read({ ...inBinary, ...chosen })).toEqual({
      ...expected,
      record: {
        aggregateKey: 'Kunde/ä',
        partitionKey: null,
        topic: null,
        headers: '{"a":"b"}',
        contentType: null,
      },
    });
    const { topic: _, ...less } = chosen;
    expect(read({ ...inText, ...less }), 'a table of another origin').toEqual(expected);
  });

  it('a row is read from smaller integers and jsonb', () => {
    const oids = { ...OIDS, payload: 3802 };
    const cells = {
      ...inBinary,
      id: binary(Buffer.from([0, 0, 0, 7])),
      payload: binary(Buffer.from('\u0001{}')),
    };
    expect(read(cells, oids)).toMatchObject({ id: 7n, payload: Buffer.from('{}') });
  });

  it('a row is read with timestamps out of the usual range', () => {
    const far = (value: wire.WireCell): Date => read({ ...inText, created_at: value }).createdAt;
    expect(far(binary(int8(2n ** 63n - 1n))).getTime()).toBe(8.64e15);
    expect(far(text('-infinity')).getTime()).toBe(-8.64e15);
    expect(far(binary(int8(-1n))).toISOString()).toBe('1999-12-31T23:59:59.999Z');
  });

  it.each([
    ['id', text('12a')],
    ['id', text('1'.repeat(40))],
    ['id', binary(new Uint8Array(3))],
    ['id', { kind: 'n' as const }],
    ['aggregate_id', binary(new Uint8Array(15))],
    ['aggregate_id', text('not a uuid')],
    ['msg_id', { kind: 'u' as const }],
    ['payload', text('\\x0')],
    ['payload', text('00ff')],
    ['payload', { kind: 'n' as const }],
    ['event_type', { kind: 'n' as const }],
    ['created_at', text('yesterday')],
    ['created_at', binary(new Uint8Array(4))],
  ])('a row is refused with a bad %s', (name, cell) => {
    expect(() => read({ ...inText, [name]: cell })).toThrow(new RegExp(`column ${name} `));
  });

  it('an unreadable row reports the columns that the publication omits', () => {
    const { payload: _, msg_id: __, ...less } = inText;
    expect(() => read(less)).toThrow(/lacks columns of .*: msg_id, payload/);
  });
});
