/** A checkpoint file that cannot be written leaves no open file. */
import { expect, it } from 'vitest';
import { WholeFile } from '../../../src/engine/durability/checkpoint/whole-file.ts';
import type { Disk } from '../../../src/io/disk/port.ts';
import { SimDisk } from '../../../src/sim/disk.ts';

/** Disk that is full at the given call, and its number of open files. */
function full(at: 'write' | 'sync') {
  const disk = new SimDisk().view();
  const open = new Set<string>();
  const fail = async (): Promise<void> => {
    throw new Error('no space left');
  };
  const watched: Disk = new Proxy(disk, {
    get: (of, name) =>
      name === 'append'
        ? async (file: string) => {
            const made = await of.append(file);
            open.add(file);
            const close = async (): Promise<void> => void open.delete(file);
            return { size: 0, write: made.write, sync: made.sync, close, [at]: fail };
          }
        : (Reflect.get(of, name) as unknown),
  });
  return { watched, open };
}

it.each(['write', 'sync'] as const)('a checkpoint file is closed when its %s fails', async (at) => {
  const { watched, open } = full(at);
  const file = await WholeFile.create(watched, 'manifest', 'one', () => {});
  expect(open.size).toBe(1);
  const writing = file.write(Uint8Array.of(1)).then(() => file.finish());
  await expect(writing).rejects.toThrow('no space left');
  expect(open.size).toBe(0);
  await file.abandon();
  expect(await watched.list()).toEqual([]);
});

it('a checkpoint file is closed when its process dies before the sync', async () => {
  const { watched, open } = full('sync');
  const file = await WholeFile.create(watched, 'base', 'one', (step) => {
    if (step === 'before base sync') throw new Error('dead');
  });
  await expect(file.finish()).rejects.toThrow('dead');
  expect(open.size).toBe(0);
});
