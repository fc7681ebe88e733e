/** Contract of every key-value driver from open to close: checkpoints, durability, invalid calls,
 *  and a model of all operations. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KV_BUDGET_MIN_BYTES, type KvStore } from '../../src/io/rocksdb/port.ts';
import { isFull } from '../tier.ts';
import {
  ALL,
  code,
  FAMILIES,
  hex,
  ingest,
  type KvWorld,
  lookedUp,
  OPTIONS,
  pair,
  records,
  scanned,
  sorted,
  spans,
  text,
  unhex,
} from './kv-kit.ts';

const keyOf = fc.uint8Array({ minLength: 1, maxLength: 3, max: 7 });
const edgeOf = fc.option(fc.uint8Array({ maxLength: 3, max: 7 }), { freq: 4 });
const familyOf = fc.constantFrom('rows', 'runs');
const logOf = fc.constantFrom('off', 'on', 'sync');
const pairsOf = fc.array(fc.tuple(keyOf, fc.uint8Array({ maxLength: 20 })), { maxLength: 12 });
const step = fc.oneof(
  fc.record({ kind: fc.constant('put'), family: familyOf, pairs: pairsOf, log: logOf }),
  fc.record({ kind: fc.constant('run'), family: familyOf, pairs: pairsOf }),
  fc.record({ kind: fc.constant('delete'), family: familyOf, from: edgeOf, to: edgeOf, log: logOf }),
  fc.record({ kind: fc.constant('flush') }),
  fc.record({ kind: fc.constant('reopen') }),
  fc.record({ kind: fc.constant('scan'), family: familyOf, from: edgeOf, to: edgeOf }),
  fc.record({ kind: fc.constant('get'), family: familyOf, keys: fc.array(keyOf, { maxLength: 10 }) }),
);

export function kvLifecycleContract(world: KvWorld): void {
  const { driver } = world;

  it(`${driver.name}: a store answers any sequence of calls as a sorted map does`, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 30 }), async (steps) => {
        const folder = world.folder();
        let store = await driver.open(folder, OPTIONS);
        const model: Record<string, Map<string, string>> = { rows: new Map(), runs: new Map() };
        const inside = (from: Uint8Array | null, to: Uint8Array | null) => (key: string) =>
          (from === null || key >= hex(from)) && (to === null || key < hex(to));
        try {
          for (const one of steps) {
            const rows =
              'family' in one ? (model[one.family] as Map<string, string>) : new Map<string, string>();
            if (one.kind === 'put') {
              await store.put(one.family, spans(one.pairs), one.log as 'off');
              for (const [key, value] of one.pairs) rows.set(hex(key), hex(value));
            } else if (one.kind === 'run') {
              const unique = new Map(one.pairs.map(([key, value]) => [hex(key), hex(value)]));
              const page = sorted([...unique]);
              await ingest(store, one.family, [
                page.slice(0, 3).map(([key, value]) => [unhex(key), unhex(value)]),
                page.slice(3).map(([key, value]) => [unhex(key), unhex(value)]),
              ]);
              for (const [key, value] of page) rows.set(key, value);
            } else if (one.kind === 'delete') {
              await store.deleteRange(one.family, one, one.log as 'off');
              for (const key of [...rows.keys()].filter(inside(one.from, one.to))) rows.delete(key);
            } else if (one.kind === 'flush') {
              await store.flush();
            } else if (one.kind === 'reopen') {
              await store.close();
              store = await driver.open(folder, OPTIONS);
            } else if (one.kind === 'scan') {
              const expected = sorted([...rows].filter(([key]) => inside(one.from, one.to)(key)));
              expect(await scanned(store, one.family, one, 64)).toEqual(expected);
            } else {
              const expected = one.keys.map((key) => rows.get(hex(key)) ?? null);
              expect(await lookedUp(store, one.family, one.keys)).toEqual(expected);
            }
          }
          for (const [family, rows] of Object.entries(model))
            expect(await scanned(store, family)).toEqual(sorted([...rows]));
        } finally {
          await store.close();
        }
      }),
      { numRuns: isFull ? 15 : 5 },
    );
  });

  describe(`${driver.name}: checkpoint`, () => {
    it('a checkpoint is a store of its own, and the original continues', async () => {
      const folder = world.folder();
      const store = await driver.open(folder, OPTIONS);
      await ingest(store, 'runs', [[pair('a', 'run')]]);
      await store.put('rows', spans([pair('a', 'put')]), 'off');
      const copy = world.folder();
      const files = await store.checkpoint(copy);
      expect(files.length).toBeGreaterThan(0);
      expect(files.reduce((sum, file) => sum + file.bytes, 0)).toBeGreaterThan(0);
      await expect(store.checkpoint(copy)).rejects.toThrow(code('kv_exists'));
      await store.put('rows', spans([pair('a', 'later'), pair('b', 'later')]), 'off');
      await store.deleteRange('runs', ALL, 'off');

      const other = await driver.open(copy, { ...OPTIONS, missing: 'refuse' });
      expect(await scanned(other, 'rows')).toEqual([[hex(text('a')), hex(text('put'))]]);
      expect(await scanned(other, 'runs')).toEqual([[hex(text('a')), hex(text('run'))]]);
      await other.deleteRange('rows', ALL, 'off');
      await ingest(other, 'runs', [[pair('b', 'own')]]);
      const second = world.folder();
      await other.checkpoint(second);
      await other.close();

      expect((await scanned(store, 'rows')).length).toBe(2);
      expect(await scanned(store, 'runs')).toEqual([]);
      await store.close();
      const third = await driver.open(second, { ...OPTIONS, missing: 'refuse' });
      expect([(await scanned(third, 'rows')).length, (await scanned(third, 'runs')).length]).toEqual([0, 2]);
      await third.close();
    });
  });

  describe(`${driver.name}: open and close`, () => {
    it('puts without a log survive a flush and a close', async () => {
      const folder = world.folder();
      for (const round of [1, 2, 3]) {
        const store = await driver.open(folder, OPTIONS);
        await store.put('rows', spans([pair(`k${round}`, 'v')]), 'off');
        if (round % 2 === 0) await store.flush();
        expect((await scanned(store, 'rows')).length).toBe(round);
        await Promise.all([store.close(), store.close()]);
      }
    });

    it('a store refuses a folder that is missing, already open, or has undeclared families', async () => {
      const folder = world.folder();
      await expect(driver.open(folder, { ...OPTIONS, missing: 'refuse' })).rejects.toThrow(
        code('kv_missing'),
      );
      const store = await driver.open(folder, OPTIONS);
      await expect(driver.open(folder, OPTIONS)).rejects.toThrow(code('kv_locked'));
      await store.put('rows', spans([pair('a', '1')]), 'on');
      await store.close();
      const fewer = { ...OPTIONS, families: { rows: 'rows' } } as const;
      await expect(driver.open(folder, fewer)).rejects.toThrow(code('kv_version'));
      await expect(driver.open(folder, fewer)).rejects.toThrow(/runs/);
      const more = await driver.open(folder, { ...OPTIONS, families: { ...FAMILIES, new: 'runs' } });
      expect([(await scanned(more, 'rows')).length, (await scanned(more, 'new')).length]).toEqual([1, 0]);
      await more.close();
    });

    it('concurrent opens of a locked folder are refused, and an open succeeds after the close', async () => {
      const folder = world.folder();
      const store = await driver.open(folder, OPTIONS);
      const another = (): Promise<KvStore> => driver.open(folder, OPTIONS);
      for (let round = 0; round < 10; round++) {
        const refused = await Promise.allSettled(Array.from({ length: 8 }, another));
        for (const one of refused)
          expect(one).toMatchObject({ status: 'rejected', reason: code('kv_locked') });
      }
      await store.put('rows', spans([pair('a', '1')]), 'on');
      await store.close();
      const after = await another();
      expect(await scanned(after, 'rows')).toHaveLength(1);
      await after.close();
    });

    it.each([
      ['too small a budget', { ...OPTIONS, budgetBytes: KV_BUDGET_MIN_BYTES - 1 }],
      ['no family', { ...OPTIONS, families: {} }],
      ['an invalid name', { ...OPTIONS, families: { 'a/b': 'rows' } }],
      ['the name of the base', { ...OPTIONS, families: { default: 'rows' } }],
    ] as const)('a store refuses to open with %s', async (_, options) => {
      await expect(driver.open(world.folder(), options)).rejects.toThrow(code('out_of_range'));
    });

    it('every call, run and scan fails with one clear error after close', async () => {
      const store = await driver.open(world.folder(), OPTIONS);
      await store.put('rows', spans([pair('a', '1')]), 'off');
      const scan = await store.scan('rows', ALL, { shape: 'spans' });
      const run = store.openRun('runs');
      const page = { bytes: new Uint8Array(10), ends: new Uint32Array(10) };
      await store.close();
      const calls: ReadonlyArray<() => unknown> = [
        () => store.put('rows', spans([]), 'off'),
        () => lookedUp(store, 'rows', [text('a')]),
        () => store.scan('rows', ALL, { shape: 'spans' }),
        () => store.deleteRange('rows', ALL, 'off'),
        () => store.flush(),
        () => store.checkpoint(world.folder()),
        () => store.stats(),
        () => scan.next(page),
        () => run.append(spans([])),
        () => run.finish(),
        async () => store.openRun('rows'),
      ];
      for (const call of calls) await expect(call()).rejects.toThrow(code('closed'));
      scan.close();
      run.close();
    });
  });

  describe(`${driver.name}: wrong calls`, () => {
    const opened = async (use: (store: KvStore) => Promise<void>): Promise<void> => {
      const store = await driver.open(world.folder(), OPTIONS);
      try {
        await use(store);
        expect(await scanned(store, 'rows')).toEqual([]);
      } finally {
        await store.close();
      }
    };
    const good = spans([pair('a', '1'), pair('b', '2')]);
    const fixed = { shape: 'fixed', count: 2, bytes: new Uint8Array(8), keyBytes: 2, valueBytes: 2 } as const;
    const made = records('p', [1n, 2n]);
    it.each([
      ['a value beyond the buffer', { ...good, ends: Uint32Array.of(1, 2, 3, 5) }],
      ['an empty key', { ...good, ends: Uint32Array.of(0, 2, 3, 4) }],
      ['descending ends', { ...good, ends: Uint32Array.of(1, 2, 3, 2) }],
      ['too few ends', { ...good, ends: Uint32Array.of(1, 2, 3) }],
      ['a key too long', spans([[new Uint8Array(4097), text('v')]])],
      ['too few bytes', { ...fixed, count: 3 }],
      ['an invalid count', { ...fixed, count: -1 }],
      ['a key without bytes', { ...fixed, keyBytes: 0 }],
      ['a word outside the record', { ...made, wordAt: 57 }],
      ['too few records', { ...made, count: 3 }],
      ['no records in a value', { ...made, perValue: 0 }],
      ['a prefix too long', { ...made, prefix: new Uint8Array(4096) }],
    ])('a call with %s is refused and writes nothing', async (_, rows) => {
      await opened(async (store) => {
        await expect(store.put('rows', rows, 'off')).rejects.toThrow(code('out_of_range'));
        const run = store.openRun('rows');
        await expect(run.append(rows)).rejects.toThrow(code('out_of_range'));
        run.close();
      });
    });

    it('a call with an impossible family, key, bound or page is refused', async () => {
      await opened(async (store) => {
        await expect(store.put('other', good, 'off')).rejects.toThrow(code('out_of_range'));
        expect(() => store.openRun('other')).toThrow(code('out_of_range'));
        const keys = { count: 2, bytes: text('ab'), ends: Uint32Array.of(1, 3) };
        await expect(store.get('rows', keys)).rejects.toThrow(code('out_of_range'));
        await expect(store.get('rows', { count: 2, bytes: text('ab'), keyBytes: 2 })).rejects.toThrow(
          code('out_of_range'),
        );
        const far = { from: new Uint8Array(5000), to: null };
        await expect(store.scan('rows', far, { shape: 'spans' })).rejects.toThrow(code('out_of_range'));
        await expect(store.deleteRange('rows', far, 'off')).rejects.toThrow(code('out_of_range'));
        const scan = await store.scan('rows', ALL, { shape: 'spans' });
        await expect(scan.next({ bytes: new Uint8Array(10) })).rejects.toThrow(code('out_of_range'));
        scan.close();
      });
    });
  });
}
