/** New data folders: their names must survive a crash of the machine, or their data is lost. */
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, afterEach, expect, it, vi } from 'vitest';
import { openDisk } from '../../../src/io/disk/node.ts';
import { folderStore } from '../../../src/io/objects/folder.ts';
import { prepareFolder } from '../../../src/io/rocksdb/folder.ts';
import { fileLog } from '../registry/store/file-kit.ts';

/** Created and synced folders, in order; and what happens after each of the first. */
const { steps, after } = vi.hoisted(() => ({
  steps: [] as string[],
  after: { made: (_path: string): Promise<unknown> | undefined => undefined },
}));

vi.mock('node:fs/promises', async (original) => {
  const real = await original<typeof import('node:fs/promises')>();
  return {
    ...real,
    mkdir: async (path: string) => {
      await real.mkdir(path);
      steps.push(`made ${path}`);
      await after.made(path);
    },
    open: async (path: string, ...rest: [string | number, number?]) => {
      const file = await real.open(path, ...rest);
      const sync = file.sync.bind(file);
      file.sync = async () => {
        await sync();
        steps.push(`synced ${path}`);
      };
      return file;
    },
  };
});

const root = realpathSync(mkdtempSync(join(tmpdir(), 'millrace-folders-')));
afterAll(() => rmSync(root, { recursive: true, force: true }));
afterEach(() => {
  steps.length = 0;
  after.made = () => undefined;
});

const OPENED: ReadonlyArray<readonly [string, (folder: string) => Promise<unknown>]> = [
  ['the disk of the engine', openDisk],
  ['the file store of the registry', (folder) => fileLog(folder).open({ apply: () => {} })],
  ['an embedded store', (folder) => prepareFolder(folder, 'driver', 'make')],
  [
    'a folder of objects',
    (folder) => folderStore(folder, async () => ({ release() {} })).put('object', new Uint8Array(1)),
  ],
];

it.each(OPENED)('each folder that is created for %s is synced in its parent', async (name, open) => {
  const folder = join(root, name.replaceAll(' ', '-'), 'one', 'two');
  await open(folder);
  for (const made of [folder, dirname(folder), dirname(dirname(folder))]) {
    const at = steps.indexOf(`made ${made}`);
    expect(at, made).toBeGreaterThanOrEqual(0);
    expect(steps.slice(at), made).toContain(`synced ${dirname(made)}`);
  }
});

it.each(OPENED)('another process may make a folder that is being made for %s', async (name, open) => {
  const parent = join(root, name.replaceAll(' ', '-'), 'shared');
  const folder = join(parent, 'job');
  after.made = (path) => (path === parent ? mkdir(folder) : undefined);
  await open(folder);
  expect(steps.filter((step) => step === `made ${folder}`)).toHaveLength(1);
  expect(steps).toContain(`synced ${dirname(parent)}`);
});

it('the log of a new registry store is synced in its folder', async () => {
  const folder = join(root, 'registry');
  const log = fileLog(folder);
  await log.open({ apply: () => {} });
  await log.close();
  expect(steps).toContain(`synced ${folder}`);
});
