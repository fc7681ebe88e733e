/** Identifiers of open windows: which events are duplicates, what is forgotten when, their records
 *  in the changelog, and the limit of their memory. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AdmittedBatch } from '../../../src/core/layout/admitted-batch.ts';
import { EventBatch } from '../../../src/core/layout/event-batch.ts';
import { DuplicateFilter, decodeIds, encodeIds, type SavedId } from '../../../src/engine/dedup/filter.ts';
import { EventIds } from '../../../src/engine/dedup/ids.ts';
import { IdLog } from '../../../src/engine/dedup/log.ts';
import type { SeenIds } from '../../../src/engine/dedup/seen.ts';
import { SessionIds } from '../../../src/engine/dedup/sessions.ts';
import { WindowIds } from '../../../src/engine/dedup/windows.ts';
import { decodeRecord, encodeIdsRecord, RECORD } from '../../../src/engine/durability/changelog/records.ts';
import type { SideBytes } from '../../../src/engine/output/side/sections.ts';

const seenOf = (seen: SeenIds): readonly string[] => {
  const texts: string[] = [];
  const all = seen.all();
  for (let next = all.next(); next.done !== true; next = all.next()) {
    const { key, id, eventTs } = next.value;
    texts.push(`${key} ${id} ${eventTs}`);
  }
  return texts.sort();
};

describe('identifiers in windows', () => {
  it('an event of a tumbling window is a duplicate only in the same window, for the same key and identifier', () => {
    const seen = new WindowIds(10, 10);
    expect(seen.add('1', 'sa', 0)).toBe(true);
    expect(seen.add('1', 'sa', 9)).toBe(false);
    expect(seen.add('2', 'sa', 9)).toBe(true);
    expect(seen.add('1', 'sb', 9)).toBe(true);
    expect(seen.add('1', 'sa', 10)).toBe(true);
    expect(seen.add('1', 'sa', -1)).toBe(true);
  });

  it('an event of a sliding window is a duplicate if any window contains both events', () => {
    const seen = new WindowIds(10, 4);
    expect(seen.add('1', 'sa', 5)).toBe(true);
    // The window from 4 to 14 is the last that contains 5.
    expect(seen.add('1', 'sa', 13)).toBe(false);
    expect(seen.add('1', 'sa', 14)).toBe(true);
    // The window from -4 to 6 is the first that contains 5.
    expect(seen.add('1', 'sa', -4)).toBe(false);
    expect(seen.add('1', 'sa', -5)).toBe(true);
  });

  it('an event of a session is a duplicate of any event of the session that it would be in', () => {
    const seen = new SessionIds(10);
    expect(seen.add('1', 'sa', 0)).toBe(true);
    expect(seen.add('1', 'sb', 9)).toBe(true);
    // Further than the gap from the first, and connected with it.
    expect(seen.add('1', 'sa', 18)).toBe(false);
    // A duplicate extends no session.
    expect(seen.add('1', 'sa', 20)).toBe(true);
    expect(seen.add('2', 'sa', 9)).toBe(true);
    // Merges both sessions, which each have the identifier a.
    expect(seen.add('1', 'sc', 15)).toBe(true);
    expect(seen.add('1', 'sb', 29)).toBe(false);
    expect(seen.count).toBe(5);
  });

  const events = fc.array(
    fc.record({
      key: fc.constantFrom('1', '2'),
      id: fc.constantFrom('sa', 'sb', 'sc'),
      eventTs: fc.integer({ min: -40, max: 40 }),
    }),
    { maxLength: 40 },
  );
  const stores: fc.Arbitrary<() => SeenIds> = fc.oneof(
    fc.integer({ min: 1, max: 20 }).map((gap) => () => new SessionIds(gap)),
    fc
      .tuple(fc.integer({ min: 1, max: 20 }), fc.nat())
      .map(([size, by]) => [size, 1 + (by % size)] as const)
      .map(
        ([size, slide]) =>
          () =>
            new WindowIds(size, slide),
      ),
  );

  it('identifiers that are restored in any order, some twice, decide like those that were added', () => {
    fc.assert(
      fc.property(stores, events, events, fc.nat(), (open, before, after, seed) => {
        const [seen, again] = [open(), open()];
        for (const { key, id, eventTs } of before) seen.add(key, id, eventTs);
        const all = seen.all();
        const saved = [];
        for (let next = all.next(); next.done !== true; next = all.next()) saved.push(next.value);
        const shuffled = [...saved, ...saved].sort(
          (a, b) => ((a.eventTs * 31 + seed) % 7) - ((b.eventTs * 31 + seed) % 7),
        );
        for (const one of shuffled) again.restore(one);
        expect(seenOf(again)).toEqual(seenOf(seen));
        expect([again.count, again.bytes]).toEqual([seen.count, seen.bytes]);
        for (const { key, id, eventTs } of after)
          expect(again.add(key, id, eventTs)).toBe(seen.add(key, id, eventTs));
      }),
    );
  });

  it('forgetting ended windows changes no verdict, and leaves nothing of them', () => {
    fc.assert(
      fc.property(stores, events, fc.integer({ min: 0, max: 3 }), (open, given, drift) => {
        const [seen, trimmed] = [open(), open()];
        let frontier = Number.NEGATIVE_INFINITY;
        given.forEach(({ key, id, eventTs }, i) => {
          const at = eventTs + i * drift;
          frontier = Math.max(frontier, at - 15);
          trimmed.expire(frontier);
          if (at < frontier) return;
          expect(trimmed.add(key, id, at)).toBe(seen.add(key, id, at));
        });
        trimmed.expire(100_000);
        expect([trimmed.count, trimmed.bytes, seenOf(trimmed)]).toEqual([0, 0, []]);
      }),
    );
  });

  it('one call forgets a bounded number of identifiers', () => {
    for (const seen of [new WindowIds(10, 10), new SessionIds(10)]) {
      for (let i = 0; i < 50_000; i++) seen.add(String(i), 'sa', 0);
      seen.expire(1000);
      expect(seen.count).toBeGreaterThanOrEqual(25_000);
      for (let calls = 0; calls < 3; calls++) seen.expire(1000);
      expect(seen.count).toBe(0);
    }
  });
});

describe('the filter of duplicates', () => {
  const batchOf = (rows: ReadonlyArray<readonly [account: bigint, id: string, eventTs: number]>) => {
    const events = EventBatch.create(rows.length);
    const admitted = AdmittedBatch.create(rows.length);
    rows.forEach(([account, id, eventTs], row) => {
      events.columns.accountId[row] = account;
      events.columns.eventTs[row] = BigInt(eventTs);
      EventIds.of(events).set(row, id);
      admitted.columns.row[row] = row;
      admitted.columns.slice[row] = BigInt(100 + row);
    });
    events.rowCount = rows.length;
    admitted.rowCount = rows.length;
    return { events, admitted };
  };

  it('the filter keeps the first row of each identifier, with its slice, in order', () => {
    const filter = new DuplicateFilter(new WindowIds(10, 10), Number.POSITIVE_INFINITY);
    const { events, admitted } = batchOf([
      [1n, 'i7', 0],
      [1n, 'i7', 1],
      [2n, 'i7', 2],
      [1n, 's7', 3],
      [2n, 'i7', 4],
    ]);
    expect(filter.apply(events, admitted)).toBe(2);
    expect([...admitted.columns.row.subarray(0, admitted.rowCount)]).toEqual([0, 2, 3]);
    expect([...admitted.columns.slice.subarray(0, admitted.rowCount)]).toEqual([100n, 102n, 103n]);
    const added = filter.takeAdded();
    expect(added && decodeIds(added)).toEqual({
      copies: [
        { accountId: 1n, id: 'i7', eventTs: 0 },
        { accountId: 2n, id: 'i7', eventTs: 2 },
        { accountId: 1n, id: 's7', eventTs: 3 },
      ],
    });
    expect(filter.takeAdded()).toBeUndefined();
  });

  it('identifiers beyond the memory limit end the run with what to do, unless their windows ended', () => {
    const filter = new DuplicateFilter(new WindowIds(10, 10), 100_000);
    const rows = Array.from({ length: 1000 }, (_, i) => [BigInt(i), `s${i}`, 5] as const);
    const { events, admitted } = batchOf(rows);
    filter.apply(events, admitted);
    expect(() => filter.expire(9)).toThrow(
      expect.objectContaining({ code: 'dedup_full', next: expect.stringContaining('-mem-budget') }),
    );
    filter.expire(10);
    expect(filter.count).toBe(0);
    // More than one call forgets, and all of them ended.
    const many = new DuplicateFilter(new WindowIds(10, 10), 100_000);
    many.restore(Array.from({ length: 50_000 }, (_, i) => ({ accountId: BigInt(i), id: 'sa', eventTs: 5 })));
    many.expire(10);
    expect(many.bytes).toBeLessThanOrEqual(100_000);
  });
});

describe('records of identifiers', () => {
  const ids: fc.Arbitrary<SavedId> = fc.record({
    accountId: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
    eventTs: fc.integer({ min: -(2 ** 40), max: 2 ** 40 }),
    id: fc.uint8Array({ minLength: 1, maxLength: 60 }).map((bytes) => Buffer.from(bytes).toString('latin1')),
  });

  it('identifiers of any bytes are decoded unchanged', () => {
    fc.assert(
      fc.property(fc.array(ids, { minLength: 1, maxLength: 6 }), (saved) => {
        const encoded = encodeIds(saved);
        expect(decodeIds(encoded)).toEqual({ copies: saved });
        expect(decodeRecord(RECORD.IDS, encodeIdsRecord(encoded))).toEqual({
          record: { kind: 'ids', ids: saved },
        });
      }),
    );
  });

  it('damaged identifiers are refused, whatever the bytes are', () => {
    fc.assert(
      fc.property(
        fc.array(ids, { minLength: 1, maxLength: 4 }),
        fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 3 }),
        fc.nat({ max: 5 }),
        fc.nat({ max: 30 }),
        (saved, flips, count, cut) => {
          const whole = encodeIds(saved).bytes;
          const bytes = whole.slice(0, whole.length - cut);
          for (const [at, by] of flips) if (bytes.length > 0) bytes[at % bytes.length] = by;
          const decoded = decodeIds({ count, bytes });
          if ('fault' in decoded) expect(decoded.fault).toMatch(/identifier/);
          else expect(decoded.copies.length).toBe(count);
        },
      ),
    );
  });

  it('all identifiers are copied when the changelog has outgrown them, and a restart needs only the copy', () => {
    const seen = new WindowIds(1000, 1000);
    const filter = new DuplicateFilter(seen, Number.POSITIVE_INFINITY);
    const records: SideBytes[] = [];
    let seq = 10;
    const append = (part: SideBytes): number => {
      records.push(part);
      return seq++;
    };
    const log = new IdLog({ filter, append, bytesMin: 1000 }, undefined, 0);
    expect(log.replayFrom(10)).toBe(10);
    for (let i = 0; i < 20_000; i++) seen.add(String(i), `s${i}`, 5);
    log.applied(3, 100);
    log.applied(4, 200);
    expect(log.replayFrom(10)).toBe(3);
    log.advance(seq, seen.bytes);
    expect(records).toEqual([]);
    const bytes = seen.bytes + 200;
    // Changes beside the copy: their own records have them.
    for (let step = 0; step < 20 && log.replayFrom(seq) === 3; step++) {
      log.advance(seq, bytes);
      seen.add(String(100_000 + step), 'sx', 5);
    }
    expect(records.length).toBeGreaterThan(1);
    expect(log.replayFrom(seq)).toBe(10);
    const copied = new WindowIds(1000, 1000);
    const restored = new DuplicateFilter(copied, Number.POSITIVE_INFINITY);
    for (const part of records) {
      const decoded = decodeIds(part);
      if ('fault' in decoded) throw new Error(decoded.fault);
      restored.restore(decoded.copies);
    }
    for (let i = 0; i < 20_000; i++) expect(copied.add(String(i), `s${i}`, 6)).toBe(false);
  });
});
