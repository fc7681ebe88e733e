/** Copies of a store that another process has open: they are made on request, complete, and removed
 *  afterwards. If a copy is impossible, the reader gets the reason. */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openOrCopy, serveCopies } from '../../../src/bin/engine/copies.ts';
import { type Logger, silentLogger } from '../../../src/core/log.ts';
import { openKv } from '../../../src/drivers.ts';
import { type KvStore, kvError } from '../../../src/io/rocksdb/port.ts';
import { locks } from '../../locks.ts';
import { realClock, until } from '../../wait.ts';

const driver = await openKv();
const open = (folder: string): Promise<KvStore> =>
  driver.open(folder, { budgetBytes: 8 * 1024 * 1024, families: { rows: 'rows' } });

let root: string;
let folder: string;
let store: KvStore;
beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'copies-'));
  folder = join(root, 'store');
  store = await open(folder);
});
afterEach(async () => {
  await store.close();
  rmSync(root, { recursive: true, force: true });
});

const put = (to: KvStore, key: number): Promise<void> =>
  to.put(
    'rows',
    { shape: 'fixed', bytes: Uint8Array.of(key, 7), count: 1, keyBytes: 1, valueBytes: 1 },
    'on',
  );

async function keysOf(from: KvStore): Promise<number[]> {
  const scan = await from.scan(
    'rows',
    { from: null, to: null },
    { shape: 'fixed', keyBytes: 1, valueBytes: 1 },
  );
  const bytes = new Uint8Array(200);
  const count = await scan.next({ bytes });
  scan.close();
  return Array.from({ length: count }, (_, row) => bytes[row * 2] as number);
}

const ask = (waitMs = 60_000, signal = new AbortController().signal) =>
  openOrCopy({ folder, open, locks, clock: realClock, waitMs, signal });
const left = (): string[] => (existsSync(`${folder}.copies`) ? readdirSync(`${folder}.copies`) : []);

describe('open store of another process', () => {
  it('an open store is copied consistently for several readers and continues', async () => {
    await put(store, 1);
    const stop = serveCopies(store, locks, { clock: realClock, log: silentLogger });
    const first = await ask();
    await put(store, 2);
    const [second, third] = await Promise.all([ask(), ask()]);
    expect(await keysOf(first.store)).toEqual([1]);
    expect(await keysOf(second.store)).toEqual([1, 2]);
    expect(await keysOf(third.store)).toEqual([1, 2]);
    expect(left()).toHaveLength(3);
    for (const one of [first, second, third]) await one.done();
    expect(left()).toEqual([]);
    await stop();
    expect(await keysOf(store)).toEqual([1, 2]);
  }, 300_000);

  it('a reader gets the reason when a store cannot be copied', async () => {
    const full = new Proxy(store, {
      get: (of, name) =>
        name === 'checkpoint'
          ? () => Promise.reject(kvError('kv_full', 'no space left'))
          : (Reflect.get(of, name) as unknown),
    });
    const stop = serveCopies(full, locks, { clock: realClock, log: silentLogger });
    await expect(ask()).rejects.toMatchObject({
      code: 'kv_io',
      message: `no copy of ${folder} could be made: no space left`,
    });
    expect(left()).toEqual([]);
    await stop();
  }, 300_000);

  it('an open store is copied for valid requests although other requests cannot be served', async () => {
    await put(store, 1);
    // The lock of one request cannot be checked; the failure cannot be reported to the other
    // request.
    const unlocked = join(`${folder}.copies`, '0');
    const unreportable = join(`${folder}.copies`, '1');
    for (const request of [unlocked, unreportable]) {
      mkdirSync(request, { recursive: true });
      writeFileSync(join(request, 'wanted'), '');
    }
    mkdirSync(join(unlocked, 'lock'));
    await locks.tryLock(unreportable);
    mkdirSync(join(unreportable, 'failed.tmp'));
    const tried: string[] = [];
    const part = new Proxy(store, {
      get: (of, name) => {
        if (name !== 'checkpoint') return Reflect.get(of, name) as unknown;
        return (path: string) => {
          tried.push(dirname(path));
          return dirname(path) === unreportable
            ? Promise.reject(kvError('kv_io', 'gone'))
            : of.checkpoint(path);
        };
      },
    });
    const warned: unknown[] = [];
    const log: Logger = { ...silentLogger, warn: (fields) => void warned.push(fields) };
    const stop = serveCopies(part, locks, { clock: realClock, log });
    await expect.poll(() => tried.filter((request) => request === unreportable).length).toBeGreaterThan(1);
    const { store: copy, done } = await ask();
    expect(await keysOf(copy)).toEqual([1]);
    await done();
    await stop();
    // One warning for each request, however often it is tried.
    expect(warned).toHaveLength(2);
    expect(warned).toContainEqual(expect.objectContaining({ request: unlocked }));
    expect(warned).toContainEqual(expect.objectContaining({ request: unreportable }));
  }, 300_000);

  it('a copy that a reader no longer wants is removed, also by the process that made it', async () => {
    await put(store, 1);
    let made: string | undefined;
    const late = new Proxy(store, {
      get: (of, name) => {
        if (name !== 'checkpoint') return Reflect.get(of, name) as unknown;
        return async (path: string) => {
          // The reader gives up while the copy is made, and a driver may create the folder again.
          ended.abort();
          await expect(reading).rejects.toMatchObject({ code: 'kv_locked' });
          mkdirSync(dirname(path), { recursive: true });
          await of.checkpoint(path);
          made = path;
        };
      },
    });
    // A reader that was killed while it removed its request.
    mkdirSync(join(`${folder}.copies`, '0.withdrawn', 'store'), { recursive: true });
    const ended = new AbortController();
    const stop = serveCopies(late, locks, { clock: realClock, log: silentLogger });
    const reading = ask(60_000, ended.signal);
    await until('a copy, and no folder', () => made !== undefined && left().length === 0);
    await stop();
  }, 300_000);

  it('a reader opens the store itself once the other process has closed it', async () => {
    await put(store, 1);
    const reading = ask();
    await until('a request for a copy', () => left().length > 0);
    await store.close();
    const { store: itself, done } = await reading;
    expect(itself.folder).toBe(folder);
    expect(await keysOf(itself)).toEqual([1]);
    expect(left()).toEqual([]);
    await done();
  }, 300_000);

  it('a reader waits no longer than its limit, and not after a signal', async () => {
    await expect(ask(0)).rejects.toMatchObject({
      code: 'kv_locked',
      next: expect.stringContaining('-export-wait'),
    });
    await expect(ask(60_000, AbortSignal.abort())).rejects.toMatchObject({ code: 'kv_locked' });
    expect(left()).toEqual([]);
  });
});

it('a store that no process has open is opened directly', async () => {
  await store.close();
  const { store: itself, done } = await ask();
  expect(itself.folder).toBe(folder);
  await done();
  expect(left()).toEqual([]);
});
