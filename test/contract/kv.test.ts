/** Contract of the key-value drivers. The driver in memory also keeps the contract through
 *  crashes. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { openKv } from '../../src/drivers.ts';
import { rocksdbDriver } from '../../src/io/rocksdb/addon.ts';
import { npmObstacle, rocksdbNpmDriver } from '../../src/io/rocksdb/npm.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { kvContract } from './kv.contract.ts';
import { ingest, OPTIONS, pair, scanned, spans } from './kv-kit.ts';
import { kvLifecycleContract } from './kv-lifecycle.contract.ts';
import { kvUnsortedContract } from './kv-unsorted.contract.ts';

const root = mkdtempSync(join(tmpdir(), 'kv-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let count = 0;
const folder = (): string => join(root, `store-${count++}`);

/** The package does not run on every Node.js. */
const npmDrivers = npmObstacle() === undefined ? [rocksdbNpmDriver] : [];
for (const driver of [new SimKv(), rocksdbDriver, ...npmDrivers]) {
  const world = { driver, folder, dropsFiles: driver !== rocksdbNpmDriver };
  kvContract(world);
  kvLifecycleContract(world);
  kvUnsortedContract(world);
}

it('a crash of the in-memory store keeps what a log, a run or a flush made durable, and nothing else', async () => {
  const kv = new SimKv();
  const store = await kv.open('f', OPTIONS);
  await store.put('rows', spans([pair('a', '1')]), 'off');
  await store.flush();
  await store.put('rows', spans([pair('b', '2')]), 'off');
  await store.put('rows', spans([pair('c', '3')]), 'on');
  await ingest(store, 'runs', [[pair('d', '4')]]);
  kv.crash('f');
  await expect(store.flush()).rejects.toMatchObject({ code: 'closed' });
  const after = await kv.open('f', OPTIONS);
  expect([(await scanned(after, 'rows')).map(([key]) => key), (await scanned(after, 'runs')).length]).toEqual(
    [['61', '63'], 1],
  );
  await after.close();
});

it('a store opens through the requested driver, and a folder opens only with the driver that created it', async () => {
  expect([await openKv(), await openKv('on'), await openKv('off')]).toEqual([
    rocksdbDriver,
    rocksdbDriver,
    npmObstacle() === undefined ? rocksdbNpmDriver : rocksdbDriver,
  ]);
  if (npmObstacle() !== undefined) return;
  for (const [maker, other] of [
    [rocksdbDriver, rocksdbNpmDriver],
    [rocksdbNpmDriver, rocksdbDriver],
  ] as const) {
    const at = folder();
    await (await maker.open(at, OPTIONS)).close();
    await expect(other.open(at, OPTIONS)).rejects.toMatchObject({ code: 'kv_version' });
    await (await maker.open(at, OPTIONS)).close();
  }
});

it('the package rocksdb is refused if it would abort the process', async () => {
  expect(npmObstacle('20.19.0')).toBeUndefined();
  expect(npmObstacle('22.23.2')).toBe('it aborts the process on Node.js 22.23.2');
  if (npmObstacle() === undefined) return;
  await expect(rocksdbNpmDriver.open(folder(), OPTIONS)).rejects.toMatchObject({ code: 'addon_missing' });
});
