/** Contract of the disk port over its drivers: a folder on this machine, and a folder in memory. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { existingDisk, openDisk } from '../../src/io/disk/node.ts';
import type { Disk } from '../../src/io/disk/port.ts';
import { SimDisk } from '../../src/sim/disk.ts';

const root = mkdtempSync(join(tmpdir(), 'millrace-disk-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let folders = 0;

const DRIVERS: ReadonlyArray<readonly [string, () => Promise<Disk>]> = [
  ['a folder', () => openDisk(join(root, `${folders++}`))],
  ['memory', async () => new SimDisk().view()],
];

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const text = (of: Uint8Array | undefined): string | undefined => of && new TextDecoder().decode(of);

describe.each(DRIVERS)('disk over %s', (_, open) => {
  it('a disk shows only complete files and replaces a file atomically', async () => {
    const disk = await open();
    expect(await disk.read('a')).toBeUndefined();
    await disk.write('a', [bytes('one'), bytes(' two')]);
    await disk.write('a', [bytes('three')]);
    await disk.write('b', []);
    expect(text(await disk.read('a'))).toBe('three');
    expect((await disk.list()).toSorted()).toEqual(['a', 'b']);
    await disk.remove('a');
    await disk.remove('a');
    expect(await disk.list()).toEqual(['b']);
  });

  it('a disk appends, reads in pieces, truncates and renames', async () => {
    const disk = await open();
    const file = await disk.append('log');
    await file.write([bytes('abc'), bytes('def')]);
    await file.sync();
    await file.write([bytes('ghi')]);
    expect(file.size).toBe(9);
    await file.close();
    expect(text(await disk.readPiece('log', 2, 4))).toBe('cdef');
    expect(text(await disk.readPiece('log', 7, 100))).toBe('hi');
    expect((await disk.readPiece('log', 9, 1)).length).toBe(0);
    expect((await disk.readPiece('none', 0, 1)).length).toBe(0);
    await expect(disk.append('log')).rejects.toMatchObject({ code: 'not_writable' });
    await disk.truncate('log', 4);
    await disk.rename('log', 'old');
    expect(text(await disk.read('old'))).toBe('abcd');
    expect(await disk.list()).toEqual(['old']);
    await expect(disk.rename('log', 'x')).rejects.toMatchObject({ code: 'not_writable' });
    await expect(disk.truncate('log', 1)).rejects.toMatchObject({ code: 'not_writable' });
  });

  it('a disk edits a file at any place and reopens it with its length', async () => {
    const disk = await open();
    const file = await disk.edit('pages');
    expect(file.size).toBe(0);
    await file.write(bytes('abcdef'), 0);
    await file.write(bytes('XY'), 2);
    await file.write(bytes('end'), 8);
    await file.sync();
    await file.sync({ offThread: true });
    expect(file.size).toBe(11);
    await file.truncate(9);
    await file.close();
    const again = await disk.edit('pages');
    expect(again.size).toBe(9);
    const into = new Uint8Array(20);
    expect(await again.read(into, 1)).toBe(8);
    expect(text(into.subarray(0, 8))).toBe('bXYef\0\0e');
    expect(await again.read(into, 9)).toBe(0);
    const long = new Uint8Array(200_000).fill(7);
    await again.write(long, 5);
    await again.sync();
    expect(again.size).toBe(200_005);
    expect(await again.read(into, 200_000)).toBe(5);
    await again.close();
  });
});

describe('existing folder', () => {
  it('a folder that must exist is never created', async () => {
    const where = join(root, `${folders++}`);
    await expect(existingDisk(where)).rejects.toMatchObject({ code: 'not_writable' });
    expect(existsSync(where)).toBe(false);
    await openDisk(where);
    expect((await existingDisk(where)).where).toBe(where);
  });
});

describe('in-memory disk', () => {
  it('a crash of the in-memory disk keeps the synced part of a growing file, and some of the rest', async () => {
    const found = new Set<string>();
    for (let seed = 0; seed < 60; seed++) {
      const disk = new SimDisk();
      const file = await disk.view().append('log');
      await file.write([bytes('abc')]);
      await file.sync();
      await file.write([bytes('de')]);
      let draws = seed;
      disk.crash((below) => {
        const drawn = draws % below;
        draws = Math.floor(draws / below);
        return drawn;
      });
      const left = text(disk.bytesOf('log')) as string;
      expect(left.startsWith('abc')).toBe(true);
      found.add(left);
      await expect(file.write([bytes('x')])).rejects.toMatchObject({ code: 'closed' });
      await expect(file.sync()).rejects.toMatchObject({ code: 'closed' });
    }
    expect(found).toContain('abc');
    expect(found).toContain('abcd');
    expect(found).toContain('abcde');
    expect(found.size).toBeGreaterThan(3);
  });

  it('a crash leaves each overwritten sector old or new until the file was synced', async () => {
    const found = new Set<string>();
    for (let seed = 0; seed < 8; seed++) {
      const disk = new SimDisk();
      const file = await disk.view().edit('pages');
      await file.write(new Uint8Array(1024).fill(1), 0);
      await file.sync();
      await file.write(new Uint8Array(514).fill(2), 511);
      let draws = seed;
      disk.crash((below) => {
        const drawn = draws % below;
        draws = Math.floor(draws / below);
        return drawn;
      });
      const left = disk.bytesOf('pages') as Uint8Array;
      found.add([511, 512, 1023].map((at) => left[at]).join());
    }
    expect([...found].sort()).toEqual(['1,1,1', '1,2,2', '2,1,1', '2,2,2']);
  });

  it('a crash can restore a removed file until the folder was synced', async () => {
    const disk = new SimDisk();
    await disk.view().write('a', [bytes('one')]);
    await disk.view().remove('a');
    disk.crash(() => 0);
    expect(disk.names()).toEqual(['a']);
    await disk.view().remove('a');
    await disk.view().write('b', []);
    disk.crash(() => 0);
    expect(disk.names()).toEqual(['b']);
  });

  it('a crash in the middle of a whole-file write leaves the file unfinished', async () => {
    for (const changes of [0, 1, 2, 3]) {
      const disk = new SimDisk();
      await disk.view().write('a', [bytes('old')]);
      disk.changesLeft = changes;
      await expect(disk.view().write('a', [bytes('young')])).rejects.toMatchObject({ code: 'closed' });
      disk.crash((below) => below >> 1);
      disk.changesLeft = Number.POSITIVE_INFINITY;
      expect(text(disk.bytesOf('a'))).toBe('old');
      expect(disk.names().length).toBe(changes === 0 ? 1 : 2);
      await disk.view().write('a', [bytes('young')]);
      expect(text(disk.bytesOf('a'))).toBe('young');
      expect(disk.names()).toEqual(['a']);
    }
  });

  it('a crash closes every view of the disk, and a full disk refuses writes', async () => {
    const disk = new SimDisk();
    const view = disk.view();
    disk.bytesLeft = 3;
    await expect(view.write('a', [bytes('four')])).rejects.toMatchObject({ code: 'not_writable' });
    await view.write('b', [bytes('two')]);
    disk.crash(() => 0);
    for (const call of [view.write('c', []), view.append('c'), view.rename('b', 'c'), view.remove('b')])
      await expect(call).rejects.toMatchObject({ code: 'closed' });
    expect(disk.names()).toContain('b');
  });
});
