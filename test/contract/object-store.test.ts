/** Contract of object stores, for every driver: whole objects, and replacements by their tag of
 *  which one of many succeeds. The driver of S3 runs against an emulator of its API with
 *  conditional PUT. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { folderStore } from '../../src/io/objects/folder.ts';
import type { ObjectStore } from '../../src/io/objects/port.ts';
import { s3Address, s3Store } from '../../src/io/objects/s3.ts';
import { type S3Emulator, startS3 } from '../clients/s3.ts';
import { locks } from '../locks.ts';
import { itFull } from '../tier.ts';
import { pause } from '../wait.ts';

const folder = mkdtempSync(join(tmpdir(), 'objects-'));
let s3: S3Emulator;
beforeAll(async () => {
  s3 = await startS3('contract');
}, 300_000);
afterAll(async () => {
  await s3?.close();
  rmSync(folder, { recursive: true, force: true });
});

const lockFolder = async (path: string) => {
  for (;;) {
    const outcome = await locks.tryLock(path);
    if ('lock' in outcome) return outcome.lock;
    await pause(5);
  }
};
const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
const textOf = (bytes: Uint8Array | undefined): string | undefined =>
  bytes && new TextDecoder().decode(bytes);

const SUBJECTS: readonly (readonly [string, (name: string) => ObjectStore])[] = [
  ['folder', (name) => folderStore(join(folder, name), lockFolder)],
  ['S3', (name) => s3Store({ ...s3Address(`s3://contract/${name}`), env: s3.env })],
];

describe.each(SUBJECTS)('object store in a %s', (place, open) => {
  it('an object has its last bytes, under its name alone', async () => {
    const store = open('objects');
    expect(await store.get('a/1')).toBeUndefined();
    const bytes = Uint8Array.from({ length: 100_000 }, (__, i) => i * 7);
    await store.put('a/1', bytes);
    await store.put('a/2', bytesOf('two'));
    await store.put('b', bytesOf(''));
    expect((await store.get('a/1'))?.bytes).toEqual(bytes);
    await store.put('a/1', bytesOf('new'));
    expect(textOf((await store.get('a/1'))?.bytes)).toBe('new');
    expect([...(await store.list('a/'))].sort()).toEqual(['a/1', 'a/2']);
    expect([...(await store.list(''))].sort()).toEqual(['a/1', 'a/2', 'b']);
    await store.remove('a/1');
    await store.remove('a/1');
    expect(await store.get('a/1')).toBeUndefined();
    expect(await open('other').list('')).toEqual([]);
  });

  // The emulator takes half a minute of CPU time for a thousand objects.
  const itOfMany = place === 'S3' ? itFull : it;

  itOfMany('a list of more objects than one answer holds is whole', async () => {
    const store = open('many');
    const names = Array.from({ length: 1100 }, (__, i) => `n/${i}`);
    for (let at = 0; at < names.length; at += 50)
      await Promise.all(names.slice(at, at + 50).map((name) => store.put(name, bytesOf('x'))));
    expect([...(await store.list('n/'))].sort()).toEqual(names.sort());
  });

  it('a replacement needs the tag that the object has', async () => {
    const store = open('tags');
    expect(await store.replace('head', bytesOf('0'), '"none"')).toBeUndefined();
    const first = await store.replace('head', bytesOf('1'), undefined);
    expect(first).toBeTypeOf('string');
    expect((await store.get('head'))?.tag).toBe(first);
    expect(await store.replace('head', bytesOf('2'), undefined)).toBeUndefined();
    const second = await store.replace('head', bytesOf('2'), first);
    expect(await store.replace('head', bytesOf('3'), first)).toBeUndefined();
    expect(textOf((await store.get('head'))?.bytes)).toBe('2');
    expect(await store.replace('head', bytesOf('3'), second)).toBeTypeOf('string');
  });

  it('a single one of many replacements at the same time succeeds', async () => {
    const store = open('race');
    let tag: string | undefined;
    for (let round = 0; round < 10; round++) {
      const tags = await Promise.all(
        Array.from({ length: 8 }, (__, i) => store.replace('lease', bytesOf(`${round} ${i}`), tag)),
      );
      const won = tags.flatMap((one, i) => (one === undefined ? [] : [i]));
      expect(won).toHaveLength(1);
      expect(textOf((await store.get('lease'))?.bytes)).toBe(`${round} ${won[0]}`);
      tag = tags[won[0] as number];
    }
  });
});

describe('refusals of object stores', () => {
  it('a store that cannot be used says why', async () => {
    const { env } = s3;
    const away = { ...env, AWS_ENDPOINT_URL: 'http://127.0.0.1:1' };
    await expect(s3Store({ ...s3Address('s3://contract/x'), env: away }).get('a')).rejects.toMatchObject({
      code: 'store_unavailable',
    });
    await expect(s3Store({ ...s3Address('s3://missing'), env }).put('a', bytesOf(''))).rejects.toMatchObject({
      code: 'store_refused',
      message: expect.stringContaining('NoSuchBucket'),
    });
    expect(() => s3Store({ ...s3Address('s3://contract'), env: {} })).toThrow('needs credentials');
    for (const wrong of ['s3://', 's3://A/b', 's3://bucket/a?b', 's3://bucket/../x'])
      expect(() => s3Address(wrong), wrong).toThrow('not an address of a bucket');
    const inside = folderStore(join(folder, 'names'), lockFolder);
    await expect(inside.get('../x')).rejects.toMatchObject({ code: 'store_refused' });
  });
});
